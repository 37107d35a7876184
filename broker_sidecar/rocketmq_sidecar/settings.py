"""The sidecar's configuration: RocketMQ's keys with RocketMQ's meaning, and ours beside them.

Broker and sidecar may read one file; keys that only the broker reads are known by name and not reported. Times are
milliseconds, as in Java. Source: broker-agent reference, section 10; ha reference, section 12.
"""

import socket
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from rocketmq_formats.broker_identity import BrokerIdentity, IdentityError, encode_identity
from rocketmq_runtime.client import parse_address
from rocketmq_runtime.settings import Settings
from rocketmq_sidecar.domain.options import Options, Timing

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]
_LEASE_MARGIN_MS = 100
LONGEST_RELAXED_LEASE_MS = 4761
"""A controller that has begun to lead waits 5 s for masters that it has not heard of, by a clock that may run 5 %
faster than ours (invariant OneWriter). A strict master needs no such limit: once replaced it gets nothing
acknowledged."""
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**40)]

BROKER_KEYS = frozenset(
    {
        "brokerId",
        "brokerRole",
        "registerNameServerPeriod",
        "registerBrokerTimeoutMills",
        "brokerPermission",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "allowLongGroupNames",
        "defaultTopicQueueNums",
        "traceOn",
        "regionId",
        "longPollingEnable",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "enablePropertyFilter",
        "startAcceptSendRequestTimeStamp",
        "sendThreadPoolQueueCapacity",
        "pullThreadPoolQueueCapacity",
        "flushConsumerOffsetInterval",
        "messageDelayLevel",
        "mappedFileSizeConsumeQueue",
        "maxMessageSize",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "syncFlushTimeout",
        "slaveTimeout",
        "fileReservedTime",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceWarningLevelRatio",
        "diskSpaceCleanForciblyRatio",
        "accessMessageInMemoryMaxRatio",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferCountOnMessageInDisk",
        "totalReplicas",
        "shutdownWaitMs",
        "maxConnections",
    }
)
"""Read by the other half of the replica: known, and of no concern here."""


