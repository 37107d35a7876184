"""The configuration file of a replica: one for both of its processes, in the keys of either engine."""

from collections.abc import Mapping
from typing import Final

import msgspec

from rocketmq_operator.domain.manifests.objects import PropertyValue, properties_text
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.schema.broker_group import ActingMaster

COMMIT_LOG_FILE_SIZE: Final = 256 * 1024 * 1024
"""mappedFileSizeCommitLog unless spec.config says otherwise when the group is made. It can never change, so it depends
on nothing that can: neither on the volume, which grows, nor on the version. Java's 1 GiB would leave a volume of a few
GiB no room to forget old files in; files of 256 MiB serve large ones as well."""

WITHOUT_ROLE: Final = 1_000_000
"""brokerId of the first official broker until it has a role: no controller counts that far."""

_ACTING: Final[Mapping[ActingMaster, Mapping[str, PropertyValue]]] = {
    "off": {},
    "reads": {"enableSlaveActingMaster": True},
    "readsAndEscape": {"enableSlaveActingMaster": True, "enableRemoteEscape": True},
}
"""Keys of both engines by spec.actingMaster. `off` writes none: a new operator restarts no replica for it."""


class Endpoints(msgspec.Struct, frozen=True):
    """Where the group finds others: `host:port;host:port`."""

    controller_addr: str
    """Empty: there are no controllers."""
    namesrv_addr: str


def broker_config(group: BrokerGroup, endpoints: Endpoints, ordinal: int) -> str:
    """The file of replica `ordinal`. What differs between pods is their priority, or without failover their role; their
    address comes from the environment."""
    return properties_text(_values(group, endpoints), _number(group), _priority(group, ordinal), _role(group, ordinal))


def config_base(group: BrokerGroup, endpoints: Endpoints) -> str:
    """Keys that are the same for all replicas, and whose change restarts them."""
    return properties_text(_values(group, endpoints), _number(group) if group.strict_locks else {})


def _values(group: BrokerGroup, endpoints: Endpoints) -> dict[str, PropertyValue]:
    spec = group.spec
    return {
        "mappedFileSizeCommitLog": COMMIT_LOG_FILE_SIZE,
        **_official_while_acting(group),
        **spec.config,
        **_ACTING[spec.acting_master],
        "brokerClusterName": group.cluster_name,
        "brokerName": group.broker_name,
        "namesrvAddr": endpoints.namesrv_addr,
        **({"controllerAddr": endpoints.controller_addr} if group.fails_over else {}),
        "enableControllerMode": group.fails_over,
        "listenPort": names.PORT_BROKER,
        "haListenPort": names.PORT_HA,
        "storePathRootDir": names.PATH_STORE,
        "storePathCommitLog": names.PATH_COMMIT_LOG if spec.storage.commit_log else f"{names.PATH_STORE}/commitlog",
        "storePathEpochFile": f"{names.PATH_STORE}/epochFileCheckpoint",
        "minInSyncReplicas": group.min_in_sync_replicas,
        "brokerHeartbeatInterval": spec.failover.heartbeat_interval_ms,
        "haMaxTimeSlaveNotCatchup": spec.failover.max_time_slave_not_catchup_ms,
        "brokerLeaseTimeoutMs": spec.failover.lease_timeout_ms,
        "brokerHangTimeoutMs": spec.failover.hang_timeout_ms,
        "metricsPromExporterPort": names.PORT_SIDECAR_METRICS,
        "sidecarGrpcPort": names.PORT_SIDECAR_GRPC,
        "durability": spec.durability,
        **(_apache(group) if spec.engine == "apache" else {"sidecarSocketPath": names.PATH_SOCKET}),
    }


def _official_while_acting(group: BrokerGroup) -> dict[str, PropertyValue]:
    """What an official broker needs to act. spec.config may say otherwise, as both keys do more than that.

    Without slaveReadEnable it refuses pulls; the key also lets consumers far behind read at slaves. Without
    timerEnableRetryUntilSuccess it tries timer messages that are due three times and drops them, whether they may
    escape or not; with it they wait, on a master too.
    Source: rocketmq-all-5.3.3: TimerMessageStore.java, EscapeBridge.java.
    """
    if not group.acts or group.spec.engine != "apache":
        return {}
    return {"slaveReadEnable": True, "timerEnableRetryUntilSuccess": True}


def _apache(group: BrokerGroup) -> dict[str, PropertyValue]:
    """Keys for the durability of an official broker, and the one that makes the sidecar observe it.

    The official broker reads the same file and skips what it does not know. Its start script adds brokerIP1.
    """
    all_acknowledge: dict[str, PropertyValue] = (
        {"allAckInSyncStateSet": True} if group.spec.durability == "strict" else {}
    )
    return {
        "brokerEngine": "apache",
        "storePathBrokerIdentity": f"{names.PATH_STORE}/brokerIdentity",
        **all_acknowledge,
    }


def _number(group: BrokerGroup) -> dict[str, PropertyValue]:
    """It only matters with lockInStrictMode: a lock needs the votes of more than half."""
    return {"totalReplicas": group.spec.replicas}


def _priority(group: BrokerGroup, ordinal: int) -> dict[str, PropertyValue]:
    priority = group.priority(ordinal)
    return {} if priority is None else {"brokerElectionPriority": priority}


def _role(group: BrokerGroup, ordinal: int) -> dict[str, PropertyValue]:
    """With failover the controllers decide it; without, the file. SYNC_MASTER, because an ASYNC_MASTER with durability
    relaxed ignores inSyncReplicas, allAckInSyncStateSet and minInSyncReplicas, which users may set; without them it is
    the same.

    An official broker has the id of the file until the controllers give it a role, and Java's default is the master's
    id, 0. A broker that restarts while they are away would take the place of the slave that acts for the master, and
    have it cut its log to its own end. So the id is neither 0 nor the lowest of a group.
    Source: rocketmq-all-5.3.3: BrokerPreOnlineService.java, ReplicasManager.java.
    """
    if not group.fails_over:
        return {"brokerId": ordinal, "brokerRole": "SLAVE" if ordinal else "SYNC_MASTER"}
    return {"brokerId": WITHOUT_ROLE + ordinal} if group.spec.engine == "apache" else {}
