"""What the API server must refuse, and with which words: tables for test_crds.py.

Every rule of crds/*.yaml is broken by at least one case; tests/operator/resources/test_crds.py counts.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rocketmq_resources import names

Spec = dict[str, Any]  # JSON

LEAST: Mapping[names.Kind, Spec] = {
    "BrokerGroup": {"controllerRef": {"name": "main"}},
    "ControllerCluster": {},
    "NameServer": {},
}
"""What has to be written of each kind."""


class Refused(NamedTuple):
    """`change` of a least resource (None takes a field away), or of the resource that `before` makes, is refused, and
    `because` is in the answer."""

    kind: names.Kind
    change: Spec
    because: str
    before: Spec | None = None
    name: str = "case"


STRUCTURE = (
    Refused("BrokerGroup", {"engine": "java"}, 'supported values: "native", "apache"'),
    Refused("BrokerGroup", {"replicas": 0}, "should be greater than or equal to 1"),
    Refused("BrokerGroup", {"replicas": 10}, "should be less than or equal to 9"),
    Refused("BrokerGroup", {"replicas": "3"}, "must be of type integer"),
    Refused("BrokerGroup", {"durability": "some"}, 'supported values: "strict", "relaxed"'),
    Refused("BrokerGroup", {"actingMaster": "writes"}, 'supported values: "off", "reads", "readsAndEscape"'),
    Refused("BrokerGroup", {"actingMaster": False}, "must be of type string"),
    Refused("BrokerGroup", {"updateStrategy": "x"}, 'supported values: "supervised", "unsupervised"'),
    Refused("BrokerGroup", {"brokerName": "a#b"}, "spec.brokerName in body should match"),
    Refused("BrokerGroup", {"clusterName": ""}, "spec.clusterName in body should be at least 1 chars long"),
    Refused("BrokerGroup", {"storage": {"size": "10 Gi"}}, "spec.storage.size in body should match"),
    Refused("BrokerGroup", {"storage": {"size": "0"}}, "spec.storage.size in body should match"),
    Refused("BrokerGroup", {"storage": {"reclaimPolicy": "Recycle"}}, 'supported values: "Retain", "Delete"'),
    Refused("BrokerGroup", {"storage": {"commitLog": {}}}, "spec.storage.commitLog.size: Required value"),
    Refused("BrokerGroup", {"image": {"pullPolicy": "Now"}}, 'supported values: "Always", "IfNotPresent", "Never"'),
    Refused("BrokerGroup", {"image": {"pullSecrets": ["a", "a"]}}, "Duplicate value"),
    Refused("BrokerGroup", {"controllerRef": {"name": None}}, "spec.controllerRef.name: Required value"),
    Refused("BrokerGroup", {"controllerRef": None, "controllerAddr": "h"}, "spec.controllerAddr in body should match"),
    Refused("BrokerGroup", {"controllerGrpcAddr": "h:0"}, "spec.controllerGrpcAddr in body should match"),
    Refused("BrokerGroup", {"namesrvAddr": "h:1;h:65536"}, "spec.namesrvAddr in body should match"),
    Refused("BrokerGroup", {"namesrvAddr": "n:9876;"}, "spec.namesrvAddr in body should match"),
    Refused("BrokerGroup", {"config": {"fileReservedTime": 48}}, "must be of type string"),
    Refused("BrokerGroup", {"config": {"fileReservedTime": "1\n2"}}, "should match"),
    Refused("BrokerGroup", {"failover": {"leaseTimeoutMs": 10_000}}, "should be less than or equal to 9000"),
    Refused("BrokerGroup", {"failover": {"heartbeatIntervalMs": 1}}, "should be greater than or equal to 50"),
    Refused("BrokerGroup", {"failover": {"mode": "manual"}}, 'supported values: "automatic", "none"'),
    Refused("BrokerGroup", {"priorities": [-1]}, "should be greater than or equal to 0"),
    Refused("BrokerGroup", {"priorities": list(range(10))}, "must have at most 9 items"),
    Refused("BrokerGroup", {"engine": "apache", "jvm": {"heap": "2"}}, "spec.jvm.heap in body should match"),
    Refused("BrokerGroup", {"engine": "apache", "jvm": {"options": ["x"]}}, "spec.jvm.options[0] in body should match"),
    Refused("BrokerGroup", {"resources": {"broker": {"limits": {"memory": "much"}}}}, "should match"),
    Refused("BrokerGroup", {"scheduling": {"antiAffinity": "hard"}}, '"preferred", "required", "none"'),
    Refused("BrokerGroup", {"scheduling": {"tolerations": [{"effect": "Never"}]}}, '"NoSchedule"'),
    Refused("BrokerGroup", {"scheduling": {"topologySpreadConstraints": [{}]}}, "maxSkew: Required value"),
    Refused("BrokerGroup", {"podTemplate": {"env": [{"value": "x"}]}}, "name: Required value"),
    Refused("BrokerGroup", {"podTemplate": {"env": [{"name": "A"}, {"name": "A"}]}}, "Duplicate value"),
    Refused("BrokerGroup", {"verification": {}}, "spec.verification.schedule: Required value"),
    Refused("BrokerGroup", {"verification": {"schedule": "daily"}}, "spec.verification.schedule in body should match"),
    Refused(
        "BrokerGroup",
        {"verification": {"schedule": "@daily", "rereadDays": 366}},
        "should be less than or equal to 365",
    ),
    Refused(
        "BrokerGroup", {"verification": {"schedule": "@daily", "chunkSize": "3Mi"}}, "chunkSize in body should match"
    ),
    Refused("BrokerGroup", {"verification": {"schedule": "@daily", "executors": 65}}, "less than or equal to 64"),
    Refused(
        "BrokerGroup", {"verification": {"schedule": "@daily", "timeoutSeconds": 5}}, "greater than or equal to 60"
    ),
    *(
        refused
        for kind in LEAST
        for refused in (
            Refused(kind, {"service": {"ipFamilyPolicy": "DualStack"}}, '"SingleStack", "PreferDualStack"'),
            Refused(kind, {"service": {"ipFamilies": ["ipv6"]}}, 'supported values: "IPv4", "IPv6"'),
            Refused(kind, {"service": {"ipFamilies": []}}, "should have at least 1 items"),
            Refused(kind, {"service": {"ipFamilies": ["IPv4", "IPv6", "IPv4"]}}, "must have at most 2 items"),
        )
    ),
    Refused("ControllerCluster", {"members": 1}, "should be greater than or equal to 3"),
    Refused("ControllerCluster", {"members": 7}, "should be less than or equal to 5"),
    Refused("ControllerCluster", {"tuning": {"brokerSuspectTimeoutMs": 1}}, "should be greater than or equal to 300"),
    Refused("NameServer", {"replicas": 0}, "should be greater than or equal to 1"),
)
"""Types, bounds, enums, patterns."""

_DAILY = {"schedule": "@daily"}
_ALONE = {"controllerRef": None, "nameServerRef": {"name": "main"}, "failover": {"mode": "none"}}
_ELECTED = {"controllerRef": {"name": "main"}, "failover": None}
_NAME = "beginning with a letter and ending with a letter or digit"
_BOTH = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}

RULES = (
    Refused("BrokerGroup", {}, "metadata.name: at most 50", name="x" * 51),
    Refused("BrokerGroup", {}, _NAME, name="1a"),
    Refused("BrokerGroup", {}, _NAME, name="a.b"),
    Refused("BrokerGroup", {}, "must not end in -controller, -namesrv or -verify", name="main-controller"),
    Refused("BrokerGroup", {}, "must not end in -controller, -namesrv or -verify", name="main-namesrv"),
    Refused("BrokerGroup", {}, "must not end in -controller, -namesrv or -verify", name="main-verify"),
    Refused(
        "BrokerGroup", {"verification": _DAILY}, "spec.verification needs a metadata.name of at most 40", name="x" * 41
    ),
    Refused("BrokerGroup", {"verification": {**_DAILY, "rateLimit": "999k"}}, "rateLimit is at least 1M"),
    Refused("BrokerGroup", {"verification": {**_DAILY, "history": {}}}, "set either path or storage"),
    Refused("BrokerGroup", {"verification": {**_DAILY, "executors": 0, "maxExecutors": 2}}, "needs executors to be at"),
    Refused("BrokerGroup", {"verification": {**_DAILY, "executors": 3, "maxExecutors": 2}}, "needs executors to be at"),
    Refused(
        "BrokerGroup",
        {"verification": {**_DAILY, "history": {"path": "s3a://b/h", "storage": {}}}},
        "set either path or storage",
    ),
    Refused(
        "BrokerGroup",
        {"verification": {**_DAILY, "resources": {"driver": {"limits": {"memory": "1023Mi"}}}}},
        "memory is at least 1Gi",
    ),
    Refused(
        "BrokerGroup",
        {"verification": {**_DAILY, "resources": {"executor": {"requests": {"memory": 2147483648}}}}},
        "memory is at least 1Gi, with a unit",
    ),
    Refused(
        "BrokerGroup",
        {"verification": {**_DAILY, "history": {"storage": {"storageClassName": "fast"}}}},
        "storageClassName cannot change: remove history",
        before={"verification": {**_DAILY, "history": {"storage": {}}}},
    ),
    Refused(
        "BrokerGroup",
        {"verification": {**_DAILY, "history": {"storage": {"size": "1Gi"}}}},
        "size cannot shrink",
        before={"verification": {**_DAILY, "history": {"storage": {"size": "2Gi"}}}},
    ),
    Refused("BrokerGroup", {"controllerAddr": "c:9878", "namesrvAddr": "n:9876"}, "set either controllerRef"),
    Refused("BrokerGroup", {"controllerRef": None, "namesrvAddr": "n:9876"}, "set either controllerRef"),
    Refused("BrokerGroup", {"controllerGrpcAddr": "c:9880"}, "controllerGrpcAddr goes with controllerAddr"),
    Refused(
        "BrokerGroup",
        {"nameServerRef": {"name": "main"}, "namesrvAddr": "n:9876"},
        "set nameServerRef or namesrvAddr, not both",
    ),
    Refused(
        "BrokerGroup",
        {"controllerRef": None, "controllerAddr": "c:9878"},
        "only a ControllerCluster can host the name servers",
    ),
    Refused("BrokerGroup", {"failover": {"mode": "none"}}, "failover.mode none has no controllers"),
    Refused("BrokerGroup", {**_ALONE, "controllerAddr": "c:9878"}, "failover.mode none has no controllers"),
    Refused("BrokerGroup", {**_ALONE, "nameServerRef": None}, "only a ControllerCluster can host the name servers"),
    Refused("BrokerGroup", {**_ALONE, "engine": "apache"}, "failover.mode none is for engine native"),
    Refused("BrokerGroup", _ALONE, "failover.mode cannot change", before={}),
    Refused("BrokerGroup", _ELECTED, "failover.mode cannot change", before=_ALONE),
    Refused("BrokerGroup", {**_ELECTED, "failover": {"mode": "automatic"}}, "failover.mode cannot", before=_ALONE),
    Refused("BrokerGroup", {"durability": "relaxed", "failover": {"leaseTimeoutMs": 4762}}, "must be at most 4761"),
    Refused("BrokerGroup", {"replicas": 1}, "durability strict acknowledges only what two replicas have"),
    Refused("BrokerGroup", {"minInSyncReplicas": 4}, "minInSyncReplicas must not be more than replicas"),
    Refused("BrokerGroup", {"minInSyncReplicas": 1}, "minInSyncReplicas is at least 2 with durability strict"),
    Refused("BrokerGroup", {"priorities": [1, 2, 3, 4]}, "priorities must not be longer than replicas"),
    Refused("BrokerGroup", {"config": {"allAckInSyncStateSet": "true"}}, "which always implies it"),
    Refused(
        "BrokerGroup",
        {"engine": "apache", "config": {"lockInStrictMode": "true"}},
        "config.lockInStrictMode needs actingMaster: reads",
    ),
    Refused(
        "BrokerGroup",
        {"engine": "apache", "config": {"enableBuildConsumeQueueConcurrently": "true"}},
        "config.enableBuildConsumeQueueConcurrently must not be true with engine apache",
    ),
    Refused("BrokerGroup", {"config": {"enableRemoteEscape": "true"}}, "set spec.actingMaster instead"),
    Refused("BrokerGroup", {"jvm": {"heap": "2g"}}, "jvm is for engine apache"),
    Refused("BrokerGroup", {"config": {"file-reserved": "1"}}, "config: a key is letters and digits"),
    Refused("BrokerGroup", {"podTemplate": {"labels": {"app.kubernetes.io/name": "x"}}}, "labels that begin with"),
    Refused("BrokerGroup", {"podTemplate": {"labels": {"rocketmq-ha.io/group": "x"}}}, "labels that begin with"),
    Refused("BrokerGroup", {"podTemplate": {"annotations": {"rocketmq-ha.io/a": "x"}}}, "annotations that begin"),
    Refused("BrokerGroup", {"podTemplate": {"env": [{"name": "ROCKETMQ_BROKERIP1"}]}}, "would overrule"),
    Refused("BrokerGroup", {"podTemplate": {"env": [{"name": "POD_NAME"}]}}, "would overrule"),
    Refused("BrokerGroup", {"engine": "apache"}, "engine cannot change", before={}),
    Refused("BrokerGroup", {"clusterName": "Other"}, "clusterName cannot change", before={}),
    Refused("BrokerGroup", {"brokerName": "b"}, "brokerName cannot change", before={"brokerName": "a"}),
    Refused("BrokerGroup", {"brokerName": "case"}, "brokerName cannot change", before={}),
    Refused("BrokerGroup", {"brokerName": None}, "brokerName cannot change", before={"brokerName": "a"}),
    Refused("BrokerGroup", {"storage": {"size": "9Gi"}}, "size cannot shrink", before={}),
    Refused("BrokerGroup", {"storage": {"size": "1023Mi"}}, "size cannot shrink", before={"storage": {"size": "1Gi"}}),
    Refused("BrokerGroup", {"storage": {"storageClassName": "fast"}}, "storageClassName cannot change", before={}),
    Refused(
        "BrokerGroup",
        {"storage": {"storageClassName": None}},
        "storageClassName cannot change",
        before={"storage": {"storageClassName": "fast"}},
    ),
    Refused("BrokerGroup", {"storage": {"commitLog": {"size": "1Gi"}}}, "commitLog cannot be added", before={}),
    Refused(
        "BrokerGroup",
        {"storage": {"commitLog": None}},
        "commitLog cannot be added or removed",
        before={"storage": {"commitLog": {"size": "2Gi"}}},
    ),
    Refused(
        "BrokerGroup",
        {"storage": {"commitLog": {"size": "1Gi"}}},
        "size cannot shrink",
        before={"storage": {"commitLog": {"size": "2Gi"}}},
    ),
    Refused(
        "BrokerGroup",
        {"storage": {"commitLog": {"storageClassName": "fast"}}},
        "storageClassName cannot change",
        before={"storage": {"commitLog": {"size": "2Gi"}}},
    ),
    Refused(
        "BrokerGroup",
        {"config": {"mappedFileSizeCommitLog": "1048576"}},
        "config.mappedFileSizeCommitLog cannot change",
        before={},
    ),
    Refused(
        "BrokerGroup",
        {"config": {"mappedFileSizeCommitLog": "2097152"}},
        "config.mappedFileSizeCommitLog cannot change",
        before={"config": {"mappedFileSizeCommitLog": "1048576"}},
    ),
    Refused(
        "BrokerGroup",
        {"config": {"mappedFileSizeCommitLog": None}},
        "config.mappedFileSizeCommitLog cannot change",
        before={"config": {"mappedFileSizeCommitLog": "1048576"}},
    ),
    Refused(
        "BrokerGroup",
        {"config": None},
        "config.mappedFileSizeCommitLog cannot change",
        before={"config": {"mappedFileSizeCommitLog": "1048576"}},
    ),
    Refused("BrokerGroup", {"replicationSecretName": "mine"}, "replicationSecretName cannot change", before={}),
    Refused(
        "BrokerGroup",
        {"engine": "apache", "replicationSecretName": "mine"},
        "replicationSecretName is for engine native",
    ),
    *(
        refused
        for kind in LEAST
        for refused in (
            Refused(kind, {"service": {**_BOTH, "ipFamilyPolicy": None}}, "two ipFamilies need ipFamilyPolicy"),
            Refused(kind, {"service": {**_BOTH, "ipFamilyPolicy": "SingleStack"}}, "two ipFamilies need"),
            Refused(kind, {"service": {**_BOTH, "ipFamilies": ["IPv6", "IPv6"]}}, "must not name a family twice"),
            Refused(
                kind,
                {"service": {"ipFamilies": ["IPv4"]}},
                "the first of ipFamilies cannot change",
                before={"service": {"ipFamilies": ["IPv6"]}},
            ),
        )
    ),
    Refused("ControllerCluster", {}, "metadata.name: at most 40", name="x" * 41),
    Refused("ControllerCluster", {"members": 4}, "members must be 3 or 5"),
    Refused("ControllerCluster", {"embeddedInNameServer": True}, "embeddedInNameServer cannot change", before={}),
    Refused("ControllerCluster", {"raftSecretName": "mine"}, "raftSecretName cannot change", before={}),
    Refused("ControllerCluster", {"storage": {"size": "512Mi"}}, "size cannot shrink", before={}),
    Refused("ControllerCluster", {"storage": {"storageClassName": "fast"}}, "storageClassName cannot", before={}),
    Refused(
        "ControllerCluster",
        {"tuning": {"raftElectionTimeoutMs": 100, "raftHeartbeatIntervalMs": 50}},
        "more than three times",
    ),
    Refused("ControllerCluster", {"tuning": {"raftHeartbeatIntervalMs": 200}}, "more than three times"),
    Refused("ControllerCluster", {"config": {"": "1"}}, "config: a key is letters and digits"),
    Refused("ControllerCluster", {"podTemplate": {"labels": {"rocketmq-ha.io/x": "x"}}}, "labels that begin with"),
    Refused("ControllerCluster", {"podTemplate": {"annotations": {"rocketmq-ha.io/a": "x"}}}, "annotations that begin"),
    Refused("ControllerCluster", {"podTemplate": {"env": [{"name": "POD_INDEX"}]}}, "would overrule"),
    Refused("NameServer", {}, "metadata.name: at most 42", name="x" * 43),
    Refused("NameServer", {"config": {"a=b": "1"}}, "config: a key is letters and digits"),
    Refused("NameServer", {"podTemplate": {"labels": {"rocketmq-ha.io/x": "x"}}}, "labels that begin with"),
    Refused("NameServer", {"podTemplate": {"annotations": {"rocketmq-ha.io/a": "x"}}}, "annotations that begin"),
    Refused("NameServer", {"podTemplate": {"env": [{"name": "POD_IP"}]}}, "would overrule"),
)
"""CEL rules, of creation and of change."""


class Accepted(NamedTuple):
    """`change` of a least resource, or of the resource that `before` makes, is accepted."""

    kind: names.Kind
    change: Spec
    before: Spec | None = None
    name: str = "case"


ACCEPTED = (
    Accepted("BrokerGroup", {}, name="x" * 50),
    Accepted("BrokerGroup", {"replicationSecretName": "mine", "grpcTlsSecretName": "tls"}),
    Accepted("ControllerCluster", {}, name="x" * 40),
    Accepted("NameServer", {}, name="x" * 42),
    Accepted("BrokerGroup", {"controllerRef": None, "controllerAddr": "c:1;[::1]:2", "namesrvAddr": "10.0.0.1:9876"}),
    Accepted("BrokerGroup", {"nameServerRef": {"name": "main", "namespace": "infra"}}),
    Accepted("BrokerGroup", {**_ALONE, "replicas": 2}),
    Accepted("BrokerGroup", {**_ALONE, "nameServerRef": None, "namesrvAddr": "n:9876"}),
    Accepted("BrokerGroup", {"failover": {"leaseTimeoutMs": 1000}}, before={}),
    Accepted("BrokerGroup", {"failover": {"leaseTimeoutMs": 1000}}, before=_ALONE),
    Accepted("BrokerGroup", {"replicas": 1, "durability": "relaxed", "config": {"allAckInSyncStateSet": "true"}}),
    Accepted("BrokerGroup", {"engine": "apache", "jvm": {"heap": "2g", "directMemory": "1Gi", "options": ["-Da=b"]}}),
    Accepted("BrokerGroup", {"engine": "apache", "actingMaster": "reads", "config": {"lockInStrictMode": "true"}}),
    Accepted("BrokerGroup", {"actingMaster": "off"}, before={"actingMaster": "reads"}),
    Accepted("BrokerGroup", {"actingMaster": "readsAndEscape"}, before={"actingMaster": "reads"}),
    Accepted("BrokerGroup", {"config": {"lockInStrictMode": "true"}}),
    Accepted("BrokerGroup", {"replicas": 5, "priorities": [3, 2, 1], "minInSyncReplicas": 3}),
    Accepted("BrokerGroup", {"verification": {"schedule": "*/5 3-6 * * MON,FRI"}}),
    Accepted("BrokerGroup", {"verification": {**_DAILY, "fullSchedule": "@weekly", "rereadDays": 365}}, name="x" * 40),
    Accepted("BrokerGroup", {"verification": {**_DAILY, "history": {"path": "s3a://b/h"}}}),
    Accepted("BrokerGroup", {"verification": {**_DAILY, "maxExecutors": 8}}),
    Accepted(
        "BrokerGroup",
        {"verification": {**_DAILY, "resources": {"driver": {"requests": {"cpu": 1, "memory": "1Gi"}}}}},
    ),
    Accepted("BrokerGroup", {"resources": {"broker": {"limits": {"cpu": 2, "memory": "1.5Gi"}}}}),
    Accepted("BrokerGroup", {"config": {"brokerPermission": "6", "messageDelayLevel": "1s 5s"}}),
    Accepted("BrokerGroup", {"podTemplate": {"env": [{"name": "TZ", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}}),
    Accepted("BrokerGroup", {"storage": {"size": "10.5Gi"}}, before={}),
    Accepted("BrokerGroup", {"storage": {"size": "10240Mi"}}, before={}),
    Accepted("BrokerGroup", {"storage": {"reclaimPolicy": "Delete"}}, before={}),
    Accepted(
        "BrokerGroup", {"storage": {"commitLog": {"size": "3Gi"}}}, before={"storage": {"commitLog": {"size": "2Gi"}}}
    ),
    Accepted(
        "BrokerGroup", {"config": {"fileReservedTime": "24"}}, before={"config": {"mappedFileSizeCommitLog": "1"}}
    ),
    Accepted("BrokerGroup", {"replicas": 5}, before={}),
    Accepted("BrokerGroup", {"durability": "relaxed", "replicas": 1}, before={}),
    Accepted("BrokerGroup", {"fenced": True, "hibernated": True, "updateStrategy": "supervised"}, before={}),
    Accepted("BrokerGroup", {"nameServerRef": {"name": "main"}}, before={}),
    Accepted("BrokerGroup", {"image": {"broker": "example.org/broker:2@sha256:0"}}, before={}),
    Accepted("ControllerCluster", {"members": 5, "embeddedInNameServer": True, "raftSecretName": "mine"}),
    Accepted("ControllerCluster", {"tuning": {"raftElectionTimeoutMs": 1000, "raftHeartbeatIntervalMs": 200}}),
    Accepted("ControllerCluster", {"tuning": {"enableElectUncleanMaster": True}}, before={}),
    Accepted("NameServer", {"replicas": 4}, before={}),
    *(Accepted(kind, {"service": _BOTH}, before={"service": {"ipFamilies": ["IPv6"]}}) for kind in LEAST),
    *(Accepted(kind, {"service": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}) for kind in LEAST),
)
"""What the rules must not forbid."""
