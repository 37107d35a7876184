"""The controller's configuration: RocketMQ's keys with RocketMQ's defaults, and ours beside them.

Times are milliseconds, as in Java. Source: controller reference, section 9; our own keys: docs/operations.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from rocketmq_runtime.client import parse_address
from rocketmq_runtime.live_config import UpdatableSettings

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]

UPDATABLE = frozenset(
    {
        "scanInactiveMasterInterval",
        "brokerSuspectTimeoutMs",
        "electMasterMaxRetryCount",
        "enableElectUncleanMaster",
        "notifyBrokerRoleChanged",
        "isProcessReadEvent",
        "logLevel",
    }
)
"""Keys whose new value takes effect at once; the others are kept for the next start."""


class Peer(msgspec.Struct, frozen=True):
    """One member of the controller quorum: `id-host:port` in controllerDLegerPeers."""

    id: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class ControllerSettings(UpdatableSettings, frozen=True):
    """Every key of `rocketmq-controller -c FILE`."""

    # RocketMQ's own keys
    controller_type: Literal["DLedger"] = "DLedger"
    """Java also knows jRaft; one kind of quorum is enough."""
    controller_d_leger_group: str = ""
    """Name of the quorum, told by getControllerMetaData; empty: `DefaultControllerGroup`."""
    controller_d_leger_peers: str = ""
    """All members: `n0-host:port;n1-host:port;n2-host:port`. Required."""
    controller_d_leger_self_id: str = ""
    """Which of the peers this process is. Required."""
    controller_store_path: str = "~/DLedgerController"
    """Folder of journal, vote and snapshots; one per member."""
    rocketmq_home: str = ""
    """Accepted because Java's files carry it; nothing is read from there."""
    config_store_path: str = ""
    """Where updateControllerConfig keeps what it changed; empty: `controller.properties` in controllerStorePath."""
    config_black_list: str = "configBlackList;configStorePath"
    """Keys that updateControllerConfig refuses, separated by `;`."""
    scan_not_active_broker_interval: Millis = 5000
    """Accepted because Java's files carry it; here silence is looked for ten times a second."""
    scan_inactive_master_interval: Millis = 5000
    """How often every group is looked at for a dead master, as the safety net behind the events."""
    elect_master_max_retry_count: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    """Tries of one triggered election before it is left to the scan."""
    enable_elect_unclean_master: bool = False
    """Let a replica outside the SyncStateSet become master when no member of it lives: loses messages."""
    is_process_read_event: bool = False
    """Prove leadership by a round through the quorum before each read; off, the leader's lease proves it."""
    notify_broker_role_changed: bool = True
    metrics_prom_exporter_port: Port = 5557
    metrics_prom_exporter_host: str = ""
    metrics_label: str = ""
    """Extra labels on every metric: `k:v,k:v`."""

    # Ours
    controller_listen_host: str = "0.0.0.0"  # noqa: S104 - brokers on other hosts must reach it
    """Address that the remoting, Raft and gRPC ports bind to."""
    controller_raft_port: Port = 0
    """0: remoting port + 1. What is set here is taken as a distance from this member's remoting port, and peers keep
    the same distance from theirs, so one value serves Kubernetes (equal ports everywhere) and loopback alike."""
    controller_raft_secret_file: str = ""
    """File with the secret that every member shares. Required: without it anybody could write the log."""
    controller_grpc_port: Port = 0
    """0: remoting port + 2. A distance like controllerRaftPort, where a member tells clients of the others."""
    controller_grpc_tls_cert_file: str = ""
    controller_grpc_tls_key_file: str = ""
    controller_grpc_tls_ca_file: str = ""
    """With all three, gRPC asks for client certificates signed by this authority (mutual TLS)."""
    broker_suspect_timeout_ms: Millis = 3000
    """A broker that beats each second is suspected after this silence; see liveness."""
    raft_heartbeat_interval_ms: Millis = 100
    raft_election_timeout_ms: Millis = 400
    """Shortest silence after which a member stands for election; the longest is 1.75 times that, the leader's lease
    7/8 of it."""
    raft_snapshot_entries: Annotated[int, msgspec.Meta(ge=100)] = 10_000
    """Entries of the log after which a snapshot is written and the log cut."""
    max_connections: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 10_000
    log_format: Literal["json", "console"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        peers = parse_peers(self.controller_d_leger_peers)
        if self.controller_d_leger_self_id not in peers:
            raise ValueError(
                f"controllerDLegerSelfId={self.controller_d_leger_self_id!r} is not among the ids of "
                f"controllerDLegerPeers ({', '.join(peers)})"
            )
        if len(peers) % 2 == 0:
            raise ValueError(
                f"controllerDLegerPeers names {len(peers)} members: an even number adds no safety, use 1, 3 or 5"
            )
        if not self.controller_raft_secret_file:
            raise ValueError("controllerRaftSecretFile is not set: name a file that holds the secret all members share")
        tls = (
            self.controller_grpc_tls_cert_file,
            self.controller_grpc_tls_key_file,
            self.controller_grpc_tls_ca_file,
        )
        if any(tls) and not all(tls):
            raise ValueError(
                "controllerGrpcTlsCertFile, controllerGrpcTlsKeyFile and controllerGrpcTlsCaFile go together"
            )
        ports = {"remoting": self.self_peer.port, "Raft": self.raft_port, "gRPC": self.grpc_port}
        if self.metrics_prom_exporter_port:
            ports["metrics"] = self.metrics_prom_exporter_port
        if len(set(ports.values())) < len(ports):
            raise ValueError("two ports are the same: " + ", ".join(f"{name} {port}" for name, port in ports.items()))
        if not all(0 < port < 65536 for port in ports.values()):
            raise ValueError("a port is out of range: " + ", ".join(f"{name} {port}" for name, port in ports.items()))
        if self.raft_election_timeout_ms <= 3 * self.raft_heartbeat_interval_ms:
            raise ValueError(
                f"raftElectionTimeoutMs={self.raft_election_timeout_ms} must be more than three times "
                f"raftHeartbeatIntervalMs={self.raft_heartbeat_interval_ms}: one late heartbeat would depose the leader"
            )
        parse_labels(self.metrics_label)

    @property
    def group(self) -> str:
        return self.controller_d_leger_group or "DefaultControllerGroup"

    @property
    def peers(self) -> Mapping[str, Peer]:
        return parse_peers(self.controller_d_leger_peers)

    @property
    def self_peer(self) -> Peer:
        return self.peers[self.controller_d_leger_self_id]

    def raft_port_of(self, peer: Peer) -> int:
        """The port that `peer` takes Raft traffic on."""
        distance = self.controller_raft_port - self.self_peer.port if self.controller_raft_port else 1
        return peer.port + distance

    @property
    def raft_port(self) -> int:
        return self.raft_port_of(self.self_peer)

    def grpc_port_of(self, peer: Peer) -> int:
        """The port that `peer` is expected to serve gRPC on; may be no legal port where ours is not its neighbour."""
        distance = self.controller_grpc_port - self.self_peer.port if self.controller_grpc_port else 2
        return peer.port + distance

    @property
    def grpc_port(self) -> int:
        return self.grpc_port_of(self.self_peer)

    @property
    def store_path(self) -> Path:
        return Path(self.controller_store_path).expanduser()

    @property
    def update_path(self) -> Path:
        """Where runtime updates are kept."""
        return (
            Path(self.config_store_path).expanduser()
            if self.config_store_path
            else self.store_path / "controller.properties"
        )

    @property
    def black_list(self) -> str:
        """Keys that updateControllerConfig refuses, separated by `;`."""
        return self.config_black_list


def parse_peers(text: str) -> dict[str, Peer]:
    """Members by id, in the order of the text.

    Raises:
        ValueError: not of the form `n0-host:port;n1-host:port`, or an id or an address occurs twice.
    """
    peers: dict[str, Peer] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        peer_id, separator, address = part.partition("-")
        if not separator or not peer_id:
            raise ValueError(f"controllerDLegerPeers: {part!r} is not of the form id-host:port")
        try:
            host, port = parse_address(address)
        except ValueError as error:
            raise ValueError(f"controllerDLegerPeers: {part!r}: {error}") from error
        if peer_id in peers:
            raise ValueError(f"controllerDLegerPeers: the id {peer_id!r} occurs twice")
        peers[peer_id] = Peer(peer_id, host, port)
    if not peers:
        raise ValueError("controllerDLegerPeers is not set: name all members as n0-host:port;n1-host:port;n2-host:port")
    if len({peer.address for peer in peers.values()}) < len(peers):
        raise ValueError("controllerDLegerPeers: two members have the same address")
    return peers


def parse_labels(text: str) -> dict[str, str]:
    """metricsLabel as a map.

    Raises:
        ValueError: not of the form `k:v,k:v`.
    """
    labels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = part.partition(":")
        if not separator or not key.isidentifier():
            raise ValueError(f"metricsLabel: {part!r} is not of the form name:value")
        labels[key] = value
    return labels
