"""`verify`: what was found last, and a Job as the schedule would make it, followed to its end."""

import json
from itertools import count
from typing import Any

import pytest

from rocketmq_kubectl.verbs import follow_job as follow
from rocketmq_kubectl.verbs import verify
from rocketmq_resources import names
from tests.command_lines import Tool
from tests.kubectl.fake_cluster import NAMESPACE, FakeCluster

BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}"
JOB = "orders-verify-0101120000"
POD = f"{JOB}-0-abcde"
LABELS = {**names.selector("verify", "orders"), "job-name": JOB}
ALIGNED = {
    "lastTime": "2026-01-01T11:58:00Z",
    "result": "Aligned",
    "message": "3 replicas aligned up to offset 4096 at epoch 2",
    "alignedUpTo": 4096,
    "epoch": 2,
    "findings": 0,
    "bytes": 2048,
    "durationSeconds": 9,
    "full": False,
    "job": "orders-verify-29450160",
    "lastFullTime": "2025-12-31T12:00:00Z",
    "oldestReadTime": "2025-12-31T12:00:00Z",
    "oldestReadOffset": 1024,
}
DIFFERENT = {
    **ALIGNED,
    "result": "Different",
    "message": "mismatch: orders-2: body CRC wrong",
    "findings": 1,
    "details": ["orders-2: body CRC wrong"],
}


@pytest.fixture
def configured(cluster: FakeCluster) -> FakeCluster:
    cluster.resource["spec"]["verification"] = {"schedule": "0 3 * * *"}
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"template": {"spec": {"containers": [{"name": "verify", "env": [{"name": "X", "value": "y"}]}]}}},
    }
    cluster.api.put(
        f"{BATCH}/cronjobs/orders-verify",
        {"metadata": {"name": "orders-verify", "uid": "u1"}, "spec": {"jobTemplate": template}},
    )
    return cluster


def job(cluster: FakeCluster) -> dict[str, Any]:
    made: dict[str, Any] = cluster.api.objects[f"{BATCH}/jobs/{JOB}"]
    return made


def test_never_compared(cluster: FakeCluster, plugin: Tool) -> None:
    outcome = plugin("verify", "orders")
    assert outcome.code == 3
    assert "were never compared: kubectl rocketmq verify orders --now" in outcome.err


def test_the_last_result(cluster: FakeCluster, plugin: Tool) -> None:
    cluster.resource["status"]["verification"] = ALIGNED
    outcome = plugin("verify", "orders", "--last")
    assert outcome.code == 0
    assert "Result:         Aligned\n" in outcome.out
    assert "Aligned up to:  offset 4096 at epoch 2\n" in outcome.out
    assert "Compared:       2.0 KiB in 9s\n" in outcome.out
    assert "(2m ago)" in outcome.out
    assert "Oldest read:    2025-12-31T12:00:00Z (" in outcome.out
    assert " ago), offset 1024\n" in outcome.out
    found = json.loads(plugin("verify", "orders", "-o", "json").out)
    assert found["verification"]["alignedUpTo"] == 4096


def test_a_difference_is_the_exit_code(cluster: FakeCluster, plugin: Tool) -> None:
    cluster.resource["status"]["verification"] = DIFFERENT
    outcome = plugin("verify", "orders")
    assert outcome.code == 1
    assert "Findings:\n  orders-2: body CRC wrong\n" in outcome.out
    assert "have different messages" in outcome.err
    cluster.resource["status"]["verification"] = {**ALIGNED, "result": "Failed", "message": "orders-1 is not heard"}
    outcome = plugin("verify", "orders", "-o", "yaml")
    assert outcome.code == 3
    assert "could not be compared: orders-1 is not heard" in outcome.err


def test_a_job_of_the_cron_job(configured: FakeCluster, plugin: Tool) -> None:
    outcome = plugin("verify", "orders", "--now", "--no-follow")
    assert outcome.code == 0
    assert f"kubectl -n shop logs -f job/{JOB}" in outcome.out
    made = job(configured)
    assert made["metadata"] == {
        "name": JOB,
        "labels": {"a": "b"},
        "annotations": {"c": "d", "cronjob.kubernetes.io/instantiate": "manual"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "orders-verify", "uid": "u1"}],
    }
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "X", "value": "y"}]


