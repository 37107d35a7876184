"""One broker group as the commands show it: what the controllers say now, beside what Kubernetes knows of the pods.

Where the controllers cannot be asked, the resource's status stands in, and says so with its age (`source`). Pure:
`look` asks.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import msgspec

from rocketmq_api.group_view import GroupView, Liveness, ReplicaStanding
from rocketmq_kubectl import resources
from rocketmq_kubectl.errors import PluginError
from rocketmq_kubectl.output import Document, duration
from rocketmq_kubectl.resources import GroupStatus, Pod, ReplicaStatus
from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.broker_group import BrokerGroup


class Source(StrEnum):
    """Who said it."""

    CONTROLLERS = "controllers"
    STATUS = "status"


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica; None: not known."""

    broker_id: int | None = None
    pod: str | None = None
    role: str = "none"
    address: str = ""
    node: str = ""
    epoch: int | None = None
    max_offset: int | None = None
    lag: int | None = None
    """Bytes behind the master, by the heartbeats of both: about a second old."""
    in_sync: bool | None = None
    alive: bool | None = None
    ready: bool | None = None
    up_to_date: bool | None = None
    fenced: bool | None = None


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A group."""

    group: BrokerGroup
    status: GroupStatus
    source: Source
    status_age: float | None = None
    """Seconds since the operator last changed the status; None: it never did."""
    master: str | None = None
    """Its pod."""
    master_broker_id: int | None = None
    master_address: str = ""
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    replicas: tuple[Replica, ...] = ()
    registered: bool = True
    """The controllers know a broker of it."""
    problem: PluginError | None = None
    """Why the controllers were not asked."""

    @property
    def in_set(self) -> tuple[Replica, ...]:
        """Members of the SyncStateSet, alive or not."""
        return tuple(replica for replica in self.replicas if replica.in_sync)

    @property
    def in_sync_text(self) -> str:
        """`3/3`, as status.inSync: members of the SyncStateSet that live, of the pods that the group shall have."""
        living = sum(1 for replica in self.in_set if replica.alive is not False)
        return f"{living}/{self.group.pods_wanted}"

    @property
    def remark(self) -> str | None:
        """What to say beside old numbers."""
        if self.source is Source.CONTROLLERS:
            return None
        written = "never written" if self.status_age is None else f"last changed {duration(self.status_age)} ago"
        return f"from the resource's status, {written}"

    @property
    def master_text(self) -> str:
        """Its pod, else its address; marked if it is dead and nobody was elected in its place."""
        if self.master_broker_id is None:
            return ""
        dead = any(one.broker_id == self.master_broker_id and one.alive is False for one in self.replicas)
        return (self.master or self.master_address) + (" (dead)" if dead else "")

    def find(self, wanted: str) -> Replica | None:
        """The replica with this pod name or broker id."""
        return next((one for one in self.replicas if wanted in {one.pod, str(one.broker_id)}), None)


def from_controllers(
    body: Mapping[str, object],
    view: GroupView | None,
    pods: Sequence[Pod],
    age: float | None,
    *,
    volumes: Mapping[int, str] = MappingProxyType({}),
) -> Picture:
    """The controllers' word, with pods found by address; `view` is None if they know no broker of it yet.

    `volumes`: broker id to pod, by the marks on volumes, which outlive pods.
    """
    group = resources.broker_group(body)
    status = resources.group_status(group)
    if view is None:
        return Picture(
            group=group, status=status, source=Source.CONTROLLERS, status_age=age,
            replicas=tuple(_unregistered(pod) for pod in pods), registered=False,
        )  # fmt: skip
    by_id = {one.broker_id: _pod_of(one, pods, status) or volumes.get(one.broker_id) for one in view.replicas}
    recorded = {one.pod: one for one in status.replica_statuses}
    known = {pod.name: pod for pod in pods}
    head = next((one.max_offset for one in view.replicas if one.broker_id == view.master_broker_id), None)
    replicas = [
        _with_pod(
            _standing(one, head, is_master=one.broker_id == view.master_broker_id),
            by_id[one.broker_id],
            known,
            recorded,
        )
        for one in view.replicas
    ]
    taken = set(by_id.values())
    return Picture(
        group=group,
        status=status,
        source=Source.CONTROLLERS,
        status_age=age,
        master=by_id.get(view.master_broker_id) if view.master_broker_id is not None else None,
        master_broker_id=view.master_broker_id,
        master_address=view.master_address,
        master_epoch=view.master_epoch,
        sync_state_set_epoch=view.sync_state_set_epoch,
        replicas=(*replicas, *(_unregistered(pod) for pod in pods if pod.name not in taken)),
    )


def from_status(body: Mapping[str, object], age: float | None, problem: PluginError) -> Picture:
    """What the operator last wrote."""
    group = resources.broker_group(body)
    status = resources.group_status(group)
    master = next((one for one in status.replica_statuses if one.role == "master"), ReplicaStatus())
    return Picture(
        group=group,
        status=status,
        source=Source.STATUS,
        status_age=age,
        master=status.master or None,
        master_broker_id=status.master_broker_id,
        master_address=master.address,
        master_epoch=status.master_epoch,
        sync_state_set_epoch=status.sync_state_set_epoch,
        replicas=tuple(Replica(**msgspec.structs.asdict(one)) for one in status.replica_statuses),
        problem=problem,
    )


def _standing(one: ReplicaStanding, head: int | None, *, is_master: bool) -> Replica:
    """By the controllers alone; `head` is the master's maxOffset."""
    return Replica(
        broker_id=one.broker_id,
        role="master" if is_master else "slave" if one.liveness is Liveness.ALIVE else "none",
        address=one.address,
        epoch=one.epoch,
        max_offset=one.max_offset,
        lag=None if head is None or one.max_offset is None else max(0, head - one.max_offset),
        in_sync=one.in_sync,
        alive={Liveness.ALIVE: True, Liveness.DEAD: False}.get(one.liveness),
    )


