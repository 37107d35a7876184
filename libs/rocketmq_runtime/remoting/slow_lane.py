"""Requests that take long: they run one at a time, in steps between which the event loop runs.

Large requests wait for other large ones; small requests do not. Used by the broker (tools that ask about tens of
thousands of queues) and by the name server (registrations with tens of thousands of topics).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar

from rocketmq_formats.steps import Steps
from rocketmq_runtime import background

STEP_SECONDS: Final = 0.005
MAX_WAITING: Final = 256
"""Requests of all connections."""
MAX_WAITING_OF_PEER: Final = 16

T = TypeVar("T")


class LaneFullError(Exception):
    """Too many requests wait already, of this peer or of all."""


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
    """One per process or kind of request; first come, first served."""

    def __init__(self, clock: Callable[[], float] | None = None, *, max_waiting_of_peer: int = MAX_WAITING_OF_PEER):
        """`clock`: seconds that grow within a turn of the loop."""
        self._clock = clock or time.perf_counter
        self._max_waiting_of_peer = max_waiting_of_peer
        self._lane = asyncio.Lock()
        self._waiting: Counter[Hashable] = Counter()

    def run(self, peer: Hashable, make: Callable[[Pace], Awaitable[T]]) -> "asyncio.Future[T]":
        """What `make` returns or raises, when it is its turn. `peer`: counted for its limit.

        Raises:
            LaneFullError: `make` will not be called.
        """
        if self._waiting[peer] >= self._max_waiting_of_peer or self._waiting.total() >= MAX_WAITING:
            raise LaneFullError("too many requests that take long: wait for their answers")
        self._waiting[peer] += 1
        return background.awaited(self._run(peer, make), "slow lane")

    async def _run(self, peer: Hashable, make: Callable[[Pace], Awaitable[T]]) -> T:
        try:
            async with self._lane:
                return await make(Pace(self._clock))
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]

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
