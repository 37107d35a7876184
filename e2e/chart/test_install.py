"""A release on a real cluster: install, test, upgrade, rollback, uninstall, install again; what it leaves behind."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import yaml

from e2e.chart.conftest import Releases
from e2e.chart.release import CHART, EVERYTHING, HelmError, Manifest, Release, rendered
from e2e.kit.cluster import Cluster, KubectlError

FINALIZER = "rocketmq-ha.io/finalizer"
KINDS = "deployments,replicasets,pods,jobs,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb"
FOREIGN = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus Operator, which is not there."""


def group(name: str) -> Manifest:
    """One replica under controllers that do not exist; `Delete` gives it a finalizer."""
    return {
        "apiVersion": "rocketmq-ha.io/v1alpha1",
        "kind": "BrokerGroup",
        "metadata": {"name": name},
        "spec": spec(),
    }


def spec() -> Manifest:
    return {
        "replicas": 1,
        "durability": "relaxed",
        "controllerAddr": "127.0.0.1:9878",
        "namesrvAddr": "127.0.0.1:9876",
        "storage": {"size": "64Mi", "reclaimPolicy": "Delete"},
    }


def resource(release: Release, name: str) -> Manifest:
    found: Manifest = release.cluster.json("-n", release.namespace, "get", "brokergroup", name)
    return found


def left_behind(release: Release) -> Sequence[str]:
    """Names of everything in the namespace that is of the release."""
    selector = f"app.kubernetes.io/instance={release.name}"
    names = release.cluster.kubectl("-n", release.namespace, "get", KINDS, "-l", selector, "-o", "name")
    return names.split()


@pytest.fixture(scope="module")
def stopped(releases: Releases) -> Iterator[tuple[Release, Future[str]]]:
    """A release whose operator may not act, and what `helm test` complains of, which takes its whole patience of 40 s:
    other tests run meanwhile."""
    release = releases("stopped")

    def complaint() -> str:
        release.install("replicas=1")
        release.cluster.kubectl("-n", release.namespace, "delete", "role", f"{release.operator}-lease")
        release.cluster.kubectl("-n", release.namespace, "delete", "lease", "rocketmq-operator")
        try:
            release.helm("test", release.name, "--timeout=120s")
        except HelmError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(1) as thread:
        yield release, thread.submit(complaint)


def test_every_object_is_accepted_by_the_api_server(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    for values in ((), EVERYTHING, ("watchAllNamespaces=true",)):
        objects = [one for one in rendered(*values, namespace=namespace) if one["kind"] not in FOREIGN]
        accounts = [one for one in objects if one["kind"] == "ServiceAccount"]
        cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(accounts))  # which the Pod's admission looks for
        said = cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump_all(objects))
        assert len(said.splitlines()) == len(objects)
        cluster.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(accounts))


def test_crds_are_brought_up_to_date_as_the_docs_say(releases: Releases) -> None:
    release = releases("crds")
    release.install("replicas=1")
    cluster = release.cluster
    text = release.helm("show", "crds", str(CHART))
    said = cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", "-o", "name", input=text
    )
    assert len(said.split()) == 3
    release.uninstall()
    assert len(cluster.kubectl("get", "-f", str(CHART / "crds"), "-o", "name").split()) == 3  # they stay


@pytest.mark.usefixtures("stopped")
def test_the_life_of_a_release(releases: Releases) -> None:
    release = releases("life")
    cluster, namespace = release.cluster, release.namespace

    notes = release.install()
    assert f"reconciles {namespace}" in notes
    deployment = release.deployment()
    assert deployment["status"]["readyReplicas"] == 2
    said, log = release.test()
    assert "Phase:          Succeeded" in said
    assert log.count("ok     ") == 3, log
    holder = cluster.json("-n", namespace, "get", "lease", "rocketmq-operator")["spec"]["holderIdentity"]
    assert holder.startswith(release.operator)

    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(group("a")))
    cluster.until(namespace, "brokergroup/a", lambda one: FINALIZER in one["metadata"].get("finalizers", []), FINALIZER)
    cluster.wait(namespace, "statefulset/a", "create")
    before = cluster.json("-n", namespace, "get", "statefulset", "a")["metadata"]

    notes = release.upgrade("replicas=1", "logLevel=debug")
    assert "Helm does not change CRDs in an upgrade" in notes
    deployment = release.deployment()
    assert deployment["spec"]["replicas"] == 1
    assert {"name": "OPERATOR_LOG_LEVEL", "value": "debug"} in container(deployment)["env"]
    with pytest.raises(KubectlError, match="not found"):
        cluster.json("-n", namespace, "get", "pdb", release.operator)

    with pytest.raises(HelmError, match="additional properties 'replica' not allowed"):
        release.upgrade("replica=3")
    release.helm("rollback", release.name, "1", "--wait", "--timeout=120s")
    deployment = release.deployment()
    assert deployment["status"]["readyReplicas"] == 2
    assert {"name": "OPERATOR_LOG_LEVEL", "value": "info"} in container(deployment)["env"]

    release.uninstall()
    assert left_behind(release) == []
    with pytest.raises(KubectlError, match="not found"):
        cluster.json("-n", namespace, "get", "lease", "rocketmq-operator")
    after = cluster.json("-n", namespace, "get", "statefulset", "a")["metadata"]
    assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])  # the group is unchanged
    assert "finalizers" not in resource(release, "a")["metadata"]

    release.install()  # it takes the group up again
    cluster.until(namespace, "brokergroup/a", lambda one: FINALIZER in one["metadata"].get("finalizers", []), FINALIZER)
    assert cluster.json("-n", namespace, "get", "statefulset", "a")["metadata"]["uid"] == before["uid"]
    release.uninstall()
    cluster.kubectl("-n", namespace, "delete", "brokergroup", "a", "--timeout=20s")  # nothing holds it back


def container(deployment: Manifest) -> Manifest:
    found: Manifest = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def test_what_the_release_made_goes_with_it(releases: Releases) -> None:
    release = releases("whole")
    values = [f"brokerGroup.spec.{key}={value}" for key, value in spec().items() if key != "storage"]
    values += ["brokerGroup.spec.storage.size=64Mi", "brokerGroup.spec.storage.reclaimPolicy=Delete"]
    release.install("replicas=1", "brokerGroup.enabled=true", *values)
    name = f"{release.prefix}-broker-a"
    release.cluster.until(
        release.namespace,
        f"brokergroup/{name}",
        lambda one: FINALIZER in one["metadata"].get("finalizers", []),
        FINALIZER,
    )
    release.uninstall()
    with pytest.raises(KubectlError, match="not found"):
        resource(release, name)
    assert left_behind(release) == []


def test_helm_test_finds_an_operator_that_does_not_run(stopped: tuple[Release, Future[str]]) -> None:
    release, complaint = stopped
    assert "failed" in complaint.result()
    log = release.cluster.kubectl("-n", release.namespace, "logs", f"{release.prefix}-test")
    assert "ok     the CRDs are there" in log
    assert "FAILED one of them acts" in log
