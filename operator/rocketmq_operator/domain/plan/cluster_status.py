"""The status of a ControllerCluster: its leader, connected members, and conditions."""

from rocketmq_api.group_view import MemberView
from rocketmq_operator.domain.conditions import Condition, condition, merge, pod_problems
from rocketmq_operator.domain.observed import ObservedCluster
from rocketmq_operator.domain.plan.step import Blocked, Progress
from rocketmq_resources import names
from rocketmq_resources.decoding import Json

MAX_LAG = 100
"""Entries that a member may be behind and still be caught up: under load slower members always lag a little."""


def catching_up(member: MemberView, commit_index: int) -> str | None:
    """Why a connected member is not a full one yet, by the leader's report; None: it is."""
    if not member.voter:
        return "is a learner"
    if member.counts is False:
        return "has a new or older store: it votes once it has caught up"
    behind = commit_index - (member.match_index or 0)
    return f"is {behind} entries behind" if behind > MAX_LAG else None


def cluster_status(observed: ObservedCluster, progress: Progress | None, blocked: Blocked | None, now: float) -> Json:
    cluster, quorum, wanted = observed.cluster, observed.quorum, observed.cluster.spec.members
    pods = {pod.ordinal: pod for pod in observed.pods}
    led = quorum is not None and bool(quorum.leader_id)
    reported = {member.id: member for member in (() if quorum is None or not led else quorum.members)}
    members, connected, leader = [], 0, None
    for ordinal in range(wanted):
        member_id = names.member_id(ordinal)
        member, pod = reported.get(member_id), pods.get(ordinal)
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
    ready = sum(1 for pod in observed.pods if pod.ready and not pod.deleting)
    phase, reason = _phase(observed, progress, blocked, connected=connected, ready=ready)
    status: dict[str, object] = {
        "observedGeneration": cluster.metadata.generation,
        "phase": phase,
        "phaseReason": reason,
        "members": f"{connected}/{wanted}",
        "connectedMembers": connected,
        "readyMembers": ready,
        "replicas": len(observed.pods),
        "selector": names.selector_text("controller", cluster.name),
        "controllerAddr": cluster.controller_addr,
        "controllerGrpcAddr": cluster.controller_grpc_addr,
        "memberStatuses": members,
        "conditions": merge(
            cluster.status.get("conditions"),
            _conditions(
                observed, progress, blocked, phase=phase, reason=reason, connected=connected, leader=leader, now=now
            ),
            generation=cluster.metadata.generation,
            now=now,
        ),
    }
    if observed.stateful_set is not None:
        status["image"] = observed.stateful_set.image
    if cluster.namesrv_addr is not None:
        status["namesrvAddr"] = cluster.namesrv_addr
    if quorum is not None:
        status["term"] = quorum.term
    if leader is not None:
        status["leader"] = leader
    return status


def _lagging(observed: ObservedCluster) -> str:
    """Connected members that have not caught up, for example after the loss of a volume."""
    quorum = observed.quorum
    if quorum is None or not quorum.from_leader:
        return ""
    why = {member.id: catching_up(member, quorum.commit_index) for member in quorum.members if member.connected}
    return "; ".join(f"{member} {text}" for member, text in why.items() if text is not None)


def _phase(
    observed: ObservedCluster, progress: Progress | None, blocked: Blocked | None, *, connected: int, ready: int
) -> tuple[str, str]:
    wanted = observed.cluster.spec.members
    if blocked is not None:
        return "Degraded", blocked.message
    if progress is not None:
        return progress.phase, progress.message
    settled = observed.stateful_set is None or observed.stateful_set.settled
    if connected >= wanted and ready >= wanted and settled:
        return "Running", ""
    what = f"{connected} of {wanted} members connected, {ready} ready"
    if observed.cluster.status.get("phase") in (None, "Pending", "Creating"):
        return "Creating", what
    if observed.cluster.status.get("phase") == "Updating" or not settled:
        return "Updating", what  # the last replaced pod is not back yet, or the newest revision is unknown
    return "Degraded", what


def _conditions(
    observed: ObservedCluster,
    progress: Progress | None,
    blocked: Blocked | None,
    *,
    phase: str,
    reason: str,
    connected: int,
    leader: str | None,
    now: float,
) -> tuple[Condition, ...]:
    cluster, wanted = observed.cluster, observed.cluster.spec.members
    paused = cluster.spec.paused
    enough = leader is not None and connected >= cluster.quorum
    whole = connected >= wanted and enough and phase in ("Running", "Updating")
    count = f"{connected} of {wanted} members connected"
    troubled, lagging = pod_problems(observed.pods, now), _lagging(observed)
    if blocked is not None:
        degraded = condition("Degraded", holds=True, reason=blocked.reason, message=blocked.message)
        moving = condition("Progressing", holds=False, reason=blocked.reason, message=blocked.message)
    else:
        bad = bool(troubled or lagging) or phase == "Degraded"
        why = "PodsFailing" if troubled else "MembersCatchingUp" if lagging else "MembersMissing" if bad else "AsWanted"
        message = troubled or lagging or (reason if bad else "")
        degraded = condition("Degraded", holds=bad, reason=why, message=message)
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
            message=f"{leader} leads" if enough else "no leader with a majority answers",
        ),
        moving,
        condition("Paused", holds=paused, reason="Paused" if paused else "NotPaused"),
        degraded,
    )
