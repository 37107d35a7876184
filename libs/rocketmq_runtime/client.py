"""Calls to other RocketMQ processes: one connection per address, shared by all requests, opened when first needed.

Used by the controller to notify brokers, and by tools, agents and tests to call controllers, name servers and brokers.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import cast

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection

MAX_REQUESTS_IN_FLIGHT = 65_536


class RemotingError(Exception):
    """A call that got no answer. Whether the other side acted on it is unknown unless a subclass says so."""


class ConnectError(RemotingError):
    """No connection: nothing was sent."""


class CallTimeoutError(RemotingError):
    """No answer in time; the connection was closed, as Java's client does, so that no late answer is taken for another."""


class ConnectionLostError(RemotingError):
    """The connection broke while the answer was awaited."""


def parse_address(address: str) -> tuple[str, int]:
    """`host:port` (IPv6 in brackets) as a pair.

    Raises:
        ValueError: no port, or not a number between 1 and 65535.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"not an address of the form host:port: {address!r}")
    return host.strip("[]"), int(port)


class _Channel(asyncio.Protocol):
    """One outgoing connection with its requests in flight."""

    def __init__(self, client: "RemotingClient", address: str) -> None:
        self._client = client
        self._address = address
        self._frames = RemotingConnection()
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []

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
                self._client.on_push(command, self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.fail(ConnectionLostError(f"{self._address} closed the connection"))

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, frame: bytes) -> None:
        if not self._out:
            self._client.loop.call_soon(self.flush)
        self._out.append(frame)

    def flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out))

    def expect(self, opaque: int) -> "asyncio.Future[RemotingCommand]":
        if len(self._waiting) >= MAX_REQUESTS_IN_FLIGHT:
            raise RemotingError(f"more than {MAX_REQUESTS_IN_FLIGHT} requests in flight to {self._address}")
        waiting: asyncio.Future[RemotingCommand] = self._client.loop.create_future()
        self._waiting[opaque] = waiting
        return waiting

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def fail(self, error: RemotingError) -> None:
        """End the connection and everything that waits on it."""
        self._client.dropped(self._address, self)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


Push = Callable[[RemotingCommand, str], None]
"""Takes a request that the other side sent over our connection, and that side's address."""


class RemotingClient:
    """Requests and oneways to any number of addresses."""

    def __init__(self, *, connect_timeout: float = 3.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.on_push: Push | None = None
        self._connect_timeout = connect_timeout
        self._opaque = itertools.count(1)
        self._channels: dict[str, asyncio.Task[_Channel]] = {}

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:  # noqa: ASYNC109
        """Send `request` and wait for its answer, whatever its code.

        Raises:
            ConnectError: could not connect; nothing was sent.
            CallTimeoutError, ConnectionLostError: sent, outcome unknown.
        """
        channel = await self._channel(address)
        request.opaque = next(self._opaque) & 0x7FFFFFFF
        answer = channel.expect(request.opaque)
        channel.write(encode_frame(request))
        timer = self.loop.call_later(timeout, self._expire, channel, address, answer, timeout)
        try:
            return await answer
        finally:
            timer.cancel()
            channel.forget(request.opaque)

    async def send_oneway(self, address: str, request: RemotingCommand) -> None:
        """Hand `request` to the kernel; no answer will come.

        Raises:
            ConnectError: could not connect; nothing was sent.
        """
        channel = await self._channel(address)
        request.opaque = next(self._opaque) & 0x7FFFFFFF
        channel.write(encode_frame(request))
        channel.flush()

    async def close(self) -> None:
        """Close every connection; calls in flight end with ConnectionLostError."""
        tasks, self._channels = self._channels, {}
        for address, task in tasks.items():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().fail(ConnectionLostError(f"connection to {address} closed here"))
            else:
                task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    def dropped(self, address: str, channel: _Channel) -> None:
        """Called by the connection itself: the next request to `address` opens a new one."""
        task = self._channels.get(address)
        if task is not None and task.done() and not task.cancelled() and task.exception() is None and task.result() is channel:
            del self._channels[address]

    async def _channel(self, address: str) -> _Channel:
        task = self._channels.get(address)
        if task is not None and task.done() and (task.cancelled() or task.exception() or not task.result().open):
            task = None
        if task is None:
            task = self.loop.create_task(self._connect(address))
            self._channels[address] = task
        # Shielded: one caller that gives up must not take the connection from the others.
        return await asyncio.shield(task)

    async def _connect(self, address: str) -> _Channel:
        try:
            host, port = parse_address(address)
            async with asyncio.timeout(self._connect_timeout):
                _, channel = await self.loop.create_connection(lambda: _Channel(self, address), host, port)
        except (OSError, TimeoutError, ValueError) as error:
            raise ConnectError(f"cannot connect to {address}: {error or type(error).__name__}") from error
        return channel

    def _expire(self, channel: _Channel, address: str, answer: "asyncio.Future[RemotingCommand]", timeout: float) -> None:  # noqa: ASYNC109
        if not answer.done():
            answer.set_exception(CallTimeoutError(f"no answer from {address} within {timeout:g} s"))
            channel.fail(ConnectionLostError(f"connection to {address} closed after another call on it timed out"))
