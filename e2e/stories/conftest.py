"""One installation for all stories of a lane: the chart as README installs it, the examples as they are, load on every
group."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from e2e.kit.cluster import Cluster
from e2e.kit.group import LANES, PACE, PATIENCE, Group
from e2e.kit.images import REPOSITORY, TAG
from e2e.kit.tools import helm

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RELEASE = "rocketmq-ha"
RESERVED = {"requests": {"cpu": "20m"}}
"""Of each container: the installations of two lanes are on one node of two processors, and most of them wait."""
CONTAINERS = {"BrokerGroup": ("broker", "sidecar")}
"""Kinds with resources for each container; those of the others are for their only one."""


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

    def apply(self, resources: Iterable[dict[str, Any]]) -> None:
        """Resources that say nothing of `resources` reserve little."""
        items = list(resources)
        for item in items:
            containers = CONTAINERS.get(item["kind"])
            item["spec"].setdefault("resources", dict.fromkeys(containers, RESERVED) if containers else RESERVED)
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        self.cluster.kubectl("-n", self.namespace, "apply", "-f", "-", input=json.dumps(listed))

    def loaded(self, name: str, *, patience: float = PATIENCE, lanes: int = LANES, pace: float = PACE) -> Group:
        """A group that is applied already: waits until it is whole, then loads it."""
        group = Group(self.cluster, self.namespace, name, patience=patience)
        group.whole()
        server = self.cluster.json("-n", self.namespace, "get", "nameserver", "main")
        group.start_load(server["status"]["namesrvAddr"], self.tester, lanes=lanes, pace=pace)
        group.start_chaos(self.chaos_namespace, self.tester)
        return group


def example(name: str) -> list[dict[str, Any]]:
    """The resources of a file of examples/."""
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


@pytest.fixture(scope="session")
def installation(cluster: Cluster, node_images: Mapping[str, str]) -> Installation:
    """`helm install` with two operators."""
    there = Installation(
        cluster=cluster,
        namespace=cluster.namespace(scope="session"),
        chaos_namespace=cluster.namespace(scope="session", level="privileged"),
        tester=node_images["tester"],
    )
    chosen = ("--set", f"image.repository={REPOSITORY},image.tag={TAG},resources.requests.cpu=20m")
    there.helm("install", RELEASE, str(ROOT / "helm/rocketmq-ha"), *chosen, "--wait", "--timeout=180s")
    return there


@pytest.fixture(scope="session")
def group(installation: Installation) -> Group:
    """examples/brokergroup.yaml: three controllers, two name servers, three replicas, strict; under load."""
    installation.apply(example("brokergroup.yaml"))
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
