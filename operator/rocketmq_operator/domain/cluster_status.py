"""The status of a ControllerCluster: who leads, who is connected, and whether that is enough."""

from rocketmq_operator.domain import names
from rocketmq_operator.domain.conditions import Condition, condition, merge, troubles
from rocketmq_operator.domain.observed import ObservedCluster
from rocketmq_operator.domain.plan.step import Blocked, Progress
from rocketmq_operator.domain.spec.common import Json


def cluster_status(world: ObservedCluster, progress: Progress | None, blocked: Blocked | None, now: float) -> Json:
    """All of status."""
    cluster, quorum, wanted = world.cluster, world.quorum, world.cluster.spec.members
    pods = {pod.ordinal: pod for pod in world.pods}
    led = quorum is not None and bool(quorum.leader_id)
    told = {member.id: member for member in (() if quorum is None or not led else quorum.members)}
    members, connected, leader = [], 0, None
    for ordinal in range(wanted):
        member_id = names.member_id(ordinal)
        member, pod = told.get(member_id), pods.get(ordinal)
        leads = quorum is not None and quorum.leader_id == member_id
        here = member is not None and (member.connected or leads)
        connected += here
        shown: dict[str, object] = {"id": member_id, "leader": leads, "connected": here}
        if pod is not None:
            shown["pod"] = pod.name
            if leads:
                leader = pod.name
        if member is not None:
            shown["address"] = member.address
        members.append(shown)
    ready = sum(1 for pod in world.pods if pod.ready and not pod.deleting)
    phase, reason = _phase(world, progress, blocked, connected=connected, ready=ready)
    status: dict[str, object] = {
        "observedGeneration": cluster.metadata.generation,
        "phase": phase,
        "phaseReason": reason,
        "members": f"{connected}/{wanted}",
        "connectedMembers": connected,
        "readyMembers": ready,
        "replicas": len(world.pods),
        "selector": names.selector_text("controller", cluster.name),
        "controllerAddr": cluster.controller_addr,
        "controllerGrpcAddr": cluster.controller_grpc_addr,
        "memberStatuses": members,
        "conditions": merge(
            cluster.status.get("conditions"),
            _conditions(
                world, progress, blocked, phase=phase, reason=reason, connected=connected, leader=leader, now=now
            ),
            generation=cluster.metadata.generation,
            now=now,
        ),
    }
    if world.stateful_set is not None:
        status["image"] = world.stateful_set.image
    if cluster.namesrv_addr is not None:
        status["namesrvAddr"] = cluster.namesrv_addr
    if quorum is not None:
        status["term"] = quorum.term
    if leader is not None:
        status["leader"] = leader
    return status


def _phase(
    world: ObservedCluster, progress: Progress | None, blocked: Blocked | None, *, connected: int, ready: int
) -> tuple[str, str]:
    wanted = world.cluster.spec.members
    if blocked is not None:
        return "Degraded", blocked.message
    if progress is not None:
        return progress.phase, progress.message
    if connected >= wanted and ready >= wanted:
        return "Running", ""
    what = f"{connected} of {wanted} members connected, {ready} ready"
    if world.cluster.status.get("phase") in (None, "Pending", "Creating"):
        return "Creating", what
    if world.cluster.status.get("phase") == "Updating":
        return "Updating", what  # the last one that was replaced is not back yet
    return "Degraded", what


def _conditions(
    world: ObservedCluster,
    progress: Progress | None,
    blocked: Blocked | None,
    *,
    phase: str,
    reason: str,
    connected: int,
    leader: str | None,
    now: float,
) -> tuple[Condition, ...]:
    cluster, wanted = world.cluster, world.cluster.spec.members
    paused = cluster.spec.paused
    enough = leader is not None and connected >= cluster.quorum
    whole = connected >= wanted and enough and phase in ("Running", "Updating")
    count = f"{connected} of {wanted} members connected"
    troubled = troubles(world.pods, now)
    if blocked is not None:
        degraded = condition("Degraded", holds=True, reason=blocked.reason, message=blocked.message)
        moving = condition("Progressing", holds=False, reason=blocked.reason, message=blocked.message)
    else:
        bad = bool(troubled) or phase == "Degraded"
        why = "PodsFailing" if troubled else "MembersMissing" if bad else "AsWanted"
        degraded = condition("Degraded", holds=bad, reason=why, message=troubled or (reason if bad else ""))
        moving = condition(
            "Progressing",
            holds=progress is not None or phase == "Creating",
            reason=progress.reason if progress is not None else "Creating" if phase == "Creating" else "Complete",
            message=reason if phase in ("Creating", "Updating") else "",
        )
    return (
        condition("Ready", holds=whole, reason="AllConnected" if whole else "MembersMissing", message=count),
        condition(
            "Available",
            holds=enough,
            reason="LeaderServes" if enough else "NoLeader",
            message=f"{leader} leads" if enough else "no leader with a majority is heard",
        ),
        moving,
        condition("Paused", holds=paused, reason="Paused" if paused else "NotPaused"),
        degraded,
    )
