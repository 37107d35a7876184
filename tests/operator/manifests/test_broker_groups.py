"""What changes pods and what does not; disks, disruption, probes of a group."""

import pytest

from rocketmq_formats import properties
from rocketmq_operator.domain.manifests.groups.pods import PRE_STOP_SECONDS, RECOVERY_SECONDS
from rocketmq_operator.domain.manifests.pods import GRACE_SECONDS
from rocketmq_resources import names
from tests.operator.manifests import cases
from tests.operator.manifests.cases import Object

GROUP = cases.GROUPS["group"]


def made(change: Object | None = None, *, replicas: int | None = None, **metadata: object) -> list[Object]:
    return cases.group_objects(cases.group({**GROUP, **(change or {})}, **metadata), replicas=replicas)


def template(objects: list[Object]) -> Object:
    found: Object = cases.one(objects, "StatefulSet")["spec"]["template"]
    return found


@pytest.mark.parametrize(
    "change",
    [{"replicas": 5}, {"hibernated": True}, {"fenced": True}, {"paused": True}, {"updateStrategy": "supervised"}],
    ids=str,
)
def test_pods_are_not_restarted_for(change: Object) -> None:
    assert template(made(change)) == template(made())


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"fileReservedTime": "48"}},
        {"priorities": [1]},
        {"durability": "relaxed"},
        {"minInSyncReplicas": 3},
        {"actingMaster": "reads"},
        {"actingMaster": "readsAndEscape"},
        {"failover": {"leaseTimeoutMs": 1000}},
        {"image": {"broker": "other"}},
        {"image": {"sidecar": "other"}},
        {"resources": {"sidecar": {"limits": {"cpu": "1"}}}},
        {"nameServerRef": None, "namesrvAddr": "elsewhere:9876"},
        {"podTemplate": {"labels": {"team": "shop"}}},
    ],
    ids=str,
)
def test_pods_are_new_revisions_for(change: Object) -> None:
    assert template(made(change)) != template(made())


@pytest.mark.parametrize("engine", ["native", "apache"])
def test_replicas_are_told_how_many_they_are(engine: str) -> None:
    """lockInStrictMode needs it, so only with that do running replicas restart when the number changes."""
    for strict in (False, True):
        spec: Object = {"engine": engine, "actingMaster": "reads"}
        if strict:
            spec["config"] = {"lockInStrictMode": "true"}
        three, five = made({**spec, "replicas": 3}), made({**spec, "replicas": 5}, replicas=3)
        for objects, number in ((three, "3"), (five, "5")):
            for text in cases.one(objects, "ConfigMap")["data"].values():
                assert properties.parse(text.encode())["totalReplicas"] == number
        assert (template(three) != template(five)) is strict


def test_a_restart_is_asked_for_by_annotation() -> None:
    objects = made(annotations={names.ANNOTATION_RESTARTED_AT: "2026-01-02T03:04:05Z"})
    assert template(objects)["metadata"]["annotations"][names.ANNOTATION_RESTARTED_AT] == "2026-01-02T03:04:05Z"
    assert names.ANNOTATION_RESTARTED_AT not in template(made())["metadata"]["annotations"]


def test_a_file_for_every_replica_that_is_or_shall_be() -> None:
    growing = made({"replicas": 5}, replicas=3)
    shrinking = made({"replicas": 3}, replicas=5)
    for objects in (growing, shrinking):
        assert list(cases.one(objects, "ConfigMap")["data"]) == [f"broker-a-{ordinal}.conf" for ordinal in range(5)]
    assert cases.one(shrinking, "StatefulSet")["spec"]["replicas"] == 5
    asleep = made({"hibernated": True})
    assert cases.one(asleep, "StatefulSet")["spec"]["replicas"] == 0
    assert len(cases.one(asleep, "ConfigMap")["data"]) == 3


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_claims_outlive_every_number_of_pods(policy: str) -> None:
    """A hibernated group has no pods and needs all its disks, whatever becomes of them with the group."""
    for change in ({}, {"hibernated": True}):
        spec = cases.one(made({"storage": {"reclaimPolicy": policy}, **change}), "StatefulSet")["spec"]
        assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": policy, "whenScaled": "Retain"}


