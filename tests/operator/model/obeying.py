"""What the model world does when the operator says so, as the API server, sidecars and controllers would."""

from collections.abc import Callable

from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain.actions import Action
from rocketmq_operator.domain.plan.step import Plan
from rocketmq_operator.kubernetes.parse import digest
from rocketmq_resources import names
from rocketmq_resources.decoding import Json
from rocketmq_resources.quantity import parse_quantity
from tests.operator.model.happenings import Happenings
from tests.operator.model.state import BAD_IMAGE, RefusedError


class Obeying(Happenings):
    """`apply` and `perform`."""

    def apply(self, plan: Plan) -> bool:
        """The objects of a plan; whether any changed."""
        changed = False
        for made in plan.objects:
            kind, name = str(made["kind"]), str(made["metadata"]["name"])  # type: ignore[index]  # JSON
            if self.objects.get((kind, name)) == digest(made):
                continue
            self.objects[(kind, name)] = digest(made)
            changed = True
            if kind == "StatefulSet":
                self._apply_stateful_set(made)
        for kind, name in plan.removals:
            changed = self.objects.pop((kind, name), None) is not None or changed
        return changed

    def _apply_stateful_set(self, made: Json) -> None:
        spec = made["spec"]
        assert isinstance(spec, dict)
        if self.stateful_set is None:
            self.sts_uid = self._uid("sts")
            self.claim_templates = tuple(spec["volumeClaimTemplates"])
        assert self.claim_templates == tuple(spec["volumeClaimTemplates"]), "the API server would refuse this"
        self.stateful_set = dict(made)
        self.replicas = spec["replicas"]
        self.template = digest(spec["template"]).hex()[:10]
        if BAD_IMAGE in repr(spec["template"]):
            self.bad_templates.add(self.template)
        self.settled = False

    def perform(self, action: Action) -> None:
        """One action. Raises RefusedError."""
        self.history.append(repr(action))
        handler: Callable[[Action], None] = getattr(self, f"_do_{type(action).__name__}")
        handler(action)

    def _do_DeletePod(self, action: act.DeletePod) -> None:  # noqa: N802 - named after the action
        pod = self.pods.get(names.ordinal_of(action.name))
        if pod is not None and pod.uid == action.uid:
            pod.deleting = True

    def _do_DeleteClaim(self, action: act.DeleteClaim) -> None:  # noqa: N802
        ordinal = names.ordinal_of(action.name)
        disk = self.disks.get(ordinal)
        if disk is not None and disk.uid == action.uid:
            self.delete_claim(ordinal)

    def delete_claim(self, ordinal: int) -> None:
        """It goes when no pod uses it."""
        self.disks[ordinal].deleting = True
        if ordinal not in self.pods:
            del self.disks[ordinal]

    def _do_DeleteStatefulSet(self, action: act.DeleteStatefulSet) -> None:  # noqa: N802
        if self.stateful_set is None or self.sts_uid != action.uid:
            return
        self.stateful_set = None
        del self.objects[("StatefulSet", "g")]
        if not action.orphan:
            for pod in self.pods.values():
                pod.deleting = True

    def _do_HandOver(self, action: act.HandOver) -> None:  # noqa: N802
        master = None if self.master is None else self.ordinal_of_id(self.master)
        if master is None or action.pod != f"g-{master}":
            raise RefusedError("not master")
        if self.disks[master].fenced:
            raise RefusedError("fenced")
        target = self.records.get(action.target_id)
        if target is None or not target.alive or action.target_id not in self.in_sync:
            raise RefusedError("not in sync")
        if not self.reachable or self.random.random() < 0.1:
            raise RefusedError("not elected in time")
        self._elect(action.target_id)

    def _do_SetFenced(self, action: act.SetFenced) -> None:  # noqa: N802
        ordinal = names.ordinal_of(action.pod)
        if ordinal not in self.pods or self.pods[ordinal].uid != action.pod_uid:
            raise RefusedError("nobody there")
        self.disks[ordinal].fenced = action.fenced

    def _do_CleanBrokerData(self, action: act.CleanBrokerData) -> None:  # noqa: N802
        if not self.reachable:
            raise RefusedError("no answer")
        ids = set(self.records) if action.broker_ids is None else set(action.broker_ids) & set(self.records)
        if any(self.records[one].alive for one in ids):
            raise RefusedError("still alive")
        if ids != set(self.records) and (self.in_sync <= ids or self.master in ids):
            raise RefusedError("nobody of the set would remain")
        for one in ids:
            del self.records[one]
            self.in_sync.discard(one)
            self.cleaned.append(one)
        if not self.records:
            self.master = None

    def _do_LabelPod(self, action: act.LabelPod) -> None:  # noqa: N802
        pod = self.pods.get(names.ordinal_of(action.name))
        if pod is not None and pod.uid == action.uid:
            _merge(pod.labels, action.labels)

    def _do_AnnotateClaim(self, action: act.AnnotateClaim) -> None:  # noqa: N802
        disk = self.disks.get(names.ordinal_of(action.name))
        if disk is not None and disk.uid == action.uid:
            _merge(disk.annotations, action.annotations)

    def _do_ResizeClaim(self, action: act.ResizeClaim) -> None:  # noqa: N802
        disk = self.disks.get(names.ordinal_of(action.name))
        if disk is None or disk.uid != action.uid:
            return
        if not self.expandable:
            self.refusals[action.memory_key or ""] = "the class does not expand"
            raise RefusedError("the class does not expand")
        disk.size = parse_quantity(action.size)

    def _do_SetFinalizer(self, action: act.SetFinalizer) -> None:  # noqa: N802
        metadata = self.body["metadata"]
        assert isinstance(metadata, dict)
        metadata["finalizers"] = [names.FINALIZER] if action.present else []
        if not action.present and "deletionTimestamp" in metadata:
            self._remove()

    def _do_RemoveAnnotation(self, action: act.RemoveAnnotation) -> None:  # noqa: N802
        metadata = self.body["metadata"]
        assert isinstance(metadata, dict)
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != action.key}

    def _remove(self) -> None:
        """The resource is gone, and what it owns goes."""
        self.gone = True
        self.stateful_set = None
        self.objects.clear()
        for pod in self.pods.values():
            pod.deleting = True


def _merge(target: dict[str, str], changes: dict[str, str | None]) -> None:
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
