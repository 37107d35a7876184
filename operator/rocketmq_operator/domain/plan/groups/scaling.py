"""The number of replicas of the StatefulSet: up at once, down one at a time and never by the master or a needed copy, 0
for hibernation. Also cleans up after scaled-down replicas.
"""

from collections.abc import Mapping

import msgspec

from rocketmq_api.group_view import Liveness, ReplicaStanding
from rocketmq_operator.domain.actions import Action, AnnotateClaim, CleanBrokerData, DeleteClaim
from rocketmq_operator.domain.observed import Claim
from rocketmq_operator.domain.plan.groups.rollout import REQUEUE_SECONDS, hand_over
from rocketmq_operator.domain.plan.groups.state import GroupState, Member
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step
from rocketmq_resources import names


class Scale(msgspec.Struct, frozen=True):
    """spec.replicas of the StatefulSet for now, and the step towards it."""

    replicas: int
    step: Step = NOTHING


def scale(state: GroupState) -> Scale:
    """The next number on the way to spec.replicas."""
    wanted = state.group.spec.replicas
    if state.group.spec.hibernated:
        scaled = _hibernate(state)
    elif state.stateful_set is None:
        scaled = _initial(state, wanted)
    elif state.current == 0:
        scaled = _wake(state, wanted)
    elif (rescue := _rescue(state)) is not None:
        scaled = rescue
    elif state.current < wanted:
        scaled = _up(state, wanted)
    elif state.current > wanted:
        scaled = _down(state, wanted)
    else:
        scaled = Scale(wanted, _stopping(state) or NOTHING)
    return scaled


def clean_up(state: GroupState, replicas: int) -> Step:
    """Clean up after scaled-down replicas: their records at the controllers, and volumes that are not kept.

    A volume is marked before the controllers forget its id, so that it is never used again by mistake.
    `replicas`: spec.replicas of the StatefulSet for now.
    """
    view = state.view
    if state.group.spec.hibernated or view is None or not state.settled or not state.current:
        return NOTHING
    records = {standing.broker_id: standing for standing in view.replicas}
    stays = max(replicas, state.current, state.group.spec.replicas)
    actions: list[Action] = []
    for member in state.scaled_down:
        if member.pod is None and member.ordinal >= stays:
            actions.extend(_clean_up_replica(state, member, records))
    return Step(actions=tuple(actions))


def _clean_up_replica(state: GroupState, member: Member, records: Mapping[int, ReplicaStanding]) -> list[Action]:
    broker_id = member.recorded_id
    record = None if broker_id is None else records.get(broker_id)
    if record is not None and (record.liveness is not Liveness.DEAD or record.in_sync):
        return []
    claims = tuple(claim for claim in member.claims if not claim.deleting)
    # Without controllers no id is ever forgotten: a later pod continues on the volume, as the same replica.
    forgotten = broker_id is not None and state.group.fails_over
    unmarked = tuple(claim for claim in claims if forgotten and not claim.retired)
    if unmarked:
        return [AnnotateClaim(claim.name, claim.uid, {names.ANNOTATION_RETIRED: "true"}) for claim in unmarked]
    if record is not None:
        message = f"The controllers forget broker {record.broker_id}: its replica was scaled down"
        return [CleanBrokerData(state.group.broker_name, (record.broker_id,), message)]
    if state.group.spec.storage.reclaim_policy == "Retain":
        return []
    return [_delete_claim(claim, "its replica was scaled down") for claim in claims]


def _delete_claim(claim: Claim, why: str) -> DeleteClaim:
    message = f"Deleting PVC {claim.name}, reclaimPolicy is Delete: {why}"
    return DeleteClaim(claim.name, claim.uid, "VolumeDeleted", message)


def _initial(state: GroupState, wanted: int) -> Scale:
    """No StatefulSet: a new group, or one whose StatefulSet is being recreated around running pods."""
    running = [pod.ordinal + 1 for pod in state.observed.pods if not pod.deleting]
    if running:
        return Scale(max(wanted, *running))
    refusal = _retired_volumes(state, 0, wanted)
    return Scale(wanted) if refusal is None else Scale(0, refusal)


def _up(state: GroupState, wanted: int) -> Scale:
    refusal = _retired_volumes(state, state.current, wanted)
    if refusal is not None:
        return Scale(state.current, refusal)
    return Scale(wanted, Step(progress=Progress("Scaling", "ScalingUp", f"from {state.current} to {wanted} replicas")))


def _down(state: GroupState, wanted: int) -> Scale:
    """One replica less, if nothing prevents it."""
    obstacle = _unsettled(state) or _stopping(state) or _needed(state, wanted)
    if obstacle is not None:
        return Scale(state.current, obstacle)
    return Scale(state.current - 1, _scaling(f"removing {_last(state)}"))


def _unsettled(state: GroupState) -> Step | None:
    if not state.settled:
        return Step(busy=True)  # wait for its status
    return None if state.reachable else _refuse("ControllersUnreachable", "unknown which replicas are in sync")


def _stopping(state: GroupState) -> Step | None:
    """Scaled-down pods that are still stopping."""
    leaving = tuple(member for member in state.scaled_down if member.pod is not None)
    return _scaling(f"{_names(leaving)} {'is' if len(leaving) == 1 else 'are'} stopping") if leaving else None


