"""`status [GROUP]`: the overview, or the details of one group for on-call engineers. Called by `cli`."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from rocketmq_api.replica_view import ReplicaView
from rocketmq_kubectl import output
from rocketmq_kubectl.cluster import picture, resources
from rocketmq_kubectl.cluster.group_queries import query_groups
from rocketmq_kubectl.cluster.picture import Picture
from rocketmq_kubectl.cluster.replica_queries import query_replicas
from rocketmq_kubectl.cluster.resources import Json
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import ForbiddenError, PluginError
from rocketmq_kubectl.output import Document
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.verbs.sync_state_set import stale_problems
from rocketmq_resources.controller_cluster import ControllerCluster

GROUP_HEADERS = ("NAME", "READY", "MASTER", "EPOCH", "IN-SYNC", "PHASE", "AGE")
WIDE_HEADERS = ("ENGINE", "REPLICAS", "DURABILITY", "CLUSTER", "FLAGS")
CONTROLLER_HEADERS = ("NAME", "READY", "LEADER", "TERM", "MEMBERS", "PHASE", "AGE")
REPLICA_HEADERS = (
    "POD", "BROKER-ID", "ROLE", "IN-SYNC", "ALIVE", "READY", "ADDRESS", "NODE", "MAX-OFFSET", "LAG", "UP-TO-DATE",
)  # fmt: skip
NOT_REGISTERED = "the controllers; no broker of this group is registered yet"
EVENTS = 6
"""Number of latest events to show."""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """The shown fields of a Kubernetes Event."""

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
        return await _group_status(session, name)
    place = None if all_namespaces else session.namespace
    groups, controllers = await asyncio.gather(
        session.kube.items(resources.collection("BrokerGroup", place)),
        session.kube.items(resources.collection("ControllerCluster", place)),
    )
    pictures = await query_groups(session, groups)
    clusters = [resources.controller_cluster(body) for body in controllers]
    tables = [_groups_table(session, pictures, named=all_namespaces, wide=wide)]
    if clusters:
        tables.append(_controllers_table(session, clusters, named=all_namespaces))
    document = {
        "groups": [_document(picture) for picture in pictures],
        "controllerClusters": [
            {"namespace": cluster.namespace, "name": cluster.name, "status": cluster.status} for cluster in clusters
        ],
    }
    return Report("\n".join(tables), document, stale_problems(pictures))


async def _group_status(session: Session, name: str) -> Report:
    body = await session.group_body(name)
    (one,), remarks, events = await asyncio.gather(
        query_groups(session, [body]), _remarks(session, name), _events(session, name)
    )
    parts = _facts(session, one), _replicas(one), _remarks_table(remarks), _trouble(session, one), events
    text = "\n".join(part for part in parts if part)
    return Report(text, {**_document(one), "remarks": remarks}, stale_problems([one]))


def _groups_table(session: Session, pictures: Sequence[Picture], *, named: bool, wide: bool) -> str:
    if not pictures:
        return "No broker groups found.\n"
    headers = (("NAMESPACE",) if named else ()) + GROUP_HEADERS + (WIDE_HEADERS if wide else ())
    rows = [
        (
            *((picture.group.namespace,) if named else ()),
            picture.group.name,
            _ready(picture.status, picture.group.metadata.generation),
            _master(picture),
            picture.master_epoch,
            picture.in_sync_text + (" (old)" if picture.stale else ""),
            picture.status.phase,
            output.age(picture.group.metadata.creation_timestamp, session.now()),
            *(_wide(picture) if wide else ()),
        )
        for picture in pictures
    ]
    return output.table(headers, rows)


def _master(picture: Picture) -> str:
    """With the pod that acts for it."""
    acting = f"{picture.acting_master} acts" if picture.acting_master else ""
    return ", ".join(part for part in (picture.master_text, acting) if part)


def _wide(picture: Picture) -> tuple[object, ...]:
    spec = picture.group.spec
    return spec.engine, spec.replicas, spec.durability, spec.cluster_name, _switches(picture)


def _switches(picture: Picture) -> list[str]:
    spec = picture.group.spec
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
                _ready(written, cluster.metadata.generation),
                written.leader,
                written.term,
                f"{written.connected_members}/{cluster.spec.members}",
                written.phase,
                output.age(cluster.metadata.creation_timestamp, session.now()),
            )
        )
    return output.table((("NAMESPACE",) if named else ()) + CONTROLLER_HEADERS, rows)


def _ready(status: resources.GroupStatus | resources.ControllerStatus, generation: int) -> str:
    """As `kubectl wait` takes it: Ready of an earlier generation says nothing about the newest spec."""
    ready = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    return "Unknown" if ready is None or status.observed_generation < generation else ready.status


def _facts(session: Session, picture: Picture) -> str:
    spec, written = picture.group.spec, picture.status
    reached = written.observed_generation == picture.group.metadata.generation
    controllers = "/".join(picture.group.controller) if picture.group.controller else spec.controller_addr
    return output.facts(
        [
            ("Group", f"{picture.group.namespace}/{picture.group.name}"),
            ("Broker", f"{picture.group.broker_name} in cluster {spec.cluster_name}, engine {spec.engine}"),
            ("Phase", f"{written.phase or 'Unknown'}" + (f": {written.phase_reason}" if written.phase_reason else "")),
            ("Switches", ", ".join(_switches(picture)) or None),
            (
                "Master",
                f"{picture.master_text} (brokerId {picture.master_broker_id})"
                if picture.master_broker_id is not None
                else "none",
            ),
            (
                "Acting",
                f"{picture.acting_master} serves consumers until there is a master; {picture.group.sends_while_acting}"
                if picture.acting_master
                else None,
            ),
            (
                "Epochs",
                f"master {output.cell(picture.master_epoch)}, SyncStateSet {output.cell(picture.sync_state_set_epoch)}",
            ),
            (
                "In sync",
                f"{picture.in_sync_text}, writes need {picture.group.min_in_sync_replicas} ({spec.durability})",
            ),
            ("Controllers", controllers or "none: the master is always the same (failover.mode none)"),
            ("Source", picture.remark or ("the controllers, now" if picture.registered else NOT_REGISTERED)),
            ("Operator", None if reached else "has not processed the latest change of the spec yet"),
            ("Age", output.age(picture.group.metadata.creation_timestamp, session.now())),
        ]
    )


def _replicas(picture: Picture) -> str:
    if not picture.replicas:
        return ""
    rows = [
        (
            replica.pod, replica.broker_id, replica.role + (" (fenced)" if replica.fenced else ""), replica.in_sync,
            replica.alive, replica.ready, replica.address, replica.node, replica.max_offset, replica.lag,
            replica.up_to_date,
        )
        for replica in picture.replicas
    ]  # fmt: skip
    return output.table(REPLICA_HEADERS, rows)


async def _remarks(session: Session, name: str) -> dict[str, str]:
    """What the sidecars say beside what the controllers know, by pod, or why they do not answer. Pods that have nothing
    to say are left out; all of them without the right to ask."""
    try:
        answers = await query_replicas(session, name)
    except PluginError:
        return {}
    return {pod: text for pod, answer in answers.items() if (text := _remark(answer))}


def _remark(answer: ReplicaView | PluginError) -> str:
    if isinstance(answer, ForbiddenError):
        return ""
    if isinstance(answer, PluginError):
        return str(answer)
    unready = f"not ready: {answer.ready_reason}" if answer.ready_reason else ""
    return "; ".join(part for part in (unready, answer.remark) if part)


def _remarks_table(remarks: Mapping[str, str]) -> str:
    return output.table(("POD", "REMARK"), list(remarks.items())) if remarks else ""


GOOD = {"ActingMaster": "False", "Degraded": "False", "Paused": "False", "Progressing": "False"}
"""The good status of a condition; True for the others."""


def _trouble(session: Session, picture: Picture) -> str:
    rows = [
        (own.type, own.status, own.reason, output.age(own.last_transition_time, session.now()), own.message)
        for own in picture.status.conditions
        if own.status != GOOD.get(own.type, "True") and own.reason != "NotVerified"
    ]
    return output.table(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows) if rows else ""


async def _events(session: Session, name: str) -> str:
    """The latest events of the group; empty without the right to read them."""
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


def _document(shown_group: Picture) -> Document:
    shown: Json = shown_group.group.status
    spec = shown_group.group.spec
    return {
        **picture.document(shown_group),
        "actingMaster": shown_group.acting_master,
        "engine": spec.engine,
        "durability": spec.durability,
        "minInSyncReplicas": shown_group.group.min_in_sync_replicas,
        "paused": spec.paused,
        "fenced": spec.fenced,
        "hibernated": spec.hibernated,
        "phase": shown.get("phase"),
        "phaseReason": shown.get("phaseReason"),
        "conditions": shown.get("conditions", []),
    }
