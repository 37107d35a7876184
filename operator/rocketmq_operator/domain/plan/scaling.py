"""How many replicas the StatefulSet is told to have: up at once, down one at a time and never by the master or by a
copy that is needed; hibernation is none at all. And what is left behind by replicas that went.
"""

from collections.abc import Mapping

import msgspec

from rocketmq_api.group_view import Liveness, ReplicaStanding
from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Action, AnnotateClaim, CleanBrokerData, DeleteClaim
from rocketmq_operator.domain.observed import Claim
from rocketmq_operator.domain.plan.rollout import LOOK_AGAIN, hand_over
from rocketmq_operator.domain.plan.state import GroupState, Member
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step


class Scale(msgspec.Struct, frozen=True):
    """How many replicas the StatefulSet shall have now, and what else there is to do for it."""

    replicas: int
    step: Step = NOTHING


def scale(state: GroupState) -> Scale:
    """The next number on the way to spec.replicas."""
    wanted = state.group.spec.replicas
    if state.group.spec.hibernated:
        scaled = _hibernate(state)
    elif state.stateful_set is None:
        scaled = _first(state, wanted)
    elif state.current == 0:
        scaled = _wake(state, wanted)
    elif (rescue := _rescue(state)) is not None:
        scaled = rescue
    elif state.current < wanted:
        scaled = _up(state, wanted)
    elif state.current > wanted:
        scaled = _down(state, wanted)
    else:
        scaled = Scale(wanted, _leaving(state) or NOTHING)
    return scaled


def clean_up(state: GroupState, replicas: int) -> Step:
    """What scaled-down replicas left: their records at the controllers, and their volumes where those are not kept.

    A volume is marked before its id is forgotten, so that it is never run again by mistake: the controllers would not
    know it.
    `replicas`: what the StatefulSet is told to have now.
    """
    view = state.view
    if state.group.spec.hibernated or view is None or not state.settled or not state.current:
        return NOTHING
    records = {standing.broker_id: standing for standing in view.replicas}
    stays = max(replicas, state.current, state.group.spec.replicas)
    actions: list[Action] = []
    for member in state.others:
        if member.pod is None and member.ordinal >= stays:
            actions.extend(_left_behind(state, member, records))
    return Step(actions=tuple(actions))


def _left_behind(state: GroupState, member: Member, records: Mapping[int, ReplicaStanding]) -> list[Action]:
    broker_id = member.written_id
    record = None if broker_id is None else records.get(broker_id)
    if record is not None and (record.liveness is not Liveness.DEAD or record.in_sync):
        return []
    claims = tuple(claim for claim in member.claims if not claim.deleting)
    unmarked = tuple(claim for claim in claims if broker_id is not None and not claim.retired)
    if unmarked:
        return [AnnotateClaim(claim.name, claim.uid, {names.ANNOTATION_RETIRED: "true"}) for claim in unmarked]
    if record is not None:
        message = f"Broker {record.broker_id} is forgotten by the controllers: its replica was scaled away"
        return [CleanBrokerData(state.group.broker_name, (record.broker_id,), message)]
    if state.group.spec.storage.reclaim_policy == "Retain":
        return []
    return [_delete_claim(claim, "its replica was scaled away") for claim in claims]


def _delete_claim(claim: Claim, why: str) -> DeleteClaim:
    message = f"Deleting PVC {claim.name}, reclaimPolicy is Delete: {why}"
    return DeleteClaim(claim.name, claim.uid, "VolumeDeleted", message)


def _first(state: GroupState, wanted: int) -> Scale:
    """No StatefulSet: a new group, or one whose StatefulSet is being made again around running pods."""
    running = [pod.ordinal + 1 for pod in state.world.pods if not pod.deleting]
    if running:
        return Scale(max(wanted, *running))
    refusal = _retired_in_the_way(state, 0, wanted)
    return Scale(wanted) if refusal is None else Scale(0, refusal)


def _up(state: GroupState, wanted: int) -> Scale:
    refusal = _retired_in_the_way(state, state.current, wanted)
    if refusal is not None:
        return Scale(state.current, refusal)
    return Scale(wanted, Step(progress=Progress("Scaling", "ScalingUp", f"from {state.current} to {wanted} replicas")))


def _down(state: GroupState, wanted: int) -> Scale:
    """One replica less, if nothing stands in the way."""
    in_the_way = _unsettled(state) or _leaving(state) or _needed(state, wanted)
    if in_the_way is not None:
        return Scale(state.current, in_the_way)
    return Scale(state.current - 1, _scaling(f"removing {_last(state)}"))


def _unsettled(state: GroupState) -> Step | None:
    if not state.settled:
        return Step(busy=True)  # its status will tell
    return None if state.reachable else _refuse("ControllersUnreachable", "nobody can tell who is in sync")


def _leaving(state: GroupState) -> Step | None:
    """Pods that have been scaled away and are not gone yet."""
    leaving = tuple(member for member in state.others if member.pod is not None)
    return _scaling(f"{_names(leaving)} {'is' if len(leaving) == 1 else 'are'} stopping") if leaving else None


