"""The answers of /healthz, /readyz and /livez/broker. Called from the probes' own thread, so that a stuck event loop is
noticed: it only reads.

Healthy: the event loop runs; otherwise a restart helps. Ready: this replica serves as master or slave; otherwise a
restart does not help, and the text says what does. The broker is live unless it hangs: then only a restart of the
broker helps.
"""

from collections.abc import Callable
from typing import Final

from rocketmq_runtime.loop_watchdog import LoopWatchdog

BROKER_PATH: Final = "/livez/broker"


class Health:
    """Updated by the event loop, read by the probes."""

    def __init__(
        self,
        unready: Callable[[], str | None],
        hung: Callable[[], str | None],
        remark: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`unready` returns why the replica does not serve, `hung` since when its broker hangs, `remark` what an
        operator should know although it serves; they are called in the event loop only."""
        self.pulse = LoopWatchdog(self._update)
        self._unready, self._hung, self._find_remark = unready, hung, remark
        self._reason: str | None = "starting"
        self._broker: str | None = None
        self._remark: str | None = None

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        return self.pulse.stuck()

    def ready(self) -> str | None:
        """None, or why this replica does not serve at present."""
        return self.healthy() or self._reason

    def remark(self) -> str | None:
        """None, or what an operator should know although this replica serves."""
        return self._remark

    def broker(self) -> str | None:
        """None, or why the broker should be restarted. A stuck sidecar never reports that."""
        return self._broker

    def _update(self) -> None:
        self._reason, self._broker, self._remark = self._unready(), self._hung(), self._find_remark()
