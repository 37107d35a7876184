"""What /healthz and /readyz say. Called from the probes' own thread, so that a stuck event loop is noticed: reads only.

Healthy: the event loop turns; else a restart helps. Ready: this replica does its part as master or slave; else a
restart would not help, and the text says what would.
"""

from collections.abc import Callable

from rocketmq_runtime.pulse import Pulse


class Health:
    """Fed by the event loop, read by the probes."""

    def __init__(self, unready: Callable[[], str | None]) -> None:
        """`unready` says why the replica does not do its part; called in the event loop only."""
        self.pulse = Pulse(self._look)
        self._unready = unready
        self._reason: str | None = "starting"

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        return self.pulse.stuck()

    def ready(self) -> str | None:
        """None, or why this replica is of no use just now."""
        return self.healthy() or self._reason

    def _look(self) -> None:
        self._reason = self._unready()
