"""Making one replica anew from nothing: its pod is stopped, its volumes are deleted, and the StatefulSet makes both
again.

A deleted PVC stays until no pod uses it: a copy that the pod's next end takes away. No such copy may be in the
SyncStateSet, where the controllers could elect it. So the pod goes first, and its volumes as soon as the replica is
dead and out of the set, which is while the pod is still stopping. What has been deleted so survives every restart of
the operator, and the request (the annotation rocketmq-ha.io/rebuild) is done with.
"""

from rocketmq_api.group_view import Liveness
from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import DeleteClaim, DeletePod, RemoveAnnotation
from rocketmq_operator.domain.plan.rollout import LOOK_AGAIN
from rocketmq_operator.domain.plan.state import GroupState, Member
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step


def rebuild(state: GroupState) -> Step:
    """What the annotation asks for, or why not."""
    pod_name = state.group.rebuild
    if not pod_name:
        return NOTHING
    done = RemoveAnnotation(names.ANNOTATION_REBUILD, pod_name)
    member = next(
        (one for one in state.members if names.pod_name(state.group.name, one.ordinal) == pod_name and one.pod), None
    )
    if member is None:
        return _refused(f"{pod_name} is no pod of this group")
    progress = Progress("Rebuilding", "RebuildingReplica", f"{pod_name} is made anew")
    if any(claim.deleting for claim in member.claims):
        return Step(actions=(done,), busy=True, progress=progress)
    why = _refusal(state, member, pod_name)
    if why is not None:
        return _refused(why)
    assert member.pod is not None, "looked for above"
    message = f"Deleting pod {pod_name}: its replica is made anew"
    stop = () if member.pod.deleting else (DeletePod(pod_name, member.pod.uid, "RebuildingReplica", message),)
    if member.in_sync or (member.standing is not None and member.standing.liveness is not Liveness.DEAD):
        return Step(actions=stop, busy=True, requeue=LOOK_AGAIN, progress=progress)
    why = f"{pod_name} is to be made anew from the other replicas"
    deletions = tuple(
        DeleteClaim(claim.name, claim.uid, "RebuildingReplica", f"Deleting PVC {claim.name}: {why}")
        for claim in member.claims
    )
    return Step(actions=(*deletions, done, *stop), busy=True, progress=progress)


def _refusal(state: GroupState, member: Member, pod_name: str) -> str | None:
    if not state.reachable or state.view is None:
        return f"{pod_name}: nobody can tell who else is in sync, the controllers are not heard"
    if member.is_master:
        return f"{pod_name} is the master: hand mastership over first"
    others = [one for one in state.in_sync if one is not member]
    if state.living_master is None or not others:
        return f"{pod_name}: no other replica in sync lives"
    if not member.claims:
        return f"{pod_name} has no volume"
    unwell = [names.pod_name(state.group.name, one.ordinal) for one in state.members if not one.available]
    if member.available and unwell:
        return f"{pod_name} is in sync and {', '.join(unwell)} not: one at a time"
    return None


def _refused(why: str) -> Step:
    return Step(blocked=Blocked("RebuildRefused", why))
