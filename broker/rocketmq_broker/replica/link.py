"""The broker's end of the Unix socket to its sidecar: connects, sends `Hello`, passes messages on.

The replica (`replica.py`) owns it. Progress of the log (`Appended`, the one message that is sent thousands of times a
second) is level-triggered: it is sent once per turn of the loop with the latest values, or less often where no send
waits for it.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import structlog

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replica_link import (
    Appended,
    FromBroker,
    FromSidecar,
    Hello,
    LinkReader,
    decode_from_sidecar,
    encode,
)
from rocketmq_runtime import background

log = structlog.get_logger(__name__)

RETRY_SECONDS = 0.1
"""Between two attempts to connect, and after a connection that ended at once; the sidecar is on the same machine and a
refused connect costs nothing."""
STABLE_SECONDS = 1.0
"""The loss of a connection that lasted this long is reported, even if the same reason was reported before."""
MAX_SOCKET_PATH = 100
"""Bytes that fit a socket address everywhere (108 on Linux, with the end mark)."""
MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""A sidecar that leaves this many bytes of small messages unread hangs: the link is cut."""


class LinkHandler(Protocol):
    """Handles the link's messages; called in the event loop, must not block."""

    async def hello(self) -> Hello:
        """The first message of a connection. Raises `OSError`: the log cannot be read; it is tried again."""

    def on_message(self, message: FromSidecar) -> None:
        """A message from the sidecar."""

    def on_link_lost(self, reason: str) -> None:
        """The connection is lost; called once per connection. `start` makes the next one."""


class SidecarLink:
    """At most one connection at a time; connecting is tried forever."""

    def __init__(self, path: Path, handler: LinkHandler) -> None:
        self._path = path
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._stopped = False
        self._reported = ""
        self._connected_at = float("-inf")
        self._progress: Callable[[], Appended] | None = None
        self._sent_at = float("-inf")

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._connecting = background.start(self._connect(), "link to the sidecar")

    async def stop(self) -> None:
        """Write what is queued and close; nothing is reported afterwards."""
        self._stopped = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def send(self, message: FromBroker) -> None:
        """Queue `message`; dropped without a connection, because a new one begins with the whole state."""
        if self._connection is not None:
            self._flush_progress()
            self._connection.write(encode(message))

    def progress(self, latest: Callable[[], Appended], *, apart: float = 0.0) -> None:
        """The log grew or more of it is on disk: `latest` is called once at the end of this turn of the loop, or when
        `apart` seconds have passed since the last time."""
        if self._progress is None and self._connection is not None:
            self._progress = latest
            left = self._sent_at + apart - self._loop.time() if apart else 0.0
            if left > 0:
                self._loop.call_later(left, self._flush_progress)
            else:
                self._loop.call_soon(self._flush_progress)

    def drop(self, reason: str) -> None:
        """End this connection (a new one follows): the sidecar sent something impossible."""
        if self._connection is not None:
            self._connection.fail(reason)

    def _flush_progress(self) -> None:
        latest, self._progress = self._progress, None
        if latest is not None and self._connection is not None:
            self._sent_at = self._loop.time()
            self._connection.write(encode(latest()))

    async def _connect(self) -> None:
        # a sidecar that closes what it accepts must not be asked thousands of times a second
        await asyncio.sleep(self._connected_at + RETRY_SECONDS - self._loop.time())
        while True:
            try:
                connection = await self._open()
                greeting = await self._greeting(connection)
            except OSError as error:
                self._report("no sidecar yet: writes are refused until it runs", error.strerror or str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception as error:
                # if this task ended here, the broker would stay without a role forever, and nothing would report it
                log.exception("cannot connect to the sidecar, retrying", path=str(self._path))
                self._report("no link to the sidecar", f"{type(error).__name__}: {error}")
                await asyncio.sleep(STABLE_SECONDS)
                continue
            self._connected_at = self._loop.time()
            self._connection = connection
            connection.write(greeting)
            connection.open(self._handler.on_message)
            log.debug("connected to the sidecar", path=str(self._path))
            return

    async def _greeting(self, connection: "_Connection") -> bytes:
        try:
            return encode(await self._handler.hello())
        except BaseException:
            connection.close()
            raise

    async def _open(self) -> "_Connection":
        directory = None
        address = str(self._path)
        if len(os.fsencode(address)) > MAX_SOCKET_PATH:
            directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
            address = f"/proc/self/fd/{directory}/{self._path.name}"
        try:
            # asyncio's error would not say that the file is not a socket
            if not stat.S_ISSOCK(os.stat(address).st_mode):  # noqa: PTH116 - the path may be one of /proc
                raise OSError(f"{self._path} is not a socket")
            _, connection = await self._loop.create_unix_connection(lambda: _Connection(self._lost), address)
        finally:
            if directory is not None:
                os.close(directory)
        return connection

    def _report(self, message: str, reason: str) -> None:
        """One line per reason, not one per attempt."""
        if reason != self._reported:
            self._reported = reason
            log.warning(message, path=str(self._path), reason=reason)

    def _lost(self, connection: "_Connection", reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._progress = None
        if not self._stopped:
            if self._loop.time() - self._connected_at > STABLE_SECONDS:
                self._reported = ""
            self._report("link to the sidecar lost", reason)
            self._handler.on_link_lost(reason)


class _Connection(asyncio.Protocol):
    """One connection; data that arrives before `open` waits."""

    def __init__(self, lost: "Callable[[_Connection, str], None]") -> None:
        self._lost = lost
        self._reader = LinkReader()
        self._deliver: Callable[[FromSidecar], None] | None = None
        self._early = bytearray()
        self._transport: asyncio.Transport | None = None
        self._reason = "the sidecar closed it"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._deliver is None:
            self._early += data
            return
        try:
            for payload in self._reader.receive(data):
                if self._transport is None or self._transport.is_closing():
                    return  # a message before this one ended the connection
                self._deliver(decode_from_sidecar(payload))
        except FrameError as error:
            self.fail(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._deliver = None
        self._lost(self, str(exc) if exc is not None else self._reason)

    def open(self, deliver: Callable[[FromSidecar], None]) -> None:
        if self._transport is None:
            self._lost(self, self._reason)
            return
        self._deliver = deliver
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)

    def write(self, frame: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(frame)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.fail("the sidecar does not read")

    def fail(self, reason: str) -> None:
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
