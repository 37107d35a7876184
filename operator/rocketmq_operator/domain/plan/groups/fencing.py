"""spec.fenced: every sidecar refuses sends, also after restarts, until the fence is lifted."""

from rocketmq_operator.domain.actions import SetFenced
from rocketmq_operator.domain.plan.groups.state import GroupState, sidecar_address
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step

REQUEUE_SECONDS = 1.0
IDLE_REQUEUE_SECONDS = 5.0
"""Seconds until a silent sidecar is polled again: with spec.fenced or while it is the master's, and else."""
ANSWERED_SECONDS = 0.1
"""Seconds until the status is written with what the sidecars have answered: no event reports it."""


def fence(state: GroupState) -> Step:
    """Fence or unfence every sidecar that answers, as the spec says."""
    wanted = state.group.spec.fenced
    running = [member.pod for member in state.members if member.pod is not None and member.pod.running]
    silent = [pod.name for pod in running if pod.uid not in state.observed.sidecars]
    actions = tuple(
        SetFenced(pod.name, pod.uid, sidecar_address(pod), wanted)
        for pod in running
        if pod.ip
        and not pod.deleting
        and (known := state.observed.sidecars.get(pod.uid)) is not None
        and known.fenced != wanted
    )
    if wanted and silent:
        message = f"the sidecars of {', '.join(silent)} do not answer: unknown whether they refuse sends"
        return Step(actions=actions, requeue=REQUEUE_SECONDS, blocked=Blocked("FenceIncomplete", message))
    if any(pod.ready for pod in running if pod.name in silent):
        return Step(actions=actions, requeue=ANSWERED_SECONDS if actions else IDLE_REQUEUE_SECONDS)
    return Step(actions=actions, requeue=ANSWERED_SECONDS) if actions else NOTHING


def ask_master(state: GroupState) -> Step:
    """Availability depends on its answer, and no event reports it."""
    master = state.live_master
    return Step(requeue=REQUEUE_SECONDS) if master is not None and master.sidecar is None else NOTHING
