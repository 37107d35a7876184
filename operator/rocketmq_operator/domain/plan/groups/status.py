"""The status of a BrokerGroup: facts, conditions, phase; and the Events for its changes.

Equal observations give equal statuses, so the status of an idle group is never written.
"""

from typing import Final

from rocketmq_operator.domain.actions import Event
from rocketmq_operator.domain.conditions import condition, find, merge
from rocketmq_operator.domain.plan.groups.acting import acting_pods
from rocketmq_operator.domain.plan.groups.conditions import Outlook, conditions_of
from rocketmq_operator.domain.plan.groups.identity import role_of
from rocketmq_operator.domain.plan.groups.state import GroupState, Member, broker_address
from rocketmq_operator.domain.plan.step import Phase
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.decoding import Json

FIRST_BROKER_ID: Final = 1
OFFSETS: Final = frozenset({"maxOffset", "lag"})
MAX_RETIRED: Final = 100
"""Only the newest ones, to keep the status readable."""

_UNFINISHED: Final[dict[str, Phase]] = {
    "Waking": "Waking",
    "Rebuilding": "Rebuilding",
    "Scaling": "Scaling",
    "Updating": "Updating",
}


def group_status(state: GroupState, outlook: Outlook, *, now: float) -> Json:
    """The whole status except verification."""
    group, view = state.group, state.view
    shown = tuple(member for member in state.all_members if member.pod is not None)
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
    if acting := acting_pods(state):
        status["actingMaster"] = acting[0]
    if view is not None:
        master = state.live_master
        status |= {"masterEpoch": view.master_epoch, "syncStateSetEpoch": view.sync_state_set_epoch}
        if master is not None and master.pod is not None:
            status |= {"master": master.pod.name, "masterBrokerId": view.master_broker_id}
        retired = sorted(
            set(range(FIRST_BROKER_ID, view.next_broker_id)) - {standing.broker_id for standing in view.replicas}
        )
        if retired:
            status["retiredBrokerIds"] = retired[-MAX_RETIRED:]
    elif not state.reachable:
        # Keep the last known values; the conditions report that they may be outdated.
        kept = ("masterEpoch", "syncStateSetEpoch", "master", "masterBrokerId", "retiredBrokerIds")
        status |= {key: group.status[key] for key in kept if key in group.status}
    return status


def refused(group_status: Json, *, generation: int, reason: str, message: str, now: float) -> Json:
    """The status of a resource whose spec is refused; other fields keep their values."""
    conditions = [
        condition("Ready", holds=False, reason=reason, message=message),
        condition("Degraded", holds=True, reason=reason, message=message),
    ]
    changed = {new.type for new in conditions}
    previous = group_status.get("conditions")
    others = [
        dict(entry)
        for entry in (previous if isinstance(previous, list | tuple) else ())
        if isinstance(entry, dict) and entry.get("type") not in changed
    ]
    return {
        **_ours(group_status),
        "observedGeneration": generation,
        "phase": "Degraded",
        "phaseReason": message,
        "conditions": merge(previous, conditions, generation=generation, now=now) + others,
    }


def _ours(status: Json) -> dict[str, object]:
    """What the operator writes; the verification job writes the rest."""
    return {key: value for key, value in status.items() if key != "verification"}


def events_of(group: BrokerGroup, status: Json) -> tuple[Event, ...]:
    """Events for the changes since the stored status."""
    before = group.status
    events: list[Event] = []
    old, new = before.get("master"), status.get("master")
    if new is not None and new != old:
        epoch = status.get("masterEpoch")
        message = f"{new} is master (epoch {epoch})" + (f", it was {old}" if old else "")
        events.append(Event("MasterChanged", message))
    acting = find(status.get("conditions"), "ActingMaster")
    if acting.get("status") == "True" and status.get("actingMaster") != before.get("actingMaster"):
        events.append(Event("ActingMaster", str(acting.get("message")), warning=True))
    for kind, bad in (("Degraded", "True"), ("Available", "False")):
        was, is_ = find(before.get("conditions"), kind), find(status.get("conditions"), kind)
        if (is_.get("status"), is_.get("reason")) == (was.get("status"), was.get("reason")):
            continue
        if is_.get("status") == bad and (kind == "Degraded" or was.get("status") == "True"):
            events.append(Event(str(is_.get("reason")), str(is_.get("message")), warning=True))
        elif was.get("status") == bad and is_.get("status") != "Unknown":
            events.append(Event("Recovered" if kind == "Degraded" else "Available", str(is_.get("message"))))
    if status.get("phase") not in (before.get("phase"), "Degraded"):  # the condition Degraded has an Event of its own
        events.append(
            Event(str(status.get("phase")), str(status.get("phaseReason") or "every replica is ready and in sync"))
        )
    return tuple(events)


def without_offsets(status: Json) -> Json:
    """For comparisons: offsets change all the time and are not written each time."""
    replicas = status.get("replicaStatuses")
    shown = [
        {key: value for key, value in replica.items() if key not in OFFSETS}
        for replica in (replicas if isinstance(replicas, list | tuple) else ())
        if isinstance(replica, dict)
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
        master = state.live_master
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
    before, left = group.status.get("phase"), outlook.left
    what = "; ".join(f"{names.pod_name(group.name, member.ordinal)} {member.problem()}" for member in missing)
    phase: Phase = "Degraded"
    if group.metadata.deleting:
        phase, what = "Deleting", "" if outlook.progress is None else outlook.progress.message
    elif group.spec.hibernated and not state.observed.pods and not state.current:
        phase, what = "Hibernated", "spec.hibernated is set: no pods run, volumes and ids are kept"
    elif outlook.progress is not None:
        phase, what = outlook.progress.phase, outlook.progress.message
    elif outlook.blocked is not None:
        phase, what = ("Pending" if state.stateful_set is None else "Degraded"), outlook.blocked.message
    elif state.members and not missing and left is None:
        phase, what = "Running", ""
    elif not _was_running(group):
        phase, what = "Creating", what or "creating objects"
    elif (change := _UNFINISHED.get(str(before))) is not None:
        phase = change  # the replica that was started last is not back yet
        what = what or ("" if left is None else left.message)
    elif left is not None and state.stateful_set is not None and state.members and not missing:
        phase, what = "Updating", left.message
    elif not state.reachable:
        what = "the controllers are unreachable"
    return phase, what


def _was_running(group: BrokerGroup) -> bool:
    """Whether it was complete before: until then missing replicas are expected."""
    return group.status.get("phase") not in (None, "Pending", "Creating")
