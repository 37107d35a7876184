"""The status of a BrokerGroup: facts, conditions, phase. And what has changed in it that people want to be told.

Equal worlds give equal statuses, so that an idle group is never written.
"""

from typing import Final

from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Notice
from rocketmq_operator.domain.conditions import condition, find, merge
from rocketmq_operator.domain.group_conditions import Outlook, conditions_of
from rocketmq_operator.domain.plan.identity import role_of
from rocketmq_operator.domain.plan.state import GroupState, Member, broker_address
from rocketmq_operator.domain.plan.step import Phase
from rocketmq_operator.domain.spec.broker_group import BrokerGroup
from rocketmq_operator.domain.spec.common import Json

FIRST_BROKER_ID: Final = 1
OFFSETS: Final = frozenset({"maxOffset", "lag"})
MAX_RETIRED: Final = 100
"""The newest ones; a status is read by people."""

_UNFINISHED: Final[dict[str, Phase]] = {
    "Waking": "Waking",
    "Rebuilding": "Rebuilding",
    "Scaling": "Scaling",
    "Updating": "Updating",
}


def group_status(state: GroupState, outlook: Outlook, *, now: float) -> Json:
    """All of status but the verification."""
    group, view = state.group, state.view
    shown = tuple(member for member in state.everyone if member.pod is not None)
    replicas = [_replica(state, member) for member in shown]
    phase, why = _phase(state, outlook)
    in_sync = sum(1 for member in shown if member.in_sync and member.alive)
    status: dict[str, object] = {
        "observedGeneration": group.metadata.generation,
        "phase": phase,
        "phaseReason": why,
        "inSync": f"{in_sync}/{group.spec.replicas}",
        "inSyncReplicas": in_sync,
        "replicas": len(shown),
        "readyReplicas": sum(1 for member in shown if member.pod is not None and member.pod.ready),
        "selector": names.selector_text("broker", group.name),
        "replicaStatuses": replicas,
        "conditions": merge(
            group.status.get("conditions"),
            conditions_of(state, outlook, phase, in_sync, now),
            generation=group.metadata.generation,
            now=now,
        ),
    }
    if state.stateful_set is not None:
        status |= {"image": state.stateful_set.image, **_revisions(state)}
    if view is not None:
        master = state.living_master
        status |= {"masterEpoch": view.master_epoch, "syncStateSetEpoch": view.sync_state_set_epoch}
        if master is not None and master.pod is not None:
            status |= {"master": master.pod.name, "masterBrokerId": view.master_broker_id}
        retired = sorted(
            set(range(FIRST_BROKER_ID, view.next_broker_id)) - {standing.broker_id for standing in view.replicas}
        )
        if retired:
            status["retiredBrokerIds"] = retired[-MAX_RETIRED:]
    elif not state.reachable:
        # Nothing new is known: the last word stands, the conditions say that it may be old.
        kept = ("masterEpoch", "syncStateSetEpoch", "master", "masterBrokerId", "retiredBrokerIds")
        status |= {key: group.status[key] for key in kept if key in group.status}
    return status


def refused(group_status: Json, *, generation: int, reason: str, message: str, now: float) -> Json:
    """The status of a resource that cannot be carried out at all; everything else in it stays."""
    conditions = [
        condition("Ready", holds=False, reason=reason, message=message),
        condition("Degraded", holds=True, reason=reason, message=message),
    ]
    changed = {one.type for one in conditions}
    previous = group_status.get("conditions")
    others = [
        dict(one)
        for one in (previous if isinstance(previous, list | tuple) else ())
        if isinstance(one, dict) and one.get("type") not in changed
    ]
    return {
        **_ours(group_status),
        "observedGeneration": generation,
        "phase": "Degraded",
        "phaseReason": message,
        "conditions": merge(previous, conditions, generation=generation, now=now) + others,
    }


def _ours(status: Json) -> dict[str, object]:
    """What the operator writes; the verification is somebody else's."""
    return {key: value for key, value in status.items() if key != "verification"}


