"""A remoting server to talk to, and a raw connection that can misbehave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, response
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer, ServerLimits

Respond = Callable[[RemotingCommand, Peer], Answer]


class Recorder:
    """A handler that remembers what came and answers with `respond`; by default an echo of the body."""

    def __init__(self, respond: Respond | None = None) -> None:
        self.respond = respond or (lambda request, peer: response(request, 0, body=request.body))
        self.requests: list[RemotingCommand] = []
        self.closed: list[int] = []
        self.peers: dict[int, Peer] = {}

    def on_request(self, request: RemotingCommand, peer: Peer) -> Answer:
        self.requests.append(request)
        self.peers[peer.id] = peer
        return self.respond(request, peer)

    def on_close(self, peer: Peer) -> None:
        self.closed.append(peer.id)


@asynccontextmanager
async def serving(handler: Recorder, limits: ServerLimits | None = None) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(handler, host="127.0.0.1", port=0, limits=limits)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def calling() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    try:
        yield client
    finally:
        await client.close()


class RawConnection:
    """Writes and reads only on demand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = RemotingConnection()
        self._commands: list[RemotingCommand] = []

    def send(self, *commands: RemotingCommand) -> None:
        self.writer.write(b"".join(map(encode_frame, commands)))

    async def receive(self) -> RemotingCommand:
        while not self._commands:
            data = await self.reader.read(65536)
            assert data, "closed instead of an answer"
            self._commands += self._frames.receive_data(data)
        return self._commands.pop(0)

    async def ended(self) -> bytes:
        """What was left to read before the server closed."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def raw(server: RemotingServer) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()
        await until(writer.transport.is_closing)
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until `condition` holds; pytest's timeout ends a test where it never does."""
    while not condition():
        await asyncio.sleep(0)