def test_of_everything(configured: FakeCluster, plugin: Tool) -> None:
    assert plugin("verify", "orders", "--now", "--full", "--no-follow").code == 0
    (container,) = job(configured)["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "X", "value": "y"}, {"name": "ROCKETMQ_FULL", "value": "true"}]


def test_it_is_followed(configured: FakeCluster, plugin: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL", 0.01)
    monkeypatch.setattr(verify, "POLL", 0.01)
    found = configured.api.put

    def put(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith(JOB):
            pod = {"metadata": {"name": POD, "labels": LABELS}}
            found(f"/api/v1/namespaces/{NAMESPACE}/pods/{POD}", pod)
            configured.api.logs[POD, "verify", False] = "asking 3 replicas\ncomparing\nhalf a li"
            body = {**body, "status": {"conditions": [{"type": "Failed", "status": "True", "message": "exit 1"}]}}
            configured.resource["status"]["verification"] = {**DIFFERENT, "job": JOB}
        return found(path, body)

    monkeypatch.setattr(configured.api, "put", put)
    outcome = plugin("verify", "orders", "--now")
    assert outcome.code == 1
    assert f"Job {JOB} compares the logs of orders\nasking 3 replicas\ncomparing\n" in outcome.err
    assert "half" not in outcome.err
    assert "Result:         Different" in outcome.out


@pytest.mark.parametrize(("full", "code"), [(False, 3), (True, 0)])
def test_a_comparison_of_everything_that_ended_early_is_not_one(
    configured: FakeCluster, plugin: Tool, monkeypatch: pytest.MonkeyPatch, full: bool, code: int
) -> None:
    monkeypatch.setattr(follow, "POLL", 0.01)
    monkeypatch.setattr(verify, "POLL", 0.01)
    found = configured.api.put
    ended = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    monkeypatch.setattr(configured.api, "put", lambda path, body: found(path, {**body, **ended}))
    configured.resource["status"]["verification"] = {**ALIGNED, "full": full, "job": JOB}
    outcome = plugin("verify", "orders", "--now", "--full")
    assert outcome.code == code
    assert ("not everything of orders was compared" in outcome.err) == (not full)


def test_a_job_without_a_result(configured: FakeCluster, plugin: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL", 0.01)
    monkeypatch.setattr(verify, "POLL", 0.01)
    monkeypatch.setattr(verify, "STATUS_SECONDS", 0.0)
    outcome = plugin("verify", "orders", "--now", "--timeout", "1")
    assert outcome.code == 4
    assert "has not ended after 1 s; it continues" in outcome.err
    found = configured.api.put
    ended = {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "DeadlineExceeded"}]}}
    monkeypatch.setattr(configured.api, "put", lambda path, body: found(path, {**body, **ended}))
    outcome = plugin("verify", "orders", "--now")
    assert outcome.code == 3
    assert "has not written its result; it failed: DeadlineExceeded" in outcome.err


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Job is polled without a pause, twice as often as a trouble has to last, and ends without a result."""
    polls = count(1)
    monkeypatch.setattr(follow, "POLL", 0.0)
    monkeypatch.setattr(follow, "_ended", lambda _: (next(polls) == 2 * follow.PATIENCE, None))
    monkeypatch.setattr(verify, "STATUS_SECONDS", 0.0)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    ("role", "status", "told"),
    [
        (
            "driver",
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}]},
            "ImagePullBackOff: no such tag",
        ),
        (
            "executor",
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]},
            "Unschedulable: 0/1",
        ),
    ],
)
def test_why_a_pod_does_not_start(
    configured: FakeCluster, plugin: Tool, role: str, status: dict[str, Any], told: str
) -> None:
    labels = names.selector("verify", "orders")
    metadata: dict[str, dict[str, Any]] = {
        "driver": {"name": POD, "uid": "d", "labels": LABELS},
        "executor": {"name": "e-1", "labels": labels, "ownerReferences": [{"kind": "Pod", "uid": "d"}]},
        "stranger": {"name": "f-1", "labels": labels},
    }
    for kind, one in metadata.items():
        waits = kind in {role, "stranger"}
        body = {"metadata": one, **({"status": status} if waits else {})}
        configured.api.put(f"/api/v1/namespaces/{NAMESPACE}/pods/{one['name']}", body)
    outcome = plugin("verify", "orders", "--now")
    why = f"pod {metadata[role]['name']} does not start: {told}"
    assert outcome.err.count(f"{why}\n") == 1
    assert outcome.err.count("does not start") == 2, "the last line repeats it"
    assert f"it ended; {why}; see" in outcome.err


def test_what_is_refused(cluster: FakeCluster, plugin: Tool) -> None:
    assert "no verification is configured for orders" in plugin("verify", "orders", "--now").err
    cluster.resource["spec"]["verification"] = {"schedule": "0 3 * * *"}
    assert "its CronJob orders-verify does not exist (yet)" in plugin("verify", "orders", "--now").err
    cluster.resource["spec"]["hibernated"] = True
    assert "is hibernated" in plugin("verify", "orders", "--now").err
    assert plugin("verify", "orders", "--now", "--last").code == 2
    assert plugin("verify", "orders", "--full").code == 2