def notices_of(group: BrokerGroup, status: Json) -> tuple[Notice, ...]:
    """What has changed since the status that is there, as Events."""
    before = group.status
    notices: list[Notice] = []
    old, new = before.get("master"), status.get("master")
    if new is not None and new != old:
        epoch = status.get("masterEpoch")
        message = f"{new} is master (epoch {epoch})" + (f", it was {old}" if old else "")
        notices.append(Notice("MasterChanged", message))
    for kind, bad in (("Degraded", "True"), ("Available", "False")):
        was, is_ = find(before.get("conditions"), kind), find(status.get("conditions"), kind)
        if (is_.get("status"), is_.get("reason")) == (was.get("status"), was.get("reason")):
            continue
        if is_.get("status") == bad and (kind == "Degraded" or was.get("status") == "True"):
            notices.append(Notice(str(is_.get("reason")), str(is_.get("message")), warning=True))
        elif was.get("status") == bad and is_.get("status") != "Unknown":
            notices.append(Notice("Recovered" if kind == "Degraded" else "Available", str(is_.get("message"))))
    if status.get("phase") not in (before.get("phase"), "Degraded"):  # of that the condition has told
        notices.append(
            Notice(str(status.get("phase")), str(status.get("phaseReason") or "every replica is ready and in sync"))
        )
    return tuple(notices)


def without_offsets(status: Json) -> Json:
    """To compare by: offsets change all the time and are not worth a write each."""
    replicas = status.get("replicaStatuses")
    shown = [
        {key: value for key, value in one.items() if key not in OFFSETS}
        for one in (replicas if isinstance(replicas, list | tuple) else ())
        if isinstance(one, dict)
    ]
    return {**_ours(status), "replicaStatuses": shown}


def _replica(state: GroupState, member: Member) -> dict[str, object]:
    pod = member.pod
    assert pod is not None, "only pods are shown"
    shown: dict[str, object] = {
        "pod": pod.name,
        "role": role_of(member),
        "inSync": member.in_sync and member.alive,
        "alive": member.alive,
        "ready": pod.ready,
        "upToDate": not member.outdated,
        "fenced": member.sidecar is not None and member.sidecar.fenced,
    }
    if member.broker_id is not None:
        shown["brokerId"] = member.broker_id
    if pod.ip:
        shown["address"] = broker_address(pod)
    if pod.node:
        shown["node"] = pod.node
    if member.alive and member.standing is not None and member.standing.max_offset is not None:
        shown["maxOffset"] = member.standing.max_offset
        master = state.living_master
        if master is not None and master.max_offset >= 0:
            shown["lag"] = max(0, master.max_offset - member.standing.max_offset)
    return shown


def _revisions(state: GroupState) -> dict[str, object]:
    assert state.stateful_set is not None
    update = state.stateful_set.update_revision
    found: dict[str, object] = {"updateRevision": update} if update else {}
    revisions = {member.pod.revision for member in state.members if member.pod is not None}
    if len(revisions) == 1 and (only := next(iter(revisions))):
        found["currentRevision"] = only
    return found


def _phase(state: GroupState, outlook: Outlook) -> tuple[Phase, str]:
    group, missing = state.group, [member for member in state.members if not member.available]
    before = group.status.get("phase")
    what = "; ".join(f"{names.pod_name(group.name, one.ordinal)} {one.what_is_missing()}" for one in missing)
    phase: Phase = "Degraded"
    if group.metadata.deleting:
        phase, what = "Deleting", "" if outlook.progress is None else outlook.progress.message
    elif group.spec.hibernated and not state.world.pods and not state.current:
        phase, what = "Hibernated", "spec.hibernated is set: no pods run, volumes and ids are kept"
    elif outlook.progress is not None:
        phase, what = outlook.progress.phase, outlook.progress.message
    elif outlook.blocked is not None:
        phase, what = ("Pending" if state.stateful_set is None else "Degraded"), outlook.blocked.message
    elif state.stateful_set is not None and state.members and not missing:
        phase, what = "Running", ""
    elif not _was_running(group):
        phase, what = "Creating", what or "objects are being made"
    elif (unfinished := _UNFINISHED.get(str(before))) is not None:
        phase = unfinished  # whoever was started last is not back yet
    elif not state.reachable:
        what = "the controllers are not heard"
    return phase, what


def _was_running(group: BrokerGroup) -> bool:
    """It has been whole before: until then missing replicas are no surprise."""
    return group.status.get("phase") not in (None, "Pending", "Creating")
