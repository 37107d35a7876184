"""Keeps strangers from filling the log: a line about the same trouble passes once in a while.

Used wherever a line answers something that others send as often as they like: the name server's door, the transport
between controllers.
"""

from collections.abc import Callable
from typing import Final

MAX_KEYS: Final = 1000
"""Kinds of trouble that are remembered; above it all are forgotten, and each may be said once more."""


class Quiet:
    """`quiet(key)` is true when a line about `key` may be written: once in `seconds`."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        """`clock`: seconds that only grow."""
        self._clock = clock
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def __call__(self, key: str) -> bool:
        now = self._clock()
        last = self._last.get(key)
        if last is not None and now - last < self._seconds:
            return False
        if len(self._last) >= MAX_KEYS:
            self._last.clear()
        self._last[key] = now
        return True
