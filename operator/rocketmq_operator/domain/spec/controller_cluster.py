"""ControllerCluster: the quorum that elects masters. Schema: crds/controllerclusters.yaml."""

from typing import Annotated

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.common import (
    Json,
    Pulling,
    ReclaimPolicy,
    Resource,
    Spec,
    parse_metadata,
    size_in_bytes,
)
from rocketmq_operator.domain.spec.decoding import SpecError, decode, mapping
from rocketmq_operator.domain.spec.reserved_keys import CONTROLLER


class ControllerImages(Pulling, frozen=True, rename="camel", kw_only=True):
    """Of the containers."""

    controller: str | None = None


class ControllerStorage(msgspec.Struct, frozen=True, rename="camel"):
    """The volume of each member."""

    size: str = "1Gi"
    storage_class_name: str | None = None
    reclaim_policy: ReclaimPolicy = "Retain"


class Tuning(msgspec.Struct, frozen=True, rename="camel"):
    """Times in milliseconds; the meaning of each is told by crds/controllerclusters.yaml."""

    raft_heartbeat_interval_ms: Annotated[int, msgspec.Meta(ge=10, le=10_000)] = 100
    raft_election_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=60_000)] = 400
    broker_suspect_timeout_ms: Annotated[int, msgspec.Meta(ge=300, le=600_000)] = 3000
    scan_inactive_master_interval_ms: Annotated[int, msgspec.Meta(ge=100, le=600_000)] = 5000
    enable_elect_unclean_master: bool = False


class ControllerClusterSpec(Spec, frozen=True, rename="camel", kw_only=True):
    """Every field of spec."""

    members: Annotated[int, msgspec.Meta(ge=3, le=5)] = 3
    embedded_in_name_server: bool = False
    image: ControllerImages = ControllerImages()
    storage: ControllerStorage = ControllerStorage()
    raft_secret_name: str | None = None
    grpc_tls_secret_name: str | None = None
    resources: Json = msgspec.field(default_factory=dict)
    tuning: Tuning = Tuning()


class ControllerCluster(Resource[ControllerClusterSpec], frozen=True):
    """One quorum."""

    @property
    def raft_secret(self) -> str:
        """The Secret with the key `raft.secret`."""
        return self.spec.raft_secret_name or names.raft_secret(self.name)

    @property
    def own_raft_secret(self) -> bool:
        """The operator makes the Secret, once."""
        return self.spec.raft_secret_name is None

    @property
    def quorum(self) -> int:
        """Members without whom nothing is decided."""
        return self.spec.members // 2 + 1

    @property
    def peers(self) -> str:
        """controllerDLegerPeers."""
        return names.controller_peers(self.name, self.namespace, self.spec.members)

    @property
    def controller_addr(self) -> str:
        """`host:port;...` of all members."""
        return names.controller_addr(self.name, self.namespace, self.spec.members)

    @property
    def controller_grpc_addr(self) -> str:
        return names.controller_grpc_addr(self.name, self.namespace, self.spec.members)

    @property
    def namesrv_addr(self) -> str | None:
        """Of the embedded name servers; None: there are none."""
        if not self.spec.embedded_in_name_server:
            return None
        return names.embedded_namesrv_addr(self.name, self.namespace, self.spec.members)

    @property
    def storage_bytes(self) -> int:
        return size_in_bytes(self.spec.storage.size, "spec.storage.size")


def parse_controller_cluster(body: Json) -> ControllerCluster:
    """The resource `body` (metadata, spec, status as the API server sends them).

    Raises:
        SpecError: it cannot be carried out; the path says which field.
    """
    spec = decode(mapping(body, "spec"), ControllerClusterSpec, "spec")
    cluster = ControllerCluster(parse_metadata(body), spec, mapping(body, "status"))
    if spec.members % 2 == 0:
        raise SpecError("spec.members", "must be 3 or 5: an even number outlives no more losses")
    if spec.tuning.raft_election_timeout_ms <= 3 * spec.tuning.raft_heartbeat_interval_ms:
        raise SpecError("spec.tuning.raftElectionTimeoutMs", "must be more than three times raftHeartbeatIntervalMs")
    for key in spec.config:
        if key in CONTROLLER:
            raise SpecError(f"spec.config.{key}", f"is set by {CONTROLLER[key]}")
    _ = cluster.storage_bytes  # raises SpecError
    return cluster
