"""The conditions of a BrokerGroup. Users and alerts compare their reasons.

Used by `group_status`.
"""

from typing import Final

import msgspec

from rocketmq_operator.domain.conditions import Condition, condition, pod_problems, rfc3339
from rocketmq_operator.domain.plan.config_size import UNUSABLE
from rocketmq_operator.domain.plan.groups.acting import acting_condition, acting_pods
from rocketmq_operator.domain.plan.groups.state import GroupState, Member
from rocketmq_operator.domain.plan.groups.verification import known_difference, last_verification, verification_due
from rocketmq_operator.domain.plan.step import Blocked, Phase, Progress, Unfinished
from rocketmq_resources import names

NOT_OF_THE_SPEC: Final = frozenset({"RebuildRefused"})
"""Reasons of a blocked change that an annotation asks for: the spec was carried out."""


class Outlook(msgspec.Struct, frozen=True):
    """What the plan intends, and what is left for it."""

    progress: Progress | None = None
    blocked: Blocked | None = None
    advice: Blocked | None = None
    """A problem that does not block the plan."""
    left: Unfinished | None = None
    """What is left of the newest generation of the spec."""


def conditions_of(state: GroupState, outlook: Outlook, phase: Phase, in_sync: int, now: float) -> tuple[Condition, ...]:
    """All conditions. `in_sync`: living members of the SyncStateSet; `now`: seconds since 1970."""
    available = _available(state)
    healthy = _healthy(state, in_sync)
    return (
        _ready(state, outlook, available, healthy),
        available,
        acting_condition(state),
        healthy,
        _aligned(state, now),
        _progressing(state, outlook),
        condition(
            "Paused",
            holds=state.group.spec.paused,
            reason="Paused" if state.group.spec.paused else "NotPaused",
            message="spec.paused is set: the operator changes nothing" if state.group.spec.paused else "",
        ),
        _degraded(state, outlook, phase, healthy, now),
    )


def _ready(state: GroupState, outlook: Outlook, available: Condition, healthy: Condition) -> Condition:
    """True only when the newest generation was carried out: scripts wait for it after an edit."""
    if outlook.blocked is not None and outlook.blocked.reason in UNUSABLE:
        return condition("Ready", holds=False, reason=outlook.blocked.reason, message=outlook.blocked.message)
    for needed in (available, healthy):
        if needed.status != "True":
            holds = None if needed.status == "Unknown" else False
            return condition("Ready", holds=holds, reason=needed.reason, message=needed.message)
    return _carried_out(state, outlook)


def _carried_out(state: GroupState, outlook: Outlook) -> Condition:
    """The condition Ready of a group that takes messages."""
    if outlook.blocked is not None and outlook.blocked.reason not in NOT_OF_THE_SPEC:
        return condition("Ready", holds=False, reason=outlook.blocked.reason, message=outlook.blocked.message)
    unready = [names.pod_name(state.group.name, member.ordinal) for member in state.members if not member.available]
    if unready:
        return condition("Ready", holds=False, reason="PodsNotReady", message=f"{', '.join(unready)} not ready")
    if state.group.spec.paused and not state.group.metadata.deleting:
        message = "spec.paused is set: what this generation changes waits until it is unset"
        return condition("Ready", holds=None, reason="Paused", message=message)
    waits = outlook.progress or outlook.left
    if waits is not None:
        return condition("Ready", holds=False, reason=waits.reason, message=waits.message)
    return condition("Ready", holds=True, reason="AllInSync", message="takes messages, every replica in sync")


def _available(state: GroupState) -> Condition:
    """Whether sends are accepted, as far as the operator can tell."""
    group, master = state.group, state.live_master
    copies = sum(1 for member in state.all_members if member.in_sync and member.alive)
    holds: bool | None = False
    if group.spec.hibernated:
        reason, message = "Hibernated", "spec.hibernated is set"
    elif group.spec.fenced:
        reason, message = "Fenced", "spec.fenced is set: sends are refused"
    elif not state.reachable:
        holds, reason, message = None, "ControllersUnreachable", "the controllers are unreachable"
    elif state.view is None:
        reason, message = "NotRegistered", state.no_view
    elif master is None:
        acting = acting_pods(state)
        serves = f"; {acting[0]} serves consumers" if acting else ""
        reason, message = "NoMaster", f"{state.no_master}{serves}"
    elif copies < group.min_in_sync_replicas:
        reason, message = "TooFewInSync", f"{copies} replicas are in sync, sends need {group.min_in_sync_replicas}"
    else:
        holds, reason, message = _master_accepts(master)
    return condition("Available", holds=holds, reason=reason, message=message)


