"""Peers that do whatever they like, and one honest peer whose every request is answered once.

Each seed is another crowd: half frames, lies, floods, answers not read, ends in the middle of everything.
"""

import asyncio
import random
import struct

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request, response
from rocketmq_runtime.remoting import server_memory
from rocketmq_runtime.remoting.open_files import OpenFiles
from rocketmq_runtime.remoting.server import DEFERRED, Answer, Peer, ServerLimits
from tests.runtime.remoting.remoting_kit import RawConnection, Recorder, raw, serving, until

LIMITS = ServerLimits(
    max_connections=12,
    max_received_bytes=3_000_000,
    max_unsent_total=12_000_000,
    max_unsent_bytes=8_000_000,
    max_in_flight=6,
    linger_seconds=0.01,
)
ECHO, LATER, DEFER, BUG, LARGE = range(1, 6)
HONEST = 1000
"""Requests of the honest peer."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_memory, "SLOW_READER_SECONDS", 1.0)
    monkeypatch.setattr(server_memory, "ROOM_SECONDS", 0.25)


class Crowd:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.handler = Recorder(self.respond)
        self.answered = 0

    def respond(self, asked: RemotingCommand, peer: Peer) -> Answer:
        loop = asyncio.get_running_loop()
        answer = response(asked, 0, body=asked.body)
        match asked.code:
            case 2:
                promised = loop.create_future()
                loop.call_later(self.rng.choice((0, 0, 0.001)), _keep, promised, answer)
                return promised
            case 3:
                loop.call_soon(peer.answer_later, asked, answer)
                return DEFERRED
            case 4:
                raise RuntimeError("a bug")
            case 5:
                return response(asked, 0, body=bytes(3_000_000))
        return answer

    async def honest(self, connection: RawConnection) -> None:
        """Sends in pieces of any size, some requests at a time; every answer comes, and is the right one."""
        rng = self.rng
        waiting: dict[int, RemotingCommand] = {}
        opaque = 0
        while self.answered < HONEST:
            frames = b""
            for _ in range(min(rng.randint(1, 12), HONEST - opaque)):
                opaque += 1
                code = rng.choice((ECHO, ECHO, LATER, DEFER, BUG))
                asked = request(code, body=rng.randbytes(rng.choice((0, 10, 5000))), opaque=opaque)
                waiting[opaque] = asked
                frames += encode_frame(asked)
            while frames:
                size = rng.choice((1, 7, 100, 4000, 100_000))
                connection.writer.write(frames[:size])
                frames = frames[size:]
                await asyncio.sleep(0)
            while waiting:
                answer = await connection.receive()
                asked = waiting.pop(answer.opaque)
                if asked.code == BUG:
                    assert answer.code == ResponseCode.SYSTEM_ERROR
                else:
                    assert (answer.code, answer.body) == (0, asked.body)
                self.answered += 1

    async def abusive(self, connection: RawConnection) -> None:
        """One trick until it is cut off, or the honest one is done."""
        rng, writer = self.rng, connection.writer
        trick = rng.choice((self.garbage, self.half, self.flood, self.unread, self.leave, self.half_close, self.lie))
        if rng.random() < 0.7:
            writer.transport.pause_reading()
        while self.answered < HONEST and not writer.transport.is_closing():
            trick(connection)
            for _ in range(rng.randint(1, 20)):
                await asyncio.sleep(0)
            if writer.transport.get_write_buffer_size() > 1_000_000:
                break

    def garbage(self, connection: RawConnection) -> None:
        connection.writer.write(self.rng.randbytes(self.rng.randint(1, 2000)))

    def half(self, connection: RawConnection) -> None:
        """A frame that never ends."""
        connection.writer.write(struct.pack(">i", 10_000_000) + bytes(self.rng.randint(1, 50_000)))

    def flood(self, connection: RawConnection) -> None:
        codes = [self.rng.choice((ECHO, LATER, DEFER, BUG)) for _ in range(200)]
        connection.send(*(request(code, body=bytes(self.rng.choice((0, 3000))), opaque=1) for code in codes))

    def unread(self, connection: RawConnection) -> None:
        connection.send(*(request(LARGE, opaque=number) for number in range(3)))

    def leave(self, connection: RawConnection) -> None:
        self.flood(connection)
        connection.writer.transport.abort()

    def half_close(self, connection: RawConnection) -> None:
        self.flood(connection)
        connection.writer.write_eof()
        connection.writer.transport.resume_reading()

    def lie(self, connection: RawConnection) -> None:
        frame = bytearray(encode_frame(request(ECHO, body=bytes(50), opaque=3)))
        for _ in range(self.rng.randint(1, 4)):
            frame[self.rng.randrange(len(frame))] = self.rng.randrange(256)
        connection.writer.write(bytes(frame))


def _keep(promised: "asyncio.Future[RemotingCommand]", answer: RemotingCommand) -> None:
    if not promised.done():
        promised.set_result(answer)


@pytest.mark.parametrize("seed", range(12))
async def test_an_honest_peer_is_served_whatever_others_do(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    crowd, before = Crowd(seed), OpenFiles.open
    with capture_logs() as lines:
        await run(crowd)
    assert OpenFiles.open == before
    assert len(lines) < 1000
    assert not [record for record in caplog.records if record.name == "asyncio"], "no error that nobody saw"


async def run(crowd: Crowd) -> None:
    async with serving(crowd.handler, LIMITS) as server, raw(server) as connection:
        honest = asyncio.ensure_future(crowd.honest(connection))
        await until(lambda: crowd.answered > 0)

        async def abuse() -> None:
            while not honest.done():
                try:
                    async with raw(server) as other:
                        await crowd.abusive(other)
                except (OSError, RuntimeError):  # cut off, or written after its end
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for _ in range(crowd.rng.randint(1, 14)):
                group.create_task(abuse())
            await honest
        assert crowd.answered == HONEST
        assert server.memory.unsent.total <= LIMITS.max_unsent_total
        assert server.memory.received.total <= LIMITS.max_received_bytes
    await until(lambda: not server._peers)
    assert (server.memory.unsent.total, server.memory.received.total, server.connections) == (0, 0, 0)
    assert set(crowd.handler.peers) <= set(crowd.handler.closed)
    assert len(set(crowd.handler.closed)) == len(crowd.handler.closed), "each end is told once"
