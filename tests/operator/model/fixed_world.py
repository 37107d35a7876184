"""The model world of a group without controllers: ordinal 0 is master whenever it runs, and there are no elections."""

from collections.abc import Callable

import msgspec

from rocketmq_api.replica_view import ReplicaRole, ReplicaView
from rocketmq_operator.domain.observed import Controllers, ObservedGroup, SidecarState
from rocketmq_operator.domain.plan.groups.without_controllers import MASTER_ID, view_of_sidecars
from rocketmq_resources import names
from tests.operator.model.state import Record
from tests.operator.model.world import World

SPEC = {"failover": {"mode": "none"}, "controllerAddr": None}


class FixedWorld(World):
    """`records` are what the replicas know of themselves: nothing else keeps them."""

    def __init__(self, spec: dict[str, object], *, seed: int = 0, metadata: dict[str, object] | None = None) -> None:
        super().__init__({**spec, **SPEC}, seed=seed, metadata=metadata)

    def observe(self) -> ObservedGroup:
        observed = super().observe()
        sidecars = {
            pod.uid: self._sidecar(ordinal) for ordinal, pod in self.pods.items() if pod.running and not pod.deleting
        }
        view = view_of_sidecars(observed.group, observed.pods, sidecars)
        return msgspec.structs.replace(
            observed, sidecars=sidecars, controllers=Controllers(reachable=True, group=view), controller_addr=""
        )

    def _sidecar(self, ordinal: int) -> SidecarState:
        pod, disk = self.pods[ordinal], self.disks[ordinal]
        role = ReplicaRole.SLAVE if ordinal else ReplicaRole.MASTER
        replica = ReplicaView(
            cluster_name="DefaultCluster",
            broker_name="g",
            broker_id=ordinal,
            role=role if pod.registered else ReplicaRole.NONE,
            master_epoch=1,
            sync_state_set=() if ordinal else tuple(sorted(self.in_sync)),
            max_offset=disk.log,
            address=f"{pod.ip}:{names.PORT_BROKER}",
            ready_reason="" if pod.registered else "the log has not been opened yet",
        )
        return SidecarState(broker_id=ordinal, fenced=disk.fenced, replica=replica)

    def _consensus(self) -> list[Callable[[], None]]:
        """What the master does alone."""
        master = self.records.get(MASTER_ID)
        return super()._consensus() if master is not None and master.alive else []

    def _register(self, ordinal: int) -> None:
        pod, disk = self.pods[ordinal], self.disks[ordinal]
        pod.registered, disk.broker_id = True, ordinal
        self.records[ordinal] = Record(f"{pod.ip}:{names.PORT_BROKER}")
        if ordinal == MASTER_ID:
            assert disk.log >= self.acked, f"AckedSurvives: the master has {disk.log}, {self.acked} were acknowledged"
            self.master, self.in_sync = MASTER_ID, {MASTER_ID}
