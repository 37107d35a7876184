"""`status [GROUP]`: the overview, or one group with everything that on-call people ask first. Called by `cli`."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from rocketmq_kubectl import output, picture, resources
from rocketmq_kubectl.errors import PluginError
from rocketmq_kubectl.look import look
from rocketmq_kubectl.output import Document
from rocketmq_kubectl.picture import Picture
from rocketmq_kubectl.resources import Json
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session
from rocketmq_kubectl.sync_state_set import unasked
from rocketmq_operator.domain.spec.controller_cluster import ControllerCluster

GROUP_HEADERS = ("NAME", "READY", "MASTER", "EPOCH", "IN-SYNC", "PHASE", "AGE")
WIDE_HEADERS = ("ENGINE", "REPLICAS", "DURABILITY", "CLUSTER", "FLAGS")
CONTROLLER_HEADERS = ("NAME", "READY", "LEADER", "TERM", "MEMBERS", "PHASE", "AGE")
REPLICA_HEADERS = (
    "POD", "BROKER-ID", "ROLE", "IN-SYNC", "ALIVE", "READY", "ADDRESS", "NODE", "MAX-OFFSET", "LAG", "UP-TO-DATE",
)  # fmt: skip
NOT_REGISTERED = "the controllers, which know no broker of this group yet"
EVENTS = 6
"""Latest events that are shown."""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """What is shown of a Kubernetes Event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def when(self) -> str:
        return self.last_timestamp or self.event_time or ""


async def status(session: Session, name: str | None, *, all_namespaces: bool = False, wide: bool = False) -> Report:
    """One group, or the overview of the namespace (or of all namespaces)."""
    if name is not None:
        return await _one(session, name)
    place = None if all_namespaces else session.namespace
    groups, controllers = await asyncio.gather(
        session.kube.items(resources.collection("BrokerGroup", place)),
        session.kube.items(resources.collection("ControllerCluster", place)),
    )
    pictures = await look(session, groups)
    clusters = [resources.controller_cluster(body) for body in controllers]
    tables = [_groups_table(session, pictures, named=all_namespaces, wide=wide)]
    if clusters:
        tables.append(_controllers_table(session, clusters, named=all_namespaces))
    document = {
        "groups": [_document(one) for one in pictures],
        "controllerClusters": [
            {"namespace": one.namespace, "name": one.name, "status": one.status} for one in clusters
        ],
    }
    return Report("\n".join(tables), document, unasked(pictures))


async def _one(session: Session, name: str) -> Report:
    body = await session.group_body(name)
    (one,), events = await asyncio.gather(look(session, [body]), _events(session, name))
    text = "\n".join(part for part in (_facts(session, one), _replicas(one), _trouble(session, one), events) if part)
    return Report(text, _document(one), unasked([one]))


def _groups_table(session: Session, pictures: Sequence[Picture], *, named: bool, wide: bool) -> str:
    if not pictures:
        return "No broker groups found.\n"
    headers = (("NAMESPACE",) if named else ()) + GROUP_HEADERS + (WIDE_HEADERS if wide else ())
    rows = [
        (
            *((one.group.namespace,) if named else ()),
            one.group.name,
            _ready(one.status),
            one.master_text,
            one.master_epoch,
            one.in_sync_text + (" (old)" if one.remark else ""),
            one.status.phase,
            output.age(one.group.metadata.creation_timestamp, session.now()),
            *(_wide(one) if wide else ()),
        )
        for one in pictures
    ]
    return output.table(headers, rows)


def _wide(one: Picture) -> tuple[object, ...]:
    spec = one.group.spec
    return spec.engine, spec.replicas, spec.durability, spec.cluster_name, _switches(one)


def _switches(one: Picture) -> list[str]:
    spec = one.group.spec
    wanted = {"paused": spec.paused, "fenced": spec.fenced, "hibernated": spec.hibernated}
    return [name for name, on in wanted.items() if on]


