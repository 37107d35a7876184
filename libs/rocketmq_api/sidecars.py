"""Calls to one replica's sidecar (sidecar_admin.proto). Used by the operator and the kubectl plugin."""

from rocketmq_api import sidecar_admin_pb2 as pb
from rocketmq_api.channels import SidecarChannel, call
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.replica_view import EpochRange, NewMaster, ReplicaRole, ReplicaView
from rocketmq_api.sidecar_admin_pb2_grpc import SidecarAdminStub

TIMEOUT = 5.0
"""Default time limit of a call in seconds."""
HAND_OVER_MARGIN = 2.0
"""Seconds added to the time limit of a hand-over, so that the sidecar can answer before the deadline."""

ROLE_OF = {
    pb.ROLE_UNKNOWN: ReplicaRole.UNKNOWN,
    pb.ROLE_MASTER: ReplicaRole.MASTER,
    pb.ROLE_SLAVE: ReplicaRole.SLAVE,
    pb.ROLE_NONE: ReplicaRole.NONE,
}


class SidecarClient(SidecarChannel):
    """One sidecar. Every call raises `rocketmq_api.channels.ApiError`, one of its kinds."""

    def __init__(self, address: str, *, tls: ClientTls | None = None, timeout: float = TIMEOUT) -> None:
        """
        Args:
            address: `host:port` of its gRPC port (10920).
            tls: files for mutual TLS; None: plaintext.
            timeout: time limit of a call in seconds.

        Raises:
            OSError: a TLS file cannot be read.
        """
        super().__init__(address, tls)
        self._timeout = timeout
        self._stub = SidecarAdminStub(self._channel)

    async def get_replica(self) -> ReplicaView:
        """The current state of the replica."""
        answer = await call(self.address, self._stub.GetReplica(pb.GetReplicaRequest(), timeout=self._timeout))
        return view_of(answer.replica)

    async def set_fenced(self, fenced: bool, reason: str = "") -> ReplicaView:  # noqa: FBT001 - as the rpc has it
        """Refuse sends (with a `reason`) or accept them again; durable when this returns, and safe to repeat."""
        request = pb.SetFencedRequest(fenced=fenced, reason=reason)
        answer = await call(self.address, self._stub.SetFenced(request, timeout=self._timeout))
        return view_of(answer.replica)

    async def hand_over(self, broker_id: int | None = None, *, seconds: float = TIMEOUT) -> NewMaster:
        """Make `broker_id` (None: the best) master instead of this one within `seconds`, the longest time without
        sends; returns the new master."""
        request = pb.HandOverRequest(broker_id=broker_id, timeout_millis=round(1000 * seconds))
        answer = await call(self.address, self._stub.HandOver(request, timeout=seconds + HAND_OVER_MARGIN))
        return NewMaster(answer.master_broker_id, answer.master_epoch)


def view_of(replica: pb.Replica) -> ReplicaView:
    """A message as a plain value; a role of a later release is UNKNOWN."""
    return ReplicaView(
        cluster_name=replica.cluster_name,
        broker_name=replica.broker_name,
        broker_id=replica.broker_id if replica.HasField("broker_id") else None,
        role=ROLE_OF.get(replica.role, ReplicaRole.UNKNOWN),
        master_broker_id=replica.master_broker_id if replica.HasField("master_broker_id") else None,
        master_epoch=replica.master_epoch,
        sync_state_set=tuple(replica.sync_state_set),
        sync_state_set_epoch=replica.sync_state_set_epoch,
        max_offset=replica.max_offset,
        confirm_offset=replica.confirm_offset,
        min_offset=replica.min_offset,
        epochs=tuple(EpochRange(epoch.epoch, epoch.start_offset, epoch.end_offset) for epoch in replica.epochs),
        fenced=replica.fenced,
        fence_reason=replica.fence_reason,
        fenced_at_millis=replica.fenced_at_millis,
        broker_connected=replica.broker_connected,
        ready_reason=replica.ready_reason,
        engine=replica.engine,
        version=replica.version,
        address=replica.address,
        acting_master=replica.acting_master,
        remark=replica.remark,
    )
