"""The desired Kubernetes objects of a group, and the secret by which its replicas authenticate each other.

Replicas that run without the secret (a group of an earlier release) are restarted with it one by one; until then all
accept each other without it. Once every pod has it, they are restarted once more, and require it.
"""

from rocketmq_operator.domain.actions import EnsureReplicationSecret
from rocketmq_operator.domain.manifests.groups.config_file import Endpoints
from rocketmq_operator.domain.manifests.groups.objects_of_group import broker_group_objects
from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_operator.domain.manifests.objects import Images
from rocketmq_operator.domain.manifests.verification.cron_jobs import candidates
from rocketmq_operator.domain.observed import ObservedGroup, Reference, StatefulSet
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.references import bad_references
from rocketmq_operator.domain.plan.step import Step
from rocketmq_resources.decoding import Json

BUDGET = "PodDisruptionBudget"
STATEFUL_SET = "StatefulSet"


def missing_references(state: GroupState) -> Step:
    """What the spec refers to and cannot be used. Without addresses the group's objects stay unchanged."""
    group, observed = state.group, state.observed
    bad = dict(observed.bad_references)
    if observed.controller_addr is None and group.controller is not None:
        bad.setdefault(Reference("ControllerCluster", *group.controller), "")
    if observed.namesrv_addr is None and group.name_server is not None:
        bad.setdefault(Reference("NameServer", *group.name_server), "")
    elif observed.namesrv_addr is None and group.controller is not None:
        what = "has no embedded name servers: set spec.nameServerRef or spec.namesrvAddr"
        bad.setdefault(Reference("ControllerCluster", *group.controller), what)
    return bad_references(bad.items())


Objects = tuple[tuple[Json, ...], tuple[tuple[str, str], ...]]
"""Objects to apply, and (kind, name) of objects to delete."""


class ObjectMemory:
    """The last desired objects of each group: most reconciles find no change, and would spend most of their time on
    making the objects."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, Objects]] = {}

    def group_objects(self, state: GroupState, images: Images, access: Access, replicas: int) -> Objects:
        """Like the function `group_objects`; returns the same objects while its inputs are unchanged."""
        observed, metadata = state.observed, state.group.metadata
        inputs = (
            metadata.generation,
            metadata.annotations,
            observed.controller_addr,
            observed.namesrv_addr,
            images,
            access,
            replicas,
            observed.disruption_budget,
            observed.verification_objects,
            secret_required(observed),
            None if observed.stateful_set is None else observed.stateful_set.uid,
            None if observed.stateful_set is None else observed.stateful_set.claim_sizes,
        )
        last = self._last.get(metadata.uid)
        if last is None or last[0] != inputs:
            last = self._last[metadata.uid] = (inputs, group_objects(state, images, access, replicas))
        return last[1]

    def retain(self, uids: set[str]) -> None:
        """Forget deleted groups."""
        for uid in self._last.keys() - uids:
            del self._last[uid]


def group_objects(state: GroupState, images: Images, access: Access, replicas: int) -> Objects:
    """Objects to apply, and (kind, name) of objects to delete."""
    observed = state.observed
    if observed.controller_addr is None or observed.namesrv_addr is None:
        return (), ()
    endpoints = Endpoints(observed.controller_addr, observed.namesrv_addr)
    objects = broker_group_objects(
        state.group, endpoints, images, replicas, access, secret_required=secret_required(observed)
    )
    if state.group.spec.hibernated:
        # A budget without pods would only mislead a user who searches what blocks a drain.
        objects = tuple(desired for desired in objects if desired["kind"] != BUDGET)
    removals: tuple[tuple[str, str], ...] = ()
    if observed.disruption_budget and not any(desired["kind"] == BUDGET for desired in objects):
        removals = ((BUDGET, state.group.name),)
    wanted = {identity_of(desired) for desired in objects}
    removals += tuple(key for key in candidates(state.group.name) if key in observed.verification_objects - wanted)
    return tuple(keep_claim_templates(desired, state.stateful_set) for desired in objects), removals


def ensure_secret(observed: ObservedGroup) -> tuple[EnsureReplicationSecret, ...]:
    """Checked once per operator process, before the pods that need it. It is created only while no replica uses one:
    replicas with different secrets refuse each other."""
    group = observed.group
    if group.replication_secret is None or not group.own_replication_secret or observed.secret_checked:
        return ()
    used = any(pod.running and pod.replication_secret for pod in observed.pods)
    return (EnsureReplicationSecret(group.replication_secret, may_create=not used),)


def secret_required(observed: ObservedGroup) -> bool:
    """Whether replicas require the secret of each other: once every pod has it."""
    return all(pod.replication_secret for pod in observed.pods)


def identity_of(desired: Json) -> tuple[str, str]:
    """Kind and name."""
    metadata = desired["metadata"]
    assert isinstance(metadata, dict), "manifests are whole objects"
    return str(desired["kind"]), str(metadata["name"])


def keep_claim_templates(desired: Json, existing: StatefulSet | None) -> Json:
    """The object with the claim templates of the existing StatefulSet, because the API server refuses to change them.
    `storage` decides what to do about a difference."""
    if desired["kind"] != STATEFUL_SET or existing is None or not existing.claim_templates:
        return desired
    spec = desired["spec"]
    assert isinstance(spec, dict), "manifests are whole objects"
    return {**desired, "spec": {**spec, "volumeClaimTemplates": list(existing.claim_templates)}}
