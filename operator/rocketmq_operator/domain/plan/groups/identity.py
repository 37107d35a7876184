"""Writes brokerId and role of every replica on its pod and volumes, for users and later plans; removes orphaned ids."""

from rocketmq_api.group_view import Liveness
from rocketmq_operator.domain.actions import Action, AnnotateClaim, CleanBrokerData, LabelPod
from rocketmq_operator.domain.plan.groups.state import GroupState, Member
from rocketmq_operator.domain.plan.step import NOTHING, Step
from rocketmq_resources import names


def record_ids(state: GroupState) -> Step:
    """Write roles and ids on pods, and ids on volumes, where they have changed."""
    actions: list[Action] = []
    for member in state.all_members:
        actions.extend(_labels(state, member))
        actions.extend(_annotations(member))
    return Step(actions=tuple(actions)) if actions else NOTHING


def forget_orphans(state: GroupState) -> Step:
    """Make the controllers forget ids of lost volumes: dead, not in sync, and their pods run with new ids."""
    view = state.view
    if view is None or not state.settled or state.group.spec.hibernated or not state.members:
        return NOTHING
    if not all(member.alive for member in state.members) or any(member.pod is not None for member in state.scaled_down):
        return NOTHING
    if any(member.recorded_id != member.running_id for member in state.members):
        return NOTHING  # not written yet: the next reconcile continues
    known = state.known_ids()
    orphans = tuple(
        standing.broker_id
        for standing in view.replicas
        if standing.broker_id not in known
        and standing.liveness is Liveness.DEAD
        and not standing.in_sync
        and standing.broker_id != view.master_broker_id
    )
    if not orphans:
        return NOTHING
    ids = ", ".join(map(str, orphans))
    message = f"The controllers forget broker {ids}: no pod or volume has this id"
    return Step(actions=(CleanBrokerData(state.group.broker_name, orphans, message),))


def role_of(member: Member) -> str:
    """The role in label and status."""
    if not member.alive:
        return "none"
    return "master" if member.is_master else "slave"


def _labels(state: GroupState, member: Member) -> list[Action]:
    pod = member.pod
    if pod is None or pod.deleting or not state.reachable:
        return []
    wanted = {
        names.LABEL_ROLE: role_of(member),
        names.LABEL_BROKER_ID: None if member.broker_id is None else str(member.broker_id),
    }
    changed = {key: value for key, value in wanted.items() if pod.labels.get(key) != value}
    return [LabelPod(pod.name, pod.uid, changed)] if changed else []


def _annotations(member: Member) -> list[Action]:
    broker_id = member.running_id
    if broker_id is None:
        return []
    return [
        AnnotateClaim(
            claim.name,
            claim.uid,
            {names.ANNOTATION_BROKER_ID: str(broker_id)} | ({names.ANNOTATION_RETIRED: None} if claim.retired else {}),
        )
        for claim in member.claims
        if not claim.deleting and (claim.broker_id != broker_id or claim.retired)
    ]
