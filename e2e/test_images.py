"""Each image as an administrator would have it run: nothing writable, no rights, only what it needs inside."""

import functools
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from e2e.kit import images
from e2e.kit.cluster import Cluster
from e2e.kit.tools import docker
from rocketmq_runtime.version import __version__

ROOT = Path(__file__).resolve().parent.parent
SERVERS = tuple(name for name in images.OURS if name != "tester")
LOCKED = ("--rm", "--read-only", "--user=1000:1000", "--cap-drop=ALL", "--security-opt=no-new-privileges")
ALONE = "--network=none"
ANYONE = ("--user=1000680000:0", "--tmpfs=/tmp")
"""As OpenShift does: a user without a name, in group 0, where only volumes are writable."""
OF_COMMAND_LINES = {"rich", "typer"}
"""Of what people run by hand; no image has it."""
OF_BUILDS = {"pip", "setuptools", "wheel", "hatchling", "pytest", "mypy", "ruff", "grpcio-tools"}
COMMANDS = {name: "rocketmq-verify" if name == "spark" else f"rocketmq-{name}" for name in SERVERS}
NOT_IN_DEBIAN = {"python3-pip", "python3-setuptools", "gcc", "make"}
RESTRICTED = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}

LOOK = """
import importlib.metadata, importlib.util, json, os, pathlib
def writable(path):
    return path.is_dir() and not path.is_symlink() and os.access(path, os.W_OK) and str(path)
print(json.dumps({
    "sbom": json.loads(pathlib.Path("/usr/share/rocketmq-ha/sbom.json").read_text()),
    "distributions": {
        one.name.lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()
    },
    "commands": sorted(path.name for path in pathlib.Path("/opt/rocketmq-ha/bin").iterdir()),
    "writable": [found for top in ("/opt", "/usr", "/etc") for path in pathlib.Path(top).rglob("*")
                 if (found := writable(path))],
    "ensurepip": importlib.util.find_spec("ensurepip") is not None,
    "uid": os.getuid(),
}))
"""


class Inside(msgspec.Struct, frozen=True):
    """What LOOK finds in an image."""

    sbom: dict[str, Any]
    distributions: dict[str, str]
    commands: list[str]
    writable: list[str]
    ensurepip: bool
    uid: int

    def components(self) -> dict[str, str]:
        """Package URLs of the bill of materials, without their qualifiers, with the names."""
        return {one["purl"].partition("?")[0]: one["name"] for one in self.sbom["components"]}


@pytest.fixture(scope="module")
def references() -> Mapping[str, str]:
    """Images by name; no cluster is needed to look into them."""
    return images.built()


def run(*arguments: str) -> str:
    """Standard output of one container that may do nothing."""
    command = [docker(), "run", *LOCKED, ALONE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def inside(reference: str) -> Inside:
    return msgspec.json.decode(run("--entrypoint=python", reference, "-c", LOOK), type=Inside)


def inspect(reference: str) -> dict[str, Any]:
    done = subprocess.run([docker(), "image", "inspect", reference], capture_output=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


@pytest.mark.parametrize("name", SERVERS)
def test_prints_version_and_help(references: Mapping[str, str], name: str) -> None:
    assert run(references[name], "--version").split() == [COMMANDS[name], __version__]
    assert f"usage: {COMMANDS[name]}" in run(references[name], "--help").lower()


@pytest.mark.parametrize("name", SERVERS)
def test_starts_as_any_user(references: Mapping[str, str], name: str) -> None:
    assert run(*ANYONE, references[name], "--version").split() == [COMMANDS[name], __version__]


def test_spark_starts_as_any_user(references: Mapping[str, str]) -> None:
    """Its Java asks for the user's name."""
    environment = ("--env=HOME=/tmp", "--env=SPARK_LOCAL_IP=127.0.0.1", "--env=SPARK_DRIVER_BIND_ADDRESS=127.0.0.1")
    submitted = ("driver", "--master=local[1]", "local:///opt/spark/verify.py", "--version")
    assert __version__ in run(*ANYONE, *environment, references["spark"], *submitted)


@pytest.mark.parametrize("name", images.OURS)
def test_has_oci_labels(references: Mapping[str, str], name: str) -> None:
    config = inspect(references[name])["Config"]
    assert config["User"] == "1000:1000", "a number: Kubernetes cannot tell whether a name is root"
    label = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert label["title"] == f"rocketmq-ha {name}"
    assert label["version"] == __version__
    assert label["licenses"] == "Apache-2.0"
    assert re.fullmatch("[0-9a-f]{40}|unknown", label["revision"])
    assert label["source"] == "unknown" or label["source"].startswith("https://")


@pytest.mark.parametrize("name", images.OURS)
def test_bill_of_materials(references: Mapping[str, str], name: str) -> None:
    found = inside(references[name])
    assert (found.sbom["bomFormat"], found.sbom["specVersion"]) == ("CycloneDX", "1.6")
    components = found.components()
    listed = {purl for purl in components if purl.startswith("pkg:pypi/")}
    assert listed == {f"pkg:pypi/{package}@{version}" for package, version in found.distributions.items()}
    debian = {package for purl, package in components.items() if purl.startswith("pkg:deb/")}
    assert "libc6" in debian
    assert not debian & NOT_IN_DEBIAN
    assert any(purl.startswith("pkg:generic/cpython@3.11.") for purl in components)


@pytest.mark.parametrize("name", images.OURS)
def test_only_pinned_packages(references: Mapping[str, str], name: str) -> None:
    files = ("constraints.txt", "constraints-verify.txt") if name == "spark" else ("constraints.txt",)
    text = "".join((ROOT / file).read_text() for file in files)
    pins = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))
    installed = inside(references[name]).distributions
    assert installed == {**{package: pins.get(package) for package in installed}, "rocketmq-ha": __version__}


