"""Our requests to a client over the connection that it opened, and its answers. Used by `peer`."""

import asyncio
from typing import Final, Protocol

import msgspec

from rocketmq_formats.remoting.command import RemotingCommand

MAX_CALLS: Final = 4096
"""Requests of ours to one peer that wait for its answer."""


class PeerCallError(Exception):
    """A request of ours to a peer got no answer; whether it was acted on is unknown, unless a subclass says so."""


class PeerBusyError(PeerCallError):
    """The peer is gone, or does not take what it is sent: nothing was sent."""


class PeerTimeoutError(PeerCallError):
    """No answer in time. The connection stays."""


class Callee(Protocol):
    """What a call needs of its peer."""

    address: str

    @property
    def takes(self) -> bool: ...
    def send(self, command: RemotingCommand) -> None: ...


class PeerCalls:
    """Those of one connection. It does not hold its peer, which holds it."""

    __slots__ = ("_last_opaque", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[RemotingCommand | None]] = {}
        """By opaque; None is the answer of a connection that ended."""
        self._last_opaque = 0

    async def call(self, peer: Callee, command: RemotingCommand, seconds: float) -> RemotingCommand:
        """See `Peer.call`."""
        if not peer.takes or len(self._waiting) >= MAX_CALLS:
            raise PeerBusyError(f"{peer.address} is gone or does not read")
        self._last_opaque = opaque = (self._last_opaque + 1) & 0x7FFFFFFF
        peer.send(msgspec.structs.replace(command, opaque=opaque))
        waiting: asyncio.Future[RemotingCommand | None] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = waiting
        try:
            async with asyncio.timeout(seconds):
                answer = await waiting
        except TimeoutError as error:
            raise PeerTimeoutError(f"no answer from {peer.address} within {seconds:g} s") from error
        finally:
            del self._waiting[opaque]
        if answer is None:
            raise PeerCallError(f"{peer.address} closed the connection")
        return answer

    def answered(self, answer: RemotingCommand) -> None:
        """An answer to no call, or to one that has ended, is dropped."""
        waiting = self._waiting.get(answer.opaque)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end(self) -> None:
        """The connection ended: no call gets an answer any more."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)
