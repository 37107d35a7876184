"""Heartbeats to name servers, and who they say is in the group; in virtual time."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from rocketmq_broker.domain.member_group import MemberGroup
from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.group_watch import GroupWatch
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import BrokerMemberGroup
from rocketmq_formats.remoting.nameserver import (
    BrokerData,
    GetBrokerMemberGroupResponseBody,
    NotifyMinBrokerIdChangeRequestHeader,
    TopicRouteData,
    encode_route,
)
from rocketmq_formats.topics import DataVersion
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient
from rocketmq_runtime.remoting.server import Peer
from tests.broker.broker_kit import settings_for

MASTER, SLAVE, OWN = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
GROUP = {0: MASTER, 2: SLAVE, 3: OWN}


class NameServers(RemotingClient):
    """All name servers, at the other end of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[float, str, RemotingCommand]] = []
        self.oneways: list[tuple[float, str, RemotingCommand]] = []
        self.groups: dict[str, dict[int, str] | None] = defaultdict(dict)
        """By name server; None: it cannot be reached."""
        self.hang = self.refuse = False
        self.defects = 0
        """Of the client: how many of the next requests it fails at."""

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        self.heard.append((self.loop.time(), address, request))
        self._fail()
        members = self.groups[address]
        if members is None:
            await asyncio.sleep(timeout)
            raise ConnectError("nobody there")
        if self.refuse:
            return response(request, ResponseCode.SYSTEM_ERROR)
        if request.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            group = GetBrokerMemberGroupResponseBody(BrokerMemberGroup(members, "broker-a", "C"))
            return response(request, ResponseCode.SUCCESS, None, None, fastjson.dumps(msgspec.to_builtins(group)))
        if not members:
            return response(request, ResponseCode.TOPIC_NOT_EXIST)
        others = BrokerData(broker_name="broker-b", cluster="C", broker_addrs={0: "10.0.0.9:1"})
        ours = BrokerData(broker_name="broker-a", cluster="C", broker_addrs=members)
        route = encode_route(TopicRouteData(broker_datas=(others, ours)), standard=True)
        return response(request, ResponseCode.SUCCESS, None, None, route)

    async def send_oneway(self, address: str, request: RemotingCommand) -> None:
        self.oneways.append((self.loop.time(), address, request))
        self._fail()
        if self.hang:
            await asyncio.sleep(60)

    def _fail(self) -> None:
        if self.defects:
            self.defects -= 1
            raise ZeroDivisionError


