"""Fixtures of the end-to-end suite: a cluster, images on it, what a failure leaves behind (e2e/README.md)."""

import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest

from e2e.kit import evidence, ground, images, lanes
from e2e.kit.cluster import Cluster
from e2e.kit.tools import command
from tests.gate.evidence import folder as evidence_folder
from tests.needed import unavailable

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "e2e"
TEST_SECONDS = 600
"""For tests without a time-out of their own: more than the 120 s of the other suites, since pods start and stop."""
CLUSTER = pytest.StashKey[Cluster]()
KEEPS = pytest.StashKey[bool]()
"""The user's --keep-cluster; that of a lane keeps the cluster for the other one."""
UNHEARD = pytest.StashKey[set[str]]()
"""Lines of logs for which a test has failed already: namespaces of the session are read after each module."""
MOST_UNHEARD = 20
HOST_PATH = "kubernetes.io/host-path"
MOST_EVIDENCE = 10
"""Failures of a session that leave evidence: when everything fails, the first ones say why."""
ALONE = "alone"
"""Mark of tests that stop what all lanes use."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real pods need more time than the other suites' time-out leaves."""
    for item in items:
        if item.path.is_relative_to(ROOT / "e2e") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """First among the wrappers: to wait for the other lane is not the test's time."""
    with lanes.turn(lanes.folder(item.config), alone=item.get_closest_marker(ALONE) is not None):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The cluster of several lanes goes when they have ended."""
    options = session.config.option
    if (
        lanes.has_lanes(session.config)
        and not options.keep_cluster
        and (kind := shutil.which(options.kind_bin or "kind"))
    ):
        kubeconfig = options.kubeconfig or str(BUILD / "kubeconfig")
        delete = [kind, "delete", "cluster", f"--name={options.cluster_name}", f"--kubeconfig={kubeconfig}"]
        subprocess.run(delete, timeout=120, check=False)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A cluster with nothing of ours on it; pytest-kind makes it, and deletes it unless --keep-cluster."""
    options = request.config.option
    options.kind_bin = command("kind", options.kind_bin, "install kind, or name another with --kind-bin")
    options.kind_kubectl_bin = command("kubectl", options.kind_kubectl_bin, "install kubectl")
    request.config.stash[KEEPS] = options.keep_cluster
    options.keep_cluster = options.keep_cluster or lanes.is_lane(request.config)  # another lane may still use it
    with lanes.once(lanes.folder(request.config), "cluster") as first:
        if options.kubeconfig is None:
            options.kubeconfig = str(BUILD / "kubeconfig")
            if first:
                _write_kubeconfig(options.kind_bin, options.cluster_name, Path(options.kubeconfig))
        made = request.getfixturevalue("kind_cluster")
    cluster = Cluster(made.name, kubectl=options.kind_kubectl_bin, kubeconfig=Path(options.kubeconfig))
    request.config.stash[CLUSTER] = cluster
    return cluster


@pytest.fixture(scope="session")
def loading(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Future[dict[str, str]]]:
    """Images on their way to the node, while tests that need none run."""

    def load() -> dict[str, str]:
        found = images.built()
        with lanes.once(lanes.folder(request.config), "images") as first:
            if first:
                for reference in images.load(cluster, request.config.option.kind_bin, found, BUILD):
                    print(f"e2e: loaded {reference}", file=sys.stderr)
        return found

    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(load)


def _write_kubeconfig(kind: str, name: str, kubeconfig: Path) -> None:
    """pytest-kind takes up a cluster that is there, but asks for its kubeconfig only when it makes one."""
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    kubeconfig.unlink(missing_ok=True)  # of a cluster before this one
    done = subprocess.run([kind, "get", "kubeconfig", "--name", name], capture_output=True, timeout=60, check=False)
    if done.returncode == 0:
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_bytes(done.stdout)


@pytest.fixture(scope="session")
def node_images(cluster: Cluster, loading: Future[dict[str, str]], request: pytest.FixtureRequest) -> Mapping[str, str]:
    """All images on the node, by name (broker: rocketmq-ha/broker:dev), volumes that pods can write to, and a cluster
    on which pods reach what they need; else the run ends.

    apache-broker is in it only if it was built.
    """
    found = loading.result()
    with lanes.once(lanes.folder(request.config), "ground") as first:
        if first:
            _open_volumes(cluster)
            if problem := _problem_of_the_ground(cluster, found["tester"]):
                request.session.shouldstop = problem  # pytest.exit does not leave a lane
                pytest.fail(problem, pytrace=False)
    return MappingProxyType(found)


def _problem_of_the_ground(cluster: Cluster, image: str) -> str:
    try:
        ground.check(cluster, image)
    except ground.BrokenGroundError as error:
        return f"{error}. No story can pass here."
    return ""


def _open_volumes(cluster: Cluster) -> None:
    """So that pods can write to them."""
    classes = cluster.json("get", "storageclasses")["items"]
    if any(one["provisioner"] == HOST_PATH for one in classes):
        # The mode of a class cannot be changed: --force deletes it and makes another one.
        cluster.kubectl("replace", "--force", "-f", str(ROOT / "e2e/cluster/host-path-volumes.yaml"))
        cluster.kubectl("-n", "kube-system", "rollout", "status", "daemonset/host-path-volumes", "--timeout=60s")


@pytest.fixture(scope="session")
def apache_image(node_images: Mapping[str, str]) -> str:
    """The official broker's image; who asks for it is skipped where it was not built, in CI failed."""
    if images.APACHE not in node_images:
        unavailable(f"{images.APACHE_IMAGE} was not built: run e2e/images/apache/build.sh (needs a JDK and Maven)")
    return node_images[images.APACHE]


@pytest.fixture(scope="module", autouse=True)
def _namespaces_of_this_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Deletes them at the module's end; with --keep-cluster those of a module with failures stay.

    The module's last test fails if a log there, or in a namespace of the session, tells of an error that reached no
    one.
    """
    failed = request.session.testsfailed
    yield
    cluster = request.config.stash.get(CLUSTER, None)
    if cluster is None:
        return
    told = request.config.stash.setdefault(UNHEARD, set())
    heard = [line for line in evidence.unheard(cluster, list(cluster.namespaces)) if line not in told]
    told.update(heard)
    if not (request.config.stash[KEEPS] and (heard or request.session.testsfailed > failed)):
        cluster.delete_namespaces(*[name for name, scope in cluster.namespaces.items() if scope == "module"])
    if heard:
        pytest.fail("errors that reached no one:\n" + "\n".join(heard[:MOST_UNHEARD]), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Collect evidence while everything is still there."""
    report = yield
    cluster = item.config.stash.get(CLUSTER, None)
    if report.failed and cluster is not None and cluster.namespaces and item.session.testsfailed < MOST_EVIDENCE:
        folder = evidence_folder(item.config, item.nodeid)
        evidence.collect(cluster, folder, cluster.namespaces)
        report.sections.append(("evidence", f"{folder.relative_to(ROOT)}: logs, events and resources"))
        report.sections.append(("digest of the evidence", evidence.digest(folder)))
    return report
