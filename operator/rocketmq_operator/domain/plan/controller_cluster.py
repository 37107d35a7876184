"""The plan of a ControllerCluster: its objects, and a rolling update that keeps the quorum: one member at a time, and
only while all others are connected, vote and have all committed entries; the leader last, after a transfer."""

from rocketmq_api.group_view import MemberView
from rocketmq_operator.domain.actions import DeletePod, EnsureRaftSecret, ResizeClaim, TransferLeadership
from rocketmq_operator.domain.manifests.controllers import controller_cluster_objects
from rocketmq_operator.domain.observed import ObservedCluster, Pod
from rocketmq_operator.domain.plan.cluster_status import catching_up, cluster_status
from rocketmq_operator.domain.plan.config_size import config_too_large
from rocketmq_operator.domain.plan.groups.objects import keep_claim_templates
from rocketmq_operator.domain.plan.membership import change_members, pods_needed
from rocketmq_operator.domain.plan.name_server import phase_events
from rocketmq_operator.domain.plan.references import bad_references
from rocketmq_operator.domain.plan.step import (
    CHANGING_REQUEUE_SECONDS,
    NOTHING,
    Blocked,
    Plan,
    PlanSettings,
    Progress,
    Step,
    combine,
)
from rocketmq_resources import names
from rocketmq_resources.decoding import Json

IDLE_REQUEUE_SECONDS = 10.0
"""Seconds while a member is missing."""


def plan_controller_cluster(observed: ObservedCluster, settings: PlanSettings, now: float) -> Plan:
    """What to do for one cluster now. `now`: seconds since 1970."""
    cluster = observed.cluster
    if cluster.metadata.deleting:
        return Plan()
    step, objects = NOTHING, tuple[Json, ...]()
    if not cluster.spec.paused:
        objects = controller_cluster_objects(cluster, settings.images, settings.access, replicas=pods_needed(observed))
        missing = bad_references(observed.bad_references.items())
        refusal = config_too_large(objects)
        step = combine((missing, refusal, _grow_volumes(observed), change_members(observed), _rolling_update(observed)))
        if refusal.blocked is not None:
            objects = ()
    status = cluster_status(observed, step.progress, step.blocked, now)
    requeue = step.requeue
    if requeue is None and status.get("phase") != "Running":
        requeue = CHANGING_REQUEUE_SECONDS if status.get("phase") == "Creating" else IDLE_REQUEUE_SECONDS
    events = phase_events(cluster.status, status)
    if not objects:
        return Plan(actions=step.actions, status=status, events=events, requeue=requeue)
    return Plan(
        first=_secret(observed),
        objects=tuple(keep_claim_templates(desired, observed.stateful_set) for desired in objects),
        actions=step.actions,
        status=status,
        events=events,
        requeue=requeue,
    )


def _secret(observed: ObservedCluster) -> tuple[EnsureRaftSecret, ...]:
    """Checked once per operator process. The Secret is created before the pods that need it, and only then, since
    members with different secrets refuse each other."""
    if not observed.cluster.own_raft_secret or observed.secret_checked:
        return ()
    used = any(pod.running for pod in observed.pods)
    return (EnsureRaftSecret(observed.cluster.raft_secret, may_create=not used),)


def _rolling_update(observed: ObservedCluster) -> Step:
    stateful_set = observed.stateful_set
    if stateful_set is None or stateful_set.deleting or not stateful_set.settled or not stateful_set.update_revision:
        return NOTHING
    old = tuple(pod for pod in observed.pods if pod.revision != stateful_set.update_revision and not pod.deleting)
    if not old:
        return NOTHING
    stopped = tuple(pod for pod in old if not pod.running)
    if stopped:
        return _delete(observed, stopped[0], "it is not running")
    return _replace(observed, old)