@pytest.mark.parametrize("name", SERVERS)
def test_holds_nothing_else(references: Mapping[str, str], name: str) -> None:
    found = inside(references[name])
    assert not found.distributions.keys() & (OF_COMMAND_LINES | OF_BUILDS)
    assert [one for one in found.commands if not one.startswith("python")] == [COMMANDS[name]]
    assert not found.ensurepip
    assert found.uid == 1000
    assert found.writable == []


def test_spark_has_java_and_no_more_jars_than_it_needs(references: Mapping[str, str]) -> None:
    purls = inside(references["spark"]).components()
    assert "openjdk-17-jre-headless" in purls.values()
    jars = {purl for purl in purls if purl.startswith("pkg:maven/")}
    assert "pkg:maven/org.apache.parquet/parquet-hadoop" in {purl.partition("@")[0] for purl in jars}
    assert [purl for purl in jars if re.search("rocksdb|hive-exec|spark-mllib_|breeze|derby", purl)] == []


def test_data_plane_shares_its_layers(references: Mapping[str, str]) -> None:
    layers = {name: set(inspect(references[name])["RootFS"]["Layers"]) for name in SERVERS}
    for name in ("broker", "sidecar", "namesrv"):
        # Its bill of materials, its command, and a layer of packages of its own, which is empty as a rule.
        assert len(layers[name] - layers["controller"]) <= 3


def test_restricted_pods(cluster: Cluster, node_images: Mapping[str, str]) -> None:
    """The node has the images, and a namespace that enforces the restricted standard lets them run."""
    namespace = cluster.namespace()
    apply(cluster, namespace, *[pod(name, node_images[name]) for name in SERVERS])
    for name in SERVERS:
        cluster.wait(namespace, f"pod/{name}", "jsonpath={.status.phase}=Succeeded")
        assert __version__ in cluster.kubectl("-n", namespace, "logs", name)


def test_official_broker_starts(cluster: Cluster, apache_image: str) -> None:
    """Its start script adds the pod's address to a configuration that it cannot write to."""
    namespace = cluster.namespace()
    config = {"broker.conf": "brokerName=a\nstorePathRootDir=/tmp/store\nmappedFileSizeCommitLog=1048576\n"}
    broker = pod("apache", apache_image)
    broker["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}, {"name": "etc", "configMap": {"name": "apache"}}]
    broker["spec"]["terminationGracePeriodSeconds"] = 1
    broker["spec"]["containers"][0] |= {
        "args": ["-c", "/etc/rocketmq/broker.conf"],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "etc", "mountPath": "/etc/rocketmq"}],
        "readinessProbe": {"tcpSocket": {"port": 10911}, "periodSeconds": 1},
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "JAVA_OPT_EXT", "value": "-Xms128m -Xmx256m -XX:MaxDirectMemorySize=128m"},
        ],
    }
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "apache"}, "data": config}
    apply(cluster, namespace, made, broker)
    cluster.wait(namespace, "pod/apache", "condition=Ready", timeout=120)
    address = cluster.json("-n", namespace, "get", "pod", "apache")["status"]["podIP"]
    assert f"The broker[a, {address}:10911] boot success" in cluster.kubectl("-n", namespace, "logs", "apache")


def apply(cluster: Cluster, namespace: str, *items: Mapping[str, Any]) -> None:
    every = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(every))


def pod(name: str, image: str) -> dict[str, Any]:
    """Runs `--version` and ends. Who it runs as is the image's own choice."""
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["--version"],
        "securityContext": RESTRICTED,
    }
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
