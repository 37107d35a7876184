"""Messages for another group: where they are sent, and as what."""

import asyncio
from collections import deque

import msgspec
import pytest

from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.sending.escape import KEPT, ROUTE_SECONDS, RemoteEscape, escape_request
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import (
    BrokerData,
    GetRouteInfoRequestHeader,
    QueueData,
    TopicRouteData,
    encode_route,
)
from rocketmq_formats.remoting.send import SendMessageRequestHeaderV2
from rocketmq_formats.store.message_properties import format_properties, parse_properties
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient
from rocketmq_store.model import Draft

pytestmark = pytest.mark.looptime

A, B, C, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.9:10911"
PROPERTIES = {
    "UNIQ_KEY": "0123456789ABCDEF",
    "KEYS": "order",
    "WAIT": "true",
    "DELAY": "3",
    "REAL_TOPIC": "T",
    "REAL_QID": "2",
    "MSG_REGION": "DefaultRegion",
}


def message(**properties: str) -> Draft:
    return Draft(
        topic=b"T",
        queue_id=2,
        body=memoryview(b"hello"),
        properties=format_properties({**PROPERTIES, **properties}),
        flag=5,
        sys_flag=1,
        born_timestamp=1_763_712_345_678,
        reconsume_times=4,
    )


class World(RemotingClient):
    """A name server n:1 and brokers at the other end of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.masters = {"broker-a": A, "broker-b": B, "broker-c": C}
        self.permissions = {"broker-a": 6, "broker-b": 6, "broker-c": 6}
        self.template = False
        self.asked: list[str] = []
        self.sent: list[tuple[str, SendMessageRequestHeaderV2, bytes]] = []
        self.codes: deque[ResponseCode | None] = deque()

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        await asyncio.sleep(0.001)
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            assert address == "n:1"
            topic = decode_header(GetRouteInfoRequestHeader, request.ext_fields or {}).topic
            self.asked.append(topic)
            if self.template != (topic == "TBW102"):
                return response(request, ResponseCode.TOPIC_NOT_EXIST)
            return response(request, ResponseCode.SUCCESS, None, None, encode_route(self._route(), standard=True))
        assert (request.code, timeout) == (RequestCode.SEND_MESSAGE_V2, 3.0)
        header = decode_header(SendMessageRequestHeaderV2, request.ext_fields or {})
        self.sent.append((address, header, request.body))
        code = self.codes.popleft() if self.codes else ResponseCode.SUCCESS
        if code is None:
            raise ConnectError(f"{address} is closed")
        return response(request, code, "as told")

    def _route(self) -> TopicRouteData:
        brokers = [BrokerData(name, "C", {0: at, 1: SLAVE}) for name, at in self.masters.items()]
        brokers.append(BrokerData("broker-d", "C", {2: SLAVE}))
        permissions = {**self.permissions, "broker-d": 6}
        queues = [QueueData(name, 2, 2, permission, 0) for name, permission in permissions.items()]
        return TopicRouteData(broker_datas=brokers, queue_datas=queues)


def always() -> bool:
    return True


def escape_of(world: World) -> RemoteEscape:
    role = ReplicaRole(Durability(1, strict=False))
    role.welcomed(2)
    return RemoteEscape(broker_name="broker-a", role=role, name_servers=["n:1"], client=world)


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def escape(world: World) -> RemoteEscape:
    return escape_of(world)


def test_it_is_an_ordinary_send_as_java_makes_it() -> None:
    """Golden: BrokerOuterAPI.buildSendMessageRequest of 5.3.3, after ScheduleMessageService.messageTimeUp."""
    command = escape_request(message(), 1, "InnerProducerGroup_broker-a_2")
    fields = dict(command.ext_fields or {})
    properties = parse_properties(fields.pop("i").encode())
    assert command.code == 310
    assert command.body == b"hello"
    assert fields == {
        "a": "InnerProducerGroup_broker-a_2",
        "b": "T",
        "c": "TBW102",
        "d": "8",
        "e": "1",
        "f": "1",
        "g": "1763712345678",
        "h": "5",
        "j": "4",
        "k": "false",
        "m": "false",
    }
    expected = {name: value for name, value in PROPERTIES.items() if name != "DELAY"}
    assert properties == {**expected, "WAIT": "false"}, "or the other group would delay it again"


def test_times_of_a_delay_are_handled_too_and_the_producers_group_is_kept() -> None:
    timed = message(TIMER_DELIVER_MS="1", TIMER_DELAY_SEC="2", PGROUP="P")
    header = decode_header(SendMessageRequestHeaderV2, escape_request(timed, 0, "inner").ext_fields or {})
    assert header.producer_group == "P"
    assert parse_properties((header.properties or "").encode()).keys() == {*PROPERTIES, "PGROUP"} - {"DELAY"}


async def test_queues_of_other_groups_take_turns(world: World, escape: RemoteEscape) -> None:
    for _ in range(6):
        assert await escape.put(message(), always) is None
    assert [(at, header.queue_id) for at, header, _ in world.sent[:4]] == [(B, 0), (B, 1), (C, 0), (C, 1)]
    assert [at for at, _, _ in world.sent[4:]] == [B, B]
    assert world.asked == ["T"], "the route is kept"
    assert world.sent[0][1].producer_group == "InnerProducerGroup_broker-a_2"


async def test_only_groups_with_a_writable_master_count(world: World, escape: RemoteEscape) -> None:
    world.permissions["broker-b"] = 4  # it acts as master itself
    for _ in range(2):
        assert await escape.put(message(), always) is None
    assert {at for at, _, _ in world.sent} == {C}


@pytest.mark.parametrize("without", ["others", "topic"])
async def test_without_another_group_nothing_is_sent(world: World, escape: RemoteEscape, without: str) -> None:
    if without == "others":
        world.masters = {"broker-a": A}
    else:
        world.template = True
    assert await escape.put(message(), always) == "no other group has a master that takes messages of topic T"
    assert world.sent == []
    world.masters, world.template = {"broker-a": A, "broker-b": B}, False
    assert await escape.put(message(), always) is None, "it is asked again at once"


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        None,
    ],
)
async def test_anything_but_put_ok_is_no_success_and_asks_for_the_route_again(
    world: World, escape: RemoteEscape, code: ResponseCode | None
) -> None:
    world.codes.append(code)
    assert B in (await escape.put(message(), always) or "")
    world.masters["broker-b"] = "10.0.0.22:10911"
    for _ in range(4):
        assert await escape.put(message(), always) is None
    assert world.asked == ["T", "T"]
    assert "10.0.0.22:10911" in {at for at, _, _ in world.sent}


async def test_a_route_is_not_kept_for_ever(world: World, escape: RemoteEscape) -> None:
    await escape.put(message(), always)
    await asyncio.sleep(ROUTE_SECONDS + 1)
    await escape.put(message(), always)
    assert world.asked == ["T", "T"]


async def test_a_name_server_that_does_not_answer_is_no_success() -> None:
    class Silent(World):
        async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
            raise ConnectError("nobody there")

    assert "nobody there" in (await escape_of(Silent()).put(message(), always) or "")


def test_the_message_is_not_changed() -> None:
    draft = message()
    before = msgspec.structs.replace(draft)
    escape_request(draft, 0, "P")
    assert draft == before


async def test_after_the_wait_for_the_route_it_is_asked_whether_the_message_may_still_leave(
    world: World, escape: RemoteEscape
) -> None:
    assert await escape.put(message(), lambda: not world.asked) == KEPT
    assert (world.asked, world.sent) == (["T"], [])
