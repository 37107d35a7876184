"""The composition root of the sidecar beside an Apache broker: probes, metrics, gRPC, and the observer.

No HA port, no socket, no lease: the Java broker replicates and talks to the controllers itself.
"""

import asyncio

import structlog

from rocketmq_sidecar.domain.observing.status import connected_slaves
from rocketmq_sidecar.domain.observing.verdict import Role
from rocketmq_sidecar.evidence.given_up_file import count_of
from rocketmq_sidecar.observer.admin import ObserverAdmin
from rocketmq_sidecar.observer.broker import BrokerCalls
from rocketmq_sidecar.observer.controllers import ControllerCalls
from rocketmq_sidecar.observer.files import ReplicaFiles
from rocketmq_sidecar.observer.observed_log import ObservedLog
from rocketmq_sidecar.observer.observer import Observer, broker_address, wall_clock
from rocketmq_sidecar.observer.store_proof import StoreProof
from rocketmq_sidecar.observer.unproven_reporter import UnprovenReporter
from rocketmq_sidecar.ports.late_grpc_port import LateGrpcPort
from rocketmq_sidecar.ports.metrics import Snapshot, disk_used
from rocketmq_sidecar.ports.probe_port import ProbePort
from rocketmq_sidecar.replication.ha_server import SlaveLag
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)


class ObserverApp:
    """One sidecar process beside a Java broker."""

    def __init__(self, settings: SidecarSettings) -> None:
        """Wire everything; nothing is opened yet. Needs a running event loop."""
        self.settings = settings
        self.fatal: BaseException | None = None
        """What a bug raised; the process must end."""
        self.failed = asyncio.Event()
        self._open = False
        self._brokers, self._hand_over_brokers = BrokerCalls(), BrokerCalls()
        files = ReplicaFiles(settings)
        self._controllers = ControllerCalls(
            settings.controllers,
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            kept=lambda: files.controllers,
        )
        self.observer = Observer(
            settings,
            brokers=self._brokers,
            controllers=self._controllers,
            files=files,
            proof=StoreProof(settings),
            now_ms=wall_clock,
        )
        self._unproven_reporter = UnprovenReporter(
            settings.controllers,
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            ask=self._controllers.ask,
            report=lambda: self.observer.unproven_report,
        )
        self.admin = ObserverAdmin(
            self.observer, brokers=self._hand_over_brokers, controllers=self._controllers, now_ms=wall_clock
        )
        self.probes = ProbePort(
            settings,
            unready=self.observer.unready,
            hung=self.observer.hung,
            snapshot=self.snapshot,
            remark=self.observer.remark,
        )
        self._served = ObservedLog(self.observer)
        self._grpc_port = LateGrpcPort(settings, self.admin, self.observer.unready, self._served)

    async def start(self) -> None:
        """Open everything and start polling.

        Raises:
            OSError: a port is taken.
            SettingsError: the TLS files cannot be used.
        """
        settings = self.settings
        self.probes.start()
        self.observer.start(self._ended)
        self._unproven_reporter.start()
        log.info(
            "sidecar started, observing",
            cluster=settings.broker_cluster_name,
            broker=settings.name,
            store=str(settings.root),
            broker_address=broker_address(settings),
            controllers=list(settings.controllers),
            metrics=settings.metrics_prom_exporter_port or None,
        )
        await self._grpc_port.open()
        self._open = True

    async def stop(self) -> None:
        """Hand over, then close everything; the probes last, so that others can wait for the end."""
        await self.observer.stop()
        if self._open and self.fatal is None:  # after a failed start it must not hand over
            await self.admin.hand_over_at_stop()
        await self._grpc_port.close()
        await asyncio.gather(
            self._unproven_reporter.close(),
            self._brokers.close(),
            self._hand_over_brokers.close(),
            self._controllers.close(),
        )
        self.observer.proof.close()
        self.probes.stop()
        log.info("sidecar stopped")

    def snapshot(self) -> Snapshot:
        settings, observer = self.settings, self.observer
        group, last = observer.group, observer.last
        role = observer.standing.role.value
        return Snapshot(
            cluster=settings.broker_cluster_name,
            broker_set=settings.name,
            broker_id=observer.broker_id,
            role=role if role in {"master", "slave"} else "none",
            acting=observer.standing.acting,
            fenced=observer.files.fence is not None,
            unproven=observer.proof.unproven is not None,
            given_up=count_of(lambda: observer.given_up),
            master_epoch=0 if group is None else group.master_epoch,
            in_sync=0 if group is None else len(group.in_sync),
            lease_seconds=0.0,
            max_offset=0 if last is None else last.max_offset,
            confirm_offset=observer.confirm_offset,
            broker_connected=observer.broker is not None,
            controller_known=observer.controller_found,
            slaves=self._slaves(),
            disk_used=disk_used(settings.commit_log_path),
            log_digested=self._served.counts.digested,
            log_sent=self._served.counts.sent,
        )

    def _slaves(self) -> tuple[SlaveLag, ...]:
        """A master's, as far as its connections can be distinguished."""
        broker, group = self.observer.broker, self.observer.group
        if broker is None or group is None or self.observer.standing.role is not Role.MASTER:
            return ()
        return tuple(
            SlaveLag(broker_id, max(broker.max_offset - slave.ack, 0), slave.in_sync)
            for broker_id, slave in sorted(connected_slaves(broker, group).items())
        )

    def _ended(self, error: BaseException) -> None:
        log.critical("sidecar cannot continue", exc_info=error)
        self.fatal = error
        self.failed.set()
