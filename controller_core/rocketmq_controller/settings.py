"""The controller's settings: its keys (`rocketmq_settings.controller`), the checks across them, and what follows."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from rocketmq_formats.addresses import format_address, parse_address
from rocketmq_runtime.config.live_config import UpdatableSettings
from rocketmq_settings.checks import check_own_host, take_bind_hosts
from rocketmq_settings.controller import ControllerKeys


class Peer(msgspec.Struct, frozen=True):
    """One member of the controller quorum: `id-host:port` in controllerDLegerPeers."""

    id: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)


class ControllerSettings(UpdatableSettings, ControllerKeys, frozen=True):
    """Every key of `rocketmq-controller -c FILE`."""

    def __post_init__(self) -> None:
        take_bind_hosts(self, "controllerListenHost", "metricsPromExporterHost")
        peers = parse_peers(self.controller_d_leger_peers)
        if self.controller_d_leger_self_id not in peers:
            raise ValueError(
                f"controllerDLegerSelfId={self.controller_d_leger_self_id!r} is not among the ids of "
                f"controllerDLegerPeers ({', '.join(peers)})"
            )
        if len(peers) % 2 == 0 and not self.controller_join:
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
        return _known_peers(self.controller_d_leger_peers)

    @property
    def self_peer(self) -> Peer:
        return self.peers[self.controller_d_leger_self_id]

    def raft_port_of(self, peer: Peer) -> int:
        """The port that `peer` takes Raft traffic on."""
        return peer.port + self.raft_distance

    @property
    def raft_distance(self) -> int:
        """From a member's remoting port to its Raft port."""
        return self._distances[0]

    @property
    def _distances(self) -> tuple[int, int]:
        own = self.self_peer.port
        raft, grpc = (port - own if port else None for port in (self.controller_raft_port, self.controller_grpc_port))
        return _known_distances(self.controller_d_leger_peers, raft, grpc)

    @property
    def raft_port(self) -> int:
        return self.raft_port_of(self.self_peer)

    def grpc_port_of(self, peer: Peer) -> int:
        """The port that `peer` is expected to serve gRPC on; may be no legal port where ours is not its neighbour."""
        return peer.port + self._distances[1]

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
        if not separator or not is_member_id(peer_id):
            raise ValueError(f"controllerDLegerPeers: {part!r} is not of the form id-host:port")
        try:
            host, port = parse_address(address)
            check_own_host(peer_id, host)
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


@functools.lru_cache(maxsize=16)
def _known_peers(text: str) -> Mapping[str, Peer]:
    """`parse_peers`; every 1005 asks."""
    return MappingProxyType(parse_peers(text))


@functools.lru_cache(maxsize=16)
def _known_distances(peers: str, raft: int | None, grpc: int | None) -> tuple[int, int]:
    """`port_distances` of the members that `peers` names."""
    return port_distances(_known_peers(peers).values(), raft, grpc)


def is_member_id(text: str) -> bool:
    """Whether it can stand in controllerDLegerPeers, and in the lists of members that tools get."""
    return text.isprintable() and bool(text) and not set(text) & set("-;: ")


_MOST_DISTANCE: Final = 1000
"""Each two of 15 members rule out less than five distances."""


def port_distances(peers: Iterable[Peer], raft: int | None = None, grpc: int | None = None) -> tuple[int, int]:
    """From remoting ports to Raft and gRPC ports; None: not configured.

    1 and 2, unless members on one host would share a port: then the smallest d and 2d with which they do not. All
    members find the same ones, since they have the same list. A gRPC port that is configured changes only itself: where
    the others look for Raft must not depend on a key that they may lack.
    """
    members = tuple(peers)
    if raft is None and grpc is not None:
        return port_distances(members)[0], grpc
    tried = [(step if raft is None else raft, 2 * step if grpc is None else grpc) for step in range(1, _MOST_DISTANCE)]
    for distances in dict.fromkeys(tried):
        ports = [(peer.host, peer.port + distance) for peer in members for distance in (0, *distances)]
        if len(set(ports)) == len(ports):
            return distances
    return tried[0]


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
