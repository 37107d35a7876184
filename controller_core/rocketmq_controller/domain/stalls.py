"""The stalls of this process, in which it could not have heard a broker. `HeartbeatTable` keeps them.

Times are monotonic seconds and never go back.
"""

from collections import deque

_MAX_STALLS = 1000
"""Stalls that are remembered; each is followed by a moment of listening."""


class Stalls:
    """Tells a broker's silence from the time in which nothing was listened to."""

    __slots__ = ("_stalled", "_stalls", "listening_since")

    def __init__(self) -> None:
        self.listening_since = float("-inf")
        """The end of the last stall."""
        self._stalled = 0.0
        """Seconds of all stalls."""
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_MAX_STALLS)
        """(end, `_stalled` by then) of each stall, oldest first."""

    def add(self, now: float, seconds: float) -> None:
        """A stall of `seconds` ends at `now`."""
        self.listening_since = now
        self._stalled += seconds
        self._stalls.append((now, self._stalled))

    def listened(self, heard: float, now: float) -> float:
        """Seconds without a stall since the end of the first stall after `heard`. There must be one."""
        first = (self.listening_since, self._stalled)
        for stall in reversed(self._stalls):
            if stall[0] <= heard:
                break
            first = stall
        return now - first[0] - (self._stalled - first[1])
