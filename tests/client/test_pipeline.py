"""The pipeline's own promises: answers find their requests, and every way to end a connection ends what waits."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rocketmq_client import pipeline as pipeline_module
from rocketmq_client.pipeline import Pipeline, connect
from rocketmq_formats.codes import SerializeType
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request, response
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_formats.remoting.send import SendMessageResponseHeader
from rocketmq_formats.remoting.send_frames import SendTemplate
from rocketmq_runtime.remoting.client import CallTimeoutError, ConnectError, ConnectionLostError

TEMPLATE = SendTemplate(producer_group="g", topic="t", queue_id=0, broker_name="b")


def frame(connection: Pipeline) -> bytes:
    return TEMPLATE.frame(connection.next_opaque, 0, b"", b"body")


def stored(asked: RemotingCommand, offset: int = 5) -> bytes:
    header = SendMessageResponseHeader(msg_id="M", queue_id=0, queue_offset=offset)
    return encode_frame(response(asked, 0, None, header))


class Peer(asyncio.Protocol):
    """A broker whose test decides what to write, and how."""

    def __init__(self) -> None:
        self.frames = RemotingConnection()
        self.asked: list[RemotingCommand] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.asked += self.frames.receive_data(data)

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


@asynccontextmanager
async def connected(timeout: float = 60.0) -> AsyncIterator[tuple[Pipeline, Peer]]:
    peer = Peer()
    server = await asyncio.get_running_loop().create_server(lambda: peer, "127.0.0.1", 0)
    connection = await connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=timeout)
    try:
        yield connection, peer
    finally:
        connection.abort()
        await connection.closed
        if peer.transport is not None:
            peer.transport.abort()
        server.close()
        await server.wait_closed()


def sweep_now(connection: Pipeline) -> None:
    """As its timer does later."""
    assert connection._sweep is not None
    connection._sweep.cancel()
    connection._sweep_oldest()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_answers_in_any_order_and_in_any_pieces() -> None:
    async with connected() as (connection, peer):
        answers = [connection.send(frame(connection)) for _ in range(3)]
        await until(lambda: len(peer.asked) == 3)
        data = b"".join(stored(asked, offset) for offset, asked in reversed(list(enumerate(peer.asked))))
        for i in range(len(data)):
            peer.write(data[i : i + 1])
            await asyncio.sleep(0)
        fields = [(await answer).fields for answer in answers]
        assert [field.queue_offset for field in fields if field] == [0, 1, 2]


async def test_binary_headers_strangers_and_pushes() -> None:
    async with connected() as (connection, peer):
        answer = connection.send(frame(connection))
        await until(lambda: len(peer.asked) == 1)
        [asked] = peer.asked
        peer.write(encode_frame(request(39, opaque=asked.opaque)))
        peer.write(encode_frame(response(RemotingCommand(310, opaque=99), 0)))
        asked.serialize_type = SerializeType.ROCKETMQ
        peer.write(stored(asked, 2**40))
        fields = (await answer).fields
        assert fields is not None
        assert (fields.msg_id, fields.queue_id, fields.queue_offset) == ("M", 0, 2**40)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x02\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\x00\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x06\x00\x00\x00\x02{]",
        b"\x00\x00\x00\x06\x09\x00\x00\x02{}",
        encode_frame(
            RemotingCommand(0, 1, 1, ext_fields={"msgId": "x"}, serialize_type=SerializeType.ROCKETMQ),
        ),
    ],
)
async def test_garbage_ends_the_connection(garbage: bytes) -> None:
    async with connected() as (connection, peer):
        answer = connection.send(frame(connection))
        await until(lambda: len(peer.asked) == 1)
        peer.write(garbage)
        with pytest.raises(ConnectionLostError, match="bad frame"):
            await answer
        with pytest.raises(ConnectError):
            connection.send(frame(connection))


async def test_a_connection_that_ends_ends_what_waits() -> None:
    async with connected() as (connection, peer):
        answers = [connection.send(frame(connection)) for _ in range(2)]
        answers[0].cancel()
        await until(lambda: len(peer.asked) == 2)
        assert peer.transport is not None
        peer.transport.abort()
        with pytest.raises(ConnectionLostError):
            await answers[1]
        assert not connection.open


async def test_the_oldest_request_s_timeout_ends_all() -> None:
    async with connected() as (connection, peer):
        first = connection.send(frame(connection))
        await until(lambda: len(peer.asked) == 1)
        peer.write(stored(peer.asked[0]))
        await first
        sweep_now(connection)
        connection._timeout = 0.1
        start = asyncio.get_running_loop().time()
        late, other = connection.send(frame(connection)), connection.send(frame(connection))
        with pytest.raises(CallTimeoutError):
            await late
        assert asyncio.get_running_loop().time() - start >= 0.1
        with pytest.raises(ConnectionLostError):
            await other


async def test_an_idle_connection_keeps_no_timer() -> None:
    async with connected() as (connection, peer):
        answer = connection.send(frame(connection))
        await until(lambda: len(peer.asked) == 1)
        peer.write(stored(peer.asked[0]))
        await answer
        sweep_now(connection)
        await until(lambda: connection._sweep is None)
        assert connection.open


async def test_numbers_wrap_around() -> None:
    async with connected() as (connection, peer):
        connection._next_opaque = 0x7FFFFFFF
        answers = [connection.send(frame(connection)) for _ in range(2)]
        await until(lambda: len(peer.asked) == 2)
        assert [asked.opaque for asked in peer.asked] == [0x7FFFFFFF, 0]
        peer.write(b"".join(map(stored, peer.asked)))
        await asyncio.gather(*answers)
        assert pipeline_module._is_before(0x7FFFFFFF, 0)
        assert not pipeline_module._is_before(5, 5)


async def test_a_peer_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_module, "MAX_UNSENT_BYTES", 1_000_000)
    async with connected() as (connection, peer):
        assert peer.transport is not None
        peer.transport.pause_reading()
        answers = []
        for _ in range(1000):
            try:
                answers.append(connection.send(TEMPLATE.frame(connection.next_opaque, 0, b"", bytes(100_000))))
            except ConnectError:
                break
            await asyncio.sleep(0)
        assert not connection.open
        for answer in answers:
            with pytest.raises(ConnectionLostError):
                await answer


async def test_connection_refused() -> None:
    with pytest.raises(ConnectError, match=r"cannot connect to 127\.0\.0\.1:1"):
        await connect("127.0.0.1:1", timeout=1.0)
    with pytest.raises(ConnectError, match="not an address"):
        await connect("nonsense", timeout=1.0)