def _needed(state: GroupState, wanted: int) -> Step | None:
    """Why the last replica cannot be removed now."""
    last = state.members[-1]
    if state.view is None:
        holds = last.contributes and last.broker_id is not None
        return _refuse("GroupUnknown", state.no_view) if holds else None
    if any(member.is_master for member in state.members if member.ordinal >= wanted):
        staying = tuple(member for member in state.members if member.ordinal < wanted)
        return hand_over(state, staying, f"{_master_name(state)} has to be removed")
    left = tuple(member for member in state.in_sync if member.ordinal < last.ordinal)
    least = min(state.group.min_in_sync_replicas, last.ordinal)
    if state.live_master is None or len(left) < least:
        message = f"removing {_last(state)} would leave {len(left)} replicas in sync, fewer than {least}"
        return _refuse("TooFewInSync", message)
    return None


def _last(state: GroupState) -> str:
    return names.pod_name(state.group.name, state.members[-1].ordinal)


def _hibernate(state: GroupState) -> Scale:
    pods = [pod.name for pod in state.observed.pods]
    if any(member.volume_deleting for member in state.members):
        return Scale(
            state.current, Step(blocked=Blocked("VolumeBeingDeleted", "a replica is being rebuilt, then all stop"))
        )
    if state.stateful_set is None and pods:
        return Scale(0, Step(busy=True))
    if pods or state.current:
        what = f"{', '.join(pods)} stopping" if pods else "stopping"
        return Scale(0, Step(busy=True, progress=Progress("Hibernating", "Hibernating", what), requeue=REQUEUE_SECONDS))
    return Scale(0, Step(busy=True))


def _wake(state: GroupState, wanted: int) -> Scale:
    """Start all replicas whose volumes hold a copy in sync, else none could be elected; scale down later."""
    kept = tuple(member for member in state.scaled_down if member.ordinal >= wanted and member.recorded_id is not None)
    if kept and not state.reachable:
        return Scale(0, _refuse("ControllersUnreachable", "unknown which volumes hold the newest copies"))
    refusal = _retired_volumes(state, 0, wanted)
    if refusal is not None:
        return Scale(0, refusal)
    count = max(wanted, _least_that_can_elect(state))
    return Scale(count, Step(progress=Progress("Waking", "Waking", f"starting {count} replicas")))


def _rescue(state: GroupState) -> Scale | None:
    """A scaled-down replica was elected while it stopped and has the only newest copy: start it again until another
    replica has that copy."""
    count = _least_that_can_elect(state)
    if state.view is None or count <= state.current or any(m.in_sync and m.alive for m in state.all_members):
        return None
    if any(member.in_sync and not member.volume_deleting for member in state.members):
        return None  # a replica that runs or starts can be elected
    what = f"the newest copy is on the volume of a scaled-down replica: {count} replicas until others have it"
    return Scale(count, Step(busy=True, requeue=REQUEUE_SECONDS, progress=Progress("Scaling", "Rescuing", what)))


def _least_that_can_elect(state: GroupState) -> int:
    """Replicas needed to run every member of the SyncStateSet that has a volume."""
    return max((member.ordinal + 1 for member in state.scaled_down if member.in_sync and member.claims), default=0)


def _retired_volumes(state: GroupState, first: int, wanted: int) -> Step | None:
    """Volumes of scaled-down replicas that would be used again: their ids are never assigned again."""
    retired = tuple(claim for claim in state.observed.claims if claim.retired and first <= claim.ordinal < wanted)
    if not retired:
        return None
    if not state.reachable:
        return _refuse("ControllersUnreachable", f"unknown whether {_claims(retired)} may be used again")
    records = set() if state.view is None else {standing.broker_id for standing in state.view.replicas}
    known = tuple(claim for claim in retired if claim.broker_id in records)
    forgotten = tuple(claim for claim in retired if claim.broker_id not in records)
    actions: list[Action] = [AnnotateClaim(claim.name, claim.uid, {names.ANNOTATION_RETIRED: None}) for claim in known]
    if state.group.spec.storage.reclaim_policy == "Delete":
        why = "the controllers have forgotten its replica, a new one replaces it"
        actions.extend(_delete_claim(claim, why) for claim in forgotten if not claim.deleting)
    elif forgotten:
        message = f"{_claims(forgotten)} were kept from scaled-down replicas: delete them, or do not scale up"
        return Step(actions=tuple(actions), blocked=Blocked("RetiredVolume", message))
    progress = Progress("Scaling", "ScalingUp", f"preparing {_claims(retired)} for new replicas")
    return Step(actions=tuple(actions), requeue=REQUEUE_SECONDS, progress=progress)


def _claims(claims: tuple[Claim, ...]) -> str:
    return ", ".join(claim.name for claim in claims)


def _refuse(reason: str, message: str) -> Step:
    return Step(busy=True, requeue=REQUEUE_SECONDS, blocked=Blocked(reason, message))


def _scaling(message: str) -> Step:
    return Step(busy=True, requeue=REQUEUE_SECONDS, progress=Progress("Scaling", "ScalingDown", message))


def _master_name(state: GroupState) -> str:
    return "the master" if state.master is None or state.master.pod is None else state.master.pod.name


def _names(members: tuple[Member, ...]) -> str:
    return ", ".join(member.pod.name for member in members if member.pod is not None)
