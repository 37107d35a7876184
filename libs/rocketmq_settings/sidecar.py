"""Keys of `rocketmq-sidecar` beside those of both halves, with Java's defaults where Java has them.

Source: rocketmq-all-5.3.3: BrokerConfig.java, MessageStoreConfig.java.
"""

from typing import Annotated, Final, Literal

import msgspec

from rocketmq_formats.remoting.controller import LONGEST_WRITE_LEASE_MS, MAX_ELECTION_PRIORITY
from rocketmq_settings.declare import OPERATOR, Millis, Port, key
from rocketmq_settings.replica import ReplicaKeys

Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Engine = Literal["native", "apache"]
ENGINE: Final = "native"
Priority = Annotated[int, msgspec.Meta(ge=0, le=MAX_ELECTION_PRIORITY)]

LeaseMillis = Annotated[int, msgspec.Meta(ge=200, le=9000, extra={"unit": "ms"})]
"""Less than controllerHeartBeatTimeoutMills, and long enough for four heartbeats."""
LEASE_MS: Final = 2000
HangMillis = Annotated[int, msgspec.Meta(ge=200, le=60_000, extra={"unit": "ms"})]
"""A healthy broker may take a tenth of a second to answer; one that takes a minute is of no service."""
HANG_MS: Final = 2000
NOT_CAUGHT_UP_MS: Final = 15_000
"""Milliseconds that a slave may lag."""

TLS_SECRET = "spec.grpcTlsSecretName"  # noqa: S105 - the name of a field


