"""Keys that both halves of a replica read, broker and sidecar, from one file or from two with the same values.

Source: rocketmq-all-5.3.3: BrokerConfig.java, BrokerIdentity.java, MessageStoreConfig.java.
"""

from typing import Annotated, Final, Literal

import msgspec

from rocketmq_settings.declare import HOME, OPERATOR, Count, LogFormat, LogLevel, Millis, NonEmpty, Port, Settings, key

FAST_PORT_DISTANCE: Final = 2
"""The VIP port is listenPort - 2: Java slaves fetch topics and timers there."""

DEFAULT_CLUSTER: Final = "DefaultCluster"
Durability = Literal["strict", "relaxed"]
DURABILITY: Final = "strict"

NOT_ACTIVE_MILLIS: Final = 10_000
"""Java's default of brokerNotActiveTimeoutMillis."""

JAVA_SWITCHES: Final = frozenset(
    {
        "haMasterAddress",
        "haListenHost",
        "leaseTimeout",
        "leaseTimeoutMs",
        "timerEnableRetryUntilSuccess",
    }
)
"""Keys of Java, for controllers or acting masters, that neither half reads: what they switch is always on here, or has
no counterpart."""


class ReplicaKeys(Settings, frozen=True):
    """What both halves must agree on."""

    broker_cluster_name: Annotated[
        str, key("Cluster of the group, equal on all replicas.", set_by="spec.clusterName")
    ] = DEFAULT_CLUSTER
    broker_name: Annotated[
        str,
        key(
            "Name of the group, equal on all replicas.",
            default="the host's name",
            set_by="spec.brokerName",
        ),
    ] = ""
    broker_ip1: Annotated[
        str,
        key(
            "Address that clients and controllers use; of several, `10.0.0.7,fd00::7`, the one of brokerIPFamily.",
            default="this host's own address",
            set_by=OPERATOR,
        ),
    ] = msgspec.field(default="", name="brokerIP1")
    broker_ip_family: Annotated[
        Literal["", "IPv4", "IPv6"],
        key(
            "Which of several addresses in brokerIP1 counts: the first of this family, else the first.",
            default="the first",
            set_by=OPERATOR,
        ),
    ] = msgspec.field(default="", name="brokerIPFamily")
    broker_ip2: Annotated[str, key("Address that slaves use.", default="brokerIP1", set_by=OPERATOR)] = msgspec.field(
        default="", name="brokerIP2"
    )
    listen_port: Annotated[Port, key("The broker's port for clients; its VIP port is 2 below.", set_by=OPERATOR)] = (
        10911
    )
    ha_listen_port: Annotated[
        Port, key("The sidecar's port for replication.", default="listenPort + 1", set_by=OPERATOR)
    ] = 0
    bind_address: Annotated[
        str, key("Address that the ports bind to; 0.0.0.0 and :: are all, of IPv4 and IPv6.", set_by=OPERATOR)
    ] = "0.0.0.0"  # noqa: S104 - others must reach it
    enable_controller_mode: Annotated[
        bool,
        key(
            "With false brokerId and brokerRole say which replica is master: [there are no elections](architecture.md"
            "#a-group-without-controllers).",
            set_by="spec.failover.mode",
            group_wide=True,
        ),
    ] = True
    broker_id: Annotated[
        int,
        key(
            "With enableControllerMode=false 0 for the master and another number for each slave; else the controllers "
            "give it.",
            set_by=OPERATOR,
        ),
    ] = 0
    broker_role: Annotated[
        Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"],
        key(
            "With enableControllerMode=false SLAVE for all except brokerId 0, whose value says "
            "[what PUT_OK promises](architecture.md#a-group-without-controllers); else the controllers decide it.",
            set_by=OPERATOR,
        ),
    ] = "ASYNC_MASTER"
    namesrv_addr: Annotated[
        str,
        key(
            "Name servers, `host:port;host:port`; the broker registers with all of them.",
            default="none",
            set_by="spec.nameServerRef or spec.namesrvAddr",
        ),
    ] = ""
    broker_heartbeat_interval: Annotated[
        Millis,
        key(
            "Time between two heartbeats to the controllers (at most a quarter of the lease) and to the name servers "
            "(at most a third of brokerNotActiveTimeoutMillis).",
            set_by="spec.failover.heartbeatIntervalMs",
        ),
    ] = 1000
    broker_not_active_timeout_millis: Annotated[
        int,
        msgspec.Meta(ge=0, le=86_400_000, extra={"unit": "ms"}),
        key(
            "Silence after which a name server forgets this broker, and a slave does not count on its master (there at "
            "least two haSendHeartbeatInterval). If set, name servers always get heartbeats.",
            default="10000 ms; for the name servers without enableSlaveActingMaster their 120000 ms",
        ),
    ] = 0
    store_path_root_dir: Annotated[NonEmpty, key("Folder of this replica's files.", set_by=OPERATOR, path=True)] = (
        "~/store"
    )
    store_path_commit_log: Annotated[
        str, key("Folder of the commit log.", default="`commitlog` in storePathRootDir", set_by=OPERATOR, path=True)
    ] = ""
    sidecar_socket_path: Annotated[
        str,
        key(
            "Socket between broker and sidecar.",
            default="`sidecar.sock` in storePathRootDir",
            set_by=OPERATOR,
            path=True,
        ),
    ] = ""
    mapped_file_size_commit_log: Annotated[
        int,
        msgspec.Meta(ge=4096, le=2**31 - 1),
        key("Bytes of one file of the commit log; it can never change.", creation_only=True, group_wide=True),
    ] = 1024 * 1024 * 1024
    flush_disk_type: Annotated[
        Literal["ASYNC_FLUSH", "SYNC_FLUSH"],
        key("With SYNC_FLUSH a message counts on a replica once it is on its disk.", group_wide=True),
    ] = "ASYNC_FLUSH"
    durability: Annotated[
        Durability,
        key(
            "With strict a send is acknowledged when every member of the SyncStateSet, at least two, has it.",
            set_by="spec.durability",
            group_wide=True,
        ),
    ] = DURABILITY
    all_ack_in_sync_state_set: Annotated[
        bool, key("With durability=relaxed a send waits for every member of the SyncStateSet.", group_wide=True)
    ] = False
    in_sync_replicas: Annotated[
        Count,
        key("With durability=relaxed a send waits for this number of replicas.", group_wide=True, zero_is_one=True),
    ] = 1
    min_in_sync_replicas: Annotated[
        Count,
        key(
            "With fewer replicas in sync sends are refused; durability=strict needs at least 2.",
            set_by="spec.minInSyncReplicas",
            group_wide=True,
            zero_is_one=True,
        ),
    ] = 1
    rocketmq_home: Annotated[str, HOME] = ""
    log_format: Annotated[LogFormat, key("Format of the log lines.", set_by=OPERATOR)] = "console"
    log_level: Annotated[LogLevel, key("Least important level that is logged.")] = "info"

    @property
    def waits_for_no_copies(self) -> bool:
        """Java's ASYNC_MASTER: the other keys about copies do not count."""
        return not self.enable_controller_mode and self.broker_role == "ASYNC_MASTER" and self.durability == "relaxed"


def check_fixed_role(keys: ReplicaKeys) -> None:
    """Without controllers the id must fit the role.

    Raises:
        ValueError: it does not.
    """
    fits = keys.broker_id == 0 if keys.broker_role != "SLAVE" else 0 < keys.broker_id < 2**31
    if keys.enable_controller_mode or fits:
        return
    advice = "a slave has a brokerId of its own, from 1" if keys.broker_role == "SLAVE" else "the master has brokerId 0"
    raise ValueError(f"brokerId={keys.broker_id} with brokerRole={keys.broker_role}: {advice}")
