"""Doing what a plan says: the only caller of the Kubernetes API for it, and of controllers and sidecars for changes.

Called by `reconciler`. Answers of the API server go into the cache at once, so that the next plan knows what this one
did though the watch has not told of it yet.
"""

import contextlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from rocketmq_api.channels import ApiError
from rocketmq_api.controllers import ControllersClient
from rocketmq_operator.cache import Cache, Key, key_of
from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Action, Notice
from rocketmq_operator.domain.manifests.controllers import raft_secret
from rocketmq_operator.domain.plan.step import Plan
from rocketmq_operator.domain.spec.broker_group import parse_broker_group
from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.domain.spec.controller_cluster import parse_controller_cluster
from rocketmq_operator.domain.spec.decoding import mapping
from rocketmq_operator.kube import ConflictError, Kube, KubeError, NotFoundError, RefusedByServerError, identity
from rocketmq_operator.ledger import Ledger
from rocketmq_operator.metrics import OperatorMetrics
from rocketmq_operator.quorum_book import QuorumBook
from rocketmq_operator.quorums import Quorum
from rocketmq_operator.recorder import Recorder
from rocketmq_operator.sidecars import Sidecars

SECRET_BYTES: Final = 32
FENCE_REASON: Final = "spec.fenced of the BrokerGroup is set"
OTHERS_STATUS: Final = frozenset({"verification"})
"""Written by who compares the logs."""

log = structlog.get_logger(__name__)


class StepFailedError(Exception):
    """An action was not carried out; the next look decides what then."""


