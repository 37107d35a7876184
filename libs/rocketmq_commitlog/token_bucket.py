"""Limits how fast a log is read, so that its owner never starves. Pure: the caller passes the time, in seconds."""

from threading import Lock
from typing import Final

BURST: Final = 0.05
"""Seconds of the rate that may be taken at once after a rest."""


class TokenBucket:
    """Bytes that flow in at `rate`; a caller that takes more waits until the debt is paid. Thread-safe."""

    def __init__(self, rate: float) -> None:
        """`rate`: bytes per second, more than 0."""
        if not rate > 0:
            raise ValueError(f"a rate of {rate} bytes per second")
        self.rate = rate
        self._lock = Lock()
        self._full_at = float("-inf")
        """When the bucket is full again, if nothing is taken until then."""

    def take(self, amount: int, now: float) -> float:
        """`amount` bytes were read: seconds to wait before the next read."""
        with self._lock:
            self._full_at = max(self._full_at, now) + amount / self.rate
            return max(self._full_at - now - BURST, 0.0)
