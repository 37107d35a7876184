"""What /healthz, /readyz and /livez/broker say. Called from the probes' own thread, so that a stuck event loop is
noticed: reads only.

Healthy: the event loop turns; else a restart helps. Ready: this replica does its part as master or slave; else a
restart would not help, and the text says what would. The broker lives unless it hangs: then a restart of the broker
helps, and nothing else does.
"""

from collections.abc import Callable
from typing import Final

from rocketmq_runtime.pulse import Pulse

BROKER_PATH: Final = "/livez/broker"


class Health:
    """Fed by the event loop, read by the probes."""

    def __init__(self, unready: Callable[[], str | None], hung: Callable[[], str | None]) -> None:
        """`unready` says why the replica does not do its part, `hung` since when its broker hangs; both are called in
        the event loop only."""
        self.pulse = Pulse(self._look)
        self._unready, self._hung = unready, hung
        self._reason: str | None = "starting"
        self._broker: str | None = None

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        return self.pulse.stuck()

    def ready(self) -> str | None:
        """None, or why this replica is of no use just now."""
        return self.healthy() or self._reason

    def broker(self) -> str | None:
        """None, or why the broker should be started again. A sidecar that is stuck itself does not blame it."""
        return self._broker

    def _look(self) -> None:
        self._reason, self._broker = self._unready(), self._hung()