def _with_pod(
    one: Replica, name: str | None, pods: Mapping[str, Pod], recorded: Mapping[str, ReplicaStatus]
) -> Replica:
    pod = pods.get(name or "")
    written = recorded.get(name or "", ReplicaStatus())
    return msgspec.structs.replace(
        one,
        pod=name,
        node=pod.node if pod is not None else "",
        ready=pod is not None and pod.ready,
        up_to_date=written.up_to_date,
        fenced=written.fenced,
    )


def _unregistered(pod: Pod) -> Replica:
    """A pod whose broker the controllers do not know (yet)."""
    return Replica(pod=pod.name, node=pod.node, ready=pod.ready, in_sync=False)


def _pod_of(one: ReplicaStanding, pods: Iterable[Pod], status: GroupStatus) -> str | None:
    """By its address; else by what the operator wrote down, which outlives the pod."""
    ip = one.address.rpartition(":")[0].strip("[]")
    for pod in pods:
        if ip and pod.ip == ip:
            return pod.name
    for pod in pods:
        if pod.labels.get(names.LABEL_BROKER_ID) == str(one.broker_id):
            return pod.name
    return next((written.pod for written in status.replica_statuses if written.broker_id == one.broker_id), None)


def document(picture: Picture) -> Document:
    """The group in JSON and YAML."""
    group = picture.group
    return {
        "namespace": group.namespace,
        "name": group.name,
        "clusterName": group.cluster_name,
        "brokerName": group.broker_name,
        "source": picture.source.value,
        "statusAgeSeconds": None if picture.status_age is None else int(picture.status_age),
        "master": picture.master,
        "masterBrokerId": picture.master_broker_id,
        "masterAddress": picture.master_address or None,
        "masterEpoch": picture.master_epoch,
        "syncStateSetEpoch": picture.sync_state_set_epoch,
        "inSync": picture.in_sync_text,
        "replicas": [
            {
                "pod": one.pod,
                "brokerId": one.broker_id,
                "role": one.role,
                "inSync": one.in_sync,
                "alive": one.alive,
                "ready": one.ready,
                "address": one.address or None,
                "node": one.node or None,
                "maxOffset": one.max_offset,
                "lag": one.lag,
                "upToDate": one.up_to_date,
                "fenced": one.fenced,
            }
            for one in picture.replicas
        ],
    }
