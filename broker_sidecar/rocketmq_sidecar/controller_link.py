"""Calls to the controllers, for the agent: questions that end in an answer or in None, and heartbeats, also answered.

Connections are opened when needed, names are resolved anew each time. One connection per controller carries questions
and heartbeats alike: the controllers take its end for the end of this replica, so `disconnect` is how it dies.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

import structlog

from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from rocketmq_runtime.client import RemotingClient, RemotingError
from rocketmq_sidecar.domain.actions import Ask

log = structlog.get_logger(__name__)

TIMEOUT = 3.0
"""Seconds, as Java's broker. A call that times out closes the connection; the machine loses patience long before."""


class BeatDone(Protocol):
    """Told of a heartbeat's end."""

    def __call__(self, address: str, *, taken: bool) -> None: ...


class ControllerLink:
    """All connections to controllers. Results come in the loop's later turns, none after `disconnect`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = RemotingClient(connect_timeout=TIMEOUT)
        self._calls: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def ask(self, ask: Ask, done: Callable[[Ask, RemotingCommand | None], None]) -> None:
        """Send `ask`; `done` gets its answer, or None."""
        self._spawn(self._ask(ask, done))

    def beat(self, addresses: tuple[str, ...], header: BrokerHeartbeatRequestHeader, done: BeatDone) -> None:
        """Send 904 to each address; `done` is told of each whether it was taken."""
        for address in addresses:
            self._spawn(self._beat(address, header, done))

    def disconnect(self) -> None:
        """Close all connections at once; what was asked is forgotten. The next call opens new ones."""
        for task in self._calls:
            task.cancel()
        old, self._client = self._client, RemotingClient(connect_timeout=TIMEOUT)
        closing = self._loop.create_task(old.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def settled(self) -> None:
        """Wait until everything that was asked is answered or given up."""
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def close(self) -> None:
        """Disconnect for good."""
        self.disconnect()
        await asyncio.gather(*self._calls, *self._closing, return_exceptions=True)
        await self._client.close()

    def _spawn(self, call: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a call to a controller failed", "exception": error})

    async def _ask(self, ask: Ask, done: Callable[[Ask, RemotingCommand | None], None]) -> None:
        answer: RemotingCommand | None = None
        try:
            command = request(ask.code, ask.header, ask.body)
            answer = await self._client.call(ask.address, command, timeout=TIMEOUT)
        except RemotingError as error:
            log.debug("no answer", code=ask.code.name, controller=ask.address, reason=str(error))
        done(ask, answer)

    async def _beat(self, address: str, header: BrokerHeartbeatRequestHeader, done: BeatDone) -> None:
        taken = False
        try:
            answer = await self._client.call(address, request(RequestCode.BROKER_HEARTBEAT, header), timeout=TIMEOUT)
            taken = answer.code == ResponseCode.SUCCESS
        except RemotingError as error:
            log.debug("heartbeat not taken", controller=address, reason=str(error))
        done(address, taken=taken)
