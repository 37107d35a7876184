"""The broker's configuration: the keys of BrokerConfig and MessageStoreConfig that mean something here, with Java's
defaults, and ours beside them.

Broker and sidecar may read one file; keys that only the sidecar reads are known by name and not reported. Times are
milliseconds, sizes bytes, as in Java. Source: broker-agent reference, section 10.
"""

import ipaddress
import re
import socket
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from rocketmq_broker.domain.role import Durability
from rocketmq_formats.broker_identity import BrokerIdentity, IdentityError, encode_identity
from rocketmq_formats.store.delay_levels import DelayLevelError, parse_levels
from rocketmq_runtime.client import parse_address
from rocketmq_runtime.settings import Settings
from rocketmq_store.retention import hours

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]
Bytes = Annotated[int, msgspec.Meta(ge=1, le=15 * 1024 * 1024)]
Ratio = Annotated[float, msgspec.Meta(ge=0.1, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

FAST_PORT_DISTANCE = 2
"""The VIP port is listenPort - 2: Java slaves fetch topics and timers there."""

SIDECAR_KEYS = frozenset(
    {
        "controllerAddr",
        "controllerAddress",
        "fetchControllerAddrByDnsLookup",
        "enableAutoInSyncReplicas",
        "enableControllerMode",
        "syncBrokerMetadataPeriod",
        "checkSyncStateSetPeriod",
        "syncControllerMetadataPeriod",
        "controllerHeartBeatTimeoutMills",
        "brokerElectionPriority",
        "brokerHeartbeatInterval",
        "sendHeartbeatTimeoutMillis",
        "storePathBrokerIdentity",
        "storePathEpochFile",
        "haSendHeartbeatInterval",
        "haHousekeepingInterval",
        "haTransferBatchSize",
        "haMaxGapNotInSync",
        "haMaxTimeSlaveNotCatchup",
        "haFlowControlEnable",
        "maxHaTransferByteInSecond",
        "syncFromLastFile",
        "asyncLearner",
        "isAsyncLearner",
        "haMasterAddress",
        "brokerLeaseTimeoutMs",
        "brokerHangTimeoutMs",
        "brokerEngine",
        "sidecarGrpcPort",
        "sidecarGrpcTlsCertFile",
        "sidecarGrpcTlsKeyFile",
        "sidecarGrpcTlsCaFile",
        "verifyMaxBytesPerSecond",
        "haListenHost",
        "leaseTimeout",
        "leaseTimeoutMs",
        "metricsPromExporterPort",
        "metricsPromExporterHost",
    }
)
"""Read by the other half of the replica (or by Java's switches for what is always on here)."""


class BrokerSettings(Settings, frozen=True):
    """Every key of `rocketmq-broker -c FILE`."""

    # who this is
    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = ""
    """Empty: the host's name, as in Java."""
    broker_id: int = 0
    """Accepted because Java's files carry it; the controllers give the identity."""
    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"] = "ASYNC_MASTER"
    """Accepted because Java's files carry it; the controllers decide the role."""
    broker_ip1: str = msgspec.field(default="", name="brokerIP1")
    """Address that clients are told; empty: the one this host uses towards others."""
    broker_ip2: str = msgspec.field(default="", name="brokerIP2")
    """Address that slaves are told; empty: brokerIP1."""
    listen_port: Port = 10911
    """The VIP port is this one minus 2."""
    bind_address: str = "0.0.0.0"  # noqa: S104 - clients on other hosts must reach it
    """Address that both ports bind to."""
    ha_listen_port: Port = 0
    """The sidecar's replication port, told to slaves; 0: listenPort + 1."""
    namesrv_addr: str = ""
    """Name servers: `host:port;host:port`."""

    # registration
    register_name_server_period: Millis = 30_000
    """Clamped to 10 s .. 60 s, as in Java."""
    register_broker_timeout_mills: Millis = 24_000
    broker_permission: Annotated[int, msgspec.Meta(ge=0, le=7)] = 6
    """Bits: 4 read, 2 write."""

    # topics and requests
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    allow_long_group_names: bool = False
    """Groups whose names are longer than 120 characters (ours): an official broker that takes over a log with retries
    of such a group in it cannot load it."""
    default_topic_queue_nums: Count = 8
    trace_on: bool = True
    """Told to clients; whether they trace is their choice."""
    region_id: str = "DefaultRegion"
    long_polling_enable: bool = True
    short_polling_time_mills: Millis = 1000
    slave_read_enable: bool = False
    enable_property_filter: bool = False
    """Accepted; only tags are filtered here."""
    start_accept_send_request_time_stamp: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Milliseconds since 1970 before which sends are refused."""
    send_thread_pool_queue_capacity: Count = 10_000
    """Here: sends that may wait for their copies; above it SYSTEM_BUSY."""
    pull_thread_pool_queue_capacity: Count = 100_000
    """Here: pulls that may be held for new messages; above it they are answered at once."""
    flush_consumer_offset_interval: Millis = 5000
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

    # store
    store_path_root_dir: Annotated[str, msgspec.Meta(min_length=1)] = "~/store"
    store_path_commit_log: str = ""
    """Empty: `commitlog` in storePathRootDir."""
    mapped_file_size_commit_log: Annotated[int, msgspec.Meta(ge=4096, le=2**31 - 1)] = 1024 * 1024 * 1024
    """Equal on all replicas."""
    mapped_file_size_consume_queue: Annotated[int, msgspec.Meta(ge=20, le=2**31 - 1)] = 300_000 * 20
    """Bytes; rounded up to whole units of 20, as in Java."""
    max_message_size: Bytes = 4 * 1024 * 1024
    """Of a body; frames end at 16 MiB."""
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    flush_interval_commit_log: Millis = 500
    flush_interval_consume_queue: Millis = 1000
    sync_flush_timeout: Millis = 5000
    slave_timeout: Millis = 3000
    file_reserved_time: Annotated[int, msgspec.Meta(ge=1, le=87_600)] = 72
    """Hours."""
    delete_when: str = "04"
    """Hours of the day, `;` between them."""
    disk_max_used_space_ratio: Annotated[int, msgspec.Meta(ge=10, le=95)] = 75
    """Per cent."""
    disk_space_warning_level_ratio: Ratio = 0.9
    disk_space_clean_forcibly_ratio: Ratio = 0.85
    access_message_in_memory_max_ratio: Annotated[int, msgspec.Meta(ge=1, le=100)] = 40
    """Per cent of the machine's memory."""
    max_transfer_bytes_on_message_in_memory: Bytes = 256 * 1024
    max_transfer_count_on_message_in_memory: Count = 32
    max_transfer_bytes_on_message_in_disk: Bytes = 64 * 1024
    max_transfer_count_on_message_in_disk: Count = 8

    # durability
    durability: Literal["strict", "relaxed"] = "strict"
    """strict: a send is acknowledged when every member of the SyncStateSet, at least two, has it."""
    all_ack_in_sync_state_set: bool = False
    in_sync_replicas: Count = 1
    min_in_sync_replicas: Count = 1
    total_replicas: Count = 1

    # ours
    sidecar_socket_path: str = ""
    """Empty: `sidecar.sock` in storePathRootDir."""
    shutdown_wait_ms: Millis = 3000
    """How long a stopping broker waits for the sends that it has accepted."""
    max_connections: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 10_000
    rocketmq_home: str = ""
    """Accepted because Java's files carry it; nothing is read from there."""
    log_format: Literal["json", "console"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        try:
            encode_identity(BrokerIdentity(self.broker_cluster_name, self.name, 1))
        except IdentityError as error:
            raise ValueError(f"brokerClusterName or brokerName: {error}") from error
        for key, host in (("brokerIP1", self.broker_ip1), ("brokerIP2", self.broker_ip2)):
            if host and not _is_host(host):
                raise ValueError(f"{key}: {host!r} is neither an address nor a host's name; the port has its own key")
        for key, path in (
            ("storePathRootDir", self.store_path_root_dir),
            ("storePathCommitLog", self.store_path_commit_log),
            ("sidecarSocketPath", self.sidecar_socket_path),
        ):
            _check_path(key, path)
        if not self.region_id.isprintable():  # it becomes a property of every message
            raise ValueError(f"regionId: {self.region_id!r} has characters that do not print")
        if not 2 < self.listen_port < 65535:
            raise ValueError(
                f"listenPort={self.listen_port} leaves no room for the VIP port, {FAST_PORT_DISTANCE} below"
            )
        if self.ha_port in (self.listen_port, self.fast_port):
            raise ValueError(f"haListenPort={self.ha_port} is taken by listenPort={self.listen_port} or its VIP port")
        hours(self.delete_when)
        try:
            parse_levels(self.message_delay_level)
        except DelayLevelError as error:
            raise ValueError(f"messageDelayLevel: {error}") from error
        for address in self.name_servers:
            try:
                parse_address(address)
            except ValueError as error:
                raise ValueError(f"namesrvAddr: {error}") from error

    @property
    def name(self) -> str:
        """brokerName, or what stands for it."""
        return self.broker_name or socket.gethostname()

    @property
    def fast_port(self) -> int:
        return self.listen_port - FAST_PORT_DISTANCE

    @property
    def ha_port(self) -> int:
        return self.ha_listen_port or self.listen_port + 1

    @property
    def name_servers(self) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in self.namesrv_addr.split(";"))))

    @property
    def root(self) -> Path:
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_path(self) -> Path:
        return Path(self.store_path_commit_log).expanduser() if self.store_path_commit_log else self.root / "commitlog"

    @property
    def socket_path(self) -> Path:
        return Path(self.sidecar_socket_path).expanduser() if self.sidecar_socket_path else self.root / "sidecar.sock"

    @property
    def register_period(self) -> float:
        """Seconds."""
        return min(max(self.register_name_server_period, 10_000), 60_000) / 1000

    @property
    def copies_needed(self) -> int:
        """Replicas in sync without which a send is refused."""
        return max(2, self.min_in_sync_replicas) if self.durability == "strict" else self.min_in_sync_replicas

    @property
    def put_ok(self) -> Durability:
        """What PUT_OK promises; the sidecar's `AckRule` says the same of copies."""
        strict = self.durability == "strict"
        copies = 1 if not strict and not self.all_ack_in_sync_state_set else 2
        alone = max(copies, self.in_sync_replicas, self.min_in_sync_replicas) == 1
        return Durability(self.copies_needed, strict, alone and self.flush_disk_type == "ASYNC_FLUSH")


_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9._-]{1,255}", re.ASCII)
"""Of a host; what has no letter is an address, or a wrong one."""


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _NAME.fullmatch(text) is not None
    return True


def _check_path(key: str, text: str) -> None:
    if "\0" in text:
        raise ValueError(f"{key}: {text!r} can be no path")
    try:
        Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{key}: {text!r} begins with a user who is not known here") from error
