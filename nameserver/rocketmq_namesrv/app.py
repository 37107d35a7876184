"""The composition root: builds one name server from its configuration, with a controller in it if configured.

Start: the controller first, since it may refuse; then the port. End: the port first, so that brokers and clients use
the others, then the controller, which hands over leadership.
"""

import asyncio
from typing import Protocol

import prometheus_client
import structlog

from rocketmq_formats.addresses import format_address
from rocketmq_namesrv.config import LiveConfig
from rocketmq_namesrv.health import Health
from rocketmq_namesrv.kv_store import KVStore
from rocketmq_namesrv.metrics import Counts, NameServerMetrics
from rocketmq_namesrv.registry import Registry
from rocketmq_namesrv.remoting_api import RemotingApi
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_runtime import logs
from rocketmq_runtime.probes import ProbeServer
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_runtime.remoting.server import RemotingServer, ServerLimits

log = structlog.get_logger(__name__)


class HostedControllerError(Exception):
    """The embedded controller cannot start; the text says why."""


class HostedController(Protocol):
    """The controller in a name server's process; see `embedded`, which is imported on demand only."""

    @property
    def member_id(self) -> str: ...
    @property
    def registry(self) -> prometheus_client.CollectorRegistry: ...
    @property
    def stopping(self) -> asyncio.Event: ...
    @property
    def fatal(self) -> bool: ...
    def healthy(self) -> str | None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class NameServerApp:
    """One name server process."""

    def __init__(self, config: LiveConfig, controller: HostedController | None = None) -> None:
        """Wire everything; nothing is opened yet except the KV file. Needs a running event loop.

        Raises:
            StorageError: the KV file cannot be read.
        """
        settings = config.settings
        self.config = config
        self.controller = controller
        self.stopping = asyncio.Event() if controller is None else controller.stopping
        """Set by a signal, or by an embedded controller that cannot continue."""
        self.client = RemotingClient()
        self.registry = Registry(config, KVStore(settings.kv_path), self.client)
        self.counts = Counts()
        self.api = RemotingApi(self.registry, self.counts)
        self.server = RemotingServer(
            self.api,
            host=settings.bind_address,
            port=settings.listen_port,
            key="listenPort",
            limits=ServerLimits(max_connections=settings.max_connections),
        )
        self._listening = False
        self.health = Health(
            ready=lambda: None if self._listening else "not listening",
            controller=(lambda: None) if controller is None else controller.healthy,
        )
        self.metrics_registry = prometheus_client.CollectorRegistry() if controller is None else controller.registry
        NameServerMetrics(self.metrics_registry, self.counts, self._sizes)
        self.probes: ProbeServer | None = None
        config.on_update(_set_log_level)

    @property
    def fatal(self) -> bool:
        """An embedded controller could not continue."""
        return self.controller is not None and self.controller.fatal

    async def start(self) -> None:
        """Start the controller, if there is one, then listen.

        Raises:
            HostedControllerError, StorageError: the controller's state on disk cannot be trusted, or not written.
            OSError: a port cannot be bound.
        """
        settings = self.config.settings
        self.health.watchdog.start()
        if self.controller is not None:
            await self.controller.start()
        await self.server.start()
        self._listening = True
        self.registry.start()
        if settings.metrics_prom_exporter_port:
            self.probes = ProbeServer(
                host=settings.metrics_prom_exporter_host or settings.bind_address,
                port=settings.metrics_prom_exporter_port,
                registry=self.metrics_registry,
                healthy=self.health.healthy,
                ready=self.health.ready,
            )
        log.info(
            "name server started",
            address=format_address(settings.bind_address, self.server.port),
            metrics=settings.metrics_prom_exporter_port or None,
            controller=None if self.controller is None else self.controller.member_id,
        )

    async def stop(self) -> None:
        """Close everything; each part at most once, whatever failed before."""
        self._listening = False
        await self.server.stop()
        await self.registry.stop()
        await self.client.close()
        if self.controller is not None:
            await self.controller.stop()
        self.health.watchdog.stop()
        if self.probes is not None:
            self.probes.stop()
        log.info("name server stopped")

    def _sizes(self) -> dict[str, tuple[str, int]]:
        tables = self.registry.tables
        return {
            "brokers": ("Broker names registered", len(tables.groups)),
            "broker_addresses": ("Addresses of brokers that are alive", len(tables.live)),
            "clusters": ("Clusters registered", len(tables.clusters)),
            "topics": ("Topics registered", len(tables.topics)),
            "topic_queues": ("Pairs of topic and broker name", tables.queue_datas),
            "connections": ("Connections open", self.server.connections),
        }


def _set_log_level(settings: NameServerSettings) -> None:
    logs.set_level(settings.log_level)
