"""Keeps strangers from filling the log: limits the lines about the same problem.

Used wherever others can cause a log line as often as they like, for each host: the remoting servers, the transport
between controllers. `logs` limits what all of them write together.
"""

from collections.abc import Callable
from typing import ClassVar, Final

MAX_KEYS: Final = 1000
"""Keys that are remembered, and lines about all of them in one period (if not said otherwise): a stranger with many
addresses or names fills neither the memory nor the log."""
MAX_KEY: Final = 200
"""Characters of a key that count."""


class LogLimiter:
    """`limiter(key)` is true when a line about `key` may be written: a few times in `seconds`, and at most `total`
    lines about all keys."""

    left_out: ClassVar[int] = 0
    """Lines that all limiters of the process refused; `logs` writes how many."""

    def __init__(self, clock: Callable[[], float], seconds: float, *, lines: int = 1, total: int = MAX_KEYS) -> None:
        """`clock`: monotonic seconds. `lines`: how many in `seconds` for each key."""
        self._clock = clock
        self._seconds = seconds
        self._lines = lines
        self._total = total
        self._periods: dict[str, tuple[float, int]] = {}
        """Key -> (begin of the period, lines in it)."""
        self._all = (clock(), 0)
        """The same of all keys."""

    def __call__(self, key: str) -> bool:
        allowed = self._allowed(key)
        if not allowed:
            LogLimiter.left_out += 1
        return allowed

    def _allowed(self, key: str) -> bool:
        now, key = self._clock(), key[:MAX_KEY]
        all_begin, all_lines = self._all
        if now - all_begin >= self._seconds:
            all_begin, all_lines = now, 0
        if all_lines >= self._total:
            return False
        begin, lines = self._periods.get(key, (now, 0))
        if now - begin >= self._seconds:
            begin, lines = now, 0
        if lines >= self._lines:
            return False
        if key not in self._periods and len(self._periods) >= MAX_KEYS:
            self._periods.clear()
        self._all = (all_begin, all_lines + 1)
        self._periods[key] = (begin, lines + 1)
        return True
