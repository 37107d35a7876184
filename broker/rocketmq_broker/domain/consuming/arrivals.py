"""When delayed messages arrived, by monotonic clocks, which are never set and never compared between replicas.

A message is due its delay after it arrived. Java compares its wall clock with the store timestamp: it delivers early
when its clock is set, or when a replica with another clock takes over. Here every replica records when messages become
visible to it, and a master sends its slaves the minimum age of the messages in its queues. So a slave that has just
started, or is catching up, also has the ages of messages that arrived before.

A wall clock decides only for messages whose arrival no running replica recorded: the whole group was down since, or
a single replica was.
Used by `level_ages.py`. Times and ages are in ms.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

Ages = Sequence[tuple[int, int]]
"""(end, age) by rising end: the messages before the offset `end` arrived at least `age` ms ago. Those before the first
end may be much older."""

GRAINS: Final = 1000
"""Parts of a delay: arrivals within one part are merged, which bounds how many are kept."""
SENT_GRAINS: Final = 32
"""The same for the ages sent to slaves, twice a second."""

_NOT_YET: Final = 2**63


class _Arrival(msgspec.Struct, frozen=True):
    """The messages from the previous entry's `end` to this one arrived when the monotonic clock showed `came`, or
    earlier."""

    end: int
    came: int


class Arrivals:
    """The arrivals of one level's queue."""

    def __init__(self, delay: int) -> None:
        """`delay`: of the level, in ms."""
        self._delay = delay
        self._grain = max(delay // GRAINS, 1)
        self._arrivals: list[_Arrival] = []
        """Oldest first, by rising end. Messages before the first end were there when recording began."""
        self._wall: _Arrival | None = None
        """The wall clock's reading (as `end`) and the monotonic clock's at the same time."""

    def found(self, end: int, steady: int) -> None:
        """The queue ends at the offset `end`, and when its messages arrived is not known. Not after `observe`."""
        if len(self._arrivals) <= 1:
            before = self._arrivals[0] if self._arrivals else _Arrival(0, steady)
            self._arrivals = [_Arrival(max(end, before.end), before.came)]

    def observe(self, end: int, steady: int) -> None:
        """The queue ends at the offset `end` now. Call it whenever there are new messages."""
        arrivals = self._arrivals
        if not arrivals:
            arrivals.append(_Arrival(0, steady))
        if arrivals[-1].end >= end:
            return
        if len(arrivals) > 1 and steady - arrivals[-2].came < self._grain:
            del arrivals[-1]
        arrivals.append(_Arrival(end, steady))
        self._forget_due(steady)

    def merge(self, ages: Ages, steady: int) -> None:
        """Take over the minimum ages that this slave's master sent."""
        theirs = [_Arrival(end, steady - age) for end, age in ages]
        if theirs and self._arrivals:
            ends = sorted({arrival.end for arrival in (*self._arrivals, *theirs)})
            self._arrivals = _rising(_Arrival(end, min(_came(self._arrivals, end), _came(theirs, end))) for end in ends)
        elif theirs:
            self._arrivals = _rising(theirs)
        self._forget_due(steady)

    def ages(self, steady: int) -> Ages:
        """For slaves; merged to a few entries."""
        kept = self._arrivals[:1]
        for arrival in self._arrivals[1:]:
            if len(kept) > 1 and arrival.came - kept[-2].came < self._delay // SENT_GRAINS:
                del kept[-1]
            kept.append(arrival)
        return [(arrival.end, max(steady - arrival.came, 0)) for arrival in kept]

    def cut(self, end: int) -> None:
        """The queue is cut at the offset `end`; other messages may follow there."""
        while self._arrivals and self._arrivals[-1].end > end:
            last = self._arrivals.pop()
            if not self._arrivals or self._arrivals[-1].end < end:
                self._arrivals.append(_Arrival(end, last.came))

    def wall_clock(self, wall: int, steady: int) -> None:
        """The wall clock's reading, for messages whose arrival is not known. Only the first call counts."""
        self._wall = self._wall or _Arrival(wall, steady)

    def due_in(self, offset: int, store_timestamp: int, steady: int) -> int:
        """Milliseconds until the message at `offset`, stored at `store_timestamp` (by some wall clock), is due; 0 for
        at once. Never more than the delay."""
        arrivals = self._arrivals
        index = bisect_right(arrivals, offset, key=attrgetter("end"))
        if index == len(arrivals):
            return self._delay
        wait = self._delay - (steady - arrivals[index].came)
        if index == 0 and self._wall is not None:
            stored_ago = self._wall.end - store_timestamp + steady - self._wall.came
            wait = min(wait, self._delay - stored_ago)
        return max(wait, 0)

    def _forget_due(self, steady: int) -> None:
        arrivals = self._arrivals
        due = bisect_right(arrivals, steady - self._delay, lo=1, key=attrgetter("came")) if len(arrivals) > 1 else 1
        del arrivals[: due - 1]  # everything before the last of them is due anyway


def _came(arrivals: Sequence[_Arrival], end: int) -> int:
    """An upper bound of when the message before `end` arrived."""
    index = bisect_left(arrivals, end, key=attrgetter("end"))
    return arrivals[index].came if index < len(arrivals) else _NOT_YET


def _rising(arrivals: Iterable[_Arrival]) -> list[_Arrival]:
    """Messages arrive in order, so a later message's bound holds for all before it: together, two replicas' records are
    tighter than each one alone."""
    kept: list[_Arrival] = []
    for arrival in arrivals:
        while len(kept) > 1 and kept[-1].came >= arrival.came:
            del kept[-1]
        if len(kept) == 1:
            kept[0] = _Arrival(kept[0].end, min(kept[0].came, arrival.came))
        kept.append(arrival)
    return kept
