"""Whether the event loop still runs. Used by the health of every process: updated by the loop, read in the probes' own
thread, so that a stuck loop is noticed."""

import asyncio
import time
from collections.abc import Callable

CHECK_PERIOD = 0.25
STUCK_AFTER = 5.0
"""Seconds after which an event loop that does not run counts as stuck."""


class LoopWatchdog:
    """Calls `on_check` in the event loop, at `start` and every CHECK_PERIOD seconds, and remembers when."""

    def __init__(self, on_check: Callable[[], None] = lambda: None) -> None:
        self._on_check = on_check
        self._last = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the running event loop."""
        self._check()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def stuck(self) -> str | None:
        """None, or for how long the loop has not run."""
        silence = time.monotonic() - self._last
        return f"event loop stuck for {silence:.1f} s" if silence > STUCK_AFTER else None

    def _check(self) -> None:
        self._last = time.monotonic()
        self._on_check()
        self._timer = asyncio.get_running_loop().call_later(CHECK_PERIOD, self._check)
