"""Our resources and their pods as the API server has them: paths, and lenient readings of what is shown.

Specs are parsed by the operator's domain, so that both mean the same; a status is read here, since a plugin must show
what an operator of another release wrote: fields it does not know are left out, those it misses stay empty.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from rocketmq_kubectl.errors import CommandRefusedError
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from rocketmq_resources.common import Metadata
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from rocketmq_resources.decoding import SpecError

Json = Mapping[str, object]
T = TypeVar("T", bound=msgspec.Struct)


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One of status.conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ReplicaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One of status.replicaStatuses."""

    pod: str = ""
    broker_id: int | None = None
    role: str = ""
    address: str = ""
    node: str = ""
    max_offset: int | None = None
    lag: int | None = None
    in_sync: bool | None = None
    alive: bool | None = None
    ready: bool | None = None
    up_to_date: bool | None = None
    fenced: bool | None = None


class GroupStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A BrokerGroup's status."""

    observed_generation: int = 0
    phase: str = ""
    phase_reason: str = ""
    master: str = ""
    acting_master: str = ""
    master_broker_id: int | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    in_sync: str = ""
    replicas: int = 0
    ready_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    replica_statuses: tuple[ReplicaStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, if it was written."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class ControllerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A ControllerCluster's status."""

    observed_generation: int = 0
    phase: str = ""
    leader: str = ""
    term: int | None = None
    members: int = 0
    ready_members: int = 0
    connected_members: int = 0
    controller_addr: str = ""
    conditions: tuple[Condition, ...] = ()

    condition = GroupStatus.condition


class Pod(msgspec.Struct, frozen=True):
    """What we need of one."""

    name: str
    namespace: str
    uid: str
    ips: tuple[str, ...]
    node: str
    phase: str
    ready: bool
    restarts: Mapping[str, int]
    """By container."""
    created: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[str, ...]
    deleting: bool

    @property
    def reachable(self) -> bool:
        """Whether there is any sense in forwarding a port of it."""
        return self.phase == "Running"


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    ready: bool = False
    restart_count: int = 0


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_Named, ...] = ()


class _PodIp(msgspec.Struct, frozen=True):
    ip: str = ""


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[_PodIp, ...] = msgspec.field(default=(), name="podIPs")
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _ManagedField(msgspec.Struct, frozen=True):
    manager: str = ""
    subresource: str = ""
    time: str | None = None


class _Managed(msgspec.Struct, frozen=True, rename="camel"):
    managed_fields: tuple[_ManagedField, ...] = ()


class _Head(msgspec.Struct, frozen=True):
    metadata: _Managed = _Managed()


def collection(kind: names.Kind, namespace: str | None) -> str:
    """Path of all resources of a kind, of one namespace or (None) of all."""
    place = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"/apis/{names.API_VERSION}{place}/{names.PLURALS[kind]}"


def resource(kind: names.Kind, namespace: str, name: str) -> str:
    """Path of one resource."""
    return f"{collection(kind, namespace)}/{name}"


def core(namespace: str, plural: str, name: str = "") -> str:
    """Path of a kind of Kubernetes' core API, or of one resource."""
    return f"/api/v1/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def broker_group(body: Json) -> BrokerGroup:
    """The resource.

    Raises:
        CommandRefusedError: its spec makes no sense to this release.
    """
    try:
        return parse_broker_group(body)
    except SpecError as error:
        raise CommandRefusedError(f"BrokerGroup {name_of(body)} cannot be read: {error}") from error


def controller_cluster(body: Json) -> ControllerCluster:
    """The resource.

    Raises:
        CommandRefusedError: its spec makes no sense to this release.
    """
    try:
        return parse_controller_cluster(body)
    except SpecError as error:
        raise CommandRefusedError(f"ControllerCluster {name_of(body)} cannot be read: {error}") from error


def group_status(group: BrokerGroup) -> GroupStatus:
    """Its status; empty if nothing was written, or nothing we understand."""
    return _lenient(group.status, GroupStatus)


def controller_status(cluster: ControllerCluster) -> ControllerStatus:
    """Its status; empty if nothing was written, or nothing we understand."""
    return _lenient(cluster.status, ControllerStatus)


def status_written(body: Json) -> str | None:
    """When the operator last changed the status (RFC 3339), by the API server's own record."""
    fields = msgspec.convert(body, _Head, strict=False).metadata.managed_fields
    times = [field.time for field in fields if field.subresource == "status" and field.time]
    return max(times, default=None)


def pod(body: Json) -> Pod:
    """What commands need of a pod. It is ready if all its containers are, and it has some."""
    read = msgspec.convert(body, _Pod)
    statuses = read.status.container_statuses
    return Pod(
        name=read.metadata.name,
        namespace=read.metadata.namespace,
        uid=read.metadata.uid,
        ips=tuple(each.ip for each in read.status.pod_ips) or (read.status.pod_ip,),
        node=read.spec.node_name,
        phase=read.status.phase,
        ready=bool(statuses) and all(status.ready for status in statuses),
        restarts={status.name: status.restart_count for status in statuses},
        created=read.metadata.creation_timestamp,
        labels=read.metadata.labels,
        annotations=read.metadata.annotations,
        containers=tuple(container.name for container in read.spec.containers),
        deleting=read.metadata.deleting,
    )


def pods(bodies: Sequence[Json]) -> tuple[Pod, ...]:
    """Pods in the order of their ordinals."""
    return tuple(sorted(map(pod, bodies), key=lambda found: (len(found.name), found.name)))


def pods_by_volume(claims: Sequence[Json]) -> dict[int, str]:
    """Broker id to the name of the pod that has it, or will have it again, by what the operator marked on volumes."""
    found = {}
    for body in claims:
        head = msgspec.convert(body, _Pod).metadata
        broker_id = head.annotations.get(names.ANNOTATION_BROKER_ID, "")
        if broker_id.isascii() and broker_id.isdecimal() and head.name.startswith(f"{names.VOLUME_DATA}-"):
            found[int(broker_id)] = head.name.removeprefix(f"{names.VOLUME_DATA}-")
    return found


def name_of(body: Json) -> str:
    """metadata.name of any object."""
    metadata = body.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, Mapping) else "?"


def _lenient(status: Json, kind: type[T]) -> T:
    """A status with one unreadable field is shown without it rather than not at all."""
    readable = dict(status)
    for field in msgspec.structs.fields(kind):
        if field.encode_name in readable:
            try:
                msgspec.convert({field.encode_name: readable[field.encode_name]}, kind)
            except msgspec.ValidationError:
                del readable[field.encode_name]
    return msgspec.convert(readable, kind)