def _controllers_table(session: Session, clusters: Sequence[ControllerCluster], *, named: bool) -> str:
    rows = []
    for cluster in clusters:
        written = resources.controller_status(cluster)
        rows.append(
            (
                *((cluster.namespace,) if named else ()),
                cluster.name,
                _ready(written),
                written.leader,
                written.term,
                f"{written.connected_members}/{cluster.spec.members}",
                written.phase,
                output.age(cluster.metadata.creation_timestamp, session.now()),
            )
        )
    return output.table((("NAMESPACE",) if named else ()) + CONTROLLER_HEADERS, rows)


def _ready(status: resources.GroupStatus | resources.ControllerStatus) -> str:
    ready = next((one for one in status.conditions if one.type == "Ready"), None)
    return "Unknown" if ready is None else ready.status


def _facts(session: Session, one: Picture) -> str:
    spec, written = one.group.spec, one.status
    reached = written.observed_generation == one.group.metadata.generation
    controllers = "/".join(one.group.controller) if one.group.controller else spec.controller_addr
    return output.facts(
        [
            ("Group", f"{one.group.namespace}/{one.group.name}"),
            ("Broker", f"{one.group.broker_name} in cluster {spec.cluster_name}, engine {spec.engine}"),
            ("Phase", f"{written.phase or 'Unknown'}" + (f": {written.phase_reason}" if written.phase_reason else "")),
            ("Switches", ", ".join(_switches(one)) or None),
            (
                "Master",
                f"{one.master_text} (brokerId {one.master_broker_id})" if one.master_broker_id is not None else "none",
            ),
            ("Epochs", f"master {output.cell(one.master_epoch)}, SyncStateSet {output.cell(one.sync_state_set_epoch)}"),
            ("In sync", f"{one.in_sync_text}, writes need {one.group.min_in_sync_replicas} ({spec.durability})"),
            ("Controllers", controllers),
            ("Source", one.remark or ("the controllers, now" if one.registered else NOT_REGISTERED)),
            ("Operator", None if reached else "has not seen the latest change of the spec yet"),
            ("Age", output.age(one.group.metadata.creation_timestamp, session.now())),
        ]
    )


def _replicas(one: Picture) -> str:
    if not one.replicas:
        return ""
    rows = [
        (
            replica.pod, replica.broker_id, replica.role + (" (fenced)" if replica.fenced else ""), replica.in_sync,
            replica.alive, replica.ready, replica.address, replica.node, replica.max_offset, replica.lag,
            replica.up_to_date,
        )
        for replica in one.replicas
    ]  # fmt: skip
    return output.table(REPLICA_HEADERS, rows)


GOOD = {"Degraded": "False", "Paused": "False", "Progressing": "False"}
"""What a condition says when all is well; the others say True."""


def _trouble(session: Session, one: Picture) -> str:
    rows = [
        (own.type, own.status, own.reason, output.age(own.last_transition_time, session.now()), own.message)
        for own in one.status.conditions
        if own.status != GOOD.get(own.type, "True") and own.reason != "NotVerified"
    ]
    return output.table(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows) if rows else ""


async def _events(session: Session, name: str) -> str:
    """The latest events of the group; nothing where they may not be read."""
    selector = f"involvedObject.kind=BrokerGroup,involvedObject.name={name}"
    try:
        found = await session.kube.items(resources.core(session.namespace, "events"), {"fieldSelector": selector})
    except PluginError:
        return ""
    events = sorted((_event(body) for body in found), key=lambda event: event.when)[-EVENTS:]
    rows = [
        (output.age(event.when, session.now()), event.type, event.reason, event.count or 1, event.message)
        for event in events
    ]
    return output.table(("LAST-SEEN", "TYPE", "EVENT", "COUNT", "MESSAGE"), rows) if rows else ""


def _event(body: Mapping[str, object]) -> Event:
    try:
        return msgspec.convert(body, Event)
    except msgspec.ValidationError as error:
        return Event(message=f"cannot be read: {error}")


def _document(one: Picture) -> Document:
    shown: Json = one.group.status
    spec = one.group.spec
    return {
        **picture.document(one),
        "engine": spec.engine,
        "durability": spec.durability,
        "minInSyncReplicas": one.group.min_in_sync_replicas,
        "paused": spec.paused,
        "fenced": spec.fenced,
        "hibernated": spec.hibernated,
        "phase": shown.get("phase"),
        "phaseReason": shown.get("phaseReason"),
        "conditions": shown.get("conditions", []),
    }
