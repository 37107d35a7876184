"""Carries out a plan: makes all its calls to the Kubernetes API, and those to controllers and sidecars that change
something.

Called by `reconciler`. Answers of the API server go into the cache at once, so the next plan includes these changes
before the watch reports them.
"""

import contextlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from rocketmq_api.channels import ApiError
from rocketmq_api.controllers import ControllersClient
from rocketmq_operator.controllers.quorum_registry import QuorumRegistry
from rocketmq_operator.controllers.quorums import Quorum
from rocketmq_operator.controllers.sidecars import Sidecars
from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain.actions import Action, Event
from rocketmq_operator.domain.manifests.controllers import raft_secret
from rocketmq_operator.domain.manifests.groups.objects_of_group import replication_secret
from rocketmq_operator.domain.plan.step import Plan
from rocketmq_operator.kubernetes.cache import Cache, Entry, Key, key_of
from rocketmq_operator.kubernetes.kube import (
    ConflictError,
    Kube,
    KubeError,
    NotFoundError,
    RefusedByServerError,
    identity,
)
from rocketmq_operator.kubernetes.ledger import Ledger
from rocketmq_operator.kubernetes.recorder import EventRecorder
from rocketmq_operator.metrics import OperatorMetrics
from rocketmq_resources import names
from rocketmq_resources.broker_group import parse_broker_group
from rocketmq_resources.controller_cluster import parse_controller_cluster
from rocketmq_resources.decoding import Json, mapping

SECRET_BYTES: Final = 32
FENCE_REASON: Final = "spec.fenced of the BrokerGroup is set"
OTHERS_STATUS: Final = frozenset({"verification"})
"""Written by the job that compares the logs."""

log = structlog.get_logger(__name__)


class StepFailedError(Exception):
    """An action was not carried out; the next reconcile decides what to do."""


