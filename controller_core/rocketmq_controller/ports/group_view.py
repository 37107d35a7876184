"""A broker group as gRPC shows it: committed state, and each replica's liveness in this member's heartbeat table.

Called by grpc_admin for every message that holds a group, and by watch to find changes of liveness.
"""

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, LivenessView
from rocketmq_formats.remoting.controller import MAX_ELECTION_PRIORITY


def exists(group: BrokerGroup | None) -> bool:
    """Whether any replica is registered; the tombstone of a cleaned group is not shown."""
    return group is not None and bool(group.replicas)


def liveness(view: LivenessView, broker_name: str, broker_id: int) -> pb.Liveness:
    """One replica's liveness."""
    if view.alive(broker_name, broker_id):
        return pb.LIVENESS_ALIVE
    return pb.LIVENESS_UNHEARD if view.unheard(broker_name, broker_id) else pb.LIVENESS_DEAD


def describe(group: BrokerGroup, heartbeats: HeartbeatTable, now: float) -> pb.Group:
    """The message; `now` is the monotonic time in seconds that the heartbeat table is fed with."""
    view = heartbeats.view(now)
    message = pb.Group(
        cluster_name=group.cluster_name,
        broker_name=group.broker_name,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
        master_broker_id=group.master_broker_id,
        master_address=group.address_of(group.master_broker_id) or "",
        next_broker_id=group.next_broker_id,
    )
    for broker_id, replica in sorted(group.replicas.items()):
        shown = message.replicas.add(
            broker_id=broker_id,
            address=replica.address,
            in_sync_state_set=broker_id in group.sync_state_set,
            liveness=liveness(view, group.broker_name, broker_id),
        )
        entry = heartbeats.entry(group.broker_name, broker_id)
        if entry is None:
            continue
        shown.heartbeat_age_millis = round((now - entry.last_heartbeat) * 1000)
        if shown.liveness != pb.LIVENESS_ALIVE:
            continue
        # The table holds -1 and the default priority for what a broker did not report.
        if entry.max_offset >= 0:
            shown.max_offset = entry.max_offset
        if entry.confirm_offset >= 0:
            shown.confirm_offset = entry.confirm_offset
        if entry.epoch >= 0:
            shown.epoch = entry.epoch
        if entry.election_priority != MAX_ELECTION_PRIORITY:
            shown.election_priority = entry.election_priority
    return message
