"""A group without controllers (spec.failover.mode none): pod 0 is always its master, and only sidecars say how it is.

What they say is made into the view that controllers would give, so that every part of the plan reads one form. Used by
`observe`, which asks the sidecars again and again, because no event reports a change.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_api.group_view import GroupView, Liveness, ReplicaStanding
from rocketmq_api.replica_view import ReplicaRole, ReplicaView
from rocketmq_operator.domain.observed import Pod, SidecarState
from rocketmq_resources.broker_group import BrokerGroup

MASTER_ID: Final = 0
"""brokerId of the master. Every brokerId is the ordinal of the replica's pod (`manifests.groups.config_file`)."""


def view_of_sidecars(group: BrokerGroup, pods: Iterable[Pod], sidecars: Mapping[str, SidecarState]) -> GroupView | None:
    """The group as its sidecars report it; None: none has answered. `sidecars` by uid of the pod."""
    answers = [known.replica for pod in pods if (known := sidecars.get(pod.uid)) is not None]
    replicas = {answer.broker_id: answer for answer in answers if answer is not None and answer.broker_id is not None}
    if not replicas:
        return None
    master = replicas.get(MASTER_ID)
    in_sync = frozenset(master.sync_state_set if master is not None and master.role is ReplicaRole.MASTER else ())
    return GroupView(
        cluster_name=group.cluster_name,
        broker_name=group.broker_name,
        master_epoch=max(replica.master_epoch for replica in replicas.values()),
        sync_state_set_epoch=0 if master is None else master.sync_state_set_epoch,
        master_broker_id=MASTER_ID,
        master_address="" if master is None else master.address,
        replicas=tuple(
            _standing(broker_id, replica, in_sync=broker_id in in_sync)
            for broker_id, replica in sorted(replicas.items())
        ),
    )


def _standing(broker_id: int, replica: ReplicaView, *, in_sync: bool) -> ReplicaStanding:
    serves = replica.role in (ReplicaRole.MASTER, ReplicaRole.SLAVE)
    return ReplicaStanding(
        broker_id=broker_id,
        address=replica.address,
        in_sync=in_sync,
        liveness=Liveness.ALIVE if serves else Liveness.DEAD,
        max_offset=replica.max_offset,
    )
