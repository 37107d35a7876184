"""`kubectl rocketmq` on a real cluster: its output is correct, with only the rights that its documentation lists."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from e2e.kit.group import Group
from e2e.stories.conftest import Installation

pytestmark = pytest.mark.usefixtures("whole")

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(sys.executable).with_name("kubectl-rocketmq")
CLUSTER = "main"


class User:
    """A user with a token and some of the roles in docs/kubectl-rocketmq.md."""

    def __init__(self, installation: Installation, folder: Path, name: str, roles: Sequence[str]) -> None:
        self._installation, namespace = installation, installation.namespace
        kubectl = installation.cluster.kubectl
        kubectl("-n", namespace, "create", "serviceaccount", name)
        for role in roles:
            subject = f"--serviceaccount={namespace}:{name}"
            kubectl("-n", namespace, "create", "rolebinding", f"{name}-{role}", f"--role={role}", subject)
        token = kubectl("-n", namespace, "create", "token", name, "--duration=1h").strip()
        config = yaml.safe_load(installation.cluster.kubeconfig.read_text())
        cluster = config["clusters"][0]
        self.kubeconfig = folder / f"{name}.kubeconfig"
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "clusters": [cluster],
                    "users": [{"name": name, "user": {"token": token}}],
                    "contexts": [
                        {"name": name, "context": {"cluster": cluster["name"], "user": name, "namespace": namespace}}
                    ],
                    "current-context": name,
                }
            )
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(PLUGIN), *arguments, "--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    def output(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def roles(installation: Installation) -> Iterator[None]:
    """Those of the documentation, word by word."""
    text = (ROOT / "docs/kubectl-rocketmq.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    installation.cluster.kubectl("-n", installation.namespace, "apply", "-f", "-", input=block)
    yield
    installation.cluster.kubectl("-n", installation.namespace, "delete", "-f", "-", input=block)


@pytest.fixture(scope="module")
def on_call(installation: Installation, roles: None, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(installation, tmp_path_factory.mktemp("on-call"), "ann", ["rocketmq-view", "rocketmq-on-call"])


@pytest.fixture(scope="module")
def viewer(installation: Installation, roles: None, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(installation, tmp_path_factory.mktemp("viewer"), "bob", ["rocketmq-view"])


def test_the_sync_state_set_as_the_controllers_have_it(on_call: User, group: Group) -> None:
    (shown,) = json.loads(on_call.output("getSyncStateSet", group.name, "-o", "json"))["groups"]
    assert shown["source"] == "controllers"
    assert shown["inSync"] == "3/3"
    assert shown["master"] == group.master()
    assert {one["pod"]: one["brokerId"] for one in shown["replicas"]} == group.ids()
    assert {one["pod"]: one["address"] for one in shown["replicas"]} == group.addresses()
    master = next(one for one in shown["replicas"] if one["role"] == "master")
    assert master["maxOffset"] > 0
    assert "3/3 in sync" in on_call.output("get-sync-state-set")


def test_status_epochs_and_controllers(on_call: User, group: Group) -> None:
    assert f"Group:        {group.namespace}/{group.name}\n" in on_call.output("status", group.name)
    assert group.master() in on_call.output("status", "-o", "wide")
    epochs = json.loads(on_call.output("epochs", group.name, "-o", "json"))
    assert epochs["aligned"], epochs["differences"]
    assert {one["pod"] for one in epochs["replicas"]} == set(group.ids())
    (cluster,) = json.loads(on_call.output("controller", "status", CLUSTER, "-o", "json"))["controllerClusters"]
    assert [one["answers"] for one in cluster["members"]] == [True] * 3
    assert "controllerDLegerGroup" in on_call.output("controller", "config", CLUSTER)


def test_leadership_of_the_controllers_goes_to_whom_it_is_handed(on_call: User, group: Group) -> None:
    def leader() -> str:
        (shown,) = json.loads(on_call.output("controller", "status", CLUSTER, "-o", "json"))["controllerClusters"]
        return str(shown["leaderId"])

    since = group.mark()
    target = next(one for one in ("n0", "n1", "n2") if one != leader())
    assert f"{target} leads {CLUSTER}" in on_call.output("controller", "transfer-leader", CLUSTER, target)
    assert leader() == target
    group.judge(since, gap=1.0)


def test_a_viewer_sees_the_status_and_changes_nothing(viewer: User, group: Group) -> None:
    shown = viewer.run("get-sync-state-set", group.name)
    assert shown.returncode == 3
    assert "from the resource's status, last changed" in shown.stdout
    assert "pods/portforward" in shown.stderr
    for verb in ("fence", "pause", "hibernate", "restart"):
        refused = viewer.run(verb, group.name)
        assert refused.returncode == 1, refused.stdout
        assert 'cannot patch resource "brokergroups"' in refused.stderr
    refused = viewer.run("switchover", group.name)
    assert refused.returncode == 1, refused.stdout
    spec = group.read()["spec"]
    assert isinstance(spec, dict)
    assert not any(spec.get(switch) for switch in ("paused", "fenced", "hibernated"))


def test_what_is_refused(on_call: User, group: Group) -> None:
    master = group.master()
    unclean = on_call.run("elect-master", group.name, "--force-unclean", "--yes-i-lose-messages")
    assert unclean.returncode == 1
    assert "no unclean election is needed" in unclean.stderr
    rebuild = on_call.run("rebuild", group.name, master, "--yes-i-delete-this-replica")
    assert rebuild.returncode == 1
    assert "is the master" in rebuild.stderr
    unasked = on_call.run("rebuild", group.name, next(pod for pod in group.ids() if pod != master))
    assert unasked.returncode == 1
    assert "cannot ask for confirmation without a terminal" in unasked.stderr
    nobody = on_call.run("status", "nobody")
    assert nobody.returncode == 1
    assert f"there is {group.name}" in nobody.stderr or f"there are {group.name}" in nobody.stderr


def test_a_report_has_everything_and_no_secret(
    installation: Installation, on_call: User, group: Group, tmp_path: Path
) -> None:
    file = tmp_path / "report.zip"
    on_call.output("report", group.name, "-o", str(file))
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name).decode() for name in archive.namelist()}
    for pod in group.ids():
        assert content[f"logs/{pod}/sidecar.log"]
        assert "# TYPE" in content[f"metrics/{pod}.txt"]
        assert f"resources/pods/{pod}.yaml" in content
    assert '"aligned":true' in content["epochs.json"]
    assert "secrets is forbidden" in content["README.txt"], "who may not list Secrets gets the rest"

    admin = tmp_path / "admin.zip"
    whole = ["--kubeconfig", str(installation.cluster.kubeconfig), "-n", group.namespace]
    subprocess.run([str(PLUGIN), "report", group.name, "-o", str(admin), *whole], check=True, timeout=180)
    secret = installation.cluster.json("-n", group.namespace, "get", "secret", f"{CLUSTER}-controller-raft")
    with zipfile.ZipFile(admin) as archive:
        everything = "".join(archive.read(name).decode() for name in archive.namelist())
        assert f"resources/secrets/{CLUSTER}-controller-raft.yaml" in archive.namelist()
    assert secret["data"]["raft.secret"] not in everything


def test_kubectl_completes_the_plugin(installation: Installation, on_call: User, group: Group, tmp_path: Path) -> None:
    """kubectl's own protocol, with the script as pip installs it."""
    script = tmp_path / "kubectl_complete-rocketmq"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketmq_kubectl.complete "$@"\n')
    script.chmod(0o755)

    def completed(*words: str) -> list[str]:
        command = [installation.cluster.command()[0], "__complete", "rocketmq", *words]
        path = os.pathsep.join((str(tmp_path), str(PLUGIN.parent), os.environ["PATH"]))
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(on_call.kubeconfig)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]

    assert completed("switch") == ["switchover", ":4"]
    assert completed("status", "") == [group.name, ":4"]
    assert completed("switchover", group.name, "") == [*sorted(group.ids()), ":4"]
