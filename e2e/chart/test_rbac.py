"""What the operator may do, as the API server says: what it needs, nothing else, where it watches, nowhere else."""

import re
from collections.abc import Iterator

import pytest

from e2e.chart.conftest import Releases
from e2e.chart.release import Release
from e2e.kit.cluster import Cluster, KubectlError

OURS = ("brokergroups", "controllerclusters", "nameservers")
Rights = dict[tuple[str, str], frozenset[str]]
"""Verbs by resource and name (empty: all)."""

MAKES = frozenset({"list", "watch", "create", "patch", "delete"})
WATCHED: Rights = {
    **{(f"{kind}.rocketmq-ha.io", ""): frozenset({"list", "watch", "patch"}) for kind in OURS},
    ("brokergroups.rocketmq-ha.io", ""): frozenset({"get", "list", "watch", "patch"}),
    **{(f"{kind}.rocketmq-ha.io/status", ""): frozenset({"patch"}) for kind in OURS},
    **{(f"{kind}.rocketmq-ha.io/finalizers", ""): frozenset({"update"}) for kind in OURS},
    ("statefulsets.apps", ""): MAKES,
    ("poddisruptionbudgets.policy", ""): MAKES,
    ("networkpolicies.networking.k8s.io", ""): MAKES,
    ("services", ""): MAKES,
    ("configmaps", ""): MAKES,
    ("persistentvolumeclaims", ""): MAKES,
    ("serviceaccounts", ""): MAKES,
    ("cronjobs.batch", ""): MAKES,
    ("roles.rbac.authorization.k8s.io", ""): MAKES,
    ("rolebindings.rbac.authorization.k8s.io", ""): MAKES,
    ("pods", ""): MAKES | {"get", "deletecollection"},
    ("secrets", ""): frozenset({"get", "create"}),
    ("events", ""): frozenset({"list", "create"}),
}
OWN: Rights = {
    ("leases.coordination.k8s.io", ""): frozenset({"create"}),
    ("leases.coordination.k8s.io", "rocketmq-operator"): frozenset({"get", "update"}),
}
"""In the operator's own namespace beside that."""


@pytest.fixture(scope="module")
def elsewhere(cluster: Cluster) -> str:
    return cluster.namespace()


@pytest.fixture(scope="module")
def release(releases: Releases, elsewhere: str) -> Release:
    """Watches its own namespace and another one."""
    made = releases("rights")
    made.install("replicas=1", f"watchNamespaces={{{made.namespace},{elsewhere}}}")
    return made


def rights(release: Release, namespace: str) -> Rights:
    """What its ServiceAccount may do in `namespace`, less what every account may."""
    mine = set(listed(release, namespace, f"system:serviceaccount:{release.namespace}:{release.operator}"))
    mine -= set(listed(release, namespace, f"system:serviceaccount:{release.namespace}:default"))
    return {(resource, name): verbs for resource, name, verbs in mine}


def listed(release: Release, namespace: str, account: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    table = release.cluster.kubectl("-n", namespace, "auth", "can-i", "--list", "--no-headers", f"--as={account}")
    for line in table.splitlines():
        found = re.fullmatch(r"(\S*)\s+\[(.*?)\]\s+\[(.*?)\]\s+\[(.*?)\]", line)
        assert found, line
        if found[1]:
            yield found[1], found[3], frozenset(found[4].split())


def test_rights_in_its_own_namespace(release: Release) -> None:
    assert rights(release, release.namespace) == WATCHED | OWN


def test_rights_where_it_watches(release: Release, elsewhere: str) -> None:
    assert rights(release, elsewhere) == WATCHED


def test_no_rights_anywhere_else(release: Release) -> None:
    assert rights(release, "kube-system") == {}
    assert rights(release, "default") == {}


@pytest.mark.parametrize(
    "question",
    [
        "list secrets",
        "watch secrets",
        "create pods --subresource=exec",
        "escalate roles",
        "bind roles",
        "get nodes",
        "update leases/another",
    ],
)
def test_what_it_may_not(release: Release, question: str) -> None:
    account = f"--as=system:serviceaccount:{release.namespace}:{release.operator}"
    with pytest.raises(KubectlError):
        release.cluster.kubectl("-n", release.namespace, "auth", "can-i", *question.split(), account, "--quiet")


def test_these_rights_are_enough(release: Release, elsewhere: str) -> None:
    """Controllers, name servers and a group are made, changed and deleted, and nothing is refused."""
    cluster = release.cluster
    for namespace in (release.namespace, elsewhere):
        cluster.kubectl("-n", namespace, "apply", "-f", "-", input=RESOURCES)
        for name in ("c-controller", "routes-namesrv", "g"):
            cluster.wait(namespace, f"statefulset/{name}", "create")
        cluster.until(namespace, "brokergroup/g", lambda one: "phase" in one.get("status", {}), "a status")
        cluster.wait(namespace, "cronjob/g-verify-full", "create")
        change = '{"spec": {"config": {"fileReservedTime": "48"}, "verification": null}}'
        cluster.kubectl("-n", namespace, "patch", "brokergroup", "g", "--type=merge", "-p", change)
        cluster.until(
            namespace, "configmap/g-config", lambda one: "fileReservedTime=48" in one["data"]["g-0.conf"], "the change"
        )
        for kind in ("cronjob", "networkpolicy", "service", "configmap", "rolebinding", "role", "serviceaccount"):
            cluster.wait(namespace, f"{kind}/g-verify", "delete")
    events = cluster.json("-n", release.namespace, "get", "events")["items"]
    assert [one for one in events if one["metadata"].get("labels") or one["involvedObject"]["kind"] == "BrokerGroup"]
    for namespace in (release.namespace, elsewhere):
        cluster.kubectl("-n", namespace, "delete", "-f", "-", "--timeout=150s", input=RESOURCES)
    assert [line for line in release.operator_log() if "forbidden" in str(line).lower()] == []
    calls = [line for line in release.operator_metrics() if line.startswith("rocketmq_operator_api_calls_total{")]
    assert len(calls) > 10
    assert [line for line in calls if 'status="403"' in line] == []


RESOURCES = """
apiVersion: rocketmq-ha.io/v1alpha1
kind: ControllerCluster
metadata: {name: c}
spec: {members: 3, storage: {size: 64Mi}}
---
apiVersion: rocketmq-ha.io/v1alpha1
kind: NameServer
metadata: {name: routes}
spec: {replicas: 1}
---
apiVersion: rocketmq-ha.io/v1alpha1
kind: BrokerGroup
metadata: {name: g}
spec:
  replicas: 1
  durability: relaxed
  controllerRef: {name: c}
  nameServerRef: {name: routes}
  storage: {size: 64Mi, reclaimPolicy: Delete}
  verification: {schedule: "@yearly", fullSchedule: "@yearly", executors: 1, history: {storage: {size: 64Mi}}}
"""