def _needed(state: GroupState, wanted: int) -> Step | None:
    """Why the last replica cannot go now."""
    last = state.members[-1]
    if state.view is None:
        holds = last.contributes and last.broker_id is not None
        return _refuse("GroupUnknown", "the controllers know no replica of this group") if holds else None
    if any(member.is_master for member in state.members if member.ordinal >= wanted):
        staying = tuple(member for member in state.members if member.ordinal < wanted)
        return hand_over(state, staying, f"{_master_name(state)} is to be scaled away")
    left = tuple(member for member in state.in_sync if member.ordinal < last.ordinal)
    least = min(state.group.min_in_sync_replicas, last.ordinal)
    if state.living_master is None or len(left) < least:
        message = f"removing {_last(state)} would leave {len(left)} replicas in sync, fewer than {least}"
        return _refuse("TooFewInSync", message)
    return None


def _last(state: GroupState) -> str:
    return names.pod_name(state.group.name, state.members[-1].ordinal)


def _hibernate(state: GroupState) -> Scale:
    pods = [pod.name for pod in state.world.pods]
    if any(member.doomed for member in state.members):
        return Scale(
            state.current, Step(blocked=Blocked("VolumeBeingDeleted", "a replica is made anew, then all stop"))
        )
    if state.stateful_set is None and pods:
        return Scale(0, Step(busy=True))
    if pods or state.current:
        what = f"{', '.join(pods)} stopping" if pods else "stopping"
        return Scale(0, Step(busy=True, progress=Progress("Hibernating", "Hibernating", what), requeue=LOOK_AGAIN))
    return Scale(0, Step(busy=True))


def _wake(state: GroupState, wanted: int) -> Scale:
    """All volumes that hold a copy in sync have to run, else nobody could be elected; the rest is scaled away later."""
    kept = tuple(member for member in state.others if member.ordinal >= wanted and member.written_id is not None)
    if kept and not state.reachable:
        return Scale(0, _refuse("ControllersUnreachable", "nobody can tell which volumes hold the newest copies"))
    refusal = _retired_in_the_way(state, 0, wanted)
    if refusal is not None:
        return Scale(0, refusal)
    count = max(wanted, _least_that_can_elect(state))
    return Scale(count, Step(progress=Progress("Waking", "Waking", f"starting {count} replicas")))


def _rescue(state: GroupState) -> Scale | None:
    """A replica that was scaled away was elected while it stopped, and now has the only newest copy: it has to come
    back until somebody else has it."""
    count = _least_that_can_elect(state)
    if state.view is None or count <= state.current or any(one.in_sync and one.alive for one in state.everyone):
        return None
    if any(member.in_sync and not member.doomed for member in state.members):
        return None  # one of those that run, or are about to, can be elected
    what = f"the newest copy is on a volume that was scaled away: {count} replicas until others have it"
    return Scale(count, Step(busy=True, requeue=LOOK_AGAIN, progress=Progress("Scaling", "Rescuing", what)))


def _least_that_can_elect(state: GroupState) -> int:
    """Replicas so that everyone in the SyncStateSet whose volume is there runs."""
    return max((member.ordinal + 1 for member in state.others if member.in_sync and member.claims), default=0)


def _retired_in_the_way(state: GroupState, first: int, wanted: int) -> Step | None:
    """Volumes of replicas that were scaled away and are to run again: their ids are never given again."""
    retired = tuple(claim for claim in state.world.claims if claim.retired and first <= claim.ordinal < wanted)
    if not retired:
        return None
    if not state.reachable:
        return _refuse("ControllersUnreachable", f"nobody can tell whether {_claims(retired)} may be used again")
    records = set() if state.view is None else {standing.broker_id for standing in state.view.replicas}
    known = tuple(claim for claim in retired if claim.broker_id in records)
    forgotten = tuple(claim for claim in retired if claim.broker_id not in records)
    actions: list[Action] = [AnnotateClaim(one.name, one.uid, {names.ANNOTATION_RETIRED: None}) for one in known]
    if state.group.spec.storage.reclaim_policy == "Delete":
        why = "the controllers have forgotten its replica, another one is to take the place"
        actions.extend(_delete_claim(claim, why) for claim in forgotten if not claim.deleting)
    elif forgotten:
        message = f"{_claims(forgotten)} kept from replicas that were scaled away: delete, or scale no further"
        return Step(actions=tuple(actions), blocked=Blocked("RetiredVolume", message))
    progress = Progress("Scaling", "ScalingUp", f"{_claims(retired)} are made ready for new replicas")
    return Step(actions=tuple(actions), requeue=LOOK_AGAIN, progress=progress)


def _claims(claims: tuple[Claim, ...]) -> str:
    return ", ".join(claim.name for claim in claims)


def _refuse(reason: str, message: str) -> Step:
    return Step(busy=True, requeue=LOOK_AGAIN, blocked=Blocked(reason, message))


def _scaling(message: str) -> Step:
    return Step(busy=True, requeue=LOOK_AGAIN, progress=Progress("Scaling", "ScalingDown", message))


def _master_name(state: GroupState) -> str:
    return "the master" if state.master is None or state.master.pod is None else state.master.pod.name


def _names(members: tuple[Member, ...]) -> str:
    return ", ".join(member.pod.name for member in members if member.pod is not None)
