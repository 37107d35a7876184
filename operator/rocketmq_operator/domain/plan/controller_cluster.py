"""The plan of a ControllerCluster: its objects, and a rolling update that keeps the quorum: one member at a time, and
only while all others are connected; the leader last, after another has taken over."""

from rocketmq_api.group_view import MemberView
from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import DeletePod, MakeRaftSecret, ResizeClaim, TransferLeadership
from rocketmq_operator.domain.cluster_status import cluster_status
from rocketmq_operator.domain.manifests.controllers import controller_cluster_objects
from rocketmq_operator.domain.observed import ObservedCluster, Pod
from rocketmq_operator.domain.plan.name_server import phase_notice
from rocketmq_operator.domain.plan.objects import keep_claim_templates
from rocketmq_operator.domain.plan.settings import PlanSettings
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Plan, Progress, Step, combine

LOOK_AGAIN = 2.0
"""Seconds while something is under way: nobody tells us when a member is connected."""
IDLE_LOOK = 10.0
"""Seconds while somebody is missing."""


def plan_controller_cluster(world: ObservedCluster, settings: PlanSettings, now: float) -> Plan:
    """What to do for one cluster now. `now`: seconds since 1970."""
    cluster = world.cluster
    if cluster.metadata.deleting:
        return Plan()
    step = NOTHING if cluster.spec.paused else combine((_grow(world), _roll(world)))
    status = cluster_status(world, step.progress, step.blocked, now)
    requeue = step.requeue
    if requeue is None and status.get("phase") != "Running":
        requeue = LOOK_AGAIN if status.get("phase") == "Creating" else IDLE_LOOK
    notices = phase_notice(cluster.status, status)
    if cluster.spec.paused:
        return Plan(status=status, notices=notices, requeue=requeue)
    return Plan(
        first=_secret(world),
        objects=tuple(
            keep_claim_templates(made, world.stateful_set)
            for made in controller_cluster_objects(cluster, settings.images, settings.access)
        ),
        actions=step.actions,
        status=status,
        notices=notices,
        requeue=requeue,
    )


def _secret(world: ObservedCluster) -> tuple[MakeRaftSecret, ...]:
    """Looked for once in the operator's life. It is made before the pods that wait for it, and only then: a second one
    would part the members that have the first from those that start later."""
    if not world.cluster.own_raft_secret or world.secret_checked:
        return ()
    used = any(pod.running for pod in world.pods)
    return (MakeRaftSecret(world.cluster.raft_secret, may_make=not used),)


def _roll(world: ObservedCluster) -> Step:
    stateful_set = world.stateful_set
    if stateful_set is None or stateful_set.deleting or not stateful_set.settled or not stateful_set.update_revision:
        return NOTHING
    old = tuple(pod for pod in world.pods if pod.revision != stateful_set.update_revision and not pod.deleting)
    if not old:
        return NOTHING
    useless = tuple(pod for pod in old if not pod.running)
    if useless:
        return _delete(world, useless[0], "it does not run")
    return _replace(world, old)


def _replace(world: ObservedCluster, old: tuple[Pod, ...]) -> Step:
    """One of the members that run and are out of date."""
    members = {member.id: member for member in (() if world.quorum is None else world.quorum.members)}
    missing = _missing(world, members)
    if missing or world.quorum is None:
        blocked = Blocked("MembersMissing", f"{missing}: replacing another one would endanger the quorum")
        return Step(
            busy=True, requeue=LOOK_AGAIN, blocked=blocked if _stuck(world) else None, progress=_progress(world)
        )
    followers = tuple(pod for pod in old if names.member_id(pod.ordinal) != world.quorum.leader_id)
    if followers:
        return _delete(world, followers[-1], "it follows")
    target = _successor(world, members)
    if target is None:
        return Step(busy=True, requeue=LOOK_AGAIN, progress=_progress(world))
    message = f"{old[0].name} leads and has to be replaced: {target.id} takes over"
    return Step(actions=(TransferLeadership(target.id, message),), busy=True, requeue=1.0, progress=_progress(world))


def _missing(world: ObservedCluster, members: dict[str, MemberView]) -> str:
    """Who is not there, for people; empty: everybody is."""
    quorum = world.quorum
    if quorum is None or not quorum.leader_id or quorum.answered_by != quorum.leader_id:
        return "no leader answers"
    pods = {pod.ordinal: pod for pod in world.pods}
    for ordinal in range(world.cluster.spec.members):
        pod, member = pods.get(ordinal), members.get(names.member_id(ordinal))
        name = names.pod_name(names.controller(world.cluster.name), ordinal)
        if pod is None or pod.deleting or not pod.ready:
            return f"{name} is not ready"
        if member is None or not (member.connected or member.is_leader):
            return f"{name} is not connected"
    return ""


def _stuck(world: ObservedCluster) -> bool:
    """Somebody is missing for a reason that waiting does not mend."""
    return any(pod.trouble for pod in world.pods)


def _successor(world: ObservedCluster, members: dict[str, MemberView]) -> MemberView | None:
    """The up-to-date member whose log is furthest."""
    assert world.stateful_set is not None
    able = [
        members[names.member_id(pod.ordinal)]
        for pod in world.pods
        if pod.revision == world.stateful_set.update_revision and names.member_id(pod.ordinal) in members
    ]
    able = [member for member in able if member.connected and not member.is_leader]
    return max(able, key=lambda member: (member.match_index or 0, member.id), default=None)


def _grow(world: ObservedCluster) -> Step:
    wanted, size = world.cluster.storage_bytes, world.cluster.spec.storage.size
    actions, refused = [], []
    for claim in world.claims:
        if claim.deleting or claim.requested >= wanted:
            continue
        action = ResizeClaim(claim.name, claim.uid, size)
        why = world.refused.get(action.memory_key or "")
        if why is None:
            actions.append(action)
        else:
            refused.append(f"{claim.name}: {why}")
    blocked = Blocked("StorageNotExpandable", "; ".join(refused)) if refused else None
    return Step(actions=tuple(actions), blocked=blocked) if actions or refused else NOTHING


def _delete(world: ObservedCluster, pod: Pod, why: str) -> Step:
    message = f"Deleting pod {pod.name}, it is brought up to date: {why}"
    action = DeletePod(pod.name, pod.uid, "RestartingMember", message)
    return Step(actions=(action,), busy=True, requeue=LOOK_AGAIN, progress=_progress(world))


def _progress(world: ObservedCluster) -> Progress:
    assert world.stateful_set is not None
    done = sum(1 for pod in world.pods if pod.revision == world.stateful_set.update_revision)
    message = f"{done} of {world.cluster.spec.members} members are up to date"
    return Progress("Updating", "RollingUpdate", message)
