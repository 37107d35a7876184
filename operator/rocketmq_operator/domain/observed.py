"""The world as one reconcile sees it: frozen values, taken at one moment from the cache and the controllers' watch.

Made by `rocketmq_operator.observe` (and by the model world of the tests), read by `domain.plan`. Nothing here says what
ought to be.
"""

from collections.abc import Mapping

import msgspec

from rocketmq_api.group_view import GroupView, QuorumView
from rocketmq_operator.domain.spec.broker_group import BrokerGroup
from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.domain.spec.controller_cluster import ControllerCluster
from rocketmq_operator.domain.spec.name_server import NameServer


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod of a StatefulSet of ours."""

    name: str
    ordinal: int
    uid: str
    ip: str = ""
    node: str = ""
    revision: str = ""
    """Of the pod template it was made from (label controller-revision-hash)."""
    labels: Mapping[str, str] = {}
    ready: bool = False
    """By its readiness probes."""
    running: bool = False
    """Its main container has been started and has not ended."""
    deleting: bool = False
    scheduled: bool = True
    """It has a node."""
    created: float = 0.0
    """Seconds since 1970."""
    trouble: str = ""
    """Why a container waits or the pod is not scheduled (`ImagePullBackOff`); empty: nothing is known to be wrong."""


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
    """Whose log it holds, as we have written on it."""
    retired: bool = False
    """The controllers have been told to forget that id."""
    deleting: bool = False
    """It goes as soon as no pod uses it any more."""


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True):
    """The one of a resource."""

    name: str
    uid: str
    replicas: int
    """spec.replicas."""
    update_revision: str = ""
    settled: bool = True
    """Its controller has seen what we applied last, so `update_revision` means it."""
    deleting: bool = False
    image: str = ""
    """Of the main container, in the newest revision."""
    claim_sizes: Mapping[str, int] = {}
    """Bytes by volume, of volumeClaimTemplates; those can never be changed."""
    claim_templates: tuple[Json, ...] = ()


class CronJob(msgspec.Struct, frozen=True, kw_only=True):
    """One of a group's verification."""

    created: float
    """Seconds since 1970."""


class SidecarState(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica's own sidecar said when it was asked last."""

    broker_id: int | None = None
    fenced: bool = False


class Controllers(msgspec.Struct, frozen=True, kw_only=True):
    """What the group's controllers say."""

    missing: bool = False
    """The ControllerCluster that is referred to does not exist."""
    reachable: bool = False
    """The leader tells us of every change; only then `group` means anything."""
    group: GroupView | None = None
    """None: no replica is registered."""


class ObservedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan for a BrokerGroup looks at."""

    group: BrokerGroup
    stateful_set: StatefulSet | None = None
    pods: tuple[Pod, ...] = ()
    """Ordered by ordinal."""
    claims: tuple[Claim, ...] = ()
    """Ordered by ordinal and volume; of scaled-down replicas too."""
    controllers: Controllers = Controllers()
    controller_addr: str | None = None
    """None: the ControllerCluster referred to does not exist."""
    broker_suspect_timeout_ms: int | None = None
    """Of the ControllerCluster referred to, by its spec; None: it does not exist, or the controllers are outside."""
    namesrv_addr: str | None = None
    """None: the NameServer (or ControllerCluster with embedded ones) referred to does not exist."""
    sidecars: Mapping[str, SidecarState] = {}
    """By uid of the pod; a pod that is missing here has not been asked or did not answer."""
    refused: Mapping[str, str] = {}
    """What the API server has refused of late, by `Action.memory_key`, with its reason."""
    disruption_budget: bool = False
    """The PodDisruptionBudget is there."""
    verification_objects: frozenset[tuple[str, str]] = frozenset()
    """Kind and name of those that are there, of what may be made for spec.verification."""
    verified_since: float | None = None
    """When its CronJob was made, in seconds since 1970; None: there is none."""


class ObservedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan for a ControllerCluster looks at."""

    cluster: ControllerCluster
    stateful_set: StatefulSet | None = None
    pods: tuple[Pod, ...] = ()
    claims: tuple[Claim, ...] = ()
    quorum: QuorumView | None = None
    """As the leader sees it, else any member; None: nobody answers."""
    secret_checked: bool = False
    """This process has seen, or made, the Raft secret."""
    refused: Mapping[str, str] = {}


class ObservedNameServer(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan for a NameServer looks at."""

    name_server: NameServer
    stateful_set: StatefulSet | None = None
    pods: tuple[Pod, ...] = ()
