"""What other members know to have escaped: joined, whoever is silent or answers nonsense, and soon in any case."""

import asyncio
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_broker.tables.escaped_sync import PATIENCE_SECONDS, EscapedSync
from rocketmq_broker.tables.reverse_sync import PATIENCE_SECONDS as NEW_MASTER_SECONDS
from rocketmq_broker.tables.reverse_sync import ReverseSync
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.replica_link import Others
from rocketmq_formats.store.config_files import DelayOffsetWrapper, Escaped, encode_escaped
from rocketmq_formats.table_copies import EscapedRequestHeader
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient

pytestmark = pytest.mark.looptime

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
FACTS = {1: Escaped(0, 3, 90, 7)}
FURTHER = {1: Escaped(0, 5, 120, 7), 2: Escaped(4, 5, 60, 7)}


def body(facts: Mapping[int, Escaped]) -> bytes:
    return encode_body(DelayOffsetWrapper(escaped=encode_escaped(facts)))


class Members(RemotingClient):
    """After `seconds` each answers 45 with its body; None: its port is closed. They have no consumer offsets."""

    def __init__(self, members: Mapping[str, tuple[float, bytes | None]]) -> None:
        super().__init__()
        self._members = members
        self.epochs: list[int] = []

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        if request.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            return response(request, ResponseCode.SYSTEM_ERROR, "none")
        assert request.code == RequestCode.GET_ALL_DELAY_OFFSET
        self.epochs.append(decode_header(EscapedRequestHeader, request.ext_fields or {}).epoch)
        seconds, answer = self._members[address]
        await asyncio.sleep(seconds)
        if answer is None:
            raise ConnectError(address)
        return response(request, ResponseCode.SUCCESS, None, None, answer)


@pytest.mark.parametrize("bad", [None, b"no json", b'{"escaped":{"1":"9:1:2:3"}}', b'{"escaped":{"999":"1:2:3:4"}}'])
async def test_facts_of_all_members_are_joined(bad: bytes | None) -> None:
    for first, second in ((0.01, 0.02), (0.02, 0.01)):
        delays = DelayOffsets()
        members = Members({A: (first, body(FACTS)), B: (second, body(FURTHER)), C: (0.0, bad)})
        await EscapedSync(delays, members).ask_all([A, B, C])
        assert delays.escaped == FURTHER
        assert members.epochs == [0, 0, 0], "an acting slave ends no escape"
        assert (delays.changes > 0, delays.versioned) == (True, delays.changes), "to be saved, without a version"


async def test_a_silent_member_costs_an_acting_slave_its_patience() -> None:
    delays, loop = DelayOffsets(), asyncio.get_running_loop()
    began = loop.time()
    await EscapedSync(delays, Members({A: (3_600.0, None), B: (0.1, body(FACTS))})).ask_all([A, B])
    assert (delays.escaped, loop.time() - began) == (FACTS, PATIENCE_SECONDS)


async def test_a_new_master_asks_with_its_epoch_and_names_who_was_silent() -> None:
    delays, loop = DelayOffsets(), asyncio.get_running_loop()
    members = Members({A: (3_600.0, None), B: (0.1, body(FACTS))})
    sync = ReverseSync(offsets=ConsumerOffsets(), client=members, escaped=EscapedSync(delays, members))
    sync.on_others(Others(6, (A, B)))
    began = loop.time()
    with capture_logs() as logs:
        await sync.run(6)
    assert (delays.escaped, members.epochs) == (FACTS, [6, 6])
    assert loop.time() - began == NEW_MASTER_SECONDS
    assert [entry["no_answer"] for entry in logs if "no_answer" in entry] == [[f"{A} (what escaped)"]]
