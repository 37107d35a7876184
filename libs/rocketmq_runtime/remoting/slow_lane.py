"""Requests that take long: they run one at a time, in steps between which the event loop runs.

Large requests wait for other large ones; small requests do not. Hosts have their turns one after the other, so a host
that asks much makes itself wait. Used by the broker (tools that ask about tens of
thousands of queues) and by the name server (registrations with tens of thousands of topics).
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Final, TypeVar

from rocketmq_formats.steps import Steps
from rocketmq_runtime import background

STEP_SECONDS: Final = 0.005
MAX_WAITING: Final = 256
"""Requests of all connections."""
MAX_WAITING_OF_HOST: Final = 64
MAX_WAITING_OF_PEER: Final = 16

T = TypeVar("T")


class LaneFullError(Exception):
    """Too many requests wait already, of this peer, of its host or of all."""


class Pace:
    """Measures the steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()

    @property
    def over(self) -> bool:
        """`rest` is due. Two calls, because most of the time it is not, and a coroutine costs more than this."""
        return self._clock() - self._began >= STEP_SECONDS

    async def rest(self) -> None:
        """Let the event loop run, and begin the next step."""
        await asyncio.sleep(0)
        self._began = self._clock()


class Lane:
    """One per process or kind of request; within a host first come, first served."""

    def __init__(self, clock: Callable[[], float] | None = None, *, max_waiting_of_peer: int = MAX_WAITING_OF_PEER):
        """`clock`: seconds that grow within a turn of the loop."""
        self._clock = clock or time.perf_counter
        self._max_waiting_of_peer = max_waiting_of_peer
        self.waiting: Counter[Hashable] = Counter()
        """Requests that wait or run, by peer and by host."""
        self._all = 0
        self._running = False
        self._lines: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """By host, in the order of their turns."""

    def run(
        self, peer: Hashable, make: Callable[[Pace], Awaitable[T]], *, host: Hashable = None
    ) -> "asyncio.Future[T]":
        """What `make` returns or raises, when it is its turn. `peer` and `host` are counted for their limits; without
        a host each peer counts as one.

        Raises:
            LaneFullError: `make` will not be called.
        """
        keys = (("peer", peer), ("host", peer if host is None else host))
        limits = (self._max_waiting_of_peer, MAX_WAITING_OF_HOST)
        if self._all >= MAX_WAITING or any(self.waiting[key] >= most for key, most in zip(keys, limits, strict=True)):
            raise LaneFullError("too many requests that take long: wait for their answers")
        self.waiting.update(keys)
        self._all += 1
        work = background.awaited(self._run(keys[1][1], make), "slow lane")
        work.add_done_callback(lambda _: self._ended(keys))
        return work

    async def _run(self, host: Hashable, make: Callable[[Pace], Awaitable[T]]) -> T:
        await self._turn(host)
        try:
            return await make(Pace(self._clock))
        finally:
            self._next()

    def _ended(self, keys: Iterable[Hashable]) -> None:
        self._all -= 1
        for key in keys:
            self.waiting[key] -= 1
            if not self.waiting[key]:
                del self.waiting[key]

    async def _turn(self, host: Hashable) -> None:
        if not self._running:
            self._running = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(host, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()  # it came too late
            raise

    def _next(self) -> None:
        """The next host's turn."""
        while self._lines:
            host = next(iter(self._lines))
            line = self._lines.pop(host)
            turn = line.popleft()
            if line:
                self._lines[host] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._running = False

    def first_step(self, steps: Steps[T]) -> tuple[T] | None:
        """Work on `steps` for one step without waiting; the result if that is enough. Raises what they raise."""
        pace = Pace(self._clock)
        while not pace.over:
            try:
                next(steps)
            except StopIteration as end:
                return (end.value,)
        return None


async def in_steps(steps: Steps[T], pace: Pace) -> T:
    """Work on `steps` to the end. Raises what they raise."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if pace.over:
            await pace.rest()
