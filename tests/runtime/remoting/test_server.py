"""The remoting server against peers that are quick, slow, silent, greedy or lying."""

import asyncio
import resource
import struct
from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import MAX_FRAME, RemotingCommand, encode_frame, request, response
from rocketmq_runtime.remoting.open_files import raise_file_limit
from rocketmq_runtime.remoting.server import (
    DEFERRED,
    HELD,
    REQUESTS_PER_TURN,
    Answer,
    Peer,
    RemotingServer,
    ServerLimits,
)
from tests.runtime.remoting.remoting_kit import RawConnection, Recorder, raw, serving, until


def ask(opaque: int, *, body: bytes = b"") -> RemotingCommand:
    return request(1005, body=body, opaque=opaque)


async def test_pipelined_requests_are_all_answered() -> None:
    async with serving(Recorder()) as server, raw(server) as connection:
        connection.send(*(ask(opaque, body=str(opaque).encode()) for opaque in range(1, 1001)))
        answers = [await connection.receive() for _ in range(1000)]
        assert [(answer.opaque, answer.body) for answer in answers] == [(n, str(n).encode()) for n in range(1, 1001)]
        assert all(answer.is_response for answer in answers)


async def test_others_have_their_turn_while_many_requests_of_one_peer_are_handled() -> None:
    handled_at_turns: list[int] = []
    handler = Recorder()

    def respond(request: RemotingCommand, _peer: Peer) -> Answer:
        if len(handler.requests) == 1:
            asyncio.get_running_loop().call_soon(lambda: handled_at_turns.append(len(handler.requests)))
        return response(request, 0)

    handler.respond = respond
    async with serving(handler) as server, raw(server) as connection:
        opaques = range(1, 10 * REQUESTS_PER_TURN)
        connection.send(*map(ask, opaques))
        assert [(await connection.receive()).opaque for _ in opaques] == list(opaques)
    assert handled_at_turns[0] <= REQUESTS_PER_TURN


