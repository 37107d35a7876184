"""Rebuilds one replica from empty volumes: its pod and volumes are deleted, and the StatefulSet creates both again.

A deleted PVC exists until no pod uses it, so its copy is lost when the pod ends. Such a copy must not be in the
SyncStateSet, where the controllers could elect it. So the pod is deleted first, and its volumes as soon as the replica
is dead and out of the set, while the pod is still stopping. The deletions survive every restart of the operator; the
request (annotation rocketmq-ha.io/rebuild) is then removed.
"""

from rocketmq_api.group_view import Liveness
from rocketmq_operator.domain.actions import DeleteClaim, DeletePod, RemoveAnnotation
from rocketmq_operator.domain.plan.groups.rollout import REQUEUE_SECONDS
from rocketmq_operator.domain.plan.groups.state import GroupState, Member
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step
from rocketmq_resources import names


def rebuild(state: GroupState) -> Step:
    """Rebuild the replica that the annotation names, or report why not."""
    pod_name = state.group.rebuild
    if not pod_name:
        return NOTHING
    done = RemoveAnnotation(names.ANNOTATION_REBUILD, pod_name)
    member = next((m for m in state.members if names.pod_name(state.group.name, m.ordinal) == pod_name and m.pod), None)
    if member is None:
        return _refused(f"{pod_name} is not a pod of this group")
    progress = Progress("Rebuilding", "RebuildingReplica", f"rebuilding {pod_name}")
    if any(claim.deleting for claim in member.claims):
        return Step(actions=(done,), busy=True, progress=progress)
    why = _refusal(state, member, pod_name)
    if why is not None:
        return _refused(why)
    assert member.pod is not None, "checked above"
    message = f"Deleting pod {pod_name} to rebuild its replica"
    stop = () if member.pod.deleting else (DeletePod(pod_name, member.pod.uid, "RebuildingReplica", message),)
    # A strict master without living slaves keeps its members, dead ones too: it has everything that they have.
    kept = [other for other in state.in_sync if other is not member] == [state.live_master]
    dead = member.standing is None or member.standing.liveness is Liveness.DEAD
    if not dead or (member.in_sync and not kept):
        return Step(actions=stop, busy=True, requeue=REQUEUE_SECONDS, progress=progress)
    why = f"{pod_name} is rebuilt from the other replicas"
    deletions = tuple(
        DeleteClaim(claim.name, claim.uid, "RebuildingReplica", f"Deleting PVC {claim.name}: {why}")
        for claim in member.claims
    )
    return Step(actions=(*deletions, done, *stop), busy=True, progress=progress)


def _refusal(state: GroupState, member: Member, pod_name: str) -> str | None:
    if state.view is None:
        return f"{pod_name}: {state.no_view}, so other replicas in sync are unknown"
    if member.is_master:
        advice = "switch over first" if state.group.fails_over else "without failover no other replica takes its place"
        return f"{pod_name} is the master: {advice}"
    others = [other for other in state.in_sync if other is not member]
    if state.live_master is None or not others:
        return f"{pod_name}: no other replica in sync is alive"
    if not member.claims:
        return f"{pod_name} has no volume"
    unwell = [names.pod_name(state.group.name, other.ordinal) for other in state.members if not other.available]
    if member.available and unwell:
        return f"{pod_name} is in sync and {', '.join(unwell)} is not: rebuild one at a time"
    return None


def _refused(why: str) -> Step:
    return Step(blocked=Blocked("RebuildRefused", why))