class Executor:
    """Carries out the plans of one operator."""

    def __init__(
        self,
        *,
        kube: Kube,
        cache: Cache,
        ledger: Ledger,
        recorder: EventRecorder,
        quorums: QuorumRegistry,
        sidecars: Sidecars,
        metrics: OperatorMetrics,
        hand_over_seconds: float,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._ledger = ledger
        self._recorder = recorder
        self._quorums = quorums
        self._sidecars = sidecars
        self._metrics = metrics
        self._hand_over_seconds = hand_over_seconds

    async def apply(self, plan: Plan) -> bool:
        """Apply and remove objects; returns whether anything changed.

        Raises:
            KubeError: the first call that failed; earlier ones are done.
        """
        worked = False
        for made in plan.objects:
            key = Key(*identity(made))
            if self._ledger.needs(key, made):
                worked = await self._apply_object(key, made) or worked
        for kind, name in plan.removals:
            namespace = self._namespace(plan)
            key = Key(kind, namespace, name)
            await self._remove(key, self._uid(key))
            worked = True
        return worked

    async def perform(self, body: Json, actions: Iterable[Action], *, disruptive: bool) -> bool:
        """Carry out actions in order, disruptive ones only if `disruptive`.

        Returns False if the API server refused one permanently; the ledger passes that on to the next plan.

        Raises:
            StepFailedError: the first action that failed; earlier ones are done.
        """
        content = True
        for action in actions:
            if action.disruptive and not disruptive:
                continue
            name = type(action).__name__
            try:
                await self._perform(body, action)
            except (KubeError, ApiError, OSError) as error:
                self._metrics.acted(name, failed=True)
                if isinstance(error, RefusedByServerError) and action.memory_key is not None:
                    self._ledger.refuse(action.memory_key, error.message)
                    content = False
                    continue
                warning = Event(f"{name}Failed", f"{_message(action) or name}: {error}", warning=True)
                self._recorder.record_event(body, warning)
                raise StepFailedError(f"{name}: {error}") from error
            self._metrics.acted(name, failed=False)
        return content

    async def write_status(self, body: Json, status: Json) -> None:
        """Replace the status, except fields that others write, if the resource is still at the version of `body`.

        This is a merge patch because the API server drops fields that an older CRD does not have, where it would
        refuse an apply as a whole.

        Raises:
            ConflictError: the resource has changed, or is another one of that name.
            KubeError: the status was not written.
        """
        kind, namespace, name = identity(body)
        removed = {key: None for key in mapping(body, "status") if key not in status and key not in OTHERS_STATUS}
        version = mapping(body, "metadata").get("resourceVersion")
        change = {"metadata": {"resourceVersion": version}, "status": {**removed, **status}}
        self._cache.put(await self._kube.patch(kind, namespace, name, change, sub="status"))

    async def _perform(self, body: Json, action: Action) -> None:
        match action:
            case act.DeletePod() | act.DeleteClaim() | act.DeleteStatefulSet():
                await self._delete_child(body, action)
            case act.LabelPod() | act.AnnotateClaim() | act.ResizeClaim():
                await self._change_child(body, action)
            case act.EnsureRaftSecret() | act.EnsureReplicationSecret():
                await self._ensure_secret(body, action)
            case act.SetFinalizer() | act.RemoveAnnotation():
                await self._change_own(body, action)
            case act.HandOver() | act.SetFenced():
                await self._call_sidecar(body, action)
            case act.CleanBrokerData() | act.TransferLeadership() | act.AddMember() | act.RemoveMember():
                await self._call_controllers(body, action)
            case _:
                raise AssertionError(f"{type(action).__name__} has no implementation")

    async def _delete_child(self, body: Json, action: act.DeletePod | act.DeleteClaim | act.DeleteStatefulSet) -> None:
        kind = {act.DeletePod: "Pod", act.DeleteClaim: "PersistentVolumeClaim"}.get(type(action), "StatefulSet")
        orphan = isinstance(action, act.DeleteStatefulSet) and action.orphan
        if await self._delete(Key(kind, identity(body)[1], action.name), action.uid, orphan=orphan):
            self._record_event(body, action.reason, action.message)

    async def _change_child(self, body: Json, action: act.LabelPod | act.AnnotateClaim | act.ResizeClaim) -> None:
        namespace, claim = identity(body)[1], "PersistentVolumeClaim"
        match action:
            case act.LabelPod():
                change: Json = {"metadata": {"labels": action.labels}}
                await self._patch("Pod", namespace, action.name, action.uid, change)
            case act.AnnotateClaim():
                change = {"metadata": {"annotations": action.annotations}}
                await self._patch(claim, namespace, action.name, action.uid, change)
            case act.ResizeClaim():
                change = {"spec": {"resources": {"requests": {"storage": action.size}}}}
                await self._patch(claim, namespace, action.name, action.uid, change)
                self._record_event(body, "VolumeGrowing", f"Requested {action.size} for PVC {action.name}")

    async def _change_own(self, body: Json, action: act.SetFinalizer | act.RemoveAnnotation) -> None:
        kind, namespace, name = identity(body)
        match action:
            case act.SetFinalizer():
                await self._set_finalizer(body, action)
            case act.RemoveAnnotation():
                change: Json = {"metadata": {"annotations": {action.key: None}}}
                await self._patch(kind, namespace, name, _uid_of(body), change)

    async def _call_sidecar(self, body: Json, action: act.HandOver | act.SetFenced) -> None:
        _, namespace, name = identity(body)
        match action:
            case act.HandOver():
                self._record_event(body, "HandingOver", action.message)
                master = await self._sidecars.hand_over(action.address, action.target_id, self._hand_over_seconds)
                note = f"{action.target_pod} is master (epoch {master.master_epoch}), handed over by {action.pod}"
                self._record_event(body, "HandedOver", note)
                self._metrics.handed_over(namespace, name)
            case act.SetFenced():
                reason = FENCE_REASON if action.fenced else ""
                await self._sidecars.set_fenced(action.pod_uid, action.address, fenced=action.fenced, reason=reason)
                done = "refuses sends" if action.fenced else "accepts sends again"
                self._record_event(body, "Fenced" if action.fenced else "Unfenced", f"{action.pod} {done}")

    async def _call_controllers(
        self, body: Json, action: act.CleanBrokerData | act.TransferLeadership | act.AddMember | act.RemoveMember
    ) -> None:
        if isinstance(action, act.CleanBrokerData):
            quorum: Quorum | None = self._quorums.of_group(parse_broker_group(body))
        else:
            quorum = self._quorums.of_cluster(parse_controller_cluster(body))
        client = await _client(quorum)
        match action:
            case act.CleanBrokerData():
                await client.clean_broker_data(action.broker_name, action.broker_ids)
                self._record_event(body, "BrokerDataCleaned", action.message)
            case act.TransferLeadership():
                await client.transfer_leadership(action.target_id)
                self._record_event(body, "LeadershipTransferred", action.message)
            case act.AddMember():
                await client.add_member(action.member_id, action.address)
                self._record_event(body, "MemberAdded", f"{action.member_id} at {action.address} joins as a learner")
            case act.RemoveMember():
                await client.remove_member(action.member_id)
                self._record_event(body, "MemberRemoved", f"{action.member_id} left the quorum")

    async def _apply_object(self, key: Key, made: Json) -> bool:
        before = self._cache.get(key)
        answer = await self._kube.apply(made)
        self._cache.put(answer)
        self._ledger.applied(key, made)
        after = self._cache.get(key)
        # With another uid or value, the plan was made for another object than the one that exists now.
        if before is None or after is None or _compared(before) != _compared(after):
            log.info("applied", kind=key.kind, namespace=key.namespace, name=key.name, new=before is None)
            return True
        return False

    async def _delete(self, key: Key, uid: str, *, orphan: bool = False) -> bool:
        """False: the object was already deleted, or replaced by another one of that name."""
        try:
            answer = await self._kube.delete(key.kind, key.namespace, key.name, uid, orphan=orphan)
        except NotFoundError:
            self._cache.remove(key, uid)
            return False
        except ConflictError:
            return False  # another object of that name, which the watch will report
        if answer.get("kind") == key.kind:
            self._cache.put(answer)
        else:
            self._cache.remove(key, uid)
        return True

    async def _remove(self, key: Key, uid: str | None) -> None:
        try:
            await self._kube.delete(key.kind, key.namespace, key.name, uid)
        except NotFoundError:
            pass
        except ConflictError:
            return
        self._cache.remove(key)
        self._ledger.forget(key)

    async def _patch(self, kind: str, namespace: str, name: str, uid: str, change: Json) -> None:
        metadata = change.get("metadata", {})
        assert isinstance(metadata, Mapping)
        try:
            self._cache.put(
                await self._kube.patch(kind, namespace, name, {**change, "metadata": {**metadata, "uid": uid}})
            )
        except NotFoundError:
            self._cache.remove(Key(kind, namespace, name), uid)
        except ConflictError:
            log.debug("object changed concurrently", kind=kind, namespace=namespace, name=name)

    async def _set_finalizer(self, body: Json, action: act.SetFinalizer) -> None:
        key, metadata = key_of(body)
        present = metadata.get("finalizers")
        kept = [name for name in (present if isinstance(present, list) else []) if name != names.FINALIZER]
        wanted = [*kept, names.FINALIZER] if action.present else kept
        change = {"metadata": {"finalizers": wanted, "resourceVersion": metadata.get("resourceVersion")}}
        try:
            answer = await self._kube.patch(key.kind, key.namespace, key.name, change)
        except NotFoundError:
            self._cache.remove(key, _uid_of(body))
            return
        if action.message:
            self._recorder.record_event(body, Event("Released", action.message, warning=action.warning))
        if _deleted(answer):
            self._cache.remove(key, _uid_of(body))
        else:
            self._cache.put(answer)

    async def _ensure_secret(self, body: Json, action: act.EnsureRaftSecret | act.EnsureReplicationSecret) -> None:
        text = secrets.token_hex(SECRET_BYTES)
        if isinstance(action, act.EnsureRaftSecret):
            made, kind, who = raft_secret(parse_controller_cluster(body), text), "Raft", "members"
        else:
            made, kind, who = replication_secret(parse_broker_group(body), text), "Replication", "replicas"
        try:
            await self._kube.get("Secret", identity(body)[1], action.name)
        except NotFoundError:
            if not action.may_create:
                lost = f"Secret {action.name} is missing and {who} need it to restart: restore it"
                self._recorder.record_event(body, Event(f"{kind}SecretLost", lost, warning=True))
                return
            with contextlib.suppress(ConflictError):
                await self._kube.create(made)
                self._record_event(
                    body, f"{kind}SecretMade", f"Created Secret {action.name}, by which {who} authenticate each other"
                )
        self._ledger.mark_checked(f"secret {_uid_of(body)}")

    def _record_event(self, body: Json, reason: str, message: str) -> None:
        self._recorder.record_event(body, Event(reason, message))

    def _uid(self, key: Key) -> str | None:
        entry = self._cache.get(key)
        return None if entry is None else entry.uid

    @staticmethod
    def _namespace(plan: Plan) -> str:
        return identity(plan.objects[0])[1]


def _compared(entry: Entry) -> tuple[object, ...]:
    return entry.uid, entry.essence, entry.value


async def _client(quorum: Quorum | None) -> ControllersClient:
    client = None if quorum is None else await quorum.client()
    if client is None:
        raise OSError("no controller is known")
    return client


def _uid_of(body: Json) -> str:
    _, metadata = key_of(body)
    return str(metadata.get("uid", ""))


def _deleted(body: Json) -> bool:
    _, metadata = key_of(body)
    return metadata.get("deletionTimestamp") is not None and not metadata.get("finalizers")


def _message(action: Action) -> str:
    return str(getattr(action, "message", ""))
