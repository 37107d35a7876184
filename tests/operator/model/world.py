"""A small Kubernetes with one broker group in it, its controllers and its brokers: the operator's simulation.

Synchronous and deterministic. `observe` gives the plan what the operator would see, `apply` and `perform` do what it
says, `step` lets the world do one of the things that it could do next. What the API server, the StatefulSet
controller, kubelets, controllers and sidecars promise is modelled; how long they take is not: any order is possible.
"""

from rocketmq_api.group_view import GroupView, Liveness, ReplicaStanding
from rocketmq_operator.domain.observed import Claim, Controllers, ObservedGroup, Pod, SidecarState, StatefulSet
from rocketmq_operator.domain.plan.step import Plan
from rocketmq_resources import names
from rocketmq_resources.quantity import parse_quantity
from tests.operator.model.obeying import Obeying
from tests.operator.model.state import BAD_IMAGE, NOW, RefusedError, SimPod

__all__ = ["BAD_IMAGE", "NOW", "RefusedError", "World", "actions_of"]


class World(Obeying):
    """One group, what its user does and what the operator sees."""

    def edit(self, **spec: object) -> None:
        """The user changes the spec."""
        metadata, old = self.body["metadata"], self.body["spec"]
        assert isinstance(metadata, dict)
        assert isinstance(old, dict)
        self.body["spec"] = {**old, **spec}
        metadata["generation"] += 1

    def annotate(self, key: str, value: str) -> None:
        metadata = self.body["metadata"]
        assert isinstance(metadata, dict)
        metadata["annotations"] = {**metadata.get("annotations", {}), key: value}

    def delete(self) -> None:
        """The user deletes the group."""
        metadata = self.body["metadata"]
        assert isinstance(metadata, dict)
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z"
        if not metadata.get("finalizers"):
            self._remove()

    # What the operator sees

    def observe(self) -> ObservedGroup:
        claims = [
            Claim(
                name=f"data-g-{ordinal}",
                volume="data",
                ordinal=ordinal,
                uid=disk.uid,
                requested=disk.size,
                broker_id=int(disk.annotations[names.ANNOTATION_BROKER_ID])
                if names.ANNOTATION_BROKER_ID in disk.annotations
                else None,
                retired=names.ANNOTATION_RETIRED in disk.annotations,
                deleting=disk.deleting,
            )
            for ordinal, disk in sorted(self.disks.items())
        ]
        sidecars = {
            pod.uid: SidecarState(broker_id=self.disks[ordinal].broker_id, fenced=self.disks[ordinal].fenced)
            for ordinal, pod in self.pods.items()
            if pod.running and not pod.deleting
        }
        sizes = {
            str(one["metadata"]["name"]): parse_quantity(one["spec"]["resources"]["requests"]["storage"])  # type: ignore[index]  # JSON that the manifests made
            for one in self.claim_templates
        }
        return ObservedGroup(
            group=self.group,
            stateful_set=None
            if self.stateful_set is None
            else StatefulSet(
                name="g",
                uid=self.sts_uid,
                replicas=self.replicas,
                update_revision=self.template if self.settled else "",
                settled=self.settled,
                claim_sizes=sizes,
                claim_templates=self.claim_templates,
            ),
            pods=tuple(self._pod(ordinal, pod) for ordinal, pod in sorted(self.pods.items())),
            claims=tuple(claims),
            controllers=Controllers(reachable=self.reachable, group=self._view() if self.reachable else None),
            controller_addr="c:9878",
            namesrv_addr="n:9876",
            sidecars=sidecars,
            refused=dict(self.refusals),
            disruption_budget=("PodDisruptionBudget", "g") in self.objects,
        )

    def _pod(self, ordinal: int, pod: SimPod) -> Pod:
        bad = pod.revision in self.bad_templates
        return Pod(
            name=f"g-{ordinal}",
            ordinal=ordinal,
            uid=pod.uid,
            ip=pod.ip,
            revision=pod.revision,
            labels=dict(pod.labels),
            ready=self.is_ready(ordinal),
            running=pod.running,
            deleting=pod.deleting,
            replication_secret="g-replication",
            problem="ImagePullBackOff (broker)" if bad else "",
        )

    def _view(self) -> GroupView | None:
        if not self.records:
            return None
        return GroupView(
            cluster_name="DefaultCluster",
            broker_name="g",
            master_epoch=self.epoch,
            sync_state_set_epoch=self.set_epoch,
            master_broker_id=self.master,
            replicas=tuple(
                ReplicaStanding(
                    broker_id=broker_id,
                    address=record.address,
                    in_sync=broker_id in self.in_sync,
                    liveness=Liveness.ALIVE if record.alive else Liveness.DEAD,
                    max_offset=self._log_of(broker_id) if record.alive else None,
                )
                for broker_id, record in sorted(self.records.items())
            ),
            next_broker_id=self.next_id,
        )


def actions_of(plan: Plan) -> list[str]:
    """Their kinds, in order."""
    return [type(action).__name__ for action in plan.actions]
