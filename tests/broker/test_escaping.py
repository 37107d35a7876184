"""Whole brokers: a slave that acts as master lets delayed messages escape to another group's master."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketmq_broker.domain.role import Role
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import (
    BrokerData,
    GetRouteInfoRequestHeader,
    QueueData,
    TopicRouteData,
    encode_route,
)
from rocketmq_formats.replica_link import Following, Hello, MasterKnown, Replicated, Welcome
from rocketmq_formats.store.config_files import DELAY_OFFSETS_FILE, DelayOffsetsFile, decode_config, decode_escaped
from rocketmq_formats.store.message import read_records
from rocketmq_formats.store.message_properties import parse_properties
from rocketmq_formats.table_copies import escaped_request
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer
from tests.broker.broker_kit import Group, free_ports, running, send_request
from tests.operator.manifests.cases import keys_set_by
from tests.topic_requests import topic_request

QUICK = {"messageDelayLevel": "1s", **keys_set_by({"actingMaster": "readsAndEscape"})}
"""With what the operator writes."""


class Names:
    """A name server whose only topic is T, at broker-b."""

    def __init__(self) -> None:
        self.port = free_ports()
        self.master = ""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on_request(self, request: RemotingCommand, _peer: Peer) -> Answer:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return None if request.is_oneway else response(request, ResponseCode.SUCCESS)
        topic = decode_header(GetRouteInfoRequestHeader, request.ext_fields or {}).topic
        if topic != "T" or not self.master:
            return response(request, ResponseCode.TOPIC_NOT_EXIST)
        brokers = [BrokerData("broker-a", "C", {0: "127.0.0.1:9"}), BrokerData("broker-b", "C", {0: self.master})]
        queues = [QueueData("broker-a", 1, 1, 4, 0), QueueData("broker-b", 1, 1, 6, 0)]
        route = TopicRouteData(broker_datas=brokers, queue_datas=queues)
        return response(request, ResponseCode.SUCCESS, None, None, encode_route(route, standard=True))

    def on_close(self, peer: Peer) -> None:
        pass


@asynccontextmanager
async def names() -> AsyncIterator[Names]:
    handler = Names()
    server = RemotingServer(handler, host="127.0.0.1", port=handler.port)
    await server.start()
    try:
        yield handler
    finally:
        await server.stop()


@asynccontextmanager
async def other_group(tmp_path: Path, known: Names) -> AsyncIterator[Group]:
    async with running(tmp_path / "other", brokerName="broker-b") as group:
        assert (await group.call(topic_request("T"))).code == 0
        known.master = group.address
        yield group


async def delayed(root: Path, *bodies: bytes) -> None:
    """A store of broker-a with undelivered messages."""
    async with running(root, messageDelayLevel="1h") as group:
        for body in bodies:
            properties = f"UNIQ_KEY\x01{body.decode()}\x02DELAY\x011\x02"
            assert (await group.send(body, properties=properties)).code == 0


@asynccontextmanager
async def member(root: Path, number: int, known: Names, *, acting: bool) -> AsyncIterator[Group]:
    """A slave of a master that died."""
    async with running(root, master=False, namesrvAddr=known.address, **QUICK) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(number))
        group.sidecar.send(Following(1, 9, "127.0.0.1:1"))
        group.sidecar.send(Replicated(group.app.store.max_offset, group.app.store.max_offset))
        group.sidecar.send(MasterKnown(False))
        while group.app.role.role is not Role.SLAVE or group.app.role.master_known:
            await asyncio.sleep(0)
        group.app.role.least_registered = number if acting else number - 1
        group.app._on_serving()
        yield group


async def found(group: Group, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        answer = await group.pull(len(bodies), suspend_ms=15_000)
        assert answer.code == 0, answer.remark
        bodies += [bytes(record.body(answer.body)) for record in read_records(answer.body, check_crc=True)]
    return bodies


async def escaped(group: Group, count: int) -> None:
    path = group.app.settings.root / "config" / DELAY_OFFSETS_FILE
    while True:
        if path.exists():
            file = decode_config(DelayOffsetsFile, path.read_bytes())
            facts = decode_escaped(file.escaped or {})
            if 1 in facts and facts[1].next == count:
                return
        await asyncio.sleep(0.01)  # any speed


def copy(root: Path, to: Path) -> None:
    shutil.copytree(root, to, ignore=shutil.ignore_patterns("*.sock", "*.lock", "lock", "*.tmp"))


async def test_due_messages_are_at_the_other_group_and_not_at_the_next_master(tmp_path: Path) -> None:
    await delayed(tmp_path / "2", b"0", b"1")
    copy(tmp_path / "2", tmp_path / "3")
    async with names() as known, other_group(tmp_path, known) as other:
        async with (
            member(tmp_path / "2", 2, known, acting=True) as acting,
            member(tmp_path / "3", 3, known, acting=False) as next_master,
        ):
            assert await found(other, 2) == [b"0", b"1"]
            await escaped(acting, 2)
            assert acting.app.store.queue_bounds("T", 0) == (0, 0)
            next_master.sidecar.others = (acting.address,)
            await next_master.sidecar.make_master(2, hello=False)
            assert next_master.app.tables.delays.escaped == acting.app.tables.delays.escaped
            later = "UNIQ_KEY\x01later\x02DELAY\x011\x02"
            assert (await next_master.send(b"later", properties=later)).code == 0
            assert await found(next_master, 1) == [b"later"]
        assert await found(other, 2) == [b"0", b"1"]


async def test_the_progress_survives_kill_9_of_the_acting_slave(tmp_path: Path) -> None:
    await delayed(tmp_path / "2", b"0", b"1")
    async with names() as known, other_group(tmp_path, known) as other:
        async with member(tmp_path / "2", 2, known, acting=True) as acting:
            await escaped(acting, 2)
            copy(tmp_path / "2", tmp_path / "killed")
        async with running(tmp_path / "killed", namesrvAddr=known.address, **QUICK) as again:
            assert (await again.send(b"later", properties="UNIQ_KEY\x01later\x02DELAY\x011\x02")).code == 0
            assert await found(again, 1) == [b"later"]
        assert await found(other, 2) == [b"0", b"1"]


async def test_official_members_are_not_told_to_skip_anything(tmp_path: Path) -> None:
    """They take over the table of 45 if that is newer, whatever their log has. They deliver again what escaped."""
    await delayed(tmp_path / "2", b"0", b"1")
    async with (
        names() as known,
        other_group(tmp_path, known),
        member(tmp_path / "2", 2, known, acting=True) as acting,
    ):
        before = acting.app.tables.delays.version
        await escaped(acting, 2)
        answer = await acting.call(escaped_request(0))
        assert b'"offsetTable":{}' in answer.body
        assert before == acting.app.tables.delays.version


async def test_while_no_other_group_has_a_master_they_wait(tmp_path: Path) -> None:
    await delayed(tmp_path / "2", b"0")
    async with names() as known, member(tmp_path / "2", 2, known, acting=True) as acting:
        while not acting.app.services._delay._escaping._failures:
            await asyncio.sleep(0.01)  # any speed
        async with other_group(tmp_path, known) as other:
            assert await found(other, 1) == [b"0"]


@pytest.mark.parametrize("version", [{"enableSlaveActingMaster": False}, {"enableRemoteEscape": False}])
async def test_each_key_alone_does_nothing(tmp_path: Path, version: dict[str, bool]) -> None:
    async with running(tmp_path / "2", namesrvAddr="127.0.0.1:1", **{**QUICK, **version}) as group:
        assert not group.app.services._delay._escaping.possible


async def test_what_an_official_slave_lets_escape_is_an_ordinary_message(tmp_path: Path) -> None:
    """As BrokerOuterAPI.sendMessageToSpecificBroker of 5.3.3 sends a delayed message that is due."""
    async with running(tmp_path / "store", messageDelayLevel="1h") as group:
        properties = {
            "UNIQ_KEY": "0123456789ABCDEF0123456789ABCDEF",
            "REAL_TOPIC": "T",
            "REAL_QID": "2",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "C",
            "WAIT": "false",
        }
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        command = send_request(
            b"due",
            producer_group="InnerProducerGroup_broker-z_1",
            default_topic_queue_nums=8,
            properties=text,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        assert (await group.call(command)).code == 0
        answer = await group.pull(0)
        (record,) = read_records(answer.body, check_crc=True)
        stored = parse_properties(record.properties)
        assert (record.topic, bytes(record.body(answer.body))) == (b"T", b"due")
        assert {name: stored[name] for name in properties} == properties


async def test_what_escaped_is_kept_by_slaves_of_the_next_master(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "master", **QUICK) as master,
        running(tmp_path / "slave", master=False, **QUICK) as slave,
    ):
        facts = decode_escaped({"1": "0:3:100:7"})
        master.app.tables.delays.join(facts)
        ours = slave.app.tables.delays
        ours.join(decode_escaped({"1": "0:1:10:7"}))
        await slave.sidecar.receive(Hello)
        slave.sidecar.send(Welcome(2))
        slave.sidecar.send(Following(1, 1, master.address))
        while ours.escaped != facts:
            await asyncio.sleep(0.01)  # any speed
        assert encode_body(ours.version) == encode_body(master.app.tables.delays.version)
