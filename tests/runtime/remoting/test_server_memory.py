"""What peers that do not read make the server hold: bounded in sum, and an honest reader is served beside them."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request, response
from rocketmq_runtime.remoting import server_memory
from rocketmq_runtime.remoting.server import DEFERRED, Answer, Peer, ServerLimits
from tests.runtime.remoting.remoting_kit import Recorder, raw, serving, until

LARGE = 6_000_000
"""Bytes of one answer: more than loopback's buffers take."""
LIMIT = 40_000_000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_memory, "SLOW_READER_SECONDS", 0.02)
    monkeypatch.setattr(server_memory, "ROOM_SECONDS", 0.005)


def ask(opaque: int) -> RemotingCommand:
    return request(11, opaque=opaque)


def large(asked: RemotingCommand, _peer: Peer) -> Answer:
    return response(asked, 0, body=bytes(LARGE))


async def test_those_that_read_nothing_give_way_and_an_honest_reader_is_served() -> None:
    handler = Recorder(large)
    async with serving(handler, ServerLimits(max_unsent_total=LIMIT)) as server, AsyncExitStack() as stack:
        honest = await stack.enter_async_context(raw(server))
        for number in range(30):
            greedy = await stack.enter_async_context(raw(server))
            greedy.writer.transport.pause_reading()
            greedy.send(ask(number))
            await until(lambda: len(handler.requests) > 2 * number)  # noqa: B023 - awaited here
            assert server.memory.unsent.total <= LIMIT
            honest.send(ask(number))
            assert len((await honest.receive()).body) == LARGE
        assert len(handler.closed) > 10
        assert sum(peer.unsent for peer in handler.peers.values()) <= LIMIT
        assert honest_id(handler) not in handler.closed
    assert server.memory.unsent.total == 0


def honest_id(handler: Recorder) -> int:
    return min(handler.peers)


async def test_a_peer_has_to_wait_while_it_does_not_read() -> None:
    handler = Recorder(large)
    told: list[str] = []
    async with serving(handler) as server, raw(server) as connection:
        connection.writer.transport.pause_reading()
        connection.send(ask(1))
        await until(lambda: bool(handler.peers) and not handler.peers[1].reads)
        peer = handler.peers[1]
        assert not peer.takes
        peer.when_it_takes(lambda: told.append("replaced"))
        peer.when_it_takes(lambda: told.append("takes"))
        await asyncio.sleep(0)
        assert told == []
        connection.writer.transport.resume_reading()
        assert (await connection.receive()).opaque == 1
        await until(lambda: bool(told))
        assert peer.takes
        assert told == ["takes"]


async def test_answers_that_can_wait_do_so_while_others_do_not_read() -> None:
    """As held pulls: all are woken at once, by one message."""
    asked: list[tuple[RemotingCommand, Peer]] = []

    def hold(command: RemotingCommand, peer: Peer) -> Answer:
        asked.append((command, peer))
        return DEFERRED

    handler = Recorder(hold)
    answered: list[Peer] = []

    def wake(command: RemotingCommand, peer: Peer) -> None:
        if not peer.takes:
            peer.when_it_takes(lambda: wake(command, peer))
            return
        answered.append(peer)
        peer.answer_frame(encode_frame(response(command, 0, body=bytes(LARGE))))

    async with serving(handler, ServerLimits(max_unsent_total=LIMIT)) as server, AsyncExitStack() as stack:
        greedy = [await stack.enter_async_context(raw(server)) for _ in range(20)]
        honest = await stack.enter_async_context(raw(server))
        for connection in greedy:
            connection.writer.transport.pause_reading()
            connection.send(ask(1))
        await until(lambda: len(asked) == len(greedy))
        honest.send(ask(2))
        await until(lambda: len(asked) == len(greedy) + 1)
        for command, peer in asked:
            wake(command, peer)
        assert len(answered) < len(asked)
        assert server.memory.unsent.total <= LIMIT
        assert len((await honest.receive()).body) == LARGE
        assert server.memory.unsent.total <= LIMIT
        assert asked[-1][1].id not in handler.closed
        assert handler.closed, "those that read nothing gave way"


async def test_a_closed_connection_is_not_called() -> None:
    handler = Recorder()
    called: list[int] = []
    async with serving(handler) as server:
        async with raw(server) as connection:
            connection.send(ask(1))
            await connection.receive()
            handler.peers[1].when_it_takes(lambda: called.append(1))
        await until(lambda: bool(handler.closed))
        server.memory._check()
    assert called == []
