"""The composition root: builds one sidecar from its configuration, starts and stops its parts in order.

Start: the probes, which report why it is not ready; the replica's lock, so that no second sidecar touches the same
files; then fence, identity, replication, and the broker's socket. The gRPC port opens at the same time.
"""

import asyncio
from pathlib import Path

import structlog

from rocketmq_formats.replica_link import CopyKey
from rocketmq_formats.replication.challenge import group_digest
from rocketmq_formats.table_copies import copy_key
from rocketmq_runtime import background
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.config.secret_file import read_secret
from rocketmq_runtime.files.filesystem import OS, storage_errors
from rocketmq_sidecar.control.agent import Agent
from rocketmq_sidecar.domain.control.role import BrokerState
from rocketmq_sidecar.evidence.given_up_file import count_of
from rocketmq_sidecar.ports.late_grpc_port import LateGrpcPort
from rocketmq_sidecar.ports.metrics import Snapshot, disk_used
from rocketmq_sidecar.ports.native_admin import NativeAdmin
from rocketmq_sidecar.ports.native_log import NativeLog
from rocketmq_sidecar.ports.probe_port import ProbePort
from rocketmq_sidecar.replication.replication import Replication
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)

LOCK_NAME = "sidecar.lock"
LOCK_RETRY = 0.5
"""Seconds between two attempts to lock a replica that another sidecar still holds."""


class SidecarApp:
    """One sidecar process."""

    def __init__(self, settings: SidecarSettings) -> None:
        """Wire everything; nothing is opened yet. Needs a running event loop.

        Raises:
            SettingsError: the group's secret cannot be read.
        """
        self.settings = settings
        self.agent = Agent(settings, self._replication, copy_key=_copy_key(settings))
        self.probes = ProbePort(
            settings,
            unready=self._unready,
            hung=self.agent.broker.link.hung,
            snapshot=self.snapshot,
            remark=self.agent.remark,
        )
        self.admin = NativeAdmin(self.agent, unready=self._unready)
        self._served = NativeLog(self.agent)
        self._grpc_port = LateGrpcPort(settings, self.admin, self._unready, self._served)
        self._lock: int | None = None
        self._waiting: str | None = None

    async def start(self) -> None:
        """Open everything; waits, not ready, while another sidecar holds the replica or its identity is refused.

        Raises:
            OSError: a port is taken or the socket cannot be made.
            StorageError: storePathRootDir cannot be used.
            ReplicationError: the epoch file is unreadable.
            SettingsError: the TLS files cannot be used.
        """
        self.probes.start()
        self._grpc_port.require_free()
        parts = [
            background.awaited(self._grpc_port.open(), "gRPC port"),
            background.awaited(self._start_replica(), "start of the replica"),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_EXCEPTION)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _start_replica(self) -> None:
        settings = self.settings
        await self._take_lock(settings.root)
        await self.agent.start(self.admin.load())
        log.info(
            "sidecar started",
            cluster=settings.broker_cluster_name,
            broker=settings.name,
            store=str(settings.root),
            ha_port=settings.ha_port,
            controllers=list(settings.controllers),
            durability=settings.durability,
            replicas_prove_themselves=bool(settings.ha_replication_secret_file),
            metrics=settings.metrics_prom_exporter_port or None,
        )

        if settings.acknowledges_what_all_have and not settings.ha_replication_secret_file:
            log.warning(
                "anyone who reaches the replication port can acknowledge for a slave: set haReplicationSecretFile, to"
                " the same secret on all replicas, or let only replicas reach the port (official brokers have no"
                " secret)",
                ha_port=settings.ha_port,
            )

    async def stop(self) -> None:
        """Hand over, then close everything."""
        await self.agent.stop()
        await self._grpc_port.close()
        self.probes.stop()
        if self._lock is not None:
            OS.close(self._lock)
        log.info("sidecar stopped")

    @property
    def failed(self) -> asyncio.Event:
        """Set when a bug has ended the agent; then the process must end."""
        return self.agent.failed

    @property
    def fatal(self) -> BaseException | None:
        """What the bug raised."""
        return self.agent.fatal

    def snapshot(self) -> Snapshot:
        settings, machine, replication = self.settings, self.agent.machine, self.agent.replication
        role, lease_seconds, group, broker_id, controller_known, unproven = "none", 0.0, None, None, False, False
        in_sync = replication.in_sync
        if machine is not None:
            group, broker_id = machine.session.group, machine.session.broker_id
            controller_known = machine.session.elects
            unproven = machine.session.reported_unproven is not None
            if machine.role.broker is BrokerState.MASTER:
                role = "master"
                lease_seconds = max(machine.session.lease_until - boot_clock(), 0.0)
            elif machine.role.slave_of is not None:
                role = "slave"
        if in_sync is None:
            in_sync = 0 if group is None else len(group.agreed.sync_state_set)
        return Snapshot(
            cluster=settings.broker_cluster_name,
            broker_set=settings.name,
            broker_id=broker_id,
            role=role,
            acting=self.agent.broker.acting,
            fenced=self.admin.fence is not None,
            unproven=unproven,
            given_up=count_of(lambda: replication.given_up),
            master_epoch=0 if group is None else group.master_epoch,
            in_sync=in_sync,
            lease_seconds=lease_seconds,
            max_offset=replication.max_offset,
            confirm_offset=replication.confirm_offset,
            broker_connected=self.agent.broker.link.connected,
            controller_known=controller_known,
            slaves=replication.slaves,
            disk_used=disk_used(settings.commit_log_path),
            counts=self.agent.broker.counts,
            log_digested=self._served.counts.digested,
            log_sent=self._served.counts.sent,
        )

    def _unready(self) -> str | None:
        return self._waiting or self.agent.unready()

    async def _take_lock(self, root: Path) -> None:
        with storage_errors(root, "make the folder"):
            OS.mkdir(root)
        path = root / LOCK_NAME
        while True:
            with storage_errors(path, "lock"):
                handle = OS.open(path, create=True)
                try:
                    OS.lock(handle)
                except BlockingIOError:
                    OS.close(handle)
                else:
                    self._lock, self._waiting = handle, None
                    return
            if self._waiting is None:
                self._waiting = f"another sidecar holds {path}: two are configured with this storePathRootDir"
                log.error("waiting for the replica", reason=self._waiting)
            await asyncio.sleep(LOCK_RETRY)

    def _replication(self, agent: Agent) -> Replication:
        settings = self.settings
        return Replication(
            settings,
            ha_port=settings.ha_port,
            secret=_secret(settings),
            on_proposal=agent.propose_sync_set,
            on_progress=agent.progressed,
            on_replicated=agent.broker.replicated,
            truncate_broker=agent.broker.truncate,
            on_status=agent.broker.status_changed,
            on_trouble=agent.troubled,
            on_master_lost=agent.master_lost,
            on_master_heard=agent.master_heard,
            on_replicas_caught_up=agent.replicas_caught_up,
            on_aligned=agent.aligned,
            on_caught_up=agent.caught_up,
            on_repaired=agent.broker.repaired,
            on_suspected=agent.broker.suspected,
            controllers=lambda: agent.controllers_group,
        )


def _secret(settings: SidecarSettings) -> bytes:
    return read_secret(settings.ha_replication_secret_file, "haReplicationSecretFile")


def _copy_key(settings: SidecarSettings) -> CopyKey | None:
    secret = _secret(settings)
    if not secret:
        return None
    group = group_digest(settings.broker_cluster_name, settings.name)
    return CopyKey(copy_key(secret, group), settings.ha_replication_secret_required)
