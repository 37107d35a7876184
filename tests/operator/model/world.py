"""A small Kubernetes with one broker group in it, its controllers and its brokers: the operator's simulation.

Synchronous and deterministic. `observe` gives the plan what the operator would see, `apply` and `perform` do what it
says, `step` lets the world do one of the things that it could do next. What the API server, the StatefulSet
controller, kubelets, controllers and sidecars promise is modelled; how long they take is not: any order is possible.
"""

import random
from collections.abc import Callable
from typing import Final

from rocketmq_api.group_view import GroupView, Liveness, ReplicaStanding
from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Action
from rocketmq_operator.domain.observed import Claim, Controllers, ObservedGroup, Pod, SidecarState, StatefulSet
from rocketmq_operator.domain.plan.step import Plan
from rocketmq_operator.domain.spec.broker_group import BrokerGroup, parse_broker_group
from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.domain.spec.quantity import parse_quantity
from rocketmq_operator.seen import digest

NOW: Final = 1_700_000_000.0
BAD_IMAGE: Final = "registry.example/no-such-image"
"""A pod with it never starts."""


class RefusedError(Exception):
    """A component said no; the operator tries again."""


class Disk:
    """What is in a PVC."""

    def __init__(self, uid: str, size: int) -> None:
        self.uid = uid
        self.size = size
        self.broker_id: int | None = None
        self.log: int = 0
        self.fenced = False
        self.annotations: dict[str, str] = {}
        self.deleting = False


class SimPod:
    """One pod. States: pending -> running -> registered."""

    def __init__(self, uid: str, revision: str) -> None:
        self.uid = uid
        self.revision = revision
        self.ip = ""
        self.running = False
        self.registered = False
        self.deleting = False
        self.labels: dict[str, str] = {}


