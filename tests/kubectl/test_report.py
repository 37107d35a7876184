"""The support bundle: what is in it, what could not be had, and no secret anywhere."""

import json
import zipfile
from pathlib import Path

from rocketmq_resources import names
from tests.command_lines import Tool
from tests.kubectl.fake_cluster import GROUP, NAMESPACE, FakeCluster

SECRET, PASSWORD = "c2VjcmV0LW9mLXRoZS1yYWZ0", "hunter2-of-the-log"


def furnished(cluster: FakeCluster) -> None:
    api, labels = cluster.api, names.labels("controller", "main")
    api.put(
        f"/api/v1/namespaces/{NAMESPACE}/secrets/main-controller-raft",
        {"metadata": {"name": "main-controller-raft", "labels": labels}, "data": {"raft.secret": SECRET}},
    )
    for name, about in (("e1", "orders-1"), ("e2", "orders"), ("e3", "orders-of-others"), ("e4", "data-orders-0")):
        event = {"metadata": {"name": name}, "involvedObject": {"name": about}, "reason": f"About-{about}"}
        api.put(f"/api/v1/namespaces/{NAMESPACE}/events/{name}", event)
    pod = api.objects[f"/api/v1/namespaces/{NAMESPACE}/pods/orders-0"]
    pod["status"]["containerStatuses"][1]["restartCount"] = 2
    pod["spec"]["containers"][0]["env"] = [{"name": "DB_PASSWORD", "value": PASSWORD}]
    for container in ("broker", "sidecar"):
        api.logs["orders-0", container, False] = f"started, password={PASSWORD}\nready\n"
    api.logs["orders-0", "sidecar", True] = "crashed\n"


def test_a_bundle(cluster: FakeCluster, plugin: Tool, tmp_path: Path) -> None:
    furnished(cluster)
    file = tmp_path / "bundle.zip"
    outcome = plugin("report", GROUP, "-o", str(file))
    assert outcome.code == 0, outcome.err

    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {
        "README.txt", "status.txt", "sync-state-set.json", "epochs.json", "controllers.json", "events-shop.yaml",
        "resources/brokergroup/orders.yaml", "resources/controllercluster/main.yaml", "resources/pods/orders-2.yaml",
        "resources/pods/main-controller-0.yaml", "resources/secrets/main-controller-raft.yaml",
        "logs/orders-0/broker.log", "logs/orders-0/sidecar.log", "logs/orders-0/sidecar.previous.log",
    } <= content.keys()  # fmt: skip
    assert not any(SECRET in text or PASSWORD in text for text in content.values())
    assert "raft.secret: <redacted>" in content["resources/secrets/main-controller-raft.yaml"]
    assert content["logs/orders-0/broker.log"] == "started, password=<redacted>\nready\n"
    assert json.loads(content["epochs.json"])["aligned"] is True
    assert "orders-0 (brokerId 1)" in content["status.txt"]
    events = content["events-shop.yaml"]
    assert [one for one in ("orders-1", "orders", "data-orders-0") if f"About-{one}\n" not in events] == []
    # orders-of-others is another group, whose name has the same beginning; the name alone does not tell them apart
    missing = content["README.txt"]
    assert "- logs/orders-1/broker.log: no log of" in missing
    assert "- metrics/orders-0.txt: pod orders-0 does not answer at port 5558" in missing


def test_without_logs_and_without_rights(cluster: FakeCluster, plugin: Tool, tmp_path: Path) -> None:
    furnished(cluster)
    cluster.api.refused["get secrets"] = 403, "secrets is forbidden"
    cluster.api.refused["get pods/portforward"] = 403, "pods/portforward is forbidden"
    file = tmp_path / "bundle.zip"
    assert plugin("report", GROUP, "-o", str(file), "--no-logs").code == 0
    with zipfile.ZipFile(file) as archive:
        found = archive.namelist()
        missing = archive.read("README.txt").decode()
    assert not [name for name in found if name.startswith(("logs/", "metrics/", "resources/secrets"))]
    assert "- resources/secrets: secrets is forbidden" in missing
    assert "from the resource's status, last changed 5m ago" in missing


def test_a_file_that_is_there_is_kept(cluster: FakeCluster, plugin: Tool, tmp_path: Path) -> None:
    file = tmp_path / "bundle.zip"
    file.write_text("mine")
    outcome = plugin("report", GROUP, "-o", str(file))
    assert (outcome.code, file.read_text()) == (1, "mine")
    assert "exists" in outcome.err
