"""How long members are stalled, and the election time-out that outlasts it. Pure.

With a short time-out a process with too little processor, a slow disk or a slow network looks dead. `timeouts` records
each delay here, and asks for a time-out that outlasts the longest recent one. A single pause counts for `SPAN`; one
that no permitted time-out could outlast is an outage, for which another member has to lead.
"""

import math
from collections import deque

SPAN = 60.0
"""Seconds for which a delay is remembered."""
BUCKET = 5.0
"""Delays within this many seconds are kept as one, so that memory is bounded."""
MARGIN = 1.5
"""The next delay may be longer than all recent ones by this factor."""
STEP = 1.25
"""Time-outs grow by this factor: each new value that is promised costs a write to disk."""


class Stalls:
    """The longest delay of the last `SPAN` seconds."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, float]] = deque(maxlen=int(SPAN / BUCKET) + 2)
        """(since when, longest delay), oldest first."""

    def record(self, now: float, seconds: float) -> None:
        """Something came `seconds` later than it had to. `now` never goes back."""
        if seconds <= 0:
            return
        if self._buckets and now < self._buckets[-1][0] + BUCKET:
            since, longest = self._buckets[-1]
            self._buckets[-1] = (since, max(longest, seconds))
        else:
            self._buckets.append((now, seconds))

    def longest(self, now: float) -> float:
        """The longest recent delay, 0 without any."""
        while self._buckets and now >= self._buckets[0][0] + SPAN:
            self._buckets.popleft()
        return max((seconds for _, seconds in self._buckets), default=0.0)


def election_timeout(least: float, most: float, heartbeat: float, longest_stall: float) -> float:
    """Seconds of silence after which a leader counts as dead, if it sends a heartbeat each `heartbeat` seconds and no
    stall is longer than `longest_stall`: between `least` and `most`, in steps."""
    need = 2 * heartbeat + MARGIN * longest_stall
    if need <= least:
        return least
    steps = math.ceil(math.log(need / least, STEP) - 1e-9)
    return min(most, least * STEP**steps)
