"""spec.fenced: every sidecar refuses sends, and keeps doing so through restarts, until it is told otherwise."""

from rocketmq_operator.domain.actions import SetFenced
from rocketmq_operator.domain.plan.state import GroupState, sidecar_address
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step

ASK_AGAIN = 1.0
ASK_AT_LEISURE = 5.0
"""Seconds until a sidecar that does not answer is asked again: while the group is to be fenced, and otherwise."""


def fence(state: GroupState) -> Step:
    """Bring every sidecar that answers to what the spec says."""
    wanted = state.group.spec.fenced
    running = [member.pod for member in state.members if member.pod is not None and member.pod.running]
    silent = [pod.name for pod in running if pod.uid not in state.world.sidecars]
    actions = tuple(
        SetFenced(pod.name, pod.uid, sidecar_address(pod), wanted)
        for pod in running
        if pod.ip
        and not pod.deleting
        and (known := state.world.sidecars.get(pod.uid)) is not None
        and known.fenced != wanted
    )
    if wanted and silent:
        message = f"the sidecars of {', '.join(silent)} do not answer: it is not known whether they refuse sends"
        return Step(actions=actions, requeue=ASK_AGAIN, blocked=Blocked("FenceIncomplete", message))
    if any(pod.ready for pod in running if pod.name in silent):
        return Step(actions=actions, requeue=ASK_AT_LEISURE)
    return Step(actions=actions) if actions else NOTHING
