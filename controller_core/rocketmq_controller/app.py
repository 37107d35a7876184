"""The composition root: builds one controller from its configuration, starts it in order, ends it in order.

Start: Raft (which loads and verifies everything on disk) before any port that answers. End: leadership is handed over
first, so that the others continue without an election.
"""

import asyncio

import structlog

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.failover import Failover
from rocketmq_controller.log.features import Features
from rocketmq_controller.log.proposals import Proposals
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.notifier import RoleNotifier
from rocketmq_controller.ports.grpc_port import GrpcApi
from rocketmq_controller.ports.health import Health
from rocketmq_controller.ports.remoting_api import RemotingApi
from rocketmq_controller.raft import FatalRaftError, Limits, RaftSettings, Replica, Timings
from rocketmq_controller.service import ControllerService
from rocketmq_controller.settings import ControllerSettings, parse_labels
from rocketmq_runtime import logs
from rocketmq_runtime.config.secret_file import read_secret
from rocketmq_runtime.probes import ProbeServer
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_runtime.remoting.server import RemotingServer, ServerLimits

log = structlog.get_logger(__name__)


class ControllerApp:
    """One controller process; also what the name server hosts in embedded mode."""

    def __init__(self, config: LiveConfig) -> None:
        """Wire everything; nothing is opened yet. Needs a running event loop.

        Raises:
            SettingsError: settings that the Raft member cannot run with, an unreadable secret or TLS file.
        """
        settings = config.settings
        self._loop = asyncio.get_running_loop()
        self.config = config
        self.machine = ControllerStateMachine()
        self.stopping = asyncio.Event()
        self.fatal: FatalRaftError | None = None
        self.metrics = ControllerMetrics(
            address=settings.self_peer.address,
            group=settings.group,
            peer_id=settings.self_peer.id,
            extra_labels=parse_labels(settings.metrics_label),
        )
        self.replica = Replica(
            raft_settings(settings),
            self.machine,
            on_role_change=lambda _: self.failover.on_role_change(),
            on_fatal=self._on_fatal,
        )
        self.client = RemotingClient()
        self.heartbeats = HeartbeatTable(suspect_timeout=settings.broker_suspect_timeout_ms / 1000)
        self.notifier = RoleNotifier(self.client)
        self.features = Features(
            self.client,
            lambda: {
                peer.id: peer.address for peer in self.service.peers().values() if peer.id != settings.self_peer.id
            },
            committed=lambda: self.machine.feature_level,
        )
        proposals = Proposals(self.replica, self.machine, self.metrics, feature_level=lambda: self.features.level)
        self.failover = Failover(
            config=config,
            replica=self.replica,
            machine=self.machine,
            proposals=proposals,
            heartbeats=self.heartbeats,
            notifier=self.notifier,
            metrics=self.metrics,
        )
        self.service = ControllerService(
            config=config,
            replica=self.replica,
            machine=self.machine,
            proposals=proposals,
            failover=self.failover,
            metrics=self.metrics,
        )
        self.server = RemotingServer(
            RemotingApi(self.service),
            host=settings.controller_listen_host,
            port=settings.self_peer.port,
            key="controllerDLegerPeers",
            limits=ServerLimits(max_connections=settings.max_connections),
        )
        self.health = Health(self.replica.status)
        self.grpc = GrpcApi(self.service, self.heartbeats, self.health.ready)
        self.probes: ProbeServer | None = None
        config.on_update(self._on_update)
        self.metrics.read_at_scrape(
            lambda: self.health.status, self._active_brokers, lambda: len(self.machine.groups), settings.store_path
        )

    async def start(self) -> None:
        """Load state, join the quorum, open the ports.

        Raises:
            FatalRaftError, StorageError: state on disk that cannot be trusted, or no state could be written.
            OSError: a port cannot be bound.
        """
        settings = self.config.settings
        await self.replica.start()
        self.failover.start()
        self.health.watchdog.start()
        await self.server.start()
        self.features.start()
        await self.grpc.start()
        if settings.metrics_prom_exporter_port:
            self.probes = ProbeServer(
                host=settings.metrics_prom_exporter_host or settings.controller_listen_host,
                port=settings.metrics_prom_exporter_port,
                registry=self.metrics.registry,
                healthy=self.health.healthy,
                ready=self.health.ready,
            )
        log.info(
            "controller started",
            self_id=settings.self_peer.id,
            remoting=settings.self_peer.port,
            raft=settings.raft_port,
            grpc=settings.grpc_port,
            metrics=settings.metrics_prom_exporter_port or None,
            groups=len(self.machine.groups),
        )

    async def stop(self) -> None:
        """Hand over leadership, then close everything; each part at most once, whatever failed before."""
        log.info("controller stopping")
        await self.grpc.stop()
        self.health.watchdog.stop()
        await self.failover.stop()
        await self.features.stop()
        await self.replica.stop(hand_over=self.fatal is None)
        await self.server.stop()
        await self.notifier.stop()
        await self.client.close()
        if self.probes is not None:
            self.probes.stop()
        log.info("controller stopped")

    def _on_fatal(self, error: FatalRaftError) -> None:
        log.critical("controller cannot continue", reason=str(error), error=type(error).__name__)
        self.health.failed(str(error))
        self.fatal = error
        self.stopping.set()

    def _on_update(self, settings: ControllerSettings) -> None:
        self.heartbeats.suspect_timeout = settings.broker_suspect_timeout_ms / 1000
        logs.set_level(settings.log_level)

    def _active_brokers(self) -> list[tuple[str, str]]:
        now = self._loop.time()
        return [(entry.key.cluster_name, entry.key.broker_name) for entry in self.heartbeats.living(now)]


def raft_settings(settings: ControllerSettings) -> RaftSettings:
    """The Raft member's part of the controller's settings.

    Raises:
        SettingsError: the secret cannot be read, or is too short.
        RaftSettingsError: timings that contradict each other.
    """
    election = settings.raft_election_timeout_ms / 1000
    return RaftSettings(
        self_id=settings.self_peer.id,
        peers={peer.id: (peer.host, settings.raft_port_of(peer)) for peer in settings.peers.values()},
        secret=read_secret(settings.controller_raft_secret_file, "controllerRaftSecretFile"),
        store_path=settings.store_path,
        joins=settings.controller_join,
        bind_host=settings.controller_listen_host,
        bind_port=settings.raft_port,
        timings=Timings(
            heartbeat=settings.raft_heartbeat_interval_ms / 1000,
            election_min=election,
            election_limit=settings.raft_election_timeout_max_ms / 1000,
            step_down=max(0.7, 1.75 * election),
        ),
        limits=Limits(compact_after=settings.raft_snapshot_entries),
    )
