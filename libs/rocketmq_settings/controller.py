"""Keys of `rocketmq-controller`, with Java's defaults where Java has them.

Port 9878 has no passwords, so updateControllerConfig changes only the keys with `change`; who the members are, what
they trust, where they listen and keep files, Raft's timing and bounds are for those who may change the machine's files.
Source: rocketmq-all-5.3.3: ControllerConfig.java.
"""

from typing import Annotated, Final, Literal

import msgspec

from rocketmq_settings.declare import (
    CONNECTIONS,
    HOME,
    OPERATOR,
    Connections,
    LogFormat,
    LogLevel,
    Millis,
    Port,
    Settings,
    key,
)

SuspectMillis = Annotated[int, msgspec.Meta(ge=300, le=600_000, extra={"unit": "ms"})]
"""A replica sends heartbeats every second: less would take each late one for a death."""
SUSPECT_MS: Final = 3000
ScanMillis = Annotated[int, msgspec.Meta(ge=100, le=600_000, extra={"unit": "ms"})]
"""A scan reads all groups."""
SCAN_MS: Final = 5000
RaftHeartbeatMillis = Annotated[int, msgspec.Meta(ge=10, le=10_000, extra={"unit": "ms"})]
RAFT_HEARTBEAT_MS: Final = 30
ElectionMillis = Annotated[int, msgspec.Meta(ge=100, le=60_000, extra={"unit": "ms"})]
ELECTION_MS: Final = 120
LONGEST_ELECTION_MS: Final = 3000
"""Milliseconds that the election time-out grows to while members are held up."""

TLS_SECRET: Final = "spec.grpcTlsSecretName"  # noqa: S105 - the name of a field


