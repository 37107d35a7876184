"""A BrokerGroup as a value: what its fields mean for the plan, and the rules that a plan relies on."""

from rocketmq_formats.addresses import parse_addresses
from rocketmq_resources import names
from rocketmq_resources.acting import is_true
from rocketmq_resources.common import Resource, memory_promised, parse_metadata, size_in_bytes
from rocketmq_resources.decoding import Json, SpecError, decode, mapping
from rocketmq_resources.reserved_keys import BROKER, check_promises
from rocketmq_resources.schema.broker_group import STRICT_COPIES, BrokerGroupSpec
from rocketmq_resources.schema.common import Reference
from rocketmq_resources.schema.verification import Verification


class BrokerGroup(Resource[BrokerGroupSpec], frozen=True):
    @property
    def broker_name(self) -> str:
        """The group's brokerName in RocketMQ."""
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
    def replication_secret(self) -> str | None:
        """The Secret with the key `replication.secret`; None: official brokers replicate without."""
        if self.spec.engine != "native":
            return None
        return self.spec.replication_secret_name or names.replication_secret(self.name)

    @property
    def own_replication_secret(self) -> bool:
        """Whether the operator creates the Secret."""
        return self.spec.replication_secret_name is None

    @property
    def grpc_host(self) -> str:
        """A name that the certificates of all replicas are for: they are called at their pods' addresses."""
        return names.pod_host(names.pod_name(self.name, 0), self.name, self.namespace)

    @property
    def fails_over(self) -> bool:
        """False: the group has no controllers, and pod 0 is always its master."""
        return self.spec.failover.mode != "none"

    @property
    def controller(self) -> tuple[str, str] | None:
        """Namespace and name of the ControllerCluster; None: the controllers are outside (spec.controllerAddr), or
        the group has no controllers."""
        return self._referenced(self.spec.controller_ref)

    @property
    def name_server(self) -> tuple[str, str] | None:
        """Namespace and name of the NameServer; None: spec.namesrvAddr, or the name servers embedded in the
        ControllerCluster."""
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
        """Name of the pod whose replica has to be rebuilt."""
        return self.metadata.annotations.get(names.ANNOTATION_REBUILD)

    @property
    def strict_locks(self) -> bool:
        """Consumers in order hold a queue only with the votes of most replicas."""
        return is_true(self.spec.config.get("lockInStrictMode"))

    @property
    def acts(self) -> bool:
        """While there is no master, a slave acts for it."""
        return self.spec.acting_master != "off"

    @property
    def sends_while_acting(self) -> str:
        """What becomes of messages while a slave acts, in words."""
        escape = self.spec.acting_master == "readsAndEscape"
        delayed = "go to other groups when they are due" if escape else "wait"
        return f"new messages are refused, and stored delayed ones {delayed}"

    def priority(self, ordinal: int) -> int | None:
        """brokerElectionPriority of the replica; None: RocketMQ's default, after all replicas with a number."""
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
    """The rules of the CRD that a plan relies on, for resources that were stored before these rules."""
    spec = group.spec
    for field, addresses in (
        ("controllerAddr", spec.controller_addr),
        ("controllerGrpcAddr", spec.controller_grpc_addr),
        ("namesrvAddr", spec.namesrv_addr),
    ):
        _check_addresses(f"spec.{field}", addresses or "")
    if group.fails_over and (spec.controller_ref is None) == (spec.controller_addr is None):
        raise SpecError("spec.controllerRef", "set either controllerRef or controllerAddr")
    if not group.fails_over and (spec.controller_ref, spec.controller_addr) != (None, None):
        raise SpecError("spec.failover.mode", "none has no controllers: remove controllerRef and controllerAddr")
    if spec.name_server_ref is not None and spec.namesrv_addr is not None:
        raise SpecError("spec.nameServerRef", "set nameServerRef or namesrvAddr, not both")
    if group.embedded_name_servers and spec.controller_ref is None:
        raise SpecError(
            "spec.nameServerRef", "set nameServerRef or namesrvAddr: only a ControllerCluster can host the name servers"
        )
    if spec.durability == "strict" and spec.replicas < STRICT_COPIES:
        raise SpecError("spec.replicas", "strict durability needs two replicas: set replicas, or durability: relaxed")
    if (spec.min_in_sync_replicas or 0) > spec.replicas:
        raise SpecError("spec.minInSyncReplicas", f"more than the {spec.replicas} replicas")
    if spec.durability == "strict" and "allAckInSyncStateSet" in spec.config:
        raise SpecError("spec.config.allAckInSyncStateSet", "cannot be set: durability strict implies it")
    for key in spec.config:
        if key in BROKER:
            raise SpecError(f"spec.config.{key}", f"is set by {BROKER[key]}")
    _check_engine(group)
    _ = group.storage_bytes, group.commit_log_bytes, group.broker_memory  # raise SpecError
    if spec.verification is not None:
        _check_verification(group.name, spec.verification)


def _check_addresses(path: str, addresses: str) -> None:
    try:
        parse_addresses(addresses)
    except ValueError as error:
        raise SpecError(path, str(error)) from error


def _check_engine(group: BrokerGroup) -> None:
    spec = group.spec
    if spec.engine == "native":
        check_promises(spec.config)
        return
    if not group.fails_over:
        raise SpecError("spec.failover.mode", "none is for engine native: official brokers then have no sidecar")
    if spec.replication_secret_name is not None:
        raise SpecError("spec.replicationSecretName", "official brokers replicate without a secret: remove it")
    if group.strict_locks and not group.acts:
        raise SpecError(
            "spec.config.lockInStrictMode",
            "official brokers lock no queue then: set spec.actingMaster to reads or readsAndEscape too, without which "
            "they do not know each other",
        )

    if is_true(spec.config.get("enableBuildConsumeQueueConcurrently")):
        raise SpecError(
            "spec.config.enableBuildConsumeQueueConcurrently",
            "an official broker of 5.3 with it can give a queue offset twice when it becomes master, and consumers do "
            "not see one of the two messages: remove it",
        )


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
