"""Requests of a server to its peers."""

import asyncio

import pytest

from rocketmq_formats.remoting.command import request, response
from rocketmq_runtime.remoting import peer_calls
from rocketmq_runtime.remoting.server import Peer, PeerBusyError, PeerCallError, PeerTimeoutError
from tests.runtime.remoting.remoting_kit import RawConnection, Recorder, raw, serving, until


async def accepted(handler: Recorder, connection: RawConnection) -> Peer:
    """The server's end."""
    connection.send(request(1005, opaque=1))
    assert (await connection.receive()).opaque == 1
    return handler.peers[max(handler.peers)]


async def test_each_question_gets_its_own_answer() -> None:
    handler = Recorder()
    async with serving(handler) as server, raw(server) as connection:
        peer = await accepted(handler, connection)
        calls = [asyncio.ensure_future(peer.call(request(326, body=b"%d" % number), 20)) for number in range(3)]
        asked = [await connection.receive() for _ in calls]
        connection.send(response(request(0, opaque=77), 0))  # to a question that no one asked
        connection.send(*(response(command, 0, body=command.body) for command in reversed(asked)))
        assert [answer.body for answer in await asyncio.gather(*calls)] == [b"0", b"1", b"2"]
        assert len(handler.requests) == 1, "answers are no requests"


async def test_a_question_ends_with_its_time_or_its_connection() -> None:
    handler = Recorder()
    async with serving(handler) as server, raw(server) as connection:
        peer = await accepted(handler, connection)
        with pytest.raises(PeerTimeoutError):
            await peer.call(request(326), 0)
        call = asyncio.ensure_future(peer.call(request(326), 20))
        await connection.receive()
        connection.writer.transport.abort()
        with pytest.raises(PeerCallError, match="closed the connection"):
            await call
        await until(lambda: bool(handler.closed))
        with pytest.raises(PeerBusyError):
            await peer.call(request(326), 20)


async def test_questions_to_one_peer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_calls, "MAX_CALLS", 1)
    handler = Recorder()
    async with serving(handler) as server, raw(server) as connection:
        peer = await accepted(handler, connection)
        call = asyncio.ensure_future(peer.call(request(326), 20))
        asked = await connection.receive()
        with pytest.raises(PeerBusyError):
            await peer.call(request(326), 20)
        connection.send(response(asked, 0))
        await call
