"""What /healthz and /readyz say. Called from the probes' own thread, so that a stuck event loop is noticed: reads only.

Healthy: the event loop turns; else a restart helps. Ready: this replica does its part as master or slave; else a
restart would not help, and the text says what would.
"""

import asyncio
import time
from collections.abc import Callable

BEAT_PERIOD = 0.25
STUCK_AFTER = 5.0
"""Seconds without a turn of the event loop that count as stuck."""


class Health:
    """Fed by the event loop, read by the probes."""

    def __init__(self, unready: Callable[[], str | None], now: Callable[[], float] = time.monotonic) -> None:
        """`unready` says why the replica does not do its part; called in the event loop only."""
        self._unready = unready
        self._now = now
        self._last_beat = now()
        self._reason: str | None = "starting"
        self._fatal: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to note the turns of the running event loop."""
        self._beat()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def failed(self, reason: str) -> None:
        """The process is about to end because of `reason`."""
        self._fatal = reason

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        if self._fatal is not None:
            return self._fatal
        silence = self._now() - self._last_beat
        return f"event loop stuck for {silence:.1f} s" if silence > STUCK_AFTER else None

    def ready(self) -> str | None:
        """None, or why this replica is of no use just now."""
        return self.healthy() or self._reason

    def _beat(self) -> None:
        self._last_beat = self._now()
        self._reason = self._unready()
        self._timer = asyncio.get_running_loop().call_later(BEAT_PERIOD, self._beat)