class Record:
    """What the controllers keep of a replica."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.alive = True


class World:
    """One group's."""

    def __init__(self, spec: Json, *, seed: int = 0, metadata: Json | None = None) -> None:
        self.random = random.Random(seed)
        self.body: dict[str, object] = {
            "metadata": {"name": "g", "namespace": "ns", "uid": "u", "generation": 1, **(metadata or {})},
            "spec": {"controllerAddr": "c:9878", "namesrvAddr": "n:9876", **spec},
        }
        self.status: Json = {}
        self.gone = False
        self.stateful_set: dict[str, object] | None = None
        self.template = ""
        self.claim_templates: tuple[Json, ...] = ()
        self.replicas = 0
        self.settled = True
        self.sts_uid = ""
        self.objects: dict[tuple[str, str], bytes] = {}
        self.pods: dict[int, SimPod] = {}
        self.disks: dict[int, Disk] = {}
        self.records: dict[int, Record] = {}
        self.in_sync: set[int] = set()
        self.master: int | None = None
        self.epoch = 0
        self.set_epoch = 0
        self.next_id = 1
        self.reachable = True
        self.bad_templates: set[str] = set()
        self.expandable = True
        self.refusals: dict[str, str] = {}
        self.acked = 0
        self.cleaned: list[int] = []
        self.history: list[str] = []
        self._numbers = 0

    # What people do

    @property
    def group(self) -> BrokerGroup:
        return parse_broker_group({**self.body, "status": self.status})

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
            trouble="ImagePullBackOff (broker)" if bad else "",
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

    def is_ready(self, ordinal: int) -> bool:
        pod, disk = self.pods[ordinal], self.disks.get(ordinal)
        return pod.registered and disk is not None and (disk.broker_id in self.in_sync)

    # What the operator does

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

    # What the world does

    def choices(self) -> list[Callable[[], None]]:
        """Everything that could happen next without anybody's fault."""
        found: list[Callable[[], None]] = []
        if self.stateful_set is not None and not self.settled:
            found.append(self._settle)
        for ordinal, pod in self.pods.items():
            if pod.deleting or (ordinal >= self.replicas and self.stateful_set is not None):
                found.append(lambda ordinal=ordinal: self.stop_pod(ordinal))  # type: ignore[misc]  # bound now
            elif not pod.running and pod.revision not in self.bad_templates:
                found.append(lambda ordinal=ordinal: self._start(ordinal))  # type: ignore[misc]
            elif pod.running and not pod.registered and self.reachable:
                found.append(lambda ordinal=ordinal: self._register(ordinal))  # type: ignore[misc]
        if self.stateful_set is not None and self.settled:
            for ordinal in range(self.replicas):
                disk = self.disks.get(ordinal)
                if ordinal not in self.pods and (disk is None or not disk.deleting):
                    found.append(lambda ordinal=ordinal: self._create(ordinal))  # type: ignore[misc]
        found.extend(self._consensus())
        return found

    def _consensus(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if not self.reachable:
            return found
        living = {one for one, record in self.records.items() if record.alive}
        if self.master not in living:
            able = sorted(self.in_sync & living)
            found.extend(lambda one=one: self._elect(one) for one in able)  # type: ignore[misc]
            return found
        for one in sorted(living - self.in_sync):
            found.append(lambda one=one: self._join(one))  # type: ignore[misc]
        if self.in_sync - living:
            found.append(self._shrink)
        found.append(self._write)
        return found

    def step(self) -> bool:
        """One of the choices; False: nothing but writes could happen."""
        choices = self.choices()
        if not choices:
            return False
        self.random.choice(choices)()
        return any(choice != self._write for choice in choices)

    def quiet(self) -> bool:
        return all(choice == self._write for choice in self.choices())

    def _settle(self) -> None:
        self.settled = True

    def _create(self, ordinal: int) -> None:
        if ordinal not in self.disks:
            templates = {
                one["metadata"]["name"]: parse_quantity(one["spec"]["resources"]["requests"]["storage"])  # type: ignore[index]
                for one in self.claim_templates
            }
            self.disks[ordinal] = Disk(self._uid("pvc"), templates["data"])
        self.pods[ordinal] = SimPod(self._uid("pod"), self.template)

    def _start(self, ordinal: int) -> None:
        pod = self.pods[ordinal]
        pod.running = True
        pod.ip = f"10.0.0.{self._number()}"

    def _register(self, ordinal: int) -> None:
        pod, disk = self.pods[ordinal], self.disks[ordinal]
        if disk.broker_id is None:
            disk.broker_id, self.next_id = self.next_id, self.next_id + 1
        elif disk.broker_id not in self.records:
            return  # 2008: the controllers have forgotten it
        pod.registered = True
        address = f"{pod.ip}:{names.PORT_BROKER}"
        self.records.setdefault(disk.broker_id, Record(address))
        self.records[disk.broker_id].address = address
        self.records[disk.broker_id].alive = True
        if self.master is None and not self.in_sync:
            self.in_sync = {disk.broker_id}
            self._elect(disk.broker_id)

    def stop_pod(self, ordinal: int) -> None:
        """The pod ends; its volume goes with it if that was asked for."""
        self._silence(ordinal)
        del self.pods[ordinal]
        if self.disks[ordinal].deleting:
            del self.disks[ordinal]

    def crash(self, ordinal: int) -> None:
        """The containers restart in place."""
        self._silence(ordinal)
        self.pods[ordinal].running = self.pods[ordinal].registered = False

    def _silence(self, ordinal: int) -> None:
        broker_id = self.disks[ordinal].broker_id if self.pods[ordinal].registered else None
        if broker_id in self.records:
            self.records[broker_id].alive = False

    def _elect(self, broker_id: int) -> None:
        self.master, self.epoch, self.set_epoch = broker_id, self.epoch + 1, self.set_epoch + 1
        self.in_sync = {broker_id}
        log = self._log_of(broker_id)
        assert log >= self.acked, f"AckedSurvives: {broker_id} has {log}, {self.acked} were acknowledged"
        for one, record in self.records.items():
            if record.alive and one != broker_id:
                self._truncate(one, log)

    def _truncate(self, broker_id: int, log: int) -> None:
        ordinal = self.ordinal_of_id(broker_id)
        if ordinal is not None:
            self.disks[ordinal].log = min(self.disks[ordinal].log, log)

    def _join(self, broker_id: int) -> None:
        ordinal = self.ordinal_of_id(broker_id)
        assert ordinal is not None
        assert self.master is not None
        self.disks[ordinal].log = self._log_of(self.master)
        self.in_sync.add(broker_id)
        self.set_epoch += 1

    def _shrink(self) -> None:
        self.in_sync = {one for one in self.in_sync if self.records[one].alive}
        self.set_epoch += 1

    def _write(self) -> None:
        """A producer sends one message; it is acknowledged when every member of the set has it, and they are enough."""
        assert self.master is not None
        ordinal = self.ordinal_of_id(self.master)
        living = [one for one in self.in_sync if self.records[one].alive]
        if ordinal is None or self.disks[ordinal].fenced or len(living) < len(self.in_sync):
            return
        if len(living) < self.group.min_in_sync_replicas:
            return
        log = self.disks[ordinal].log + 1
        for one in living:
            place = self.ordinal_of_id(one)
            assert place is not None
            self.disks[place].log = log
        self.acked = log

    def ordinal_of_id(self, broker_id: int) -> int | None:
        """Whose disk carries the id."""
        return next((ordinal for ordinal, disk in self.disks.items() if disk.broker_id == broker_id), None)

    def _log_of(self, broker_id: int) -> int:
        ordinal = self.ordinal_of_id(broker_id)
        return -1 if ordinal is None else self.disks[ordinal].log

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _uid(self, kind: str) -> str:
        return f"{kind}-{self._number()}"


def _merge(target: dict[str, str], changes: dict[str, str | None]) -> None:
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value


def actions_of(plan: Plan) -> list[str]:
    """Their kinds, in order."""
    return [type(action).__name__ for action in plan.actions]
