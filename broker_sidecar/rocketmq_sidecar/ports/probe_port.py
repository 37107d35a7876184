"""The port for probes and metrics, the same for both kinds of sidecar. Built and started by `app` and
`observer.app`.
"""

from collections.abc import Callable

from rocketmq_runtime.probes import ProbeServer
from rocketmq_sidecar.ports.health import BROKER_PATH, Health
from rocketmq_sidecar.ports.metrics import SidecarMetrics, Snapshot
from rocketmq_sidecar.settings import SidecarSettings


class ProbePort:
    def __init__(
        self,
        settings: SidecarSettings,
        *,
        unready: Callable[[], str | None],
        hung: Callable[[], str | None],
        snapshot: Callable[[], Snapshot],
        remark: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`unready`, `hung` and `remark` as in `Health`, `snapshot` as in `SidecarMetrics`."""
        self._settings = settings
        self._health = Health(unready, hung, remark)
        self._metrics = SidecarMetrics(snapshot)
        self._server: ProbeServer | None = None

    def start(self) -> None:
        """Start the checks, and open the port unless it is 0. Needs a running event loop.

        Raises:
            OSError: the port is taken.
        """
        settings, health = self._settings, self._health
        health.pulse.start()
        if settings.metrics_prom_exporter_port:
            self._server = ProbeServer(
                host=settings.metrics_prom_exporter_host or settings.bind_address,
                port=settings.metrics_prom_exporter_port,
                registry=self._metrics.registry,
                healthy=health.healthy,
                ready=health.ready,
                more={BROKER_PATH: health.broker},
                remark=health.remark,
            )

    def stop(self) -> None:
        """Close the port, if open."""
        self._health.pulse.stop()
        if self._server is not None:
            self._server.stop()
