"""What is left of the newest generation of a group's spec, by what is observed and not by what a step intends.

`kubectl wait`, Argo CD and Flux take Ready with the observedGeneration of an edit for the end of that edit, as `kubectl
rollout status` does with a Deployment. A step cannot tell: one that is busy hides those behind it.
"""

from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.groups.storage import templates_differ, wanted_sizes
from rocketmq_operator.domain.plan.step import UNSETTLED, Unfinished
from rocketmq_resources import names


def unfinished(state: GroupState) -> Unfinished | None:
    """The first thing that is left, for an observation in which no object was left to apply; None: nothing."""
    return _objects(state) or _pods(state) or _volumes(state) or _fence(state)


def _objects(state: GroupState) -> Unfinished | None:
    if state.group.metadata.deleting:
        return Unfinished("Deleting", "the group is being deleted")
    if state.stateful_set is None or state.stateful_set.deleting:
        return Unfinished("Creating", "creating objects")
    if not state.settled:
        return Unfinished("RollingUpdate", UNSETTLED)
    needed = state.group.spec.storage.reclaim_policy == "Delete"
    if needed != (names.FINALIZER in state.group.metadata.finalizers):
        return Unfinished("Finalizer", f"reclaimPolicy is {state.group.spec.storage.reclaim_policy}")
    return None


def _pods(state: GroupState) -> Unfinished | None:
    wanted = state.group.pods_wanted
    if state.current != wanted:
        reason = "ScalingUp" if state.current < wanted else "ScalingDown"
        return Unfinished(reason, f"{state.current} replicas, {wanted} wanted")
    leaving = [member.pod.name for member in state.scaled_down if member.pod is not None]
    if leaving:
        return Unfinished("ScalingDown", f"stopping: {', '.join(leaving)}")
    old = [names.pod_name(state.group.name, member.ordinal) for member in state.members if member.outdated]
    if old:
        return Unfinished("RollingUpdate", f"to be replaced: {', '.join(old)}")
    return None


def _volumes(state: GroupState) -> Unfinished | None:
    wanted = wanted_sizes(state)
    small = [
        claim.name
        for member in state.members
        for claim in member.claims
        if claim.requested < wanted.get(claim.volume, 0)
    ]
    if small:
        return Unfinished("StorageGrowing", f"smaller than wanted: {', '.join(small)}")
    if templates_differ(state):
        return Unfinished("StorageGrowing", "the StatefulSet is to be recreated with the sizes of the volumes")
    return None


def _fence(state: GroupState) -> Unfinished | None:
    wanted = state.group.spec.fenced
    other = [
        names.pod_name(state.group.name, member.ordinal)
        for member in state.members
        if member.sidecar is not None and member.sidecar.fenced != wanted
    ]
    return Unfinished("Fencing", f"{'not' if wanted else 'still'} fenced: {', '.join(other)}") if other else None