class Written(asyncio.Transport):
    """Takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


async def test_answers_leave_together_and_wait_for_no_turn_of_the_loop() -> None:
    peer, transport = Peer(RemotingServer(Recorder(), host="127.0.0.1", port=0), 1), Written()
    peer.connection_made(transport)
    peer.data_received(encode_frame(ask(1)) + encode_frame(ask(2)))
    answers = [encode_frame(response(ask(opaque), 0)) for opaque in (1, 2)]
    assert transport.writes == [b"".join(answers)]
    peer.send(ask(3))
    peer.send(ask(4))
    assert len(transport.writes) == 1
    await asyncio.sleep(0)
    assert transport.writes[1:] == [encode_frame(ask(3)) + encode_frame(ask(4))]
    peer.connection_lost(None)


async def test_a_request_cut_into_bytes_is_one_request() -> None:
    async with serving(Recorder()) as server, raw(server) as connection:
        for byte in encode_frame(ask(7, body=b"x")):
            connection.writer.write(bytes([byte]))
            await connection.writer.drain()
        assert (await connection.receive()).opaque == 7
        assert server.memory.received.total == 0


async def test_answers_may_come_later_and_out_of_order() -> None:
    promised: dict[int, asyncio.Future[RemotingCommand]] = {}

    def promise(asked: RemotingCommand, peer: Peer) -> Answer:
        promised[asked.opaque] = asyncio.get_running_loop().create_future()
        return promised[asked.opaque]

    handler = Recorder(promise)
    async with serving(handler) as server, raw(server) as connection:
        connection.send(ask(1), ask(2), ask(3), ask(4))
        await until(lambda: len(promised) == 4)
        promised[2].set_result(response(handler.requests[1], 0, "two"))
        assert (await connection.receive()).remark == "two"
        promised[1].set_exception(ValueError("no"))
        failed = await connection.receive()
        assert (failed.opaque, failed.code, failed.remark) == (1, ResponseCode.SYSTEM_ERROR, "ValueError: no")
        promised[4].cancel()
        assert (await connection.receive()).opaque == 4
        promised[3].set_result(response(handler.requests[2], 0))
        assert (await connection.receive()).opaque == 3


async def test_a_oneway_request_that_fails_later_is_logged() -> None:
    """No answer would tell."""

    def promise(asked: RemotingCommand, peer: Peer) -> Answer:
        promised: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        promised.set_exception(ValueError("no"))
        return promised

    with capture_logs() as lines:
        async with serving(Recorder(promise)) as server, raw(server) as connection:
            connection.send(request(904, oneway=True))
            await until(lambda: bool([line for line in lines if line["event"] == "request failed"]))
    assert [line["code"] for line in lines if line["event"] == "request failed"] == [904]


async def test_answers_may_be_deferred_without_a_future() -> None:
    asked: list[tuple[RemotingCommand, Peer]] = []

    def defer(request: RemotingCommand, peer: Peer) -> Answer:
        asked.append((request, peer))
        return DEFERRED

    async with serving(Recorder(defer), ServerLimits(max_in_flight=2)) as server, raw(server) as connection:
        connection.send(*(ask(opaque) for opaque in range(1, 6)))
        await until(lambda: len(asked) == 2)
        for number in range(5):
            request, peer = asked[number]
            if number % 2:
                peer.answer_later(request, response(request, 0))
            else:
                peer.answer_frame(encode_frame(response(request, 0)))
            assert (await connection.receive()).opaque == number + 1
        assert len(asked) == 5, "room for the next ones was given"
        too_large = asked[0][0]
        connection.send(ask(9))
        await until(lambda: len(asked) == 6)
        asked[5][1].answer_later(asked[5][0], response(too_large, 0, body=bytes(MAX_FRAME)))
        assert (await connection.receive()).code == ResponseCode.SYSTEM_ERROR


async def test_deferred_answers_may_be_given_in_runs() -> None:
    asked: list[tuple[RemotingCommand, Peer]] = []

    def defer(request: RemotingCommand, peer: Peer) -> Answer:
        asked.append((request, peer))
        return DEFERRED

    async with serving(Recorder(defer), ServerLimits(max_in_flight=2)) as server, raw(server) as connection:
        connection.send(*(ask(opaque) for opaque in range(1, 5)))
        for count in (2, 4):
            while len(asked) < count:
                await asyncio.sleep(0)
            peer = asked[0][1]
            peer.answer_frames([encode_frame(response(request, 0)) for request, _ in asked[count - 2 :]])
            assert [(await connection.receive()).opaque for _ in range(2)] == [count - 1, count]


async def test_what_comes_behind_requests_that_are_held_does_not_wait_for_them() -> None:
    held: list[tuple[RemotingCommand, Peer]] = []

    def hold(asked: RemotingCommand, peer: Peer) -> Answer:
        if asked.code == 11:
            held.append((asked, peer))
            return HELD
        return response(asked, 0)

    async with serving(Recorder(hold), ServerLimits(max_in_flight=2)) as server, raw(server) as connection:
        connection.send(*(request(11, opaque=opaque) for opaque in range(1, 10)))
        await until(lambda: len(held) == 9)
        connection.send(ask(10))
        assert (await connection.receive()).opaque == 10
        call = asyncio.ensure_future(held[0][1].call(ask(0), 20))
        asked = await connection.receive()
        connection.send(response(asked, 7))
        assert (await call).code == 7
        for pull, peer in held:
            peer.answer_held(pull, response(pull, 0))
        assert [(await connection.receive()).opaque for _ in held] == list(range(1, 10))


async def test_deferred_answers_to_a_closed_peer_are_dropped() -> None:
    peers: list[Peer] = []

    def defer(request: RemotingCommand, peer: Peer) -> Answer:
        peers.append(peer)
        return DEFERRED

    handler = Recorder(defer)
    async with serving(handler) as server:
        async with raw(server) as connection:
            connection.send(ask(1))
            await until(lambda: bool(peers))
        await until(lambda: bool(handler.closed))
        frame = encode_frame(response(ask(1), 0))
        peers[0].answer_frame(frame)
        peers[0].answer_frames([frame])


async def test_an_answer_may_be_a_whole_frame() -> None:
    handler = Recorder(lambda request, peer: encode_frame(response(request, 0, "whole")))
    async with serving(handler) as server, raw(server) as connection:
        connection.send(ask(1), request(904, oneway=True, opaque=2), ask(3))
        assert (await connection.receive()).remark == "whole"
        assert (await connection.receive()).opaque == 3


async def test_oneway_requests_and_responses_get_no_answer() -> None:
    handler = Recorder()
    async with serving(handler) as server, raw(server) as connection:
        connection.send(request(904, oneway=True, opaque=1), response(ask(2), 0), ask(3))
        assert (await connection.receive()).opaque == 3
        assert [asked.opaque for asked in handler.requests] == [1, 3]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("x" * 10_000), ValueError("\udcff")])
async def test_a_bug_costs_one_answer_not_the_connection(error: Exception) -> None:
    def fail(asked: RemotingCommand, peer: Peer) -> Answer:
        if asked.opaque == 1:
            raise error
        return response(asked, 0)

    async with serving(Recorder(fail)) as server, raw(server) as connection:
        connection.send(ask(1), ask(2))
        failed = await connection.receive()
        assert (failed.opaque, failed.code) == (1, ResponseCode.SYSTEM_ERROR)
        assert failed.remark is not None
        assert len(failed.remark) <= 1024
        assert (await connection.receive()).opaque == 2


@pytest.mark.parametrize("later", [False, True])
async def test_an_answer_that_fits_no_frame_becomes_an_error(later: bool) -> None:
    def too_much(asked: RemotingCommand, peer: Peer) -> Answer:
        answer = response(asked, 0, body=bytes(MAX_FRAME))
        if not later:
            return answer
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        future.set_result(answer)
        return future

    async with serving(Recorder(too_much)) as server, raw(server) as connection:
        connection.send(ask(1))
        assert (await connection.receive()).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "lie",
    [
        struct.pack(">i", -1) + bytes(100),
        struct.pack(">i", MAX_FRAME + 1),
        struct.pack(">iii", 8, 5000, 0),
        struct.pack(">ii", 6, 2) + b"{]",
        struct.pack(">ii", 4, 7 << 24),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=["negative", "huge", "header", "json", "serialize type", "http", "tls"],
)
async def test_a_lying_frame_closes_its_connection_only(lie: bytes) -> None:
    handler = Recorder()
    async with serving(handler) as server, raw(server) as honest, raw(server) as liar:
        liar.send(ask(1))
        assert (await liar.receive()).opaque == 1
        liar.writer.write(lie)
        assert await liar.ended() == b""
        await until(lambda: len(handler.closed) == 1)
        assert server.memory.received.total == 0
        honest.send(ask(2))
        assert (await honest.receive()).opaque == 2


async def test_a_host_with_many_connections_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Recorder()
    async with serving(handler, ServerLimits(max_connections=3)) as server, AsyncExitStack() as stack:
        many = [await stack.enter_async_context(raw(server)) for _ in range(3)]
        for number, seconds_ago in enumerate((1, 3, 2)):
            many[number].send(ask(number))
            await many[number].receive()
            handler.peers[max(handler.peers)].last_activity -= seconds_ago
        monkeypatch.setattr("rocketmq_runtime.remoting.peer.host_of", lambda address: "another host")
        async with raw(server) as newcomer:
            newcomer.send(ask(7))
            assert (await newcomer.receive()).opaque == 7
            assert await many[1].ended() == b"", "the one that was silent for longest"
            await until(lambda: len(handler.closed) == 1)
            assert (server.connections, server.refused_connections, server.replaced_connections) == (3, 0, 1)
            many[0].send(ask(8))
            assert (await many[0].receive()).opaque == 8
            async with raw(server) as second:
                assert await second.ended() == b"", "there would be more of its host than of the other"
                assert server.refused_connections == 1


async def test_connections_above_the_limit_are_closed_and_room_is_given_again() -> None:
    handler = Recorder()
    async with serving(handler, ServerLimits(max_connections=1)) as server:
        async with raw(server) as first:
            first.send(ask(1))
            await first.receive()
            async with raw(server) as second:
                assert await second.ended() == b""
            assert (server.connections, server.refused_connections) == (1, 1)
            first.send(ask(2))
            await first.receive()
        await until(lambda: server.connections == 0)
        assert len(handler.closed) == 1  # the refused one was never ours
        async with raw(server) as third:
            third.send(ask(3))
            await third.receive()


@pytest.mark.parametrize(
    ("limits", "connections", "room"),
    [((20_000, 20_000), 10_000, 10_000), ((1024, 4096), 10_000, 3072), ((1024, 1024), 10_000, 512), ((-1, -1), 9, 9)],
)
def test_files_of_the_process_itself_are_kept_from_strangers(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], connections: int, room: int
) -> None:
    lifted: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, new: lifted.append(new))
    assert raise_file_limit(connections) == room
    assert [soft for soft, _ in lifted] in ([], [min(connections + 1024, limits[1])])


async def test_all_ports_of_a_process_share_its_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_runtime.remoting.server._raise_file_limit", lambda _connections: 1)
    handler = Recorder()
    async with serving(handler) as one, serving(handler) as other:
        async with raw(one) as first:
            first.send(ask(1))
            await first.receive()
            async with raw(other) as second:
                assert await second.ended() == b""
            assert (one.refused_connections, other.refused_connections) == (0, 1)
        await until(lambda: one.connections == 0)
        async with raw(other) as third:
            third.send(ask(3))
            await third.receive()


async def test_idle_connections_are_closed() -> None:
    handler = Recorder()
    async with serving(handler, ServerLimits(idle_seconds=0.02)) as server, raw(server) as connection:
        connection.send(ask(1))
        await connection.receive()
        assert await connection.ended() == b""
        await until(lambda: len(handler.closed) == 1)


async def test_above_the_bound_of_half_frames_the_largest_and_oldest_gives_way() -> None:
    whole = encode_frame(ask(1, body=bytes(1000)))
    handler = Recorder()
    async with serving(handler, ServerLimits(max_received_bytes=1000)) as server, raw(server) as holder:
        holder.writer.write(whole[:600])
        await until(lambda: server.memory.received.total == 600)
        async with raw(server) as honest:
            honest.writer.write(whole[:500])
            assert await holder.ended() == b""
            await until(lambda: server.memory.received.total == 500)
            honest.writer.write(whole[500:])
            assert (await honest.receive()).opaque == 1
            assert server.memory.received.total == 0
            honest.writer.write(whole[:600])
            await until(lambda: server.memory.received.total == 600)
        await until(lambda: server.memory.received.total == 0)


async def test_a_frame_has_to_end() -> None:
    handler = Recorder()
    async with serving(handler, ServerLimits(frame_seconds=0.05)) as server, raw(server) as slow, raw(server) as honest:
        slow.writer.write(encode_frame(ask(1, body=bytes(1000)))[:600])
        ended = asyncio.ensure_future(slow.ended())
        opaque = 0
        while not ended.done():
            # many whole frames, each begun in the read before: none of them is old
            opaque += 1
            frame = encode_frame(ask(opaque))
            honest.writer.write(frame[:10])
            await asyncio.sleep(0)
            honest.writer.write(frame[10:])
            assert (await honest.receive()).opaque == opaque
        assert ended.result() == b""
        assert server.connections == 1


async def test_requests_that_wait_for_their_answers_count_as_received() -> None:
    promised: list[asyncio.Future[RemotingCommand]] = []

    def promise(asked: RemotingCommand, peer: Peer) -> Answer:
        promised.append(asyncio.get_running_loop().create_future())
        return promised[-1]

    handler = Recorder(promise)
    limits = ServerLimits(max_received_bytes=100_000)
    async with serving(handler, limits) as server, raw(server) as greedy, raw(server) as honest:
        greedy.send(ask(1, body=bytes(60_000)))
        await until(lambda: len(promised) == 1 and server.memory.received.total == 60_000)
        greedy.send(ask(2, body=bytes(60_000)))
        assert await greedy.ended() == b""
        await until(lambda: server.memory.received.total == 0)
        promised.clear()
        honest.send(ask(3, body=bytes(5000)))
        await until(lambda: bool(promised))
        assert server.memory.received.total == 5000
        promised[0].set_result(response(handler.requests[-1], 0))
        assert (await honest.receive()).opaque == 3
        assert server.memory.received.total == 0


async def test_requests_in_flight_are_bounded_per_connection() -> None:
    promised: list[asyncio.Future[RemotingCommand]] = []

    def promise(asked: RemotingCommand, peer: Peer) -> Answer:
        promised.append(asyncio.get_running_loop().create_future())
        return promised[-1]

    handler = Recorder(promise)
    async with serving(handler, ServerLimits(max_in_flight=2)) as server, raw(server) as connection:
        connection.send(*map(ask, range(5)))
        for answered in range(5):
            await until(lambda: len(promised) > answered)  # noqa: B023 - awaited here
            assert len(promised) <= answered + 2
            promised[answered].set_result(response(handler.requests[answered], 0))
            assert (await connection.receive()).opaque == answered


def peer_of(handler: Recorder) -> Peer:
    (peer,) = handler.peers.values()
    return peer


async def paused(handler: Recorder, connection: RawConnection, requests: int) -> None:
    """Send `requests` with large answers, read none of them, return when the server has stopped reading us."""
    handler.respond = lambda asked, peer: response(asked, 0, body=bytes(100_000))
    connection.send(*map(ask, range(requests)))
    await until(lambda: bool(handler.peers) and not reading(peer_of(handler)))


def reading(peer: Peer) -> bool:
    return peer._transport is None or peer._transport.is_reading()


async def test_a_slow_reader_is_not_read_and_loses_nothing() -> None:
    handler = Recorder()
    async with serving(handler) as server, raw(server) as connection:
        await paused(handler, connection, 1000)
        # A read holds hundreds of requests: the server must not have answered them all into memory.
        transport = peer_of(handler)._transport
        assert transport is not None
        assert transport.get_write_buffer_size() < 1_000_000
        assert len(handler.requests) < 1000
        assert [(await connection.receive()).opaque for _ in range(1000)] == list(range(1000))


async def test_a_peer_that_never_reads_cannot_hold_its_connection_by_that() -> None:
    handler = Recorder()
    limits = ServerLimits(linger_seconds=0.01)
    async with serving(handler, limits) as server, raw(server) as connection:
        await paused(handler, connection, 1000)
        peer_of(handler).close()
        await until(lambda: len(handler.closed) == 1)


async def test_pushes_to_a_peer_that_does_not_read_end_its_connection() -> None:
    handler = Recorder()
    async with serving(handler, ServerLimits(max_unsent_bytes=1_000_000)) as server, raw(server) as connection:
        connection.send(ask(1))
        await connection.receive()
        while not handler.closed:
            peer_of(handler).send(request(40, body=bytes(500_000), oneway=True))
            await asyncio.sleep(0)


async def test_stop_ends_with_a_peer_that_does_not_read() -> None:
    handler = Recorder()
    limits = ServerLimits(linger_seconds=0.01)
    async with serving(handler, limits) as server, raw(server) as connection:
        await paused(handler, connection, 1000)
        await server.stop()
        assert len(handler.closed) == 1


async def test_stop_delivers_what_was_answered() -> None:
    handler = Recorder()
    async with serving(handler) as server, raw(server) as connection:
        connection.send(ask(1, body=bytes(1_000_000)))
        await until(lambda: len(handler.requests) == 1)
        stopping = asyncio.ensure_future(server.stop())
        assert len((await connection.receive()).body) == 1_000_000
        await stopping


async def test_a_taken_port_is_an_oserror() -> None:
    async with serving(Recorder()) as server:
        second = RemotingServer(Recorder(), host="127.0.0.1", port=server.port)
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await second.stop()


async def test_bad_frames_again_and_again_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_runtime.remoting.server.LOG_LINES", 2)
    async with serving(Recorder()) as server:
        with capture_logs() as lines:
            for _ in range(5):
                async with raw(server) as connection:
                    connection.writer.write(b"\xff" * 64)
                    await connection.ended()
        assert [line["event"] for line in lines] == ["frame refused, connection closed"] * 2
