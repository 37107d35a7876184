"""The memory that strangers take at the remoting servers of a process, bounded in sum over all their connections.

Two kinds are counted: what was received and cannot be handled yet (half frames, requests behind others), and what was
answered and not read. Above a bound the connections are closed that hold the most for the longest time. A peer that
keeps sending or reading counts as young, however large its messages are.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from rocketmq_runtime.remoting.budget import Budget

SMALL: Final = 4096
"""Unsent bytes of one connection that are not counted."""
ROOM_SECONDS: Final = 0.05
"""Seconds between checks for room while answers wait for it."""
SLOW_READER_SECONDS: Final = 1.0
"""While answers wait for room, peers that have not read their answers for this long are closed."""

UNFINISHED: Final = "too many bytes of unfinished requests, connection closed"
UNTAKEN: Final = "peer does not take its answers, connection closed"


class Holder(Protocol):
    @property
    def unsent(self) -> int:
        """Bytes that are kept until the peer takes them."""

    def give_way(self, event: str) -> None:
        """Close: others need the memory. `event` is for the log."""


class ServerMemory:
    """One per process, shared by its servers."""

    def __init__(self, *, max_received_bytes: int, max_unsent_bytes: int) -> None:
        """Both bounds are sums over all connections, in bytes. Needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        self.received: Budget[Holder] = Budget(max_received_bytes)
        self.unsent: Budget[Holder] = Budget(max_unsent_bytes)
        self._waiting: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def roomy(self) -> bool:
        """Whether answers that can wait may be written now: half of the bound is left to those that cannot."""
        return self.unsent.total * 2 <= self.unsent.limit

    def set_received(self, holder: Holder, size: int, *, fresh: bool) -> None:
        received, now = self.received, self._loop.time()
        received.set(holder, size, now, fresh=fresh)
        if received.exceeded:
            for heavy in received.heaviest(now, down_to=received.limit * 7 // 8):
                received.set(heavy, 0, now)
                heavy.give_way(UNFINISHED)

    def set_unsent(self, holder: Holder, size: int) -> None:
        """`holder` has `size` unsent bytes."""
        unsent, now = self.unsent, self._loop.time()
        unsent.set(holder, size, now)
        if unsent.exceeded:
            unsent.measure(_unsent, now)
            if unsent.exceeded:
                self._end_heaviest(unsent.limit * 7 // 8)

    def remove(self, holder: Holder) -> None:
        """The connection is closed."""
        now = self._loop.time()
        self.received.set(holder, 0, now)
        self.unsent.set(holder, 0, now)

    def when_roomy(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, in turn, when there is room."""
        self._waiting.append(callback)
        if self._timer is None:
            self._timer = self._loop.call_later(ROOM_SECONDS, self._check)

    def stop(self) -> None:
        """Drop all waiting callbacks."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        self.unsent.measure(_unsent, self._loop.time())
        if not self.roomy:
            self._end_heaviest(self.unsent.limit // 4, older_than=SLOW_READER_SECONDS)
        for _ in range(len(self._waiting)):
            if not self.roomy:
                break
            self._waiting.popleft()()
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_later(ROOM_SECONDS, self._check)

    def _end_heaviest(self, down_to: int, *, older_than: float = 0.0) -> None:
        now = self._loop.time()
        for heavy in self.unsent.heaviest(now, down_to=down_to, older_than=older_than):
            self.unsent.set(heavy, 0, now)
            heavy.give_way(UNTAKEN)


def _unsent(holder: Holder) -> int:
    size = holder.unsent
    return size if size > SMALL else 0