class ControllerKeys(Settings, frozen=True):
    """Every key of `rocketmq-controller -c FILE`."""

    # Members
    controller_d_leger_peers: Annotated[
        str,
        key(
            "All members, `n0-host:port;n1-host:port;n2-host:port`: 1, 3 or 5, at most 15; "
            "once they have been [changed](operations.md#controllers-changing-the-members), the log counts instead.",
            default="required",
            set_by=OPERATOR,
        ),
    ] = ""
    controller_d_leger_self_id: Annotated[
        str, key("Which of the members this process is.", default="required", set_by=OPERATOR)
    ] = ""
    controller_d_leger_group: Annotated[
        str, key("Name of the quorum.", default="DefaultControllerGroup", set_by=OPERATOR)
    ] = ""
    controller_join: Annotated[
        bool,
        key(
            "This member joins a quorum that exists: its new store never begins one, and controllerDLegerPeers may "
            "name an even number."
        ),
    ] = False
    controller_raft_secret_file: Annotated[
        str,
        key(
            "File with the secret that all members share, at least 16 bytes, which only the process's user or group "
            "can read.",
            default="required",
            set_by="spec.raftSecretName",
        ),
    ] = ""

    # Ports and files
    controller_listen_host: Annotated[
        str,
        key(
            "Address that the remoting, Raft and gRPC ports bind to; 0.0.0.0 and :: are all, of IPv4 and IPv6.",
            set_by=OPERATOR,
        ),
    ] = "0.0.0.0"  # noqa: S104 - brokers on other hosts must reach it
    controller_raft_port: Annotated[
        Port,
        key(
            "Port of Raft, at [the same distance](#ports-of-the-members) from the remoting port at all members.",
            default="remoting port + 1",
            set_by=OPERATOR,
        ),
    ] = 0
    controller_grpc_port: Annotated[
        Port,
        key(
            "Port of the gRPC API, at [the same distance](#ports-of-the-members) from the remoting port at all "
            "members.",
            default="remoting port + 2",
            set_by=OPERATOR,
        ),
    ] = 0
    controller_grpc_tls_cert_file: Annotated[
        str,
        key("The server's certificate; with all three files gRPC runs mutual TLS.", default="none", set_by=TLS_SECRET),
    ] = ""
    controller_grpc_tls_key_file: Annotated[str, key("Its private key.", default="none", set_by=TLS_SECRET)] = ""
    controller_grpc_tls_ca_file: Annotated[
        str, key("Authority that signs the clients' certificates.", default="none", set_by=TLS_SECRET)
    ] = ""
    controller_store_path: Annotated[
        str, key("Folder of this member's journal, vote and snapshots.", set_by=OPERATOR, path=True)
    ] = "~/DLedgerController"
    config_store_path: Annotated[
        str,
        key(
            "File in which updateControllerConfig keeps its changes.",
            default="`controller.properties` in controllerStorePath",
            set_by=OPERATOR,
            path=True,
        ),
    ] = ""
    config_black_list: Annotated[str, key("Keys that updateControllerConfig refuses, with `;` between them.")] = (
        "configBlackList;configStorePath"
    )
    metrics_prom_exporter_port: Annotated[
        Port, key("Port of /metrics, /healthz and /readyz; 0 switches it off.", set_by=OPERATOR)
    ] = 5557
    metrics_prom_exporter_host: Annotated[
        str, key("Address of that port.", default="controllerListenHost", set_by=OPERATOR)
    ] = ""
    metrics_label: Annotated[
        str, key("More labels for all metrics, `k:v,k:v`.", default="none", change="next start")
    ] = ""

    # Brokers and elections
    broker_suspect_timeout_ms: Annotated[
        SuspectMillis,
        key(
            "Silence after which a broker that sends a heartbeat each second is suspected.",
            set_by="spec.tuning.brokerSuspectTimeoutMs",
            change="at once",
        ),
    ] = SUSPECT_MS
    scan_inactive_master_interval: Annotated[
        ScanMillis,
        key(
            "Time between two scans for groups whose master is dead, the safety net behind the events.",
            set_by="spec.tuning.scanInactiveMasterIntervalMs",
            change="at once",
        ),
    ] = SCAN_MS
    elect_master_max_retry_count: Annotated[
        int,
        msgspec.Meta(ge=1, le=100),
        key("Attempts of one election before it is left to the scan.", change="at once"),
    ] = 3
    enable_elect_unclean_master: Annotated[
        bool,
        key(
            "Elects a replica outside the SyncStateSet when no member of it lives: this loses messages.",
            set_by="spec.tuning.enableElectUncleanMaster",
        ),
    ] = False
    notify_broker_role_changed: Annotated[
        bool, key("Brokers are notified of a new master instead of waiting for their poll.", change="at once")
    ] = True
    is_process_read_event: Annotated[
        bool,
        key(
            "Each read proves the leadership by a round through the quorum; without it the leader's lease does.",
            change="at once",
        ),
    ] = False
    max_broker_groups: Annotated[
        int,
        msgspec.Meta(ge=1, le=1_000_000),
        key(
            "Broker groups, cleaned ones included (10,000 take 17 MB); brokers of more groups get no brokerId. "
            "One host may register [half of them at most](security.md#groups-and-members).",
        ),
    ] = 20_000
    max_connections: Annotated[
        Connections,
        key(
            "Remoting connections; a new one above it replaces a silent one of the host with the most, "
            "or is refused if that is its own host."
        ),
    ] = CONNECTIONS

    # Raft
    raft_heartbeat_interval_ms: Annotated[
        RaftHeartbeatMillis,
        key("Time between two heartbeats of the leader.", set_by="spec.tuning.raftHeartbeatIntervalMs"),
    ] = RAFT_HEARTBEAT_MS
    raft_election_timeout_ms: Annotated[
        ElectionMillis,
        key(
            "The shortest election timeout, while no member is held up; more than three times raftHeartbeatIntervalMs.",
            set_by="spec.tuning.raftElectionTimeoutMs",
        ),
    ] = ELECTION_MS
    raft_election_timeout_max_ms: Annotated[
        Millis,
        key(
            "The longest election timeout, [for members that are held up]"
            "(architecture.md#election-time-outs-and-leases) by too little processor, slow disks or a slow network."
        ),
    ] = LONGEST_ELECTION_MS
    raft_snapshot_entries: Annotated[int, msgspec.Meta(ge=100), key("Entries of the log between two snapshots.")] = (
        10_000
    )

    # The process
    log_format: Annotated[LogFormat, key("Format of the log lines.", set_by=OPERATOR, change="next start")] = "console"
    log_level: Annotated[LogLevel, key("Least important level that is logged.", change="at once")] = "info"

    # For Java's files
    controller_type: Annotated[Literal["DLedger"], key("There is one kind of quorum.", without_effect=True)] = "DLedger"
    rocketmq_home: Annotated[str, HOME] = ""
    scan_not_active_broker_interval: Annotated[
        Millis,
        key("Silent brokers are detected ten times a second.", without_effect=True, change="next start"),
    ] = 5000
