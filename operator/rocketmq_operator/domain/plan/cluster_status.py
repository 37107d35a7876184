"""The status of a ControllerCluster: its leader, connected members, and conditions."""

from rocketmq_api.group_view import MemberView
from rocketmq_operator.domain.conditions import Condition, condition, merge, pod_problems
from rocketmq_operator.domain.observed import ObservedCluster
from rocketmq_operator.domain.plan.config_size import UNUSABLE
from rocketmq_operator.domain.plan.step import UNSETTLED, Blocked, Progress, Unfinished
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
    left = unfinished(observed)
    phase, reason = _phase(observed, progress, blocked, left, connected=connected, ready=ready)
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
                observed,
                progress,
                blocked,
                left,
                phase=phase,
                reason=reason,
                connected=connected,
                leader=leader,
                now=now,
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


def unfinished(observed: ObservedCluster) -> Unfinished | None:
    """What is left of the newest generation, by what is observed: a step that is busy hides those behind it."""
    present, wanted = observed.stateful_set, observed.cluster.spec.members
    if present is None or present.deleting:
        return Unfinished("Creating", "creating objects")
    if not present.settled:
        return Unfinished("RollingUpdate", UNSETTLED)
    pods = [pod for pod in observed.pods if pod.ordinal < wanted]
    old = [pod.name for pod in pods if present.update_revision and pod.revision != present.update_revision]
    if old:
        return Unfinished("RollingUpdate", f"to be replaced: {', '.join(old)}")
    if present.replicas != wanted or len(observed.pods) > wanted:
        return Unfinished("ChangingMembers", f"{max(present.replicas, len(observed.pods))} pods, {wanted} wanted")
    small = [
        claim.name
        for claim in observed.claims
        if claim.ordinal < wanted and claim.requested < observed.cluster.storage_bytes
    ]
    return Unfinished("StorageGrowing", f"smaller than wanted: {', '.join(small)}") if small else None


def _phase(
    observed: ObservedCluster,
    progress: Progress | None,
    blocked: Blocked | None,
    left: Unfinished | None,
    *,
    connected: int,
    ready: int,
) -> tuple[str, str]:
    wanted = observed.cluster.spec.members
    if blocked is not None:
        return "Degraded", blocked.message
    if progress is not None:
        return progress.phase, progress.message
    whole = connected >= wanted and ready >= wanted
    if whole and left is None:
        return "Running", ""
    what = left.message if whole and left is not None else f"{connected} of {wanted} members connected, {ready} ready"
    if observed.cluster.status.get("phase") in (None, "Pending", "Creating"):
        return "Creating", what
    if observed.cluster.status.get("phase") == "Updating" or left is not None:
        return "Updating", what  # the last replaced pod is not back yet, or something else is left
    return "Degraded", what


def _ready(
    observed: ObservedCluster, moving: Condition, blocked: Blocked | None, phase: str, *, connected: int
) -> Condition:
    """True only when the newest generation was carried out: scripts wait for it after an edit."""
    wanted = observed.cluster.spec.members
    count = f"{connected} of {wanted} members connected"
    if blocked is not None and (blocked.reason in UNUSABLE or connected >= wanted):
        return condition("Ready", holds=False, reason=blocked.reason, message=blocked.message)
    if connected < wanted:
        return condition("Ready", holds=False, reason="MembersMissing", message=count)
    ready = sum(1 for pod in observed.pods if pod.ready and not pod.deleting)
    if observed.cluster.spec.paused and ready >= wanted:
        message = "spec.paused is set: what this generation changes waits until it is unset"
        return condition("Ready", holds=None, reason="Paused", message=message)
    if moving.status == "True":
        return condition("Ready", holds=False, reason=moving.reason, message=moving.message)
    if phase != "Running":
        return condition("Ready", holds=False, reason="PodsNotReady", message=f"{ready} of {wanted} pods ready")
    return condition("Ready", holds=True, reason="AllConnected", message=count)


def _conditions(
    observed: ObservedCluster,
    progress: Progress | None,
    blocked: Blocked | None,
    left: Unfinished | None,
    *,
    phase: str,
    reason: str,
    connected: int,
    leader: str | None,
    now: float,
) -> tuple[Condition, ...]:
    cluster = observed.cluster
    paused = cluster.spec.paused
    enough = leader is not None and connected >= cluster.quorum
    troubled, lagging = pod_problems(observed.pods, observed.stateful_set, now), _lagging(observed)
    if blocked is not None:
        degraded = condition("Degraded", holds=True, reason=blocked.reason, message=blocked.message)
        moving = condition("Progressing", holds=False, reason=blocked.reason, message=blocked.message)
    else:
        bad = bool(troubled or lagging) or phase == "Degraded"
        why = "PodsFailing" if troubled else "MembersCatchingUp" if lagging else "MembersMissing" if bad else "AsWanted"
        message = troubled or lagging or (reason if bad else "")
        degraded = condition("Degraded", holds=bad, reason=why, message=message)
        creating = Unfinished("Creating", reason) if phase == "Creating" else None
        waits = None if paused else (progress or left or creating)
        moving = condition(
            "Progressing",
            holds=waits is not None,
            reason="Complete" if waits is None else waits.reason,
            message="" if waits is None else waits.message,
        )
    return (
        _ready(observed, moving, blocked, phase, connected=connected),
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
