"""The Kubernetes objects of a group at this moment: what its spec makes, where something is not settled as it is."""

from rocketmq_operator.domain.manifests.broker_config import Endpoints
from rocketmq_operator.domain.manifests.broker_groups import broker_group_objects
from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_operator.domain.manifests.objects import Images
from rocketmq_operator.domain.manifests.verification import candidates
from rocketmq_operator.domain.observed import StatefulSet
from rocketmq_operator.domain.plan.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step
from rocketmq_operator.domain.spec.common import Json

BUDGET = "PodDisruptionBudget"
STATEFUL_SET = "StatefulSet"


def missing_references(state: GroupState) -> Step:
    """What the spec refers to and is not there. The group's objects then stay as they are."""
    world, missing = state.world, []
    if world.controller_addr is None:
        missing.append(f"ControllerCluster {_name(state.group.controller)}")
    if world.namesrv_addr is None:
        missing.append(f"NameServer {_name(state.group.name_server or state.group.controller)}")
    if not missing:
        return NOTHING
    return Step(busy=True, blocked=Blocked("ReferenceMissing", f"{' and '.join(missing)} does not exist"))


Made = tuple[tuple[Json, ...], tuple[tuple[str, str], ...]]
"""What to apply, and (kind, name) of what must not be there."""


class ObjectMemory:
    """The objects of each group as they were made last: a group is looked at far more often than it changes, and its
    objects are the larger part of a look."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, Made]] = {}

    def group_objects(self, state: GroupState, images: Images, access: Access, replicas: int) -> Made:
        """As the function of that name; the very same objects as long as nothing they are made of has changed."""
        world, metadata = state.world, state.group.metadata
        of = (
            *(metadata.generation, metadata.annotations, world.controller_addr, world.namesrv_addr, images, access),
            *(
                replicas,
                world.disruption_budget,
                world.verification_objects,
                None if world.stateful_set is None else world.stateful_set.uid,
            ),
            None if world.stateful_set is None else world.stateful_set.claim_sizes,
        )
        known = self._made.get(metadata.uid)
        if known is None or known[0] != of:
            known = self._made[metadata.uid] = (of, group_objects(state, images, access, replicas))
        return known[1]

    def forget_all_but(self, uids: set[str]) -> None:
        """Groups that are gone."""
        for uid in self._made.keys() - uids:
            del self._made[uid]


def group_objects(state: GroupState, images: Images, access: Access, replicas: int) -> Made:
    """What to apply, and (kind, name) of what must not be there."""
    world = state.world
    if world.controller_addr is None or world.namesrv_addr is None:
        return (), ()
    endpoints = Endpoints(world.controller_addr, world.namesrv_addr)
    objects = broker_group_objects(state.group, endpoints, images, replicas, access)
    if state.group.spec.hibernated:
        # A budget over no pods would only stand in the way of whoever looks for what blocks a drain.
        objects = tuple(one for one in objects if one["kind"] != BUDGET)
    removals: tuple[tuple[str, str], ...] = ()
    if world.disruption_budget and not any(one["kind"] == BUDGET for one in objects):
        removals = ((BUDGET, state.group.name),)
    wanted = {identity_of(one) for one in objects}
    removals += tuple(one for one in candidates(state.group.name) if one in world.verification_objects - wanted)
    return tuple(keep_claim_templates(one, state.stateful_set) for one in objects), removals


def identity_of(made: Json) -> tuple[str, str]:
    """Kind and name."""
    metadata = made["metadata"]
    assert isinstance(metadata, dict), "manifests make whole objects"
    return str(made["kind"]), str(metadata["name"])


def keep_claim_templates(made: Json, present: StatefulSet | None) -> Json:
    """The object, or with the claim templates that the StatefulSet has: those cannot be changed, and one that tries is
    refused as a whole. What is to be done about a difference is decided elsewhere (`storage`)."""
    if made["kind"] != STATEFUL_SET or present is None or not present.claim_templates:
        return made
    spec = made["spec"]
    assert isinstance(spec, dict), "manifests make whole objects"
    return {**made, "spec": {**spec, "volumeClaimTemplates": list(present.claim_templates)}}


def _name(reference: tuple[str, str] | None) -> str:
    return "?" if reference is None else "/".join(reference)
