"""What /healthz and /readyz say of a name server; called from the probes' own thread, so reads only.

Healthy: the event loop turns, and an embedded controller is healthy; else a restart helps. Ready: routes are answered.
An embedded controller without a leader does not make it unready: clients would lose their routes because brokers
cannot fail over just then. The controller's own readiness is its gRPC health service.
"""

import asyncio
import time
from collections.abc import Callable

BEAT_PERIOD = 0.25
STUCK_AFTER = 5.0
"""Seconds without a turn of the event loop that count as stuck."""


class Health:
    """Fed by the event loop, read by the probes."""

    def __init__(
        self,
        *,
        ready: Callable[[], str | None],
        controller: Callable[[], str | None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ready`: None, or why no routes are answered; `controller`: None, or what is wrong with the embedded one."""
        self._ready, self._controller, self._now = ready, controller, now
        self._last_beat = now()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to note the turns of the running event loop."""
        self._last_beat = self._now()
        self._timer = asyncio.get_running_loop().call_later(BEAT_PERIOD, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        if (silence := self._now() - self._last_beat) > STUCK_AFTER:
            return f"event loop stuck for {silence:.1f} s"
        return self._controller()

    def ready(self) -> str | None:
        """None, or why this name server is of no use just now."""
        return self.healthy() or self._ready()
