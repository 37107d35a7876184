"""Consumers that pull and do not read: the broker's memory stays bounded, and others are served."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from rocketmq_broker.consuming import long_polling, pull
from rocketmq_broker.consuming.long_polling import HeldPull, HeldPulls
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import PullMessageRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting import server_memory
from rocketmq_runtime.remoting.server import Peer, RemotingServer, ServerLimits
from tests.broker.broker_kit import Group, pull_request, running
from tests.runtime.remoting.remoting_kit import RawConnection, raw

LARGE = 3_500_000
LIMIT = 24_000_000
PULLS = 15


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_memory, "SLOW_READER_SECONDS", 0.02)
    monkeypatch.setattr(server_memory, "ROOM_SECONDS", 0.005)


def held_pulls(*, first: int = 1, count: int = PULLS, suspend_ms: int = 60_000) -> list[RemotingCommand]:
    requests = []
    for opaque in range(first, first + count):
        command = pull_request(1, suspend_ms=suspend_ms)
        command.opaque = opaque
        requests.append(command)
    return requests


async def until_held(group: Group, count: int) -> None:
    while len(group.app.core.held) != count:
        await group.call(RemotingCommand(RequestCode.GET_MIN_OFFSET, ext_fields={"topic": "T", "queueId": "0"}))


def server_of(group: Group) -> RemotingServer:
    return group.app.servers[0]


async def test_a_message_is_not_copied_for_every_pull_of_those_that_do_not_read(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "store", mappedFileSizeCommitLog=64 * 1024 * 1024) as group,
        AsyncExitStack() as stack,
    ):
        memory = server_of(group).memory
        memory.unsent.limit = LIMIT
        await group.send()
        greedy: list[RawConnection] = []
        for _ in range(12):
            greedy.append(await stack.enter_async_context(raw(server_of(group))))
            greedy[-1].writer.transport.pause_reading()
            greedy[-1].send(*held_pulls())
        await until_held(group, 12 * PULLS)
        honest = await stack.enter_async_context(raw(server_of(group)))
        honest.send(*held_pulls())
        await until_held(group, 13 * PULLS)
        assert (await group.send(bytes(LARGE))).code == 0
        assert memory.unsent.total <= LIMIT
        assert len(group.app.core.held) >= 12 * (PULLS - 1), "one answer each at most"
        for number in range(1, PULLS + 1):
            answer = await honest.receive()
            assert (answer.opaque, answer.code, len(answer.body) > LARGE) == (number, 0, True)
            assert memory.unsent.total <= LIMIT
        assert (await group.pull(1)).code == 0


async def test_a_consumer_that_reads_late_gets_all_its_answers(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "store", mappedFileSizeCommitLog=64 * 1024 * 1024) as group,
        raw(server_of(group)) as late,
    ):
        await group.send()
        late.writer.transport.pause_reading()
        late.send(*held_pulls())
        await until_held(group, PULLS)
        for _ in range(2):
            assert (await group.send(bytes(LARGE))).code == 0
            assert 0 < len(group.app.core.held) < PULLS
        late.writer.transport.resume_reading()
        answers = [await late.receive() for _ in range(PULLS)]
        assert [(answer.opaque, answer.code) for answer in answers] == [(n, 0) for n in range(1, PULLS + 1)]
        assert len(group.app.core.held) == 0


async def test_a_pull_that_timed_out_is_answered_even_if_its_peer_does_not_read(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "store", mappedFileSizeCommitLog=64 * 1024 * 1024) as group,
        raw(server_of(group)) as late,
    ):
        await group.send()
        late.writer.transport.pause_reading()
        late.send(*held_pulls(suspend_ms=1000))
        await until_held(group, PULLS)
        assert (await group.send(bytes(LARGE))).code == 0
        await until_held(group, 0)
        late.writer.transport.resume_reading()
        answers = [await late.receive() for _ in range(PULLS)]
        assert [answer.opaque for answer in answers] == list(range(1, PULLS + 1))
        answered = [answer.code for answer in answers].count(0)
        assert 0 < answered < PULLS
        for answer in answers[answered:]:
            fields = answer.ext_fields or {}
            assert (answer.code, answer.body) == (ResponseCode.PULL_NOT_FOUND, b"")
            assert (fields["nextBeginOffset"], fields["maxOffset"]) == ("1", "2")


async def test_what_a_held_pull_brought_along_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group, raw(server_of(group)) as consumer:
        await group.send()
        (command,) = held_pulls(count=1)
        command.body = bytes(1_000_000)
        consumer.send(command)
        await until_held(group, 1)
        (held,) = group.app.core.held.all()
        assert (held.request.body, held.request.ext_fields, held.header.subscription) == (b"", None, None)
        await group.send()
        assert (await consumer.receive()).code == 0


async def test_waking_many_pulls_leaves_the_loop_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll costs a second of a clock that others cannot see: one in a turn of the loop."""
    async with running(tmp_path / "store") as group, raw(server_of(group)) as consumer:
        await group.send()
        consumer.send(*held_pulls(count=20))
        await until_held(group, 20)
        ticks = iter(range(1_000_000))
        monkeypatch.setattr(group.app.services.pulls, "_clock", lambda: float(next(ticks)))
        monkeypatch.setattr(pull, "WAKE_SECONDS", 2.0)
        waking: list[int] = []

        def poll() -> None:
            waking.append(len(group.app.core.held))
            if waking[-1]:
                asyncio.get_running_loop().call_soon(poll)

        sending = asyncio.ensure_future(group.send())
        poll()
        answers = [(await consumer.receive()).opaque for _ in range(20)]
        await sending
        assert answers == list(range(1, 21))
        assert {20, 10, 5, 1} <= set(waking), "others had their turn in between"