class SidecarSettings(Settings, frozen=True):
    """Every key of `rocketmq-sidecar -c FILE`."""

    # who this is
    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = ""
    """Empty: the host's name, as in Java."""
    broker_ip1: str = msgspec.field(default="", name="brokerIP1")
    broker_ip2: str = msgspec.field(default="", name="brokerIP2")
    """Address that slaves are told by the broker; empty: brokerIP1. Here only shown."""
    listen_port: Port = 10911
    """The broker's."""
    namesrv_addr: str = ""
    """The broker's; accepted because both may read one file."""

    # controllers
    enable_controller_mode: bool = True
    """Java's switch; without controllers there is nothing to do for a sidecar, so false is refused."""
    controller_addr: str = ""
    """All controllers: `host:port;host:port`. Required. Names are looked up at each connect."""
    controller_heart_beat_timeout_mills: Millis = 10_000
    """Silence after which the controllers give this broker up at the latest; see `declared_timeout_mills`."""
    broker_heartbeat_interval: Millis = 1000
    """Clamped to a quarter of the lease."""
    sync_broker_metadata_period: Millis = 5000
    """How often a slave asks who is master, as the net below the controllers' notices."""
    broker_election_priority: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 2**31 - 1
    """Among equals the lower one is elected."""
    broker_lease_timeout_ms: Millis = 2000
    """Ours: how long a master accepts sends after it sent a heartbeat that was acknowledged. Must be less than the
    controllers' brokerSuspectTimeoutMs (3000 unless set there)."""
    broker_hang_timeout_ms: Millis = 2000
    """Ours: a broker process that has not read for so long counts as dead."""

    # files
    store_path_root_dir: Annotated[str, msgspec.Meta(min_length=1)] = "~/store"
    store_path_commit_log: str = ""
    """Empty: `commitlog` in storePathRootDir."""
    store_path_epoch_file: str = ""
    """Empty: `epochFileCheckpoint` in storePathRootDir."""
    store_path_broker_identity: str = ""
    """A Java broker's identity, taken over if there is none of ours; empty: `brokerIdentity` in storePathRootDir."""
    sidecar_socket_path: str = ""
    """Ours; empty: `sidecar.sock` in storePathRootDir."""
    mapped_file_size_commit_log: Annotated[int, msgspec.Meta(ge=4096, le=2**31 - 1)] = 1024 * 1024 * 1024
    """Equal on all replicas."""

    # replication
    bind_address: str = "0.0.0.0"  # noqa: S104 - replicas on other hosts must reach it
    """Address that the HA port and the metrics port bind to."""
    ha_listen_port: Port = 0
    """0: listenPort + 1."""
    durability: Literal["strict", "relaxed"] = "strict"
    """Ours. strict: a send is acknowledged when every member of the SyncStateSet, at least two, has it."""
    all_ack_in_sync_state_set: bool = False
    """Always so with durability=strict."""
    in_sync_replicas: Count = 1
    min_in_sync_replicas: Count = 1
    enable_auto_in_sync_replicas: bool = False
    async_learner: bool = False
    sync_from_last_file: bool = False
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    ha_send_heartbeat_interval: Millis = 5000
    ha_housekeeping_interval: Millis = 20_000
    ha_max_time_slave_not_catchup: Millis = 15_000
    ha_transfer_batch_size: Bytes = 32 * 1024
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: Bytes = 100 * 1024 * 1024
    check_sync_state_set_period: Millis = 5000

    # the process
    broker_engine: Literal["native", "apache"] = "native"
    """Ours. Whose broker this sidecar stands beside: ours, or Apache's, which it observes."""
    sidecar_grpc_port: Port = 10920
    """Ours: for operators and tools, see sidecar_admin.proto. 0: off."""
    sidecar_grpc_tls_cert_file: str = ""
    sidecar_grpc_tls_key_file: str = ""
    sidecar_grpc_tls_ca_file: str = ""
    """With all three, gRPC asks for client certificates signed by this authority (mutual TLS)."""
    verify_max_bytes_per_second: Annotated[int, msgspec.Meta(ge=1_000_000, le=2**40)] = 100_000_000
    """Ours: how quickly the log may be read for the verification (see log_reader.proto), all callers together."""
    metrics_prom_exporter_port: Port = 5558
    """0: off."""
    metrics_prom_exporter_host: str = ""
    rocketmq_home: str = ""
    """Accepted because Java's files carry it; nothing is read from there."""
    log_format: Literal["json", "console"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        try:
            encode_identity(BrokerIdentity(self.broker_cluster_name, self.name, 1))
        except IdentityError as error:
            raise ValueError(f"brokerClusterName or brokerName: {error}") from error
        if not self.enable_controller_mode:
            raise ValueError("enableControllerMode=false: a sidecar works under controllers; remove the key")
        if not self.controllers:
            raise ValueError("controllerAddr is not set: name all controllers as host:port;host:port;host:port")
        for address in self.controllers:
            try:
                parse_address(address)
            except ValueError as error:
                raise ValueError(f"controllerAddr: {error}") from error
        if not 0 < self.ha_port < 65536 or self.ha_port == self.listen_port:
            raise ValueError(f"haListenPort={self.ha_port} is no port of its own beside listenPort={self.listen_port}")
        tls = (self.sidecar_grpc_tls_cert_file, self.sidecar_grpc_tls_key_file, self.sidecar_grpc_tls_ca_file)
        if any(tls) and not all(tls):
            raise ValueError("sidecarGrpcTlsCertFile, sidecarGrpcTlsKeyFile and sidecarGrpcTlsCaFile go together")
        if self.broker_lease_timeout_ms >= self.controller_heart_beat_timeout_mills:
            raise ValueError(
                f"brokerLeaseTimeoutMs={self.broker_lease_timeout_ms} must be less than"
                f" controllerHeartBeatTimeoutMills={self.controller_heart_beat_timeout_mills}:"
                " another master may be elected after that"
            )
        if self.durability == "relaxed" and self.broker_lease_timeout_ms > LONGEST_RELAXED_LEASE_MS:
            raise ValueError(
                f"brokerLeaseTimeoutMs={self.broker_lease_timeout_ms} must be at most {LONGEST_RELAXED_LEASE_MS} with"
                " durability=relaxed: a new leading controller waits no longer before it elects another master"
            )

    @property
    def name(self) -> str:
        """brokerName, or what stands for it."""
        return self.broker_name or socket.gethostname()

    @property
    def controllers(self) -> tuple[str, ...]:
        """Each address once, in order."""
        return tuple(dict.fromkeys(filter(None, (part.strip() for part in self.controller_addr.split(";")))))

    @property
    def declared_timeout_mills(self) -> int:
        """heartbeatTimeoutMills of our heartbeats: whoever was silent for longer than its lease is no master any more,
        so the controllers need not wait for their brokerSuspectTimeoutMs."""
        return min(self.controller_heart_beat_timeout_mills, self.broker_lease_timeout_ms + _LEASE_MARGIN_MS)

    @property
    def ha_port(self) -> int:
        return self.ha_listen_port or self.listen_port + 1

    @property
    def root(self) -> Path:
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_path(self) -> Path:
        return _path(self.store_path_commit_log, self.root / "commitlog")

    @property
    def epoch_file(self) -> Path:
        return _path(self.store_path_epoch_file, self.root / "epochFileCheckpoint")

    @property
    def java_identity_file(self) -> Path | None:
        return Path(self.store_path_broker_identity).expanduser() if self.store_path_broker_identity else None

    @property
    def socket_path(self) -> Path:
        return _path(self.sidecar_socket_path, self.root / "sidecar.sock")

    @property
    def options(self) -> Options:
        """For the control machine."""
        lease = self.broker_lease_timeout_ms / 1000
        timing = Timing(
            lease=lease,
            heartbeat=min(self.broker_heartbeat_interval / 1000, lease / 4),
            patience=lease / 4,
            poll=self.sync_broker_metadata_period / 1000,
        )
        return Options(
            cluster_name=self.broker_cluster_name,
            broker_name=self.name,
            controllers=self.controllers,
            timing=timing,
            relaxed=self.durability == "relaxed",
        )


def _path(text: str, default: Path) -> Path:
    return Path(text).expanduser() if text else default