class Executor:
    """Of one process."""

    def __init__(
        self,
        *,
        kube: Kube,
        cache: Cache,
        ledger: Ledger,
        recorder: Recorder,
        quorums: QuorumBook,
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
        """Bring the objects to what they shall be; whether anything had to be done.

        Raises:
            KubeError: the first that failed; what came before is done.
        """
        worked = False
        for made in plan.objects:
            key = Key(*identity(made))
            if self._ledger.needs(key, made):
                worked = await self._apply_one(key, made) or worked
        for kind, name in plan.removals:
            namespace = self._namespace(plan)
            key = Key(kind, namespace, name)
            await self._gone(key, self._uid(key))
            worked = True
        return worked

    async def perform(self, body: Json, actions: Iterable[Action], *, disruptive: bool) -> bool:
        """These in order; disruptive ones only if that is allowed now. False: the API server refused one for good,
        which the next plan is told.

        Raises:
            StepFailedError: the first that failed; what came before is done.
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
                warning = Notice(f"{name}Failed", f"{_message(action) or name}: {error}", warning=True)
                self._recorder.tell(body, warning)
                raise StepFailedError(f"{name}: {error}") from error
            self._metrics.acted(name, failed=False)
        return content

    async def write_status(self, body: Json, status: Json) -> None:
        """What is there and not in `status` goes, but for what is others' to write. A merge patch: what an older CRD
        does not know is left out by the API server, where an apply would be refused as a whole.

        Raises:
            KubeError: it was not written.
        """
        kind, namespace, name = identity(body)
        gone = {key: None for key in mapping(body, "status") if key not in status and key not in OTHERS_STATUS}
        change = {"status": {**gone, **status}}
        self._cache.put(await self._kube.patch(kind, namespace, name, change, sub="status"))

    async def _perform(self, body: Json, action: Action) -> None:
        match action:
            case act.DeletePod() | act.DeleteClaim() | act.DeleteStatefulSet():
                await self._take_away(body, action)
            case act.LabelPod() | act.AnnotateClaim() | act.ResizeClaim():
                await self._change_child(body, action)
            case act.SetFinalizer() | act.RemoveAnnotation() | act.MakeRaftSecret():
                await self._change_own(body, action)
            case act.HandOver() | act.SetFenced():
                await self._ask_sidecar(body, action)
            case act.CleanBrokerData() | act.TransferLeadership():
                await self._ask_controllers(body, action)
            case _:
                raise AssertionError(f"{type(action).__name__} is not carried out by anybody")

    async def _take_away(self, body: Json, action: act.DeletePod | act.DeleteClaim | act.DeleteStatefulSet) -> None:
        kind = {act.DeletePod: "Pod", act.DeleteClaim: "PersistentVolumeClaim"}.get(type(action), "StatefulSet")
        orphan = isinstance(action, act.DeleteStatefulSet) and action.orphan
        if await self._delete(Key(kind, identity(body)[1], action.name), action.uid, orphan=orphan):
            self._tell(body, action.reason, action.message)

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
                self._tell(body, "VolumeGrowing", f"PVC {action.name} is asked to grow to {action.size}")

    async def _change_own(
        self, body: Json, action: act.SetFinalizer | act.RemoveAnnotation | act.MakeRaftSecret
    ) -> None:
        kind, namespace, name = identity(body)
        match action:
            case act.SetFinalizer():
                await self._set_finalizer(body, action)
            case act.RemoveAnnotation():
                change: Json = {"metadata": {"annotations": {action.key: None}}}
                await self._patch(kind, namespace, name, _uid_of(body), change)
            case act.MakeRaftSecret():
                await self._make_secret(body, action)

    async def _ask_sidecar(self, body: Json, action: act.HandOver | act.SetFenced) -> None:
        _, namespace, name = identity(body)
        match action:
            case act.HandOver():
                self._tell(body, "HandingOver", action.message)
                master = await self._sidecars.hand_over(action.address, action.target_id, self._hand_over_seconds)
                note = f"{action.target_pod} is master (epoch {master.master_epoch}), handed over by {action.pod}"
                self._tell(body, "HandedOver", note)
                self._metrics.handed_over(namespace, name)
            case act.SetFenced():
                reason = FENCE_REASON if action.fenced else ""
                await self._sidecars.set_fenced(action.pod_uid, action.address, fenced=action.fenced, reason=reason)
                done = "refuses sends" if action.fenced else "accepts sends again"
                self._tell(body, "Fenced" if action.fenced else "Unfenced", f"{action.pod} {done}")

    async def _ask_controllers(self, body: Json, action: act.CleanBrokerData | act.TransferLeadership) -> None:
        quorum: Quorum | None
        match action:
            case act.CleanBrokerData():
                quorum = self._quorums.of_group(parse_broker_group(body))
                await (await _client(quorum)).clean_broker_data(action.broker_name, action.broker_ids)
                self._tell(body, "BrokerDataCleaned", action.message)
            case act.TransferLeadership():
                quorum = self._quorums.of_cluster(parse_controller_cluster(body))
                await (await _client(quorum)).transfer_leadership(action.target_id)
                self._tell(body, "LeadershipTransferred", action.message)

    async def _apply_one(self, key: Key, made: Json) -> bool:
        before = self._cache.get(key)
        answer = await self._kube.apply(made)
        self._cache.put(answer)
        self._ledger.applied(key, made)
        after = self._cache.get(key)
        if before is None or after is None or before.essence != after.essence:
            log.info("applied", kind=key.kind, namespace=key.namespace, name=key.name, new=before is None)
            return True
        return False

    async def _delete(self, key: Key, uid: str, *, orphan: bool = False) -> bool:
        """False: it was gone already, or is another one by now."""
        try:
            answer = await self._kube.delete(key.kind, key.namespace, key.name, uid, orphan=orphan)
        except NotFoundError:
            self._cache.remove(key, uid)
            return False
        except ConflictError:
            return False  # another one of that name: the watch will tell
        if answer.get("kind") == key.kind:
            self._cache.put(answer)
        else:
            self._cache.remove(key, uid)
        return True

    async def _gone(self, key: Key, uid: str | None) -> None:
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
            log.debug("changed meanwhile", kind=kind, namespace=namespace, name=name)

    async def _set_finalizer(self, body: Json, action: act.SetFinalizer) -> None:
        key, metadata = key_of(body)
        present = metadata.get("finalizers")
        kept = [one for one in (present if isinstance(present, list) else []) if one != names.FINALIZER]
        wanted = [*kept, names.FINALIZER] if action.present else kept
        change = {"metadata": {"finalizers": wanted, "resourceVersion": metadata.get("resourceVersion")}}
        try:
            answer = await self._kube.patch(key.kind, key.namespace, key.name, change)
        except NotFoundError:
            self._cache.remove(key, _uid_of(body))
            return
        if action.message:
            self._recorder.tell(body, Notice("Released", action.message, warning=action.warning))
        if _deleted(answer):
            self._cache.remove(key, _uid_of(body))
        else:
            self._cache.put(answer)

    async def _make_secret(self, body: Json, action: act.MakeRaftSecret) -> None:
        cluster = parse_controller_cluster(body)
        try:
            await self._kube.get("Secret", cluster.namespace, action.name)
        except NotFoundError:
            if not action.may_make:
                lost = (
                    f"Secret {action.name} is gone while members run on it: bring it back, none of them could restart"
                )
                self._recorder.tell(body, Notice("RaftSecretLost", lost, warning=True))
                return
            with contextlib.suppress(ConflictError):
                await self._kube.create(raft_secret(cluster, secrets.token_hex(SECRET_BYTES)))
                self._tell(body, "RaftSecretMade", f"Secret {action.name} holds what the members prove themselves by")
        self._ledger.note(f"secret {cluster.metadata.uid}")

    def _tell(self, body: Json, reason: str, message: str) -> None:
        self._recorder.tell(body, Notice(reason, message))

    def _uid(self, key: Key) -> str | None:
        entry = self._cache.get(key)
        return None if entry is None else entry.uid

    @staticmethod
    def _namespace(plan: Plan) -> str:
        return identity(plan.objects[0])[1]


async def _client(quorum: Quorum | None) -> ControllersClient:
    client = None if quorum is None else await quorum.client()
    if client is None:
        raise OSError("there are no controllers to ask")
    return client


def _uid_of(body: Json) -> str:
    _, metadata = key_of(body)
    return str(metadata.get("uid", ""))


def _deleted(body: Json) -> bool:
    _, metadata = key_of(body)
    return metadata.get("deletionTimestamp") is not None and not metadata.get("finalizers")


def _message(action: Action) -> str:
    return str(getattr(action, "message", ""))
