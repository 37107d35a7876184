"""The observed state of one reconcile: frozen values, read at one moment from the cache and the controllers' watch.

Made by `rocketmq_operator.observe` (and by the model world of the tests), read by `domain.plan`. Desired state is not
here.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rocketmq_api.group_view import GroupView, QuorumView
from rocketmq_api.replica_view import ReplicaView
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.controller_cluster import ControllerCluster
from rocketmq_resources.decoding import Json
from rocketmq_resources.name_server import NameServer


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod of one of our StatefulSets."""

    name: str
    ordinal: int
    uid: str
    ip: str = ""
    node: str = ""
    revision: str = ""
    """Revision of its pod template (label controller-revision-hash)."""
    labels: Mapping[str, str] = {}
    ready: bool = False
    """By its readiness probes."""
    running: bool = False
    """Its main container has been started and has not ended."""
    deleting: bool = False
    ends: float = 0.0
    """Of one that is being deleted: when its time to stop is over, in seconds since 1970."""
    scheduled: bool = True
    """It has a node."""
    created: float = 0.0
    """Seconds since 1970."""
    replication_secret: str = ""
    """The Secret by which its replica authenticates itself; empty: it does not."""
    grpc_tls: bool = False
    """Its sidecar's gRPC port requires mutual TLS."""
    problem: str = ""
    """Why a container waits or the pod is not scheduled (`ImagePullBackOff`); empty: no problem is known."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One PersistentVolumeClaim of a replica."""

    name: str
    volume: str
    """`data` or `commitlog`."""
    ordinal: int
    uid: str
    requested: int = 0
    """Bytes."""
    broker_id: int | None = None
    """The replica whose log it holds, from its annotation."""
    retired: bool = False
    """The controllers were asked to forget that id."""
    deleting: bool = False
    """Kubernetes removes it as soon as no pod uses it."""


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True):
    """The StatefulSet of one of our resources."""

    name: str
    uid: str
    replicas: int
    """spec.replicas."""
    update_revision: str = ""
    settled: bool = True
    """Its controller has processed the last apply, so `update_revision` is that revision."""
    deleting: bool = False
    image: str = ""
    """Image of the main container in the newest revision."""
    claim_sizes: Mapping[str, int] = {}
    """Bytes by volume, from volumeClaimTemplates, which can never be changed."""
    claim_templates: tuple[Json, ...] = ()
    created: float = 0.0
    """Seconds since 1970."""
    refused_pods: Mapping[str, str] = {}
    """By the name of a missing pod: why the API server refuses it."""


class CronJob(msgspec.Struct, frozen=True, kw_only=True):
    """A CronJob of a group's verification."""

    created: float
    """Seconds since 1970."""


class Reference(NamedTuple):
    """Something that a spec names."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class SidecarState(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica's own sidecar last reported."""

    broker_id: int | None = None
    fenced: bool = False
    acting: bool = False
    """It serves consumers in a master's place. Asked for only while there may be no master."""
    replica: ReplicaView | None = None
    """All that it said when it was asked last. Asked for again and again only in groups without controllers. None: it
    did not answer the last time, and its pod is not ready either."""


class Controllers(msgspec.Struct, frozen=True, kw_only=True):
    """What the group's controllers report; of a group without controllers: its sidecars (`without_controllers`)."""

    missing: bool = False
    """The group's ControllerCluster does not exist."""
    reachable: bool = False
    """The leader reports every change; `group` is valid only then."""
    group: GroupView | None = None
    """None: no replica is registered."""


class ObservedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a BrokerGroup's plan."""

    group: BrokerGroup
    stateful_set: StatefulSet | None = None
    pods: tuple[Pod, ...] = ()
    """Ordered by ordinal."""
    claims: tuple[Claim, ...] = ()
    """Ordered by ordinal and volume; of scaled-down replicas too."""
    controllers: Controllers = Controllers()
    controller_addr: str | None = None
    """None: the group's ControllerCluster does not exist. Empty: the group has no controllers."""
    broker_suspect_timeout_ms: int | None = None
    """From the spec of the group's ControllerCluster; None without one."""
    namesrv_addr: str | None = None
    """None: the group's NameServer (or ControllerCluster with embedded ones) does not exist."""
    bad_references: Mapping[Reference, str] = {}
    """What is wrong with what the spec names; empty text: it does not exist."""
    acting_master_shown: bool | None = None
    """Whether routes of its name servers show an acting master; None: they are outside, or do not exist."""
    sidecars: Mapping[str, SidecarState] = {}
    """By uid of the pod; without pods whose sidecar was not called yet or did not answer."""
    refused: Mapping[str, str] = {}
    """Recent refusals of the API server, by `Action.memory_key`, with the reason."""
    disruption_budget: bool = False
    """The PodDisruptionBudget exists."""
    verification_objects: frozenset[tuple[str, str]] = frozenset()
    """Kind and name of existing objects among those for spec.verification."""
    secret_checked: bool = False
    """This process has read or created the replication secret."""
    verified_since: float | None = None
    """When its CronJob was created, in seconds since 1970; None without a CronJob."""
    name_holder: str | None = None
    """The older BrokerGroup that has the brokerName at the same controllers."""


class ObservedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a ControllerCluster's plan."""

    cluster: ControllerCluster
    stateful_set: StatefulSet | None = None
    pods: tuple[Pod, ...] = ()
    claims: tuple[Claim, ...] = ()
    quorum: QuorumView | None = None
    """As the leader reports it, else any member; None: no member answers."""
    secret_checked: bool = False
    """This process has read or created the Raft secret."""
    bad_references: Mapping[Reference, str] = {}
    """What is wrong with what the spec names; empty text: it does not exist."""
    refused: Mapping[str, str] = {}


class ObservedNameServer(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a NameServer's plan."""

    name_server: NameServer
    stateful_set: StatefulSet | None = None
    pods: tuple[Pod, ...] = ()