def test_claims_of_two_volumes() -> None:
    objects = cases.group_objects(cases.group(cases.GROUPS["group-full"]))
    claims = cases.one(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert [(claim["metadata"]["name"], claim["spec"]["storageClassName"]) for claim in claims] == [
        ("data", "fast"),
        ("commitlog", "faster"),
    ]
    assert [claim["spec"]["resources"]["requests"]["storage"] for claim in claims] == ["100Gi", "1Ti"]
    [claim] = cases.one(made(), "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert "storageClassName" not in claim["spec"]  # the cluster's default


def test_only_the_operator_rolls() -> None:
    spec = cases.one(made(), "StatefulSet")["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"replicas": 3}, 1),
        ({"replicas": 9}, 1),
        ({"replicas": 3, "minInSyncReplicas": 3}, 0),
        ({"replicas": 2}, 0),
        ({"replicas": 2, "durability": "relaxed"}, 1),
        ({"replicas": 1, "durability": "relaxed"}, None),
    ],
    ids=str,
)
def test_how_many_a_drain_may_take(change: Object, allowed: int | None) -> None:
    budgets = [each["spec"] for each in made(change) if each["kind"] == "PodDisruptionBudget"]
    assert [budget["maxUnavailable"] for budget in budgets] == ([] if allowed is None else [allowed])
    assert all(budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow" for budget in budgets)


def test_a_broker_may_recover_for_long() -> None:
    broker = cases.container(made(), "broker")
    startup = broker["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == RECOVERY_SECONDS
    assert startup["tcpSocket"] == {"port": "broker"}
    sidecar = cases.container(made(), "sidecar")
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/healthz"  # says nothing of the broker


@pytest.mark.parametrize("name", ["group", "group-apache"])
def test_the_broker_waits_for_its_sidecar_at_the_end(name: str) -> None:
    objects = cases.group_objects(cases.group(cases.GROUPS[name]))
    assert "preStop" in cases.container(objects, "broker")["lifecycle"]
    assert "lifecycle" not in cases.container(objects, "sidecar")
    assert cases.pod_spec(objects)["terminationGracePeriodSeconds"] == GRACE_SECONDS >= 2 * PRE_STOP_SECONDS


def test_requests_by_default_and_limits_never() -> None:
    for container in cases.pod_spec(made())["containers"]:
        assert container["resources"].keys() == {"requests"}
    objects = cases.group_objects(cases.group(cases.GROUPS["group-full"]))
    assert cases.container(objects, "broker")["resources"] == cases.GROUPS["group-full"]["resources"]["broker"]
    sidecar = cases.container(objects, "sidecar")["resources"]
    assert sidecar == {"limits": {"cpu": "1"}, "requests": {"memory": "128Mi"}}  # cpu: the limit is the request


def test_pods_are_kept_apart() -> None:
    soft = cases.pod_spec(made())["affinity"]["podAntiAffinity"]
    [term] = soft["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    hard = cases.pod_spec(cases.group_objects(cases.group(cases.GROUPS["group-full"])))
    apart = hard["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [each["topologyKey"] for each in apart] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert "nodeAffinity" in hard["affinity"]
    [spread] = hard["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": names.selector("broker", "broker-a")}
    assert "affinity" not in cases.pod_spec(made({"scheduling": {"antiAffinity": "none"}}))


def test_replication_is_between_replicas() -> None:
    ingress = cases.one(made(), "NetworkPolicy")["spec"]["ingress"]
    by_port = {port["port"]: rule.get("from") for rule in ingress for port in rule["ports"]}
    assert by_port[names.PORT_BROKER] is None
    assert by_port[names.PORT_HA] == [{"podSelector": {"matchLabels": names.selector("broker", "broker-a")}}]
