"""The sidecar's end of the Unix socket to its broker (`rocketmq_formats.replica_link`): accepts one broker at a time,
passes on its messages.

The folder's permissions and the peer's user id keep other users out. A second broker is refused while the first one is
connected. `broker_watch` notices a broker that hangs.
"""

import asyncio
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

import structlog

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replica_link import (
    PROTOCOL,
    FromBroker,
    FromSidecar,
    Hello,
    Lease,
    LinkReader,
    Probe,
    Replicated,
    Replication,
    Status,
    decode_from_broker,
    encode,
)

log = structlog.get_logger(__name__)

MAX_SOCKET_PATH = 100
"""Bytes that fit a socket address everywhere (108 on Linux, with the end mark)."""
MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""A broker that leaves this many bytes of short messages unread hangs."""
MAX_UNIDENTIFIED = 8
"""Connections that have not sent `Hello` yet."""
HELLO_SECONDS = 10.0
ABSENT_SECONDS = 10.0
"""A broker tries to connect ten times a second once its store is recovered. One that has not tried for this long hangs
or does not run. The liveness probe of the broker's container, which asks, is only called while it runs."""
_LEVELS = (Replication, Replicated, Lease, Status, Probe)
"""Level-triggered messages: in one turn of the loop only the latest of each kind is sent."""
_CREDENTIALS = struct.Struct("3i")


class LinkHandler(Protocol):
    """Receives the link's events; called in the event loop, must not block."""

    def on_hello(self, hello: Hello) -> str | None:
        """A broker has connected. Returns why it is refused, or None."""

    def on_message(self, message: FromBroker) -> None:
        """Every message of the broker but `Hello`, in order."""

    def on_disconnect(self, reason: str) -> None:
        """The broker's connection has ended; once for each `on_hello` that was not refused."""


class BrokerLink:
    """The listening socket and the broker's connection, if there is one."""

    def __init__(self, path: Path, handler: LinkHandler) -> None:
        self.handler = handler
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._broker: _Connection | None = None
        self._unidentified: set[_Connection] = set()
        self._absent_since: float | None = None
        """Since when no broker has tried to connect; None while the link does not listen, or a broker is connected
        (then `broker_watch` watches it)."""

    @property
    def connected(self) -> bool:
        return self._broker is not None

    def hung(self) -> str | None:
        """None, or for how long no broker has tried to connect; refused ones count as tries."""
        absent = 0.0 if self._absent_since is None else self._loop.time() - self._absent_since
        return f"no broker has connected for {absent:.0f} s" if absent > ABSENT_SECONDS else None

    async def start(self) -> None:
        """Listen; replaces a socket file that an earlier process left.

        Raises:
            OSError: the socket cannot be made.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._bind(listening)
            self._server = await self._loop.create_unix_server(lambda: _Connection(self), sock=listening)
            self._absent_since = self._loop.time()
        except BaseException:
            listening.close()
            raise

    async def stop(self) -> None:
        """Close everything, without calling the handler."""
        if self._server is None:
            return
        self._absent_since = None
        self._server.close()
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()
        for connection in list(self._unidentified):
            connection.close()
        with suppress(OSError):
            self._path.unlink()
        await self._server.wait_closed()

    def send(self, message: FromSidecar) -> None:
        """Queue `message`; without a broker it is dropped, because a new broker is sent everything again."""
        if self._broker is not None:
            self._broker.send(message)

    def send_now(self, message: FromSidecar) -> None:
        """As `send`, written before this returns, behind what is queued: producers wait for it."""
        if self._broker is not None:
            self._broker.send_now(message)

    def drop(self, reason: str) -> None:
        """Cut the broker's connection: it counts as dead."""
        if self._broker is not None:
            self._broker.fail(reason)

    # for connections

    def arrived(self, connection: "_Connection") -> None:
        """It counts as the broker only after its `Hello`. Only this user and root may connect."""
        uid = connection.peer_uid()
        if uid not in {os.geteuid(), 0}:
            log.warning("connection of another user refused", path=str(self._path), uid=uid)
            connection.close()
        elif len(self._unidentified) >= MAX_UNIDENTIFIED:
            log.warning("connection refused: too many that have not identified themselves", path=str(self._path))
            connection.close()
        else:
            if self._broker is None:
                self._absent_since = self._loop.time()
            self._unidentified.add(connection)
            self._loop.call_later(HELLO_SECONDS, self._expire, connection)

    def received(self, connection: "_Connection", message: FromBroker) -> None:
        """The first frame must be a `Hello` that is not refused; it makes the connection the broker's."""
        if connection is self._broker:
            if isinstance(message, Hello):
                connection.fail("it sent Hello twice")
            else:
                self.handler.on_message(message)
            return
        refusal = self._refusal(message)
        if refusal is None:
            assert isinstance(message, Hello)
            self._unidentified.discard(connection)
            self._broker = connection
            refusal = self.handler.on_hello(message)
            if refusal is None:
                self._absent_since = None
                return
            self._broker = None
        log.error("broker refused", path=str(self._path), reason=refusal)
        connection.close()

    def lost(self, connection: "_Connection", reason: str) -> None:
        """Reported to the handler if it was the broker's."""
        self._unidentified.discard(connection)
        if connection is self._broker:
            self._broker, self._absent_since = None, self._loop.time()
            self.handler.on_disconnect(reason)

    # inside

    def _refusal(self, message: FromBroker) -> str | None:
        if not isinstance(message, Hello):
            return f"its first message was {type(message).__name__}"
        if message.protocol != PROTOCOL:
            return (
                f"it speaks version {message.protocol} between broker and sidecar, this sidecar {PROTOCOL}:"
                " run both of one release"
            )
        if self._broker is not None:
            return "another broker is connected: two brokers are configured with this storePathRootDir"
        return None

    def _expire(self, connection: "_Connection") -> None:
        if connection in self._unidentified:
            connection.fail("it did not identify itself in time")

    def _bind(self, listening: socket.socket) -> None:
        path = self._path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_socket():
            path.unlink()
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            listening.bind(str(path))
        else:
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                listening.bind(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
        path.chmod(0o600)


class _Connection(asyncio.Protocol):
    """One connection, of the broker or of a peer that has not identified itself."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._reader = LinkReader()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._reason = "the broker closed it"
        self._out: list[FromSidecar] = []
        self._latest: dict[type[FromSidecar], int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._socket = transport.get_extra_info("socket")
        self._link.arrived(self)

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._reader.receive(data):
                if self._transport is None or self._transport.is_closing():
                    return
                self._link.received(self, decode_from_broker(payload))
        except FrameError as error:
            log.error("broker not understood", reason=str(error))
            self.fail(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._socket = None
        self._link.lost(self, str(exc) if exc is not None else self._reason)

    def peer_uid(self) -> int:
        assert self._socket is not None
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(credentials)[1])

    def send(self, message: FromSidecar) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        kind = type(message)
        if kind not in _LEVELS:
            self._latest.clear()  # what follows must not overtake it
        elif (place := self._latest.get(kind)) is not None:
            self._out[place] = message
            return
        else:
            self._latest[kind] = len(self._out)
        self._out.append(message)

    def send_now(self, message: FromSidecar) -> None:
        self._flush()
        self._write(encode(message))

    def fail(self, reason: str) -> None:
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        out, self._out = self._out, []
        self._latest.clear()
        if out:
            self._write(b"".join(map(encode, out)))

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.fail("the broker does not read")
