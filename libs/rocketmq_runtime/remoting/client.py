"""Calls to other RocketMQ processes: one connection per address, shared by all requests, opened when first needed.

Used by the controller to notify brokers, and by tools, agents and tests to call controllers, name servers and brokers.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import cast

import structlog

from rocketmq_formats.addresses import parse_address
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import FLAG_ONEWAY, RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_runtime import background, lookups

log = structlog.get_logger(__name__)

MAX_REQUESTS_IN_FLIGHT = 65_536
MAX_UNSENT_BYTES = 32 * 1024 * 1024
"""Bytes a peer may leave untaken before its connection counts as broken: two of the largest frames."""
LINGER_SECONDS = 1.0
"""How long `close` waits for what was already written to leave."""


class RemotingError(Exception):
    """A call that got no answer. Whether the other side acted on it is unknown unless a subclass says so."""


class ConnectError(RemotingError):
    """No usable connection: nothing was sent, the call can be made again."""


class CallTimeoutError(RemotingError):
    """No answer in time. The connection was closed, as Java's client does: what else waits on it fails too."""


class ConnectionLostError(RemotingError):
    """The connection broke while the answer was awaited."""


class _Channel(asyncio.Protocol):
    """One outgoing connection with its requests in flight."""

    def __init__(self, client: "RemotingClient", address: str) -> None:
        self.closed: asyncio.Future[None] = client.loop.create_future()
        self._client = client
        self._address = address
        self._frames = RemotingConnection()
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            commands = self._frames.receive_data(data)
        except FrameError as error:
            self.fail(ConnectionLostError(f"{self._address} sent a bad frame: {error}"))
            return
        for command in commands:
            if command.is_response:
                waiting = self._waiting.pop(command.opaque, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(command)
            elif self._client.on_push is not None:
                try:
                    self._client.on_push(command, self._address)
                except Exception:
                    # A bug there must not take the connection from the calls that wait on it.
                    log.exception("push failed", code=command.code, address=self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc is not None else ""
        self._transport = None
        self.fail(ConnectionLostError(f"{self._address} closed the connection{reason}"))
        if not self.closed.done():
            self.closed.set_result(None)

    # for the client

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, opaque: int, frame: bytes) -> "asyncio.Future[RemotingCommand]":
        """Write `frame`; the future is its answer.

        Raises:
            ConnectError: see `write`; or too many requests in flight.
        """
        if len(self._waiting) >= MAX_REQUESTS_IN_FLIGHT:
            raise ConnectError(f"more than {MAX_REQUESTS_IN_FLIGHT} requests in flight to {self._address}")
        self.write(frame)
        waiting: asyncio.Future[RemotingCommand] = self._client.loop.create_future()
        self._waiting[opaque] = waiting
        return waiting

    def write(self, frame: bytes) -> None:
        """Queue `frame`; everything queued in this turn of the loop leaves in one write.

        Raises:
            ConnectError: the connection has ended, or was closed because the peer has not read for too long.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectError(f"{self._address} closed the connection")
        if self._out_bytes + self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            reason = f"{self._address} does not read: more than {MAX_UNSENT_BYTES} bytes wait for it"
            self.fail(ConnectionLostError(reason))
            raise ConnectError(reason)
        if not self._out:
            self._client.loop.call_soon(self.flush)
        self._out.append(frame)
        self._out_bytes += len(frame)

    def flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if self.open and out:
            assert self._transport is not None
            self._transport.write(b"".join(out))

    def expire(self, opaque: int, timeout: float) -> None:
        """End the call `opaque` if it still waits, and the connection with it."""
        waiting = self._waiting.pop(opaque, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(CallTimeoutError(f"no answer from {self._address} within {timeout:g} s"))
            self.fail(
                ConnectionLostError(
                    f"connection to {self._address} closed: another call on it was not answered in time"
                )
            )

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def fail(self, error: RemotingError) -> None:
        """End the connection at once, and everything that waits on it with `error`."""
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection once what was written has left."""
        self.flush()
        self._end(ConnectionLostError(f"connection to {self._address} closed here"))
        if self._transport is not None:
            self._transport.close()

    def _end(self, error: RemotingError) -> None:
        self._client.dropped(self._address, self)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)


Push = Callable[[RemotingCommand, str], None]
"""Takes a request that the other side sent over our connection, and that side's address."""

Lost = Callable[[str], None]
"""Takes the address that a connection was open to."""


