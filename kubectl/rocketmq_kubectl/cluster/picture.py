"""One broker group as the commands show it: the controllers' current view, with the pods from Kubernetes.

If the controllers cannot be reached, or the group has none, the resource's status is used, marked with its age
(`source`). Pure: `query_groups` makes the calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import msgspec

from rocketmq_api.group_view import GroupView, Liveness, ReplicaStanding
from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.resources import GroupStatus, Pod, ReplicaStatus
from rocketmq_kubectl.errors import PluginError
from rocketmq_kubectl.output import Document, duration
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup


class Source(StrEnum):
    """Where the data comes from."""

    CONTROLLERS = "controllers"
    STATUS = "status"


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica; None: unknown."""

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
    """What is known of a group: from its controllers, or from the status that the operator wrote."""

    group: BrokerGroup
    status: GroupStatus
    source: Source
    status_age: float | None = None
    """Seconds since the operator last changed the status; None: never."""
    master: str | None = None
    """Its pod."""
    master_broker_id: int | None = None
    master_address: str = ""
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    replicas: tuple[Replica, ...] = ()
    registered: bool = True
    """A broker of it is registered at the controllers."""
    problem: PluginError | None = None
    """Why the controllers could not be called, or that the group has none."""

    @property
    def in_set(self) -> tuple[Replica, ...]:
        """Members of the SyncStateSet, alive or not."""
        return tuple(replica for replica in self.replicas if replica.in_sync)

    @property
    def in_sync_text(self) -> str:
        """`3/3`, as status.inSync: living members of the SyncStateSet, of the pods that the group should have."""
        living = sum(1 for replica in self.in_set if replica.alive is not False)
        return f"{living}/{self.group.pods_wanted}"

    @property
    def remark(self) -> str | None:
        """A remark for possibly outdated values."""
        if self.source is Source.CONTROLLERS:
            return None
        written = "never written" if self.status_age is None else f"last changed {duration(self.status_age)} ago"
        return f"from the resource's status, {written}"

    @property
    def stale(self) -> bool:
        """Others would know better than the status."""
        return self.source is Source.STATUS and self.group.fails_over

    @property
    def master_text(self) -> str:
        """Its pod, else its address; marked if it is dead and not replaced yet."""
        if self.master_broker_id is None:
            return ""
        return (self.master or self.master_address) + (" (dead)" if self._master_is_dead else "")

    @property
    def acting_master(self) -> str | None:
        """The pod that serves consumers because there is no master, as the operator found it a moment ago. Only
        sidecars know; a status from before there was a master again does not count."""
        missing = self.source is Source.STATUS or self.master_broker_id is None or self._master_is_dead
        return self.status.acting_master or None if missing else None

    @property
    def _master_is_dead(self) -> bool:
        return any(replica.broker_id == self.master_broker_id and replica.alive is False for replica in self.replicas)

    def find(self, wanted: str) -> Replica | None:
        """The replica with this pod name or broker id."""
        return next((replica for replica in self.replicas if wanted in {replica.pod, str(replica.broker_id)}), None)


def from_controllers(
    body: Mapping[str, object],
    view: GroupView | None,
    pods: Sequence[Pod],
    age: float | None,
    *,
    volumes: Mapping[int, str] = MappingProxyType({}),
) -> Picture:
    """From the controllers' view, with pods found by address; `view` is None if no broker is registered yet.

    `volumes`: broker id to pod, from annotations on volumes, which outlive pods.
    """
    group = resources.broker_group(body)
    status = resources.group_status(group)
    if view is None:
        return Picture(
            group=group, status=status, source=Source.CONTROLLERS, status_age=age,
            replicas=tuple(_unregistered(pod) for pod in pods), registered=False,
        )  # fmt: skip
    by_id = {
        standing.broker_id: _pod_of(standing, pods, status) or volumes.get(standing.broker_id)
        for standing in view.replicas
    }
    recorded = {replica.pod: replica for replica in status.replica_statuses}
    known = {pod.name: pod for pod in pods}
    head = next(
        (standing.max_offset for standing in view.replicas if standing.broker_id == view.master_broker_id), None
    )
    replicas = [
        _with_pod(
            _standing(standing, head, is_master=standing.broker_id == view.master_broker_id),
            by_id[standing.broker_id],
            known,
            recorded,
        )
        for standing in view.replicas
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
    """From the status that the operator wrote."""
    group = resources.broker_group(body)
    status = resources.group_status(group)
    master = next((replica for replica in status.replica_statuses if replica.role == "master"), ReplicaStatus())
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
        replicas=tuple(Replica(**msgspec.structs.asdict(written)) for written in status.replica_statuses),
        problem=problem,
    )


def _standing(standing: ReplicaStanding, head: int | None, *, is_master: bool) -> Replica:
    """A replica from the controllers' view; `head` is the master's maxOffset."""
    return Replica(
        broker_id=standing.broker_id,
        role="master" if is_master else "slave" if standing.liveness is Liveness.ALIVE else "none",
        address=standing.address,
        epoch=standing.epoch,
        max_offset=standing.max_offset,
        lag=None if head is None or standing.max_offset is None else max(0, head - standing.max_offset),
        in_sync=standing.in_sync,
        alive={Liveness.ALIVE: True, Liveness.DEAD: False}.get(standing.liveness),
    )


def _with_pod(
    replica: Replica, name: str | None, pods: Mapping[str, Pod], recorded: Mapping[str, ReplicaStatus]
) -> Replica:
    pod = pods.get(name or "")
    written = recorded.get(name or "", ReplicaStatus())
    return msgspec.structs.replace(
        replica,
        pod=name,
        node=pod.node if pod is not None else "",
        ready=pod is not None and pod.ready,
        up_to_date=written.up_to_date,
        fenced=written.fenced,
    )


def _unregistered(pod: Pod) -> Replica:
    """A pod whose broker is not registered (yet)."""
    return Replica(pod=pod.name, node=pod.node, ready=pod.ready, in_sync=False)


def _pod_of(standing: ReplicaStanding, pods: Iterable[Pod], status: GroupStatus) -> str | None:
    """The pod by its address; else from label or status, which the operator wrote."""
    ip = standing.address.rpartition(":")[0].strip("[]")
    for pod in pods:
        if ip and ip in pod.ips:
            return pod.name
    for pod in pods:
        if pod.labels.get(names.LABEL_BROKER_ID) == str(standing.broker_id):
            return pod.name
    return next((written.pod for written in status.replica_statuses if written.broker_id == standing.broker_id), None)


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
                "pod": replica.pod,
                "brokerId": replica.broker_id,
                "role": replica.role,
                "inSync": replica.in_sync,
                "alive": replica.alive,
                "ready": replica.ready,
                "address": replica.address or None,
                "node": replica.node or None,
                "maxOffset": replica.max_offset,
                "lag": replica.lag,
                "upToDate": replica.up_to_date,
                "fenced": replica.fenced,
            }
            for replica in picture.replicas
        ],
    }
