"""Calls to the controllers, for the agent: requests, which end in an answer or in None, and heartbeats.

Connections are opened when needed, names are resolved again each time. One connection per controller carries both
requests and heartbeats. When it closes, the controllers take this replica for dead; `disconnect` does that.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

import structlog

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_sidecar.domain.actions import Request

log = structlog.get_logger(__name__)

TIMEOUT = 3.0
"""Seconds, as Java's broker. A call that times out closes the connection; the machine's own time-outs are shorter."""


class HeartbeatDone(Protocol):
    """Called when a heartbeat has ended."""

    def __call__(self, address: str, *, accepted: bool) -> None: ...


class ControllerLink:
    """All connections to controllers. Results come in the loop's later turns, none after `disconnect`."""

    def __init__(self) -> None:
        self._client = RemotingClient(connect_timeout=TIMEOUT)
        self._calls: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def send(self, asked: Request, done: Callable[[Request, RemotingCommand | None], None]) -> None:
        """Send `send`; `done` gets its answer, or None."""
        self._spawn(self._call(asked, done))

    def heartbeat(self, addresses: tuple[str, ...], header: BrokerHeartbeatRequestHeader, done: HeartbeatDone) -> None:
        """Send 904 to each address; `done` is called for each, with whether it was accepted."""
        for address in addresses:
            self._spawn(self._send_heartbeat(address, header, done))

    def disconnect(self) -> None:
        """Close all connections at once; calls under way are dropped. The next call opens new ones."""
        for task in self._calls:
            task.cancel()
        old, self._client = self._client, RemotingClient(connect_timeout=TIMEOUT)
        closing = background.start(old.close(), "end of connections to controllers")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def settled(self) -> None:
        """Wait until all calls under way have ended."""
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def close(self) -> None:
        """Disconnect for good."""
        self.disconnect()
        await asyncio.gather(*self._calls, *self._closing, return_exceptions=True)
        await self._client.close()

    def _spawn(self, call: Coroutine[None, None, None]) -> None:
        task = background.start(call, "call to a controller")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, asked: Request, done: Callable[[Request, RemotingCommand | None], None]) -> None:
        answer: RemotingCommand | None = None
        try:
            command = request(asked.code, asked.header, asked.body)
            answer = await self._client.call(asked.address, command, timeout=TIMEOUT)
        except RemotingError as error:
            log.debug("no answer", code=asked.code.name, controller=asked.address, reason=str(error))
        done(asked, answer)

    async def _send_heartbeat(self, address: str, header: BrokerHeartbeatRequestHeader, done: HeartbeatDone) -> None:
        accepted = False
        try:
            answer = await self._client.call(address, request(RequestCode.BROKER_HEARTBEAT, header), timeout=TIMEOUT)
            accepted = answer.code == ResponseCode.SUCCESS
        except RemotingError as error:
            log.debug("heartbeat not accepted", controller=address, reason=str(error))
        done(address, accepted=accepted)