async def test_what_a_consumer_sends_behind_its_waiting_pulls_is_answered(tmp_path: Path) -> None:
    """Among it are its heartbeats, and its answers to the questions of tools (307)."""
    async with running(tmp_path / "store") as group, raw(server_of(group)) as consumer:
        server_of(group).limits = ServerLimits(max_in_flight=4)
        await group.send()
        consumer.send(*held_pulls())
        consumer.send(RemotingCommand(RequestCode.GET_MIN_OFFSET, opaque=99, ext_fields={"topic": "T", "queueId": "0"}))
        assert (await consumer.receive()).opaque == 99
        assert len(group.app.core.held) == PULLS


class FakePeer:
    def __init__(self, host: str) -> None:
        self.host = host


def held_by(table: HeldPulls, peer: FakePeer, count: int) -> list[HeldPull]:
    pulls = []
    for request in held_pulls(count=count):
        header = decode_header(PullMessageRequestHeader, request.ext_fields or {})
        pulls.append(HeldPull(request, cast("Peer", peer), header, (), 1))
        table.hold(pulls[-1], 60, lambda _pull: None)
    return pulls


@pytest.mark.looptime
async def test_the_host_with_most_waiting_pulls_gives_way() -> None:
    table = HeldPulls(10)
    many, more, few = FakePeer("a"), FakePeer("a"), FakePeer("b")
    oldest = held_by(table, many, 5)[0]
    held_by(table, more, 4)
    held_by(table, few, 1)
    assert table.full
    assert table.gives_way(cast("Peer", more)) is None, "its own host has the most"
    assert table.gives_way(cast("Peer", few)) is oldest
    table.take(oldest)
    held_by(table, few, 1)
    assert table.gives_way(cast("Peer", FakePeer("c"))) is not None


@pytest.mark.looptime
async def test_pulls_of_a_closed_connection_are_dropped_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "DROPPED_AT_ONCE", 2)
    table, peer, other = HeldPulls(10), FakePeer("a"), FakePeer("a")
    held_by(table, peer, 5)
    held_by(table, other, 2)
    table.peer_closed(cast("Peer", peer))
    assert len(table) == 5
    await asyncio.sleep(0)
    assert len(table) == 3
    await asyncio.sleep(0)
    assert len(table) == 2