def _replace(observed: ObservedCluster, old: tuple[Pod, ...]) -> Step:
    """Replace one of the outdated members that run."""
    members = {member.id: member for member in (() if observed.quorum is None else observed.quorum.members)}
    missing = _missing(observed, members)
    if missing or observed.quorum is None:
        blocked = Blocked("MembersMissing", f"{missing}: replacing another member could lose the quorum")
        return Step(
            busy=True,
            requeue=CHANGING_REQUEUE_SECONDS,
            blocked=blocked if _stuck(observed) else None,
            progress=_progress(observed),
        )
    followers = tuple(pod for pod in old if names.member_id(pod.ordinal) != observed.quorum.leader_id)
    if followers:
        return _delete(observed, followers[-1], "it is a follower")
    target = _successor(observed, members)
    if target is None:
        return Step(busy=True, requeue=CHANGING_REQUEUE_SECONDS, progress=_progress(observed))
    message = f"{old[0].name} is the leader and has to be replaced: transferring leadership to {target.id}"
    return Step(actions=(TransferLeadership(target.id, message),), busy=True, requeue=1.0, progress=_progress(observed))


def _missing(observed: ObservedCluster, members: dict[str, MemberView]) -> str:
    """Which member is missing, in words; empty: none."""
    quorum = observed.quorum
    if quorum is None or not quorum.from_leader:
        return "no leader answers"
    pods = {pod.ordinal: pod for pod in observed.pods}
    for ordinal in range(observed.cluster.spec.members):
        pod, member = pods.get(ordinal), members.get(names.member_id(ordinal))
        name = names.pod_name(names.controller(observed.cluster.name), ordinal)
        if pod is None or pod.deleting or not pod.ready:
            return f"{name} is not ready"
        if member is None or not (member.connected or member.is_leader):
            return f"{name} is not connected"
        if (why := catching_up(member, quorum.commit_index)) is not None:
            return f"{name} {why}"
    return ""


def _stuck(observed: ObservedCluster) -> bool:
    """A member is missing for a reason that needs a user."""
    refused = observed.stateful_set is not None and bool(observed.stateful_set.refused_pods)
    return refused or any(pod.problem for pod in observed.pods)


def _successor(observed: ObservedCluster, members: dict[str, MemberView]) -> MemberView | None:
    """The up-to-date member with the longest log."""
    assert observed.stateful_set is not None
    able = [
        members[names.member_id(pod.ordinal)]
        for pod in observed.pods
        if pod.revision == observed.stateful_set.update_revision and names.member_id(pod.ordinal) in members
    ]
    able = [member for member in able if member.connected and not member.is_leader]
    return max(able, key=lambda member: (member.match_index or 0, member.id), default=None)


def _grow_volumes(observed: ObservedCluster) -> Step:
    wanted, size = observed.cluster.storage_bytes, observed.cluster.spec.storage.size
    actions, refused = [], []
    for claim in observed.claims:
        if claim.deleting or claim.requested >= wanted:
            continue
        action = ResizeClaim(claim.name, claim.uid, size)
        why = observed.refused.get(action.memory_key or "")
        if why is None:
            actions.append(action)
        else:
            refused.append(f"{claim.name}: {why}")
    blocked = Blocked("StorageNotExpandable", "; ".join(refused)) if refused else None
    return Step(actions=tuple(actions), blocked=blocked) if actions or refused else NOTHING


def _delete(observed: ObservedCluster, pod: Pod, why: str) -> Step:
    message = f"Deleting pod {pod.name} to update it: {why}"
    action = DeletePod(pod.name, pod.uid, "RestartingMember", message)
    return Step(actions=(action,), busy=True, requeue=CHANGING_REQUEUE_SECONDS, progress=_progress(observed))


def _progress(observed: ObservedCluster) -> Progress:
    assert observed.stateful_set is not None
    done = sum(1 for pod in observed.pods if pod.revision == observed.stateful_set.update_revision)
    message = f"{done} of {observed.cluster.spec.members} members are up to date"
    return Progress("Updating", "RollingUpdate", message)
