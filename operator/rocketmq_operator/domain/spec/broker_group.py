"""BrokerGroup: replicas of one broker, one master among them. Schema: crds/brokergroups.yaml."""

from typing import Annotated, Literal

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.common import (
    Json,
    Millis,
    Pulling,
    ReclaimPolicy,
    Reference,
    Resource,
    Spec,
    memory_promised,
    parse_metadata,
    size_in_bytes,
)
from rocketmq_operator.domain.spec.decoding import SpecError, decode, mapping
from rocketmq_operator.domain.spec.reserved_keys import BROKER

Engine = Literal["native", "apache"]
Durability = Literal["strict", "relaxed"]
UpdateStrategy = Literal["supervised", "unsupervised"]
Priority = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
JvmSize = Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,6}([kmgKMG]|[KMG]i)$")]
JvmOption = Annotated[str, msgspec.Meta(pattern=r"^-[A-Za-z]\S*$", max_length=512)]

STRICT_COPIES = 2
"""A strict group acknowledges nothing that fewer replicas have."""


class BrokerImages(Pulling, frozen=True, rename="camel", kw_only=True):
    """Of the containers."""

    broker: str | None = None
    sidecar: str | None = None


class CommitLogVolume(msgspec.Struct, frozen=True, rename="camel"):
    """A volume of its own for the commit log."""

    size: str
    storage_class_name: str | None = None


class BrokerStorage(msgspec.Struct, frozen=True, rename="camel"):
    """The volume of each replica."""

    size: str = "10Gi"
    storage_class_name: str | None = None
    reclaim_policy: ReclaimPolicy = "Retain"
    commit_log: CommitLogVolume | None = None


class BrokerResources(msgspec.Struct, frozen=True, rename="camel"):
    """ResourceRequirements of each container."""

    broker: Json = {}
    sidecar: Json = {}


class Jvm(msgspec.Struct, frozen=True, rename="camel"):
    """Of an Apache broker. Sizes: `2g` or `2Gi`; None: made of the memory of its container."""

    heap: JvmSize | None = None
    direct_memory: JvmSize | None = None
    options: tuple[JvmOption, ...] = ()


class Failover(msgspec.Struct, frozen=True, rename="camel"):
    """How soon the dead and the slow are noticed; milliseconds."""

    lease_timeout_ms: Annotated[int, msgspec.Meta(ge=200, le=9000)] = 2000
    hang_timeout_ms: Annotated[int, msgspec.Meta(ge=200, le=60_000)] = 2000
    heartbeat_interval_ms: Annotated[int, msgspec.Meta(ge=50, le=5000)] = 500
    max_time_slave_not_catchup_ms: Millis = 15_000


class VerificationResources(msgspec.Struct, frozen=True, rename="camel"):
    """ResourceRequirements of the pods."""

    driver: Json = {}
    executor: Json = {}


class HistoryStorage(msgspec.Struct, frozen=True, rename="camel"):
    """A volume for what verification remembers."""

    size: str = "1Gi"
    storage_class_name: str | None = None


class VerificationHistory(msgspec.Struct, frozen=True, rename="camel"):
    """Where verification remembers: one of the two."""

    path: str | None = None
    storage: HistoryStorage | None = None