def _master_accepts(master: Member) -> tuple[bool | None, str, str]:
    """A fence survives restarts, and only the sidecar knows it."""
    name = "" if master.pod is None else master.pod.name
    if master.pod is not None and master.pod.deleting:
        return None, "MasterStopping", f"{name} is stopping"
    if master.sidecar is None:
        return None, "SidecarSilent", f"the sidecar of {name} does not answer: unknown whether it accepts sends"
    if master.sidecar.fenced:
        return False, "Fenced", f"{name} still refuses sends: its fence is being lifted"
    return True, "MasterServes", f"{name} takes messages"


def _healthy(state: GroupState, in_sync: int) -> Condition:
    kind, wanted = "SyncStateSetHealthy", state.group.pods_wanted
    if state.group.spec.hibernated:
        return condition(kind, holds=None, reason="Hibernated", message="no replica runs")
    if not state.reachable:
        return condition(kind, holds=None, reason="ControllersUnreachable", message="the controllers are unreachable")
    if in_sync >= wanted:
        return condition(kind, holds=True, reason="AllInSync", message=f"{in_sync} of {wanted} replicas in sync")
    return condition(kind, holds=False, reason="ReplicasMissing", message=f"{in_sync} of {wanted} replicas in sync")


def _aligned(state: GroupState, now: float) -> Condition:
    """The result of the last comparison, unless the next one is overdue."""
    kind, last = "LogsAligned", last_verification(state.group)
    due = verification_due(state.group, state.observed.verified_since)
    different = known_difference(state.group)
    if different is not None:
        # a difference remains however old the comparison is
        return condition(kind, holds=False, reason="Different", message=different)
    if not last.result and not (due is not None and now > due):
        message = "never compared" if state.group.spec.verification else "never compared: spec.verification is not set"
        return condition(kind, holds=None, reason="NotVerified", message=message)
    if due is not None and now > due:
        ended = f"the last comparison ended at {last.text}, the next" if last.result else "never compared, the first"
        message = (
            f"{ended} has been overdue since {rfc3339(due)}: kubectl -n {state.group.namespace} describe jobs,pods"
            f" -l rocketmq-ha.io/group={state.group.name},app.kubernetes.io/component=verify"
        )
        return condition(kind, holds=None, reason="Stale", message=message)
    if last.result == "Aligned":
        return condition(kind, holds=True, reason="Aligned", message=last.message)
    return condition(kind, holds=None, reason="Failed", message=last.message)


def _progressing(state: GroupState, outlook: Outlook) -> Condition:
    if state.group.spec.paused:
        return condition("Progressing", holds=False, reason="Paused", message="spec.paused is set")
    if outlook.blocked is not None:
        return condition("Progressing", holds=False, reason=outlook.blocked.reason, message=outlook.blocked.message)
    waits = outlook.progress or outlook.left
    if waits is not None:
        return condition("Progressing", holds=True, reason=waits.reason, message=waits.message)
    return condition("Progressing", holds=False, reason="Complete", message="nothing is left to do")


def _degraded(state: GroupState, outlook: Outlook, phase: Phase, healthy: Condition, now: float) -> Condition:
    if outlook.blocked is not None:
        return condition("Degraded", holds=True, reason=outlook.blocked.reason, message=outlook.blocked.message)
    failing = "" if state.group.spec.hibernated else pod_problems(state.observed.pods, state.stateful_set, now)
    if failing:
        return condition("Degraded", holds=True, reason="PodsFailing", message=failing)
    if healthy.status == "False" and phase == "Degraded":
        return condition("Degraded", holds=True, reason=healthy.reason, message=healthy.message)
    if healthy.reason == "ControllersUnreachable" and phase != "Creating":
        return condition("Degraded", holds=True, reason=healthy.reason, message=healthy.message)
    if outlook.advice is not None:
        return condition("Degraded", holds=True, reason=outlook.advice.reason, message=outlook.advice.message)
    return condition("Degraded", holds=False, reason="AsWanted", message="nothing is wrong")
