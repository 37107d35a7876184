"""What is known: getReplicaInfo (1004) and getSyncStateData (1006). They make no events and, as in Java,
1004 names a dead master until another one is elected."""

from collections.abc import Sequence

from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import BrokerGroup, LivenessView, State
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    BrokerReplicasInfo,
    GetReplicaInfoResponseHeader,
    InSyncReplica,
    ReplicasInfo,
    SyncStateSet,
)

_UNKNOWN_SET = Decision(
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed", GetReplicaInfoResponseHeader()
)
MAX_REPLICAS_SHOWN = 5000
"""Replicas of one answer to 1006: 5000 take some 20 ms."""
_NO_NAMES = Decision(ResponseCode.SYSTEM_ERROR, "not set any response code")


def get_replica_info(group: BrokerGroup | None) -> Decision:
    """Codes: 0, 2008."""
    if group is None or not group.replicas:
        return _UNKNOWN_SET
    header = GetReplicaInfoResponseHeader(
        master_broker_id=group.master_broker_id,
        master_address=group.address_of(group.master_broker_id),
        master_epoch=group.master_epoch,
    )
    body = SyncStateSet(sync_state_set=group.sync_state_set, sync_state_set_epoch=group.sync_state_set_epoch)
    return Decision(ResponseCode.SUCCESS, None, header, body)


def get_sync_state_data(state: State, broker_names: Sequence[str] | None, view: LivenessView) -> Decision:
    """Codes: 0, names that are unknown being left out; 1 if no name is given, or too many."""
    if not broker_names:
        return _NO_NAMES
    asked = [state[name] for name in dict.fromkeys(broker_names) if name in state]
    replicas = sum(len(group.replicas) for group in asked)
    if replicas > MAX_REPLICAS_SHOWN:
        remark = f"the groups asked for have {replicas} replicas, more than {MAX_REPLICAS_SHOWN}: ask for fewer names"
        return Decision(ResponseCode.SYSTEM_ERROR, remark)
    table = {group.broker_name: _replicas_info(group, view) for group in asked if group.replicas}
    return Decision(ResponseCode.SUCCESS, body=BrokerReplicasInfo(replicas_info_table=table))


def _replicas_info(group: BrokerGroup, view: LivenessView) -> ReplicasInfo:
    in_sync: list[InSyncReplica] = []
    not_in_sync: list[InSyncReplica] = []
    for broker_id, replica in sorted(group.replicas.items()):
        alive = view.alive(group.broker_name, broker_id)
        shown = InSyncReplica(
            alive=alive,
            unheard=not alive and view.unheard(group.broker_name, broker_id),
            broker_address=replica.address,
            broker_id=broker_id,
            broker_name=group.broker_name,
        )
        (in_sync if broker_id in group.sync_state_set else not_in_sync).append(shown)
    return ReplicasInfo(
        in_sync_replicas=in_sync,
        not_in_sync_replicas=not_in_sync,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
        master_address=group.address_of(group.master_broker_id),
        master_broker_id=group.master_broker_id,
    )