class Watched:
    def __init__(self, folder: Path, **keys: object) -> None:
        keys.setdefault("enableSlaveActingMaster", True)
        self.client = NameServers()
        self.role = ReplicaRole(Durability(1, strict=False))
        self.role.welcomed(3)
        self.role.follow(1, MASTER)
        self.members = MemberGroup()
        self.changes: list[float] = []
        self.answers: list[tuple[float, dict[int, str]]] = []
        self.began = self.client.loop.time()
        self.watch = GroupWatch(
            settings=settings_for(folder, **{"namesrvAddr": "a:1;b:1", **keys}),
            role=self.role,
            topics=TopicTable(cluster="C", broker_name="broker-a", auto_create=True, default_queue_nums=8),
            members=self.members,
            client=self.client,
            address=OWN,
            on_change=lambda: self.changes.append(self.now),
            on_answer=lambda addresses: self.answers.append((self.now, dict(addresses))),
        )

    @property
    def now(self) -> float:
        return round(self.client.loop.time() - self.began, 3)

    def asked(self) -> list[tuple[float, str]]:
        return [(round(at - self.began, 3), address) for at, address, _ in self.client.heard]

    async def run(self, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        self.watch.start()
        await asyncio.sleep(seconds)
        then()
        await self.watch.stop()


@pytest.mark.looptime
async def test_without_the_keys_name_servers_hear_nothing_more(tmp_path: Path) -> None:
    watched = Watched(tmp_path, enableSlaveActingMaster=False)
    await watched.run(60)
    assert not watched.client.heard
    assert not watched.client.oneways


@pytest.mark.looptime
async def test_strict_locks_need_the_group(tmp_path: Path) -> None:
    watched = Watched(tmp_path, enableSlaveActingMaster=False, lockInStrictMode=True)
    watched.client.groups["a:1"] = GROUP
    await watched.run(1.5)
    assert watched.members.others(OWN) == {0: MASTER, 2: SLAVE}
    assert not watched.client.oneways


@pytest.mark.looptime
async def test_a_heartbeat_per_second_to_every_name_server(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.run(3.5)
    assert sorted((round(at - watched.began), address) for at, address, _ in watched.client.oneways) == [
        (second, address) for second in (1, 2, 3) for address in ("a:1", "b:1")
    ]
    sent = watched.client.oneways[0][2]
    assert sent.code == RequestCode.QUERY_DATA_VERSION
    assert sent.ext_fields == {"brokerName": "broker-a", "brokerAddr": OWN, "clusterName": "C", "brokerId": "3"}
    assert decode_body(DataVersion, sent.body).state_version == 0


@pytest.mark.looptime
async def test_heartbeats_and_questions_continue_after_a_defect(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.client.groups["b:1"] = GROUP
    watched.client.defects = 4
    await watched.run(5.5)
    assert watched.client.defects == 0
    assert len(watched.client.oneways) == 10
    assert watched.members.others(OWN) == {0: MASTER, 2: SLAVE}


@pytest.mark.looptime
async def test_newer_name_servers_get_904_and_901(tmp_path: Path) -> None:
    watched = Watched(tmp_path, compatibleWithOldNameSrv=False)
    watched.client.groups["a:1"] = GROUP
    await watched.run(1.5)
    sent = watched.client.oneways[0][2]
    assert sent.code == RequestCode.BROKER_HEARTBEAT
    assert sent.ext_fields == {"brokerName": "broker-a", "brokerAddr": OWN, "clusterName": "C"}
    asked = watched.client.heard[0][2]
    assert asked.code == RequestCode.GET_BROKER_MEMBER_GROUP
    assert asked.ext_fields == {"brokerName": "broker-a", "clusterName": "C"}
    assert watched.members.addresses == GROUP


@pytest.mark.looptime
async def test_a_name_server_s_patience_alone_brings_heartbeats(tmp_path: Path) -> None:
    watched = Watched(tmp_path, enableSlaveActingMaster=False, brokerNotActiveTimeoutMillis=1500)
    await watched.run(2.2)
    assert [round(at - watched.began, 3) for at, address, _ in watched.client.oneways if address == "a:1"] == [
        0.5,
        1.0,
        1.5,
        2.0,
    ]
    assert not watched.client.heard, "nobody needs the group"


@pytest.mark.looptime
async def test_a_broker_without_a_role_sends_no_heartbeat(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.role.lose_role("test")
    await watched.run(5)
    assert not watched.client.oneways


@pytest.mark.looptime
async def test_a_name_server_that_hangs_delays_no_heartbeat_for_long(tmp_path: Path) -> None:
    watched = Watched(tmp_path, sendHeartbeatTimeoutMillis=500)
    watched.client.hang = True
    await watched.run(3.5)
    assert [round(at - watched.began, 1) for at, address, _ in watched.client.oneways if address == "a:1"] == [1.0, 2.5]


@pytest.mark.looptime
async def test_the_group_is_that_of_the_own_name_and_cluster(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.client.groups["a:1"] = GROUP
    await watched.run(2.5)
    asked = watched.client.heard[0][2]
    assert asked.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
    assert (asked.ext_fields or {})["topic"] == "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    assert watched.asked() == [(0, "a:1"), (1, "a:1"), (2, "a:1")]
    assert watched.members.addresses == GROUP
    assert watched.members.least_id == 0
    assert watched.members.others(OWN) == {0: MASTER, 2: SLAVE}
    assert watched.changes == [0], "only changes are reported"


@pytest.mark.looptime
async def test_another_name_server_is_asked_when_one_does_not_know(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.client.groups |= {"a:1": None, "b:1": GROUP}
    await watched.run(5.5)
    assert watched.asked() == [(0, "a:1"), (3, "b:1"), (4, "b:1"), (5, "b:1")]
    assert watched.members.addresses == GROUP


@pytest.mark.looptime
async def test_what_is_known_stays_when_nobody_answers(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.client.groups["a:1"] = GROUP
    watched.watch.start()
    await asyncio.sleep(0.5)
    watched.client.groups.clear()
    await asyncio.sleep(5)
    await watched.watch.stop()
    assert watched.members.addresses == GROUP
    assert MemberGroup().least_id is None


ALONE = {"enableControllerMode": False, "brokerId": 3, "brokerRole": "SLAVE", "enableSlaveActingMaster": False}


@pytest.mark.looptime
async def test_without_controllers_name_servers_say_who_is_master(tmp_path: Path) -> None:
    watched = Watched(tmp_path, **ALONE)
    watched.client.groups |= {"a:1": {}, "b:1": GROUP}
    watched.watch.start()
    await asyncio.sleep(1.5)
    watched.client.groups["b:1"] = {3: OWN}
    await asyncio.sleep(1)
    watched.client.groups["b:1"] = {}
    await asyncio.sleep(1)
    watched.client.groups |= {"a:1": None, "b:1": None}
    await asyncio.sleep(20)
    await watched.watch.stop()
    assert watched.answers == [(0, GROUP), (1, GROUP), (2, {3: OWN}), (3, {})], "nobody is an answer too"


@pytest.mark.looptime
@pytest.mark.parametrize("compatible", [False, True])
async def test_an_error_of_a_name_server_does_not_say_that_nobody_is_listed(tmp_path: Path, compatible: bool) -> None:
    watched = Watched(tmp_path, **ALONE, compatibleWithOldNameSrv=compatible)
    watched.client.refuse = True
    watched.watch.start()
    await asyncio.sleep(1.5)
    assert watched.answers == []
    watched.client.refuse = False
    await asyncio.sleep(1)
    await watched.watch.stop()
    assert watched.answers == [(2, {})]


@pytest.mark.looptime
async def test_without_name_servers_nobody_is_listed(tmp_path: Path) -> None:
    watched = Watched(tmp_path, **ALONE, namesrvAddr="")
    await watched.run(5)
    assert watched.answers == [(0, {})]


@pytest.mark.looptime
async def test_905_makes_it_ask_and_is_not_believed(tmp_path: Path) -> None:
    watched = Watched(tmp_path, syncBrokerMemberGroupPeriod=60_000)
    watched.client.groups["a:1"] = GROUP
    watched.watch.start()
    await asyncio.sleep(10)
    push = request(
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        NotifyMinBrokerIdChangeRequestHeader(min_broker_id=3, min_broker_addr=OWN, offline_broker_addr=MASTER),
    )
    take = watched.watch.processors[RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE]
    peer = object.__new__(Peer)
    for _ in range(100):
        answer = take(push, peer)
        assert isinstance(answer, RemotingCommand)
        assert answer.code == ResponseCode.SUCCESS
    await asyncio.sleep(0.05)
    assert watched.members.least_id == 0
    assert watched.asked() == [(0, "a:1"), (10, "a:1")]
    watched.client.groups["a:1"] = {2: SLAVE, 3: OWN}
    take(push, peer)
    await asyncio.sleep(0.5)
    await watched.watch.stop()
    assert watched.members.least_id == 2
    assert watched.asked()[2:] == [(10.1, "a:1")]
