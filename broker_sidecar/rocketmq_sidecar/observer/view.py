"""Builds operators' view of a replica from what the observer has seen. Pure."""

from collections.abc import Sequence

from rocketmq_api.replica_view import EpochRange, ReplicaRole, ReplicaView
from rocketmq_formats.remoting.controller import EpochEntry
from rocketmq_runtime.version import __version__
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus
from rocketmq_sidecar.domain.observing.verdict import Role, Standing
from rocketmq_sidecar.settings import SidecarSettings


def replica_view(
    settings: SidecarSettings,
    *,
    broker_id: int | None,
    standing: Standing,
    remark: str | None,
    broker: BrokerStatus | None,
    group: GroupStatus | None,
    fence: Fence | None,
    confirm_offset: int,
    epochs: Sequence[EpochEntry],
) -> ReplicaView:
    """`broker` is its last status, even if it has stopped since; `epochs` are the file's, for a broker that never
    answered."""
    max_offset = 0 if broker is None else broker.max_offset
    return ReplicaView(
        cluster_name=settings.broker_cluster_name,
        broker_name=settings.name,
        broker_id=broker_id,
        role=ReplicaRole(standing.role.value),
        master_broker_id=None if group is None else group.master_id,
        master_epoch=0 if group is None else group.master_epoch,
        sync_state_set=() if group is None else tuple(sorted(group.in_sync)),
        sync_state_set_epoch=0 if group is None else group.sync_state_set_epoch,
        max_offset=max_offset,
        confirm_offset=confirm_offset,
        min_offset=0 if broker is None else broker.min_offset,
        epochs=tuple(
            EpochRange(epoch.epoch, epoch.start_offset, epoch.end_offset)
            for epoch in (epochs if broker is None else broker.epochs)
        ),
        fenced=fence is not None,
        fence_reason="" if fence is None else fence.reason,
        fenced_at_millis=0 if fence is None else fence.since_millis,
        broker_connected=standing.role is not Role.UNKNOWN,
        ready_reason=standing.unready or "",
        remark=remark or "",
        engine="apache",
        version=__version__,
        acting_master=standing.acting,
        address="" if group is None or broker_id is None else group.addresses.get(broker_id, ""),
    )