class SidecarKeys(ReplicaKeys, frozen=True):
    """Every key of `rocketmq-sidecar -c FILE`."""

    # Controllers
    controller_addr: Annotated[
        str,
        key(
            "All controllers, `host:port;host:port;host:port`; names are resolved at each connect.",
            default="required with enableControllerMode",
            set_by="spec.controllerRef or spec.controllerAddr",
        ),
    ] = ""
    controller_deployed_stand_alone: Annotated[
        bool,
        key("controllerAddr names the controllers, embedded in name servers or not.", without_effect=True),
    ] = False
    fetch_controller_addr_by_dns_lookup: Annotated[
        bool,
        key(
            "Write a name into controllerAddr: names are resolved at each connect.",
            without_effect=True,
            set_by=OPERATOR,
        ),
    ] = False
    sync_controller_metadata_period: Annotated[
        Millis,
        key(
            "The leading controller is looked for as soon as it does not answer, not at intervals.",
            without_effect=True,
        ),
    ] = 10_000
    broker_lease_timeout_ms: Annotated[
        LeaseMillis,
        key(
            "Duration of the [write lease](architecture.md#the-write-lease), less than controllerHeartBeatTimeoutMills "
            "and the controllers' brokerSuspectTimeoutMs, and at most "
            f"{LONGEST_WRITE_LEASE_MS} with durability=relaxed.",
            set_by="spec.failover.leaseTimeoutMs",
        ),
    ] = LEASE_MS
    broker_hang_timeout_ms: Annotated[
        HangMillis,
        key(
            "Time after which a broker that does not answer its sidecar counts as dead.",
            set_by="spec.failover.hangTimeoutMs",
        ),
    ] = HANG_MS
    controller_heart_beat_timeout_mills: Annotated[
        Millis,
        key(
            "Silence after which the controllers give this replica up; the lease and 0.1 s if that is less.",
        ),
    ] = 10_000
    sync_broker_metadata_period: Annotated[
        Millis, key("Time between two polls of a slave for the master, in addition to the controllers' notices.")
    ] = 5000
    broker_election_priority: Annotated[
        Priority,
        key("Of equal candidates the one with the lowest number is elected.", set_by="spec.priorities"),
    ] = MAX_ELECTION_PRIORITY

    # Files
    store_path_epoch_file: Annotated[
        str, key("The epoch file.", default="`epochFileCheckpoint` in storePathRootDir", set_by=OPERATOR, path=True)
    ] = ""
    store_path_broker_identity: Annotated[
        str,
        key(
            "A Java broker's identity, taken over if there is no `.broker.meta`.",
            default="`brokerIdentity` in storePathRootDir",
            set_by=OPERATOR,
            path=True,
        ),
    ] = ""

    # Replication
    ha_replication_secret_file: Annotated[
        str,
        key(
            "File with the secret of the group, at least 16 bytes: its replicas "
            "[authenticate each other](security.md#replication) with it, which official brokers cannot.",
            default="none",
            set_by="spec.replicationSecretName",
        ),
    ] = ""
    ha_replication_secret_required: Annotated[
        bool,
        key(
            "false also accepts replicas without the secret, while the secret is introduced in a running group.",
            set_by=OPERATOR,
            group_wide=True,
        ),
    ] = True
    enable_auto_in_sync_replicas: Annotated[
        bool, key("With durability=relaxed fewer replicas in sync lower inSyncReplicas.", group_wide=True)
    ] = False
    async_learner: Annotated[
        bool, key("This replica copies the log, never joins the SyncStateSet and is never elected.")
    ] = False
    sync_from_last_file: Annotated[bool, key("An empty slave begins with the master's last file.")] = False
    ha_max_time_slave_not_catchup: Annotated[
        Millis,
        key(
            "Time after which a slave that lags leaves the SyncStateSet.",
            set_by="spec.failover.maxTimeSlaveNotCatchupMs",
            group_wide=True,
        ),
    ] = NOT_CAUGHT_UP_MS
    ha_max_gap_not_in_sync: Annotated[
        int,
        msgspec.Meta(ge=0, le=2**63 - 1),
        key("haMaxTimeSlaveNotCatchup decides which slave lags, by time and not by bytes.", without_effect=True),
    ] = 256 * 1024 * 1024
    check_sync_state_set_period: Annotated[
        Millis,
        key("Time between two checks for slaves that lag; at most a third of haMaxTimeSlaveNotCatchup is used."),
    ] = 5000
    ha_send_heartbeat_interval: Annotated[Millis, key("Time between two heartbeats on an idle HA connection.")] = 5000
    ha_housekeeping_interval: Annotated[Millis, key("Silence that ends an HA connection.")] = 20_000
    ha_transfer_batch_size: Annotated[
        Bytes, key("Bytes of one batch to a slave that keeps up; a slave that is behind gets up to 1 MiB.")
    ] = 32 * 1024
    ha_flow_control_enable: Annotated[bool, key("maxHaTransferByteInSecond limits each slave.")] = False
    max_ha_transfer_byte_in_second: Annotated[Bytes, key("Bytes per second to one slave with haFlowControlEnable.")] = (
        100 * 1024 * 1024
    )

    # The process
    broker_engine: Annotated[
        Engine,
        key(
            "With apache the sidecar stands [beside an official broker](operations.md#beside-an-official-broker).",
            set_by="spec.engine",
        ),
    ] = ENGINE
    sidecar_grpc_port: Annotated[Port, key("Port of the gRPC API; 0 switches it off.", set_by=OPERATOR)] = 10920
    sidecar_grpc_tls_cert_file: Annotated[
        str,
        key("The server's certificate; with all three files gRPC runs mutual TLS.", default="none", set_by=TLS_SECRET),
    ] = ""
    sidecar_grpc_tls_key_file: Annotated[str, key("Its private key.", default="none", set_by=TLS_SECRET)] = ""
    sidecar_grpc_tls_ca_file: Annotated[
        str, key("Authority that signs the clients' certificates.", default="none", set_by=TLS_SECRET)
    ] = ""
    verify_max_bytes_per_second: Annotated[
        int,
        msgspec.Meta(ge=1_000_000, le=2**40),
        key("Speed at which the log is read for the verification, and again for the comparison with the master."),
    ] = 100_000_000
    metrics_prom_exporter_port: Annotated[
        Port, key("Port of /metrics, /healthz, /readyz and /livez/broker; 0 switches it off.", set_by=OPERATOR)
    ] = 5558
    metrics_prom_exporter_host: Annotated[str, key("Address of that port.", default="bindAddress", set_by=OPERATOR)] = (
        ""
    )