class RemotingClient:
    """Requests and oneways to any number of addresses."""

    def __init__(self, *, connect_timeout: float = 3.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.on_push: Push | None = None
        self.on_lost: Lost | None = None
        """Called when an open connection ended, except by `close`; calls fail separately."""
        self._connect_timeout = connect_timeout
        self._opaque = itertools.count(1)
        self._open: dict[str, _Channel] = {}
        self._connecting: dict[str, asyncio.Task[_Channel]] = {}
        self._closed = False

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:  # noqa: ASYNC109
        """Send `request` and wait for its answer, whatever its code. `timeout`, in seconds, covers connecting too.

        Raises:
            ConnectError: no connection in time; nothing was sent.
            CallTimeoutError, ConnectionLostError: sent, outcome unknown.
            ValueError: `request` does not fit a frame.
        """
        deadline = self.loop.time() + timeout
        opaque, frame = self._frame(request)
        channel = await self._channel(address, timeout)
        answer = channel.ask(opaque, frame)
        timer = self.loop.call_at(deadline, channel.expire, opaque, timeout)
        try:
            return await answer
        finally:
            timer.cancel()
            channel.forget(opaque)

    async def send_oneway(self, address: str, request: RemotingCommand) -> None:
        """Hand `request`, marked as oneway, to the kernel; no answer will come.

        Raises:
            ConnectError: no connection; nothing was sent.
            ValueError: `request` does not fit a frame.
        """
        request.flag |= FLAG_ONEWAY
        _, frame = self._frame(request)
        channel = await self._channel(address, self._connect_timeout)
        channel.write(frame)
        channel.flush()

    async def close(self) -> None:
        """Close every connection; calls in flight end with ConnectionLostError, later ones with ConnectError."""
        self._closed = True
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        channels = list(self._open.values())
        for channel in channels:
            channel.close()
        if channels:
            await asyncio.wait([channel.closed for channel in channels], timeout=LINGER_SECONDS)
        for channel in channels:
            channel.fail(ConnectionLostError("closed here"))
        await asyncio.sleep(0)  # aborted sockets are closed in the loop's next turn

    def dropped(self, address: str, channel: _Channel) -> None:
        """Called by the connection itself: the next request to `address` opens a new one."""
        if self._open.get(address) is channel:
            del self._open[address]
            if self.on_lost is not None and not self._closed:
                self.on_lost(address)

    def _frame(self, request: RemotingCommand) -> tuple[int, bytes]:
        """A fresh opaque and the frame with it; both are taken at once, so one request can go to many addresses."""
        request.opaque = next(self._opaque) & 0x7FFFFFFF
        return request.opaque, encode_frame(request)

    async def _channel(self, address: str, timeout: float) -> _Channel:  # noqa: ASYNC109
        channel = self._open.get(address)
        if channel is not None and channel.open:
            return channel
        if self._closed:
            raise ConnectError(f"cannot connect to {address}: this client is closed")
        task = self._connecting.get(address)
        if task is None:
            task = background.awaited(self._connect(address), f"connection to {address}")
            self._connecting[address] = task
            task.add_done_callback(partial(self._connected, address))
        try:
            async with asyncio.timeout(timeout):
                # Shielded: one caller that gives up must not take the connection from the others.
                return await asyncio.shield(task)
        except TimeoutError:
            raise ConnectError(f"cannot connect to {address} within {timeout:g} s") from None
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            # `close` cancelled the task, not the caller.
            raise ConnectError(f"cannot connect to {address}: this client is closed") from None

    def _connected(self, address: str, task: "asyncio.Task[_Channel]") -> None:
        """The task is done. All who waited may have given up: its error is retrieved here, so that asyncio does not
        report it as never retrieved."""
        del self._connecting[address]
        if not task.cancelled():
            task.exception()

    async def _connect(self, address: str) -> _Channel:
        try:
            host, port = parse_address(address)
            async with asyncio.timeout(self._connect_timeout):
                _, channel = await lookups.connect(self.loop, lambda: _Channel(self, address), host, port)
        except (OSError, ValueError) as error:
            raise ConnectError(f"cannot connect to {address}: {_reason(error, self._connect_timeout)}") from error
        if not channel.open:
            raise ConnectError(f"cannot connect to {address}: it closed the connection at once")
        self._open[address] = channel
        return channel


def _reason(error: Exception, connect_timeout: float) -> str:
    """What was wrong in a few words, without asyncio's repetition of the address."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, TimeoutError):
        return f"not within {connect_timeout:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
