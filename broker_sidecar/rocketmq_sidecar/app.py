"""The composition root: builds one sidecar from its configuration, starts it in order, ends it in order.

Start: the probes, which say why it is not ready; the replica's lock, so that no second sidecar touches the same files;
then fence, identity, replication, and the broker's socket. The gRPC door opens beside that.
"""

import asyncio
import time
from pathlib import Path

import structlog

from rocketmq_runtime.filesystem import OS, storage_errors
from rocketmq_sidecar.agent import Agent
from rocketmq_sidecar.domain.role import Broker
from rocketmq_sidecar.late_door import LateDoor
from rocketmq_sidecar.metrics import Snapshot, disk_used
from rocketmq_sidecar.native_admin import NativeAdmin
from rocketmq_sidecar.native_log import NativeLog
from rocketmq_sidecar.probe_port import ProbePort
from rocketmq_sidecar.replication import Replication, ReplicationSettings
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)

LOCK_NAME = "sidecar.lock"
LOCK_RETRY = 0.5
"""Seconds between two tries to lock a replica that another sidecar still holds."""


class SidecarApp:
    """One sidecar process."""

    def __init__(self, settings: SidecarSettings) -> None:
        """Wire everything; nothing is opened yet. Needs a running event loop."""
        self.settings = settings
        self.agent = Agent(settings, self._replication)
        self.probes = ProbePort(
            settings, unready=self._unready, hung=self.agent.broker.link.hung, snapshot=self.snapshot
        )
        self.admin = NativeAdmin(self.agent, unready=self._unready)
        self._served = NativeLog(self.agent)
        self._door = LateDoor(settings, self.admin, self._unready, self._served)
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
        self._door.require_free()
        loop = asyncio.get_running_loop()
        parts = [loop.create_task(self._door.open()), loop.create_task(self._start_replica())]
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
            metrics=settings.metrics_prom_exporter_port or None,
        )

    async def stop(self) -> None:
        """Hand over, then close everything."""
        await self.agent.stop()
        await self._door.close()
        self.probes.stop()
        if self._lock is not None:
            OS.close(self._lock)
        log.info("sidecar stopped")

    @property
    def failed(self) -> asyncio.Event:
        """Set when a bug has ended the agent; the process has to end too."""
        return self.agent.failed

    @property
    def fatal(self) -> BaseException | None:
        """What the bug raised."""
        return self.agent.fatal

    def snapshot(self) -> Snapshot:
        """For the gauges."""
        settings, machine, replication = self.settings, self.agent.machine, self.agent.replication
        role, until, mandate, broker_id, found = "fenced", 0.0, None, None, False
        if machine is not None:
            mandate, broker_id = machine.steward.mandate, machine.steward.broker_id
            found = machine.steward.finder.leader is not None
            if machine.role.broker is Broker.MASTER:
                role = "master"
                until = max(machine.steward.lease.until(mandate.master_epoch) - time.monotonic(), 0.0)
            elif machine.role.slave_of is not None:
                role = "slave"
        return Snapshot(
            cluster=settings.broker_cluster_name,
            broker_set=settings.name,
            broker_id=broker_id,
            role=role,
            fenced=self.admin.fence is not None,
            master_epoch=0 if mandate is None else mandate.master_epoch,
            in_sync=0 if mandate is None else len(mandate.agreed.sync_state_set),
            lease_seconds=until,
            max_offset=replication.max_offset,
            confirm_offset=replication.confirm_offset,
            broker_connected=self.agent.broker.link.connected,
            controller_known=found,
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
            ReplicationSettings(
                cluster_name=settings.broker_cluster_name,
                broker_name=settings.name,
                store_path=settings.root,
                commit_log_path=settings.commit_log_path,
                epoch_file=settings.epoch_file,
                listen_host=settings.bind_address,
                ha_listen_port=settings.ha_port,
                ha_address=f"{settings.broker_ip2 or settings.broker_ip1}:{settings.ha_port}",
                durability=settings.durability,
                all_ack_in_sync_state_set=settings.all_ack_in_sync_state_set,
                in_sync_replicas=settings.in_sync_replicas,
                min_in_sync_replicas=settings.min_in_sync_replicas,
                enable_auto_in_sync_replicas=settings.enable_auto_in_sync_replicas,
                async_learner=settings.async_learner,
                sync_from_last_file=settings.sync_from_last_file,
                flush_disk_type=settings.flush_disk_type,
                ha_send_heartbeat_interval=settings.ha_send_heartbeat_interval,
                ha_housekeeping_interval=settings.ha_housekeeping_interval,
                ha_max_time_slave_not_catchup=settings.ha_max_time_slave_not_catchup,
                ha_transfer_batch_size=settings.ha_transfer_batch_size,
                ha_flow_control_enable=settings.ha_flow_control_enable,
                max_ha_transfer_byte_in_second=settings.max_ha_transfer_byte_in_second,
                check_sync_state_set_period=settings.check_sync_state_set_period,
            ),
            on_sync_set_wanted=agent.sync_set_wanted,
            on_progress=agent.broker.progressed,
            on_replicated=agent.broker.replicated,
            truncate_broker=agent.broker.truncate,
            on_status=agent.broker.status_changed,
            on_trouble=agent.troubled,
            on_master_lost=agent.master_lost,
            on_level=agent.level,
        )
