"""brokerName:brokerId of every replica, where people and later plans can read it; and ids nobody carries any more."""

from rocketmq_api.group_view import Liveness
from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Action, AnnotateClaim, CleanBrokerData, LabelPod
from rocketmq_operator.domain.plan.state import GroupState, Member
from rocketmq_operator.domain.plan.step import NOTHING, Step


def write_down(state: GroupState) -> Step:
    """Roles and ids on pods, ids on volumes, where they have changed."""
    actions: list[Action] = []
    for member in state.everyone:
        actions.extend(_labels(state, member))
        actions.extend(_annotations(member))
    return Step(actions=tuple(actions)) if actions else NOTHING


def forget_orphans(state: GroupState) -> Step:
    """Ids of volumes that were lost: dead, needed by nobody, and their pods have come back with new ones."""
    view = state.view
    if view is None or not state.settled or state.group.spec.hibernated or not state.members:
        return NOTHING
    if not all(member.alive for member in state.members) or any(member.pod is not None for member in state.others):
        return NOTHING
    if any(member.written_id != member.present_id for member in state.members):
        return NOTHING  # not written down yet: the next look will do
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
    message = f"Broker {ids} forgotten by the controllers: no pod and no volume carries the id any more"
    return Step(actions=(CleanBrokerData(state.group.broker_name, orphans, message),))


def role_of(member: Member) -> str:
    """As the label and the status say it."""
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
    broker_id = member.present_id
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
