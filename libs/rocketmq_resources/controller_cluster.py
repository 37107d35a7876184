"""A ControllerCluster as a value."""

from rocketmq_resources import names
from rocketmq_resources.acting import shows_acting_masters
from rocketmq_resources.common import Resource, parse_metadata, size_in_bytes
from rocketmq_resources.decoding import Json, SpecError, decode, mapping
from rocketmq_resources.reserved_keys import CONTROLLER, check_promises
from rocketmq_resources.schema.controller_cluster import ControllerClusterSpec


class ControllerCluster(Resource[ControllerClusterSpec], frozen=True):
    @property
    def raft_secret(self) -> str:
        """The Secret with the key `raft.secret`."""
        return self.spec.raft_secret_name or names.raft_secret(self.name)

    @property
    def own_raft_secret(self) -> bool:
        """The operator makes the Secret, once."""
        return self.spec.raft_secret_name is None

    @property
    def grpc_host(self) -> str:
        """A name that the certificates of all members are for: they are called at their pods' addresses."""
        service = names.controller(self.name)
        return names.pod_host(names.pod_name(service, 0), service, self.namespace)

    @property
    def quorum(self) -> int:
        """The members that a decision needs."""
        return self.spec.members // 2 + 1

    def peers(self, members: int) -> str:
        """controllerDLegerPeers for this number of members."""
        return names.controller_peers(self.name, self.namespace, members)

    @property
    def controller_addr(self) -> str:
        """`host:port;...` of all members."""
        return names.controller_addr(self.name, self.namespace, self.spec.members)

    @property
    def controller_grpc_addr(self) -> str:
        return names.controller_grpc_addr(self.name, self.namespace, self.spec.members)

    @property
    def namesrv_addr(self) -> str | None:
        """Addresses of the embedded name servers; None without embedded name servers."""
        if not self.spec.embedded_in_name_server:
            return None
        return names.embedded_namesrv_addr(self.name, self.namespace, self.spec.members)

    @property
    def shows_acting_masters(self) -> bool:
        """Of embedded name servers."""
        return shows_acting_masters(self.spec.config)

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
        raise SpecError("spec.members", "must be 3 or 5: 4 tolerate one loss, as 3 do")
    if spec.tuning.raft_election_timeout_ms <= 3 * spec.tuning.raft_heartbeat_interval_ms:
        raise SpecError("spec.tuning.raftElectionTimeoutMs", "must be more than three times raftHeartbeatIntervalMs")
    for key in spec.config:
        if key in CONTROLLER:
            raise SpecError(f"spec.config.{key}", f"is set by {CONTROLLER[key]}")
    check_promises(spec.config)
    _ = cluster.storage_bytes  # raises SpecError
    return cluster
