"""RocketMQ keys that spec.config may not set, because a field of the resource or the operator itself decides them.

The same keys are refused by crds/*.yaml when a resource is written, so that nobody's setting is silently overruled;
tests/operator/test_crd_matches_spec.py holds both lists equal.
"""

from collections.abc import Mapping
from typing import Final

OPERATOR: Final = "the operator"

BROKER: Final[Mapping[str, str]] = {
    "bindAddress": OPERATOR,
    "brokerClusterName": "spec.clusterName",
    "brokerElectionPriority": "spec.priorities",
    "brokerEngine": "spec.engine",
    "brokerHangTimeoutMs": "spec.failover.hangTimeoutMs",
    "brokerHeartbeatInterval": "spec.failover.heartbeatIntervalMs",
    "brokerIP1": OPERATOR,
    "brokerIP2": OPERATOR,
    "brokerId": OPERATOR,
    "brokerLeaseTimeoutMs": "spec.failover.leaseTimeoutMs",
    "brokerName": "spec.brokerName",
    "brokerRole": OPERATOR,
    "controllerAddr": "spec.controllerRef or spec.controllerAddr",
    "controllerAddress": "spec.controllerRef or spec.controllerAddr",
    "durability": "spec.durability",
    "enableControllerMode": OPERATOR,
    "fetchControllerAddrByDnsLookup": OPERATOR,
    "fetchNamesrvAddrByAddressServer": OPERATOR,
    "haListenPort": OPERATOR,
    "haMaxTimeSlaveNotCatchup": "spec.failover.maxTimeSlaveNotCatchupMs",
    "listenPort": OPERATOR,
    "logFormat": OPERATOR,
    "metricsPromExporterHost": OPERATOR,
    "metricsPromExporterPort": OPERATOR,
    "minInSyncReplicas": "spec.minInSyncReplicas",
    "namesrvAddr": "spec.nameServerRef or spec.namesrvAddr",
    "sidecarGrpcPort": OPERATOR,
    "sidecarSocketPath": OPERATOR,
    "storePathBrokerIdentity": OPERATOR,
    "storePathCommitLog": OPERATOR,
    "storePathEpochFile": OPERATOR,
    "storePathRootDir": OPERATOR,
    "totalReplicas": "spec.replicas",
}
"""Key -> who sets it instead. A BrokerGroup's."""

BROKER_CREATION_ONLY: Final = frozenset({"mappedFileSizeCommitLog"})
"""May be set when a group is made and never changed: files of another size cannot be read."""

CONTROLLER: Final[Mapping[str, str]] = {
    "brokerSuspectTimeoutMs": "spec.tuning.brokerSuspectTimeoutMs",
    "configStorePath": OPERATOR,
    "controllerDLegerGroup": OPERATOR,
    "controllerDLegerPeers": OPERATOR,
    "controllerDLegerSelfId": OPERATOR,
    "controllerGrpcPort": OPERATOR,
    "controllerGrpcTlsCaFile": "spec.grpcTlsSecretName",
    "controllerGrpcTlsCertFile": "spec.grpcTlsSecretName",
    "controllerGrpcTlsKeyFile": "spec.grpcTlsSecretName",
    "controllerListenHost": OPERATOR,
    "controllerRaftPort": OPERATOR,
    "controllerRaftSecretFile": "spec.raftSecretName",
    "controllerStorePath": OPERATOR,
    "enableControllerInNamesrv": "spec.embeddedInNameServer",
    "enableElectUncleanMaster": "spec.tuning.enableElectUncleanMaster",
    "kvConfigPath": OPERATOR,
    "listenPort": OPERATOR,
    "bindAddress": OPERATOR,
    "logFormat": OPERATOR,
    "metricsPromExporterHost": OPERATOR,
    "metricsPromExporterPort": OPERATOR,
    "raftElectionTimeoutMs": "spec.tuning.raftElectionTimeoutMs",
    "raftHeartbeatIntervalMs": "spec.tuning.raftHeartbeatIntervalMs",
    "scanInactiveMasterInterval": "spec.tuning.scanInactiveMasterIntervalMs",
}
"""A ControllerCluster's; with embedded name servers their keys come beside the controllers'."""

NAME_SERVER: Final[Mapping[str, str]] = {
    "bindAddress": OPERATOR,
    "clusterTest": OPERATOR,
    "configStorePath": OPERATOR,
    "enableControllerInNamesrv": "a ControllerCluster with spec.embeddedInNameServer",
    "kvConfigPath": OPERATOR,
    "listenPort": OPERATOR,
    "logFormat": OPERATOR,
    "metricsPromExporterHost": OPERATOR,
    "metricsPromExporterPort": OPERATOR,
}
"""A NameServer's."""
