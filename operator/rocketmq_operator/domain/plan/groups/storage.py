"""Grows volumes: first the PVCs request the new size, then the StatefulSet, whose claim templates cannot be changed, is
recreated around its running pods. If the storage class cannot expand volumes, new and rebuilt replicas still get the
larger ones.
"""

from collections.abc import Mapping
from typing import Final

from rocketmq_operator.domain.actions import Action, DeleteStatefulSet, ResizeClaim
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step
from rocketmq_resources import names

RETRY = 600.0
"""Seconds after which a refused growth is retried; the storage class may have changed."""


ADOPTED_AFTER: Final = 10.0
"""Seconds in which Kubernetes' garbage collector learns that a new StatefulSet has adopted the pods. Deleted before,
the StatefulSet would take them with it, orphaned or not."""


def grow(state: GroupState, now: float) -> Step:
    """Request larger volumes where needed. `now`: seconds since 1970."""
    wanted = wanted_sizes(state)
    spec = state.group.spec.storage
    texts = {names.VOLUME_DATA: spec.size}
    if spec.commit_log is not None:
        texts[names.VOLUME_COMMIT_LOG] = spec.commit_log.size
    small = [
        claim
        for member in state.members
        for claim in member.claims
        if not claim.deleting and claim.requested < wanted.get(claim.volume, 0)
    ]
    actions: list[Action] = []
    refused: list[str] = []
    for claim in small:
        action = ResizeClaim(claim.name, claim.uid, texts[claim.volume])
        why = state.observed.refused.get(action.memory_key or "")
        if why is None:
            actions.append(action)
        else:
            refused.append(f"{claim.name}: {why}")
    if actions:
        progress = Progress("Updating", "StorageGrowing", f"growing {', '.join(claim.name for claim in small)}")
        return Step(actions=tuple(actions), progress=progress)
    templates = _templates(state, wanted, now)
    if not refused:
        return templates
    what = f"rebuild these replicas one by one to give them larger volumes: {'; '.join(refused)}"
    blocked = Blocked("StorageNotExpandable", what)
    requeue = RETRY if templates.requeue is None else templates.requeue
    return Step(actions=templates.actions, busy=templates.busy, blocked=blocked, requeue=requeue)


def wanted_sizes(state: GroupState) -> Mapping[str, int]:
    """Bytes by volume."""
    sizes = {names.VOLUME_DATA: state.group.storage_bytes}
    if state.group.commit_log_bytes is not None:
        sizes[names.VOLUME_COMMIT_LOG] = state.group.commit_log_bytes
    return sizes


def templates_differ(state: GroupState) -> bool:
    """Whether the StatefulSet would create volumes of other sizes than wanted."""
    present = state.stateful_set
    return present is not None and dict(present.claim_sizes) != dict(wanted_sizes(state))


def _templates(state: GroupState, wanted: Mapping[str, int], now: float) -> Step:
    present = state.stateful_set
    if present is None or present.deleting or not templates_differ(state):
        return NOTHING
    if present.claim_sizes.keys() != wanted.keys():
        message = "a second volume cannot be added to, or removed from, existing replicas"
        return Step(blocked=Blocked("VolumesDiffer", message))
    age = now - present.created
    if 0 <= age < ADOPTED_AFTER:
        what = f"the StatefulSet is recreated once it is {ADOPTED_AFTER:.0f} s old"
        progress = Progress("Updating", "StorageGrowing", what)
        return Step(busy=True, requeue=ADOPTED_AFTER - age, progress=progress)
    message = f"Recreating StatefulSet {present.name} without its pods: the sizes in it cannot be changed"
    action = DeleteStatefulSet(present.name, present.uid, orphan=True, reason="StatefulSetRecreated", message=message)
    return Step(actions=(action,), busy=True, progress=Progress("Updating", "StorageGrowing", message))
