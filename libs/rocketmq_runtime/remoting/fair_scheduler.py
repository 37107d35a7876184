"""Shares the event loop among connections with requests: none holds it for long, however many requests it sends.

A connection handles its requests at once while the turn of the loop has time left; otherwise it waits in line.
Connections that used up their slice the last time wait behind those that did not.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

SLICE_SECONDS: Final = 0.01
"""Requests of one connection are handled for this long, then others have their turn. One request can take longer:
handlers split those into steps."""
TURN_SECONDS: Final = 0.025
"""Requests of all connections are handled for this long in one turn of the loop, then its timers and other sockets
are served."""
COUNTED_SECONDS: Final = 0.002
"""Less than this may be left over from earlier turns of the loop: to forget it costs a callback for each request."""


class Worker(Protocol):
    def turn(self) -> None:
        """Handle some requests, report the time to `FairScheduler.spend`, and wait again if there are more."""

    def flush(self) -> None:
        """Write what was answered."""


class FairScheduler:
    """One per process or server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spent = 0.0
        """Seconds of this turn of the loop, and less than `COUNTED_SECONDS` of earlier ones."""
        self._scheduled = False
        self._flushing: list[Worker] = []
        self._quick: deque[Worker] = deque()
        self._slow: deque[Worker] = deque()

    @property
    def free(self) -> bool:
        """Whether a connection may handle requests at once."""
        return not self._quick and self._spent < TURN_SECONDS

    def spend(self, seconds: float) -> None:
        """Requests took `seconds` of this turn of the loop."""
        self._spent += seconds
        if self._spent >= COUNTED_SECONDS and not self._scheduled:
            self._schedule()

    def wait(self, worker: Worker, *, slow: bool) -> None:
        """`worker.turn` is called once when it is its turn. `slow`: it has just used up a slice."""
        (self._slow if slow else self._quick).append(worker)
        if not self._scheduled:
            self._schedule()

    def flush_later(self, worker: Worker) -> None:
        """`worker.flush` is called once, in the next turn of the loop."""
        self._flushing.append(worker)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """A new turn of the loop."""
        self._scheduled = False
        self._spent = 0.0
        if self._flushing:
            flushing, self._flushing = self._flushing, []
            for worker in flushing:
                worker.flush()
        if self._quick or self._slow:
            self._work_off()

    def _work_off(self) -> None:
        """The quick ones first, as far as the time allows; the slow ones wait, but do not starve."""
        for _ in range(len(self._quick)):
            self._quick.popleft().turn()
            if self._spent >= TURN_SECONDS:
                break
        if self._slow:
            self._slow.popleft().turn()
        if (self._quick or self._slow) and not self._scheduled:
            self._schedule()