class Verification(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """When and how the replicas' logs are compared."""

    schedule: str
    full_schedule: str | None = None
    suspend: bool = False
    sample: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    chunk_size: str = "1Mi"
    rate_limit: str = "100M"
    executors: Annotated[int, msgspec.Meta(ge=0, le=64)] = 1
    max_executors: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    """With Spark's dynamic allocation; None: always as many as `executors`."""
    resources: VerificationResources = VerificationResources()
    history: VerificationHistory | None = None
    timeout_seconds: Annotated[int, msgspec.Meta(ge=60, le=604_800)] = 3600
    image: str | None = None


class BrokerGroupSpec(Spec, frozen=True, rename="camel", kw_only=True):
    """Every field of spec; the meaning of each is told by crds/brokergroups.yaml."""

    engine: Engine = "native"
    cluster_name: str = "DefaultCluster"
    broker_name: str | None = None
    replicas: Annotated[int, msgspec.Meta(ge=1, le=9)] = 3
    image: BrokerImages = BrokerImages()
    controller_ref: Reference | None = None
    controller_addr: str | None = None
    controller_grpc_addr: str | None = None
    name_server_ref: Reference | None = None
    namesrv_addr: str | None = None
    durability: Durability = "strict"
    min_in_sync_replicas: Annotated[int, msgspec.Meta(ge=1, le=9)] | None = None
    storage: BrokerStorage = BrokerStorage()
    resources: BrokerResources = BrokerResources()
    jvm: Jvm = Jvm()
    priorities: tuple[Priority, ...] = ()
    failover: Failover = Failover()
    fenced: bool = False
    hibernated: bool = False
    update_strategy: UpdateStrategy = "unsupervised"
    verification: Verification | None = None


class BrokerGroup(Resource[BrokerGroupSpec], frozen=True):
    """One group."""

    @property
    def broker_name(self) -> str:
        """brokerName as RocketMQ knows the group."""
        return self.spec.broker_name or self.name

    @property
    def cluster_name(self) -> str:
        return self.spec.cluster_name

    @property
    def pods_wanted(self) -> int:
        """Pods that should run: none of a hibernated group."""
        return 0 if self.spec.hibernated else self.spec.replicas

    @property
    def min_in_sync_replicas(self) -> int:
        """Members of the SyncStateSet without which sends are refused."""
        least = STRICT_COPIES if self.spec.durability == "strict" else 1
        return min(max(self.spec.min_in_sync_replicas or least, least), self.spec.replicas)

    @property
    def controller(self) -> tuple[str, str] | None:
        """Namespace and name of the ControllerCluster; None: the controllers are outside (spec.controllerAddr)."""
        return self._referenced(self.spec.controller_ref)

    @property
    def name_server(self) -> tuple[str, str] | None:
        """Namespace and name of the NameServer; None: spec.namesrvAddr says, or else the ControllerCluster's embedded
        name servers do."""
        return self._referenced(self.spec.name_server_ref)

    @property
    def embedded_name_servers(self) -> bool:
        """The name servers are those in the ControllerCluster's processes."""
        return self.spec.name_server_ref is None and self.spec.namesrv_addr is None

    @property
    def storage_bytes(self) -> int:
        return size_in_bytes(self.spec.storage.size, "spec.storage.size")

    @property
    def commit_log_bytes(self) -> int | None:
        """Of the second volume."""
        volume = self.spec.storage.commit_log
        return None if volume is None else size_in_bytes(volume.size, "spec.storage.commitLog.size")

    @property
    def broker_memory(self) -> int | None:
        """Bytes promised to the broker's container: its limit, else its request; None: neither is set."""
        return memory_promised(self.spec.resources.broker, "spec.resources.broker")

    @property
    def rebuild(self) -> str | None:
        """Name of the pod whose replica shall be made anew."""
        return self.metadata.annotations.get(names.ANNOTATION_REBUILD)

    def priority(self, ordinal: int) -> int | None:
        """brokerElectionPriority of the replica; None: RocketMQ's default, after everyone with a number."""
        return self.spec.priorities[ordinal] if ordinal < len(self.spec.priorities) else None

    def _referenced(self, reference: Reference | None) -> tuple[str, str] | None:
        return None if reference is None else (reference.namespace or self.namespace, reference.name)


def parse_broker_group(body: Json) -> BrokerGroup:
    """The resource `body` (metadata, spec, status as the API server sends them).

    Raises:
        SpecError: it cannot be carried out; the path says which field.
    """
    spec = decode(mapping(body, "spec"), BrokerGroupSpec, "spec")
    group = BrokerGroup(parse_metadata(body), spec, mapping(body, "status"))
    _check(group)
    return group


def _check(group: BrokerGroup) -> None:
    """The rules of crds/brokergroups.yaml that a plan relies on, for what was stored before them."""
    spec = group.spec
    if (spec.controller_ref is None) == (spec.controller_addr is None):
        raise SpecError("spec.controllerRef", "set either controllerRef or controllerAddr")
    if spec.name_server_ref is not None and spec.namesrv_addr is not None:
        raise SpecError("spec.nameServerRef", "set nameServerRef or namesrvAddr, not both")
    if group.embedded_name_servers and spec.controller_ref is None:
        raise SpecError(
            "spec.nameServerRef", "set nameServerRef or namesrvAddr: outside controllers host no name server"
        )
    if spec.durability == "strict" and spec.replicas < STRICT_COPIES:
        raise SpecError("spec.replicas", "strict durability needs two replicas: set replicas, or durability: relaxed")
    if (spec.min_in_sync_replicas or 0) > spec.replicas:
        raise SpecError("spec.minInSyncReplicas", f"more than the {spec.replicas} replicas")
    if spec.durability == "strict" and "allAckInSyncStateSet" in spec.config:
        raise SpecError("spec.config.allAckInSyncStateSet", "is always so with durability strict")
    for key in spec.config:
        if key in BROKER:
            raise SpecError(f"spec.config.{key}", f"is set by {BROKER[key]}")
    _ = group.storage_bytes, group.commit_log_bytes, group.broker_memory  # raise SpecError
    if spec.verification is not None:
        _check_verification(group.name, spec.verification)


def _check_verification(name: str, verification: Verification) -> None:
    if len(name) > names.MAX_VERIFIED_GROUP_NAME:
        raise SpecError("spec.verification", f"needs a name of at most {names.MAX_VERIFIED_GROUP_NAME} characters")
    history = verification.history
    if history is not None and (history.path is None) == (history.storage is None):
        raise SpecError("spec.verification.history", "set either path or storage")
    if verification.max_executors is not None and not 1 <= verification.executors <= verification.max_executors:
        raise SpecError(
            "spec.verification.maxExecutors",
            f"needs executors to be at least 1, and at most {verification.max_executors}",
        )
    for field, text in (("chunkSize", verification.chunk_size), ("rateLimit", verification.rate_limit)):
        size_in_bytes(text, f"spec.verification.{field}")
    for field, resources in (
        ("driver", verification.resources.driver),
        ("executor", verification.resources.executor),
    ):
        memory_promised(resources, f"spec.verification.resources.{field}")
