"""What name servers hear of a broker, and when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rocketmq_broker import registration
from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.registration import Registrar
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.broker_admin import CreateTopicRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.registration import body_crc32, decode_registration
from rocketmq_formats.replica_link import Alive, Following, Hello, Probe, Release, Welcome
from rocketmq_formats.topics import TopicConfig
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient
from rocketmq_runtime.remoting.server import Peer, RemotingServer
from tests.broker.broker_kit import Group, running, settings_for


class NameServer:
    """Remembers registrations."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self.code = ResponseCode.SUCCESS

    def on_request(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self.heard.put_nowait(request)
        return response(request, self.code)

    def on_close(self, peer: Peer) -> None:
        pass

    async def registration(self, **wanted: str) -> tuple[dict[str, str], dict[str, TopicConfig], int]:
        """The next one whose header has these fields: header, topics, state version."""
        while True:
            heard = await self.heard.get()
            fields = heard.ext_fields or {}
            if heard.code == RequestCode.REGISTER_BROKER and wanted.items() <= fields.items():
                assert fields["bodyCrc32"] == str(body_crc32(heard.body))
                body = decode_registration(heard.body, compressed=False).topic_config_serialize_wrapper
                return fields, dict(body.topic_config_table), body.data_version.state_version


@asynccontextmanager
async def name_server(port: int = 0) -> AsyncIterator[tuple[NameServer, str]]:
    handler = NameServer()
    server = RemotingServer(handler, host="127.0.0.1", port=port)
    await server.start()
    try:
        yield handler, f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def test_a_master_registers_at_once_and_takes_leave(tmp_path: Path) -> None:
    async with name_server() as (first, a), name_server() as (second, b):
        async with running(tmp_path / "store", namesrvAddr=f"{a};{b}", haListenPort=12345) as group:
            fields, topics, version = await first.registration()
            await second.registration()
            address = group.address
            assert fields == {
                "brokerName": "broker-a",
                "brokerAddr": address,
                "clusterName": "C",
                "haServerAddr": "127.0.0.1:12345",
                "brokerId": "0",
                "enableActingMaster": "false",
                "compressed": "false",
                "bodyCrc32": fields["bodyCrc32"],
            }
            assert version == 1
            assert {"TBW102", "C", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= topics.keys()
        leave = await first.heard.get()
        while leave.code != RequestCode.UNREGISTER_BROKER:
            leave = await first.heard.get()
        assert (leave.ext_fields or {})["brokerId"] == "0"


@pytest.mark.parametrize(
    ("keys", "acting", "millis"),
    [
        ({"enableSlaveActingMaster": True}, "true", "10000"),
        ({"enableSlaveActingMaster": True, "brokerNotActiveTimeoutMillis": 4000}, "true", "4000"),
        ({"brokerNotActiveTimeoutMillis": 4000}, "false", "4000"),
    ],
)
async def test_a_registration_says_what_a_name_server_should_do_without_this_broker(
    tmp_path: Path, keys: dict[str, object], acting: str, millis: str
) -> None:
    async with name_server() as (server, address), running(tmp_path / "store", namesrvAddr=address, **keys):
        fields, _, _ = await server.registration()
        assert (fields["enableActingMaster"], fields["heartbeatTimeoutMillis"]) == (acting, millis)


async def test_no_registration_without_a_role(tmp_path: Path) -> None:
    async with name_server() as (server, address):
        async with running(tmp_path / "store", namesrvAddr=address, master=False) as group:
            await group.sidecar.receive(Hello)
            await group.send()
        assert server.heard.empty()


async def test_role_changes_and_topics_are_registered_at_once(tmp_path: Path) -> None:
    async with name_server() as (server, address), running(tmp_path / "store", namesrvAddr=address) as group:
        await server.registration(brokerId="0")
        await group.send(topic="New")
        _, topics, _ = await server.registration(brokerId="0")
        assert topics["New"].write_queue_nums == 4
        group.sidecar.send(Welcome(3))
        group.sidecar.send(Release())
        group.sidecar.send(Following(2, 2, "127.0.0.1:1"))
        await server.registration(brokerId="3")
        await group.sidecar.make_master(5, hello=False)
        _, _, version = await server.registration(brokerId="0")
        assert version == 5


async def test_a_name_server_that_refuses_is_asked_again(tmp_path: Path) -> None:
    async with name_server() as (server, address):
        server.code = ResponseCode.SYSTEM_ERROR
        async with running(tmp_path / "store", namesrvAddr=address) as group:
            await server.registration()
            server.code = ResponseCode.SUCCESS
            await server.registration()
            assert (await group.send()).code == 0


async def test_a_dead_name_server_does_not_delay_the_others(tmp_path: Path) -> None:
    async with (
        name_server() as (server, address),
        running(tmp_path / "store", namesrvAddr=f"127.0.0.1:1;{address}") as group,
    ):
        await server.registration(brokerId="0")
        assert (await group.send()).code == 0


async def test_a_restarted_name_server_gets_registrations_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It keeps nothing on disk: without this it knows no routes until the next period.
    monkeypatch.setattr(registration, "RETRY_SECONDS", 0.01)
    async with AsyncExitStack() as stack:
        async with name_server() as (first, address):
            running_group = running(tmp_path / "store", namesrvAddr=address, registerNameServerPeriod=60_000)
            await stack.enter_async_context(running_group)
            await first.registration(brokerId="0")
        async with name_server(int(address.rpartition(":")[2])) as (second, _):
            async with asyncio.timeout(30):
                _, topics, _ = await second.registration(brokerId="0")
            assert "TBW102" in topics


class HangingUp(RemotingClient):
    """A name server at its other end answers, then ends the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[float] = []

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        self.calls.append(self.loop.time())
        assert self.on_lost is not None
        self.on_lost("127.0.0.1:1")
        self.on_lost("127.0.0.1:2")  # not a name server
        return response(request, ResponseCode.SUCCESS)


@pytest.mark.looptime
async def test_a_name_server_that_hangs_up_after_each_answer_is_not_asked_all_the_time(tmp_path: Path) -> None:
    client = HangingUp()
    role = ReplicaRole(Durability(1, strict=False))
    role.welcomed(2)
    role.follow(1, "127.0.0.1:9")
    registrar = Registrar(
        settings=settings_for(tmp_path, namesrvAddr="127.0.0.1:1"),
        role=role,
        topics=TopicTable(cluster="C", broker_name="b", auto_create=True, default_queue_nums=8),
        permission=BrokerPermission(6),
        client=client,
        address="127.0.0.1:10",
        ha_address="127.0.0.1:11",
    )
    began = client.loop.time()
    registrar.start()
    await asyncio.sleep(10.5)
    assert [round(at - began) for at in client.calls] == list(range(11))
    await registrar.stop()


class Names(RemotingClient):
    """Name servers by address: those in `down` refuse connections."""

    def __init__(self, *down: str) -> None:
        super().__init__()
        self.down = set(down)

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        if address in self.down:
            raise ConnectError(f"cannot connect to {address}: Connection refused")
        return response(request, ResponseCode.SUCCESS)


@pytest.mark.looptime
async def test_a_broker_that_no_name_server_lists_says_so_after_a_while(tmp_path: Path) -> None:
    client = Names("a:1", "b:1")
    role = ReplicaRole(Durability(1, strict=False))
    role.welcomed(2)
    role.follow(1, "127.0.0.1:9")
    registrar = Registrar(
        settings=settings_for(tmp_path, namesrvAddr="a:1;b:1"),
        role=role,
        topics=TopicTable(cluster="C", broker_name="b", auto_create=True, default_queue_nums=8),
        permission=BrokerPermission(6),
        client=client,
        address="127.0.0.1:10",
        ha_address="127.0.0.1:11",
    )
    registrar.start()
    await asyncio.sleep(29)
    assert registrar.unregistered() is None
    await asyncio.sleep(2)
    why = "a:1: cannot connect to a:1: Connection refused; b:1: cannot connect to b:1: Connection refused"
    assert registrar.unregistered() == why
    client.down.remove("b:1")
    await asyncio.sleep(2)
    assert registrar.unregistered() is None, "one is enough"
    client.down.add("b:1")
    registrar.register_now()
    await asyncio.sleep(29)
    assert registrar.unregistered() is None
    await asyncio.sleep(2)
    assert registrar.unregistered() == why
    role.lose_role("for a test")
    assert registrar.unregistered() is None, "without a role it does not register"
    await registrar.stop()


async def test_the_answer_to_a_probe_says_that_no_name_server_lists_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "UNREGISTERED_SECONDS", 0)
    async with name_server() as (server, address), running(tmp_path / "store", namesrvAddr=address) as group:
        await server.registration()
        seen = await probed(group)
        assert (seen.unregistered, seen.counts and seen.counts.unregistered) == (None, 0)
        server.code = ResponseCode.SYSTEM_ERROR
        group.app.registrar.register_now()
        async with asyncio.timeout(30):
            while (seen := await probed(group)).unregistered is None:
                await asyncio.sleep(0.01)
        assert seen.unregistered == f"{address}: code 1: None"
        assert seen.counts is not None
        assert seen.counts.unregistered == 1


async def probed(group: Group) -> Alive:
    group.sidecar.send(Probe())
    return await group.sidecar.receive(Alive)


def update_topic(**changes: object) -> RemotingCommand:
    fields: dict[str, object] = {
        "topic": "Made",
        "default_topic": "TBW102",
        "read_queue_nums": 3,
        "write_queue_nums": 2,
        "perm": 6,
        **changes,
    }
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(**fields))


async def test_tools_make_and_change_topics(tmp_path: Path) -> None:
    async with name_server() as (server, address), running(tmp_path / "store", namesrvAddr=address) as group:
        await server.registration()
        assert (await group.call(update_topic(attributes="+message.type=FIFO"))).code == 0
        _, topics, _ = await server.registration()
        made = topics["Made"]
        assert (made.read_queue_nums, made.write_queue_nums, made.attributes) == (3, 2, {"message.type": "FIFO"})
        kept = (tmp_path / "store" / "config" / "topics.json").read_text()
        assert '"Made"' in kept, "on disk before the answer"
        version = group.app.topics.version
        assert (await group.call(update_topic(attributes="+message.type=FIFO"))).code == 0
        assert group.app.topics.version == version
        assert (await group.call(update_topic(attributes="-message.type", order=True))).code == 0
        changed = group.app.topics.get("Made")
        assert changed is not None
        assert (changed.order, changed.attributes) == (True, {})


async def test_topics_that_tools_may_not_make(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for changes in (
            {"topic": "no spaces"},
            {"topic": "TBW102"},
            {"topic": "rmq_sys_x"},
            {"write_queue_nums": -1},
            {"read_queue_nums": 65_537},
            {"perm": 99},
            {"attributes": "+queue.type=BatchCQ"},
            {"attributes": "+colour=red"},
            {"attributes": "message.type"},
        ):
            assert (await group.call(update_topic(**changes))).code == ResponseCode.INVALID_PARAMETER, changes
        assert group.app.topics.get("Made") is None
