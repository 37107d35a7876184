"""Making one replica anew from nothing: its volumes are deleted, and with its pod they go.

A deleted PVC stays until no pod uses it. That mark survives every restart of the operator, so the request (the
annotation rocketmq-ha.io/rebuild) is done with as soon as it is there; what is left then is a pod that has to be
replaced, under the same rules as any other (`rollout`). So a PVC that somebody deletes by hand is treated alike. As
long as the pod runs on it the volume is a copy that the pod's next end takes away, so both are deleted in one go.
"""

from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import DeleteClaim, DeletePod, RemoveAnnotation
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
        # Busy: while the request is still written down, nobody may replace the pod, or it would be rebuilt twice.
        return Step(actions=(done,), busy=True, progress=progress)
    why = _refusal(state, member, pod_name)
    if why is not None:
        return _refused(why)
    deletions = tuple(
        DeleteClaim(
            claim.name,
            claim.uid,
            "RebuildingReplica",
            f"Deleting PVC {claim.name}: {pod_name} is to be made anew from the other replicas",
        )
        for claim in member.claims
    )
    assert member.pod is not None, "looked for above"
    message = f"Deleting pod {pod_name}: its replica is made anew"
    stop = DeletePod(pod_name, member.pod.uid, "RebuildingReplica", message)
    return Step(actions=(*deletions, done, stop), busy=True, progress=progress)


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
