"""What /healthz and /readyz say of a name server; called from the probes' own thread, so reads only.

Healthy: the event loop turns, and an embedded controller is healthy; else a restart helps. Ready: routes are answered.
An embedded controller without a leader does not make it unready: clients would lose their routes because brokers
cannot fail over just then. The controller's own readiness is its gRPC health service.
"""

from collections.abc import Callable

from rocketmq_runtime.loop_watchdog import LoopWatchdog


class Health:
    """Fed by the event loop, read by the probes."""

    def __init__(self, *, ready: Callable[[], str | None], controller: Callable[[], str | None] = lambda: None) -> None:
        """`ready`: None, or why no routes are answered; `controller`: None, or what is wrong with the embedded one."""
        self._ready, self._controller = ready, controller
        self.watchdog = LoopWatchdog()

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        return self.watchdog.stuck() or self._controller()

    def ready(self) -> str | None:
        """None, or why this name server cannot serve now."""
        return self.healthy() or self._ready()
