"""Keeps strangers from filling the log: a line about the same trouble passes once in a while.

Used wherever a line answers something that others send as often as they like: the remoting server, the name server's
door, the transport between controllers.
"""

from collections.abc import Callable
from typing import Final

MAX_KEYS: Final = 1000
"""Kinds of trouble that are remembered; above it all are forgotten, and each may be said once more."""


class Quiet:
    """`quiet(key)` is true when a line about `key` may be written: a few times in `seconds`."""

    def __init__(self, clock: Callable[[], float], seconds: float, *, lines: int = 1) -> None:
        """`clock`: seconds that only grow. `lines`: how many in `seconds` for each key."""
        self._clock = clock
        self._seconds = seconds
        self._lines = lines
        self._periods: dict[str, tuple[float, int]] = {}
        """Begin of the period, lines in it."""

    def __call__(self, key: str) -> bool:
        now = self._clock()
        begin, lines = self._periods.get(key, (now, 0))
        if now - begin >= self._seconds:
            begin, lines = now, 0
        if lines >= self._lines:
            return False
        if lines == 0 and len(self._periods) >= MAX_KEYS:
            self._periods.clear()
        self._periods[key] = (begin, lines + 1)
        return True
