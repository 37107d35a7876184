"""One installation for all stories of a lane: the chart as README installs it, the examples as they are, load on every
group."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from e2e.kit.cluster import Cluster
from e2e.kit.group import LANES, PACE, PATIENCE, Group
from e2e.kit.images import REPOSITORY, TAG
from e2e.kit.tools import helm

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RELEASE = "rocketmq-ha"


class Installation(msgspec.Struct, frozen=True):
    """The chart's release and the namespaces of the stories."""

    cluster: Cluster
    namespace: str
    chaos_namespace: str
    tester: str

    def helm(self, *arguments: str) -> str:
        """Run helm on the cluster, in the release's namespace."""
        done = subprocess.run(
            [helm(), f"--kubeconfig={self.cluster.kubeconfig}", "-n", self.namespace, *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def loaded(self, name: str, *, patience: float = PATIENCE, lanes: int = LANES, pace: float = PACE) -> Group:
        """A group that is applied already: waits until it is whole, then loads it."""
        group = Group(self.cluster, self.namespace, name, patience=patience)
        group.whole()
        server = self.cluster.json("-n", self.namespace, "get", "nameserver", "main")
        group.start_load(server["status"]["namesrvAddr"], self.tester, lanes=lanes, pace=pace)
        group.start_chaos(self.chaos_namespace, self.tester)
        return group


@pytest.fixture(scope="session")
def installation(cluster: Cluster, node_images: Mapping[str, str]) -> Installation:
    """`helm install` with two operators."""
    there = Installation(
        cluster=cluster,
        namespace=cluster.namespace(scope="session"),
        chaos_namespace=cluster.namespace(scope="session", level="privileged"),
        tester=node_images["tester"],
    )
    chosen = ("--set", f"image.repository={REPOSITORY},image.tag={TAG}")
    there.helm("install", RELEASE, str(ROOT / "helm/rocketmq-ha"), *chosen, "--wait", "--timeout=180s")
    return there


@pytest.fixture(scope="session")
def group(installation: Installation) -> Group:
    """examples/brokergroup.yaml: three controllers, two name servers, three replicas, strict; under load."""
    path = EXAMPLES / "brokergroup.yaml"
    installation.cluster.kubectl("-n", installation.namespace, "apply", "-f", str(path))
    return installation.loaded("broker-a")


@pytest.fixture
def whole(request: pytest.FixtureRequest, group: Group) -> Iterator[None]:
    """The group is whole when a test begins. What a test that failed has changed is taken back: it is not the next
    test's."""
    group.whole()
    before, failed = group.read(), request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        group.restore(before)
