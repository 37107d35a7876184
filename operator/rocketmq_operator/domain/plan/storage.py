"""Volumes that are to be larger: the PVCs are asked to grow, then the StatefulSet, whose claim templates cannot be
changed, is made again around its running pods. Where the storage class does not expand, new and rebuilt replicas get
the larger volumes all the same.
"""

from collections.abc import Mapping

from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Action, DeleteStatefulSet, ResizeClaim
from rocketmq_operator.domain.plan.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step

RETRY = 600.0
"""Seconds after which a refused growth is tried again; a storage class may have been changed."""


def grow(state: GroupState) -> Step:
    """Ask for what is missing."""
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
        why = state.world.refused.get(action.memory_key or "")
        if why is None:
            actions.append(action)
        else:
            refused.append(f"{claim.name}: {why}")
    if actions:
        progress = Progress("Updating", "StorageGrowing", f"growing {', '.join(claim.name for claim in small)}")
        return Step(actions=tuple(actions), progress=progress)
    templates = _templates(state, wanted)
    if not refused:
        return templates
    what = f"rebuild these replicas one by one to give them larger volumes: {'; '.join(refused)}"
    blocked = Blocked("StorageNotExpandable", what)
    return Step(actions=templates.actions, busy=templates.busy, blocked=blocked, requeue=RETRY)


def wanted_sizes(state: GroupState) -> Mapping[str, int]:
    """Bytes by volume."""
    sizes = {names.VOLUME_DATA: state.group.storage_bytes}
    if state.group.commit_log_bytes is not None:
        sizes[names.VOLUME_COMMIT_LOG] = state.group.commit_log_bytes
    return sizes


def templates_differ(state: GroupState) -> bool:
    """Whether the StatefulSet would make volumes of other sizes than wanted."""
    present = state.stateful_set
    return present is not None and dict(present.claim_sizes) != dict(wanted_sizes(state))


def _templates(state: GroupState, wanted: Mapping[str, int]) -> Step:
    present = state.stateful_set
    if present is None or present.deleting or not templates_differ(state):
        return NOTHING
    if present.claim_sizes.keys() != wanted.keys():
        message = "a second volume cannot be given to, or taken from, replicas that exist"
        return Step(blocked=Blocked("VolumesDiffer", message))
    message = f"StatefulSet {present.name} is made again, its pods stay: the sizes in it cannot be changed"
    action = DeleteStatefulSet(present.name, present.uid, orphan=True, reason="StatefulSetRecreated", message=message)
    return Step(actions=(action,), busy=True, progress=Progress("Updating", "StorageGrowing", message))
