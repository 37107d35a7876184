"""Whether the event loop still turns. Used by the health of every process: beaten by the loop, read by the probes' own
thread, so that a stuck loop is noticed."""

import asyncio
import time
from collections.abc import Callable

BEAT_PERIOD = 0.25
STUCK_AFTER = 5.0
"""Seconds without a turn of the event loop that count as stuck."""


class Pulse:
    """Calls `on_beat` in the event loop, at `start` and every BEAT_PERIOD, and remembers when it did."""

    def __init__(self, on_beat: Callable[[], None] = lambda: None) -> None:
        self._on_beat = on_beat
        self._last = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to note the turns of the running event loop."""
        self._beat()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def stuck(self) -> str | None:
        """None, or for how long the loop has not turned."""
        silence = time.monotonic() - self._last
        return f"event loop stuck for {silence:.1f} s" if silence > STUCK_AFTER else None

    def _beat(self) -> None:
        self._last = time.monotonic()
        self._on_beat()
        self._timer = asyncio.get_running_loop().call_later(BEAT_PERIOD, self._beat)
