"""`verify` makes the Job that the schedule would make."""

from tests.command_lines import Tool
from tests.kubectl.fake_cluster import NAMESPACE, FakeCluster

BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}"


def test_a_job_of_the_cron_job(cluster: FakeCluster, plugin: Tool) -> None:
    cluster.resource["spec"]["verification"] = {"schedule": "0 3 * * *"}
    outcome = plugin("verify", "orders")
    assert outcome.code == 1
    assert "its CronJob orders-verify is not there (yet)" in outcome.err

    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"template": {}}}
    cluster.api.put(
        f"{BATCH}/cronjobs/orders-verify",
        {"metadata": {"name": "orders-verify", "uid": "u1"}, "spec": {"jobTemplate": template}},
    )
    outcome = plugin("verify", "orders")
    assert outcome.code == 0
    assert "kubectl -n shop logs -f job/orders-verify-0101120000" in outcome.out
    assert cluster.api.objects[f"{BATCH}/jobs/orders-verify-0101120000"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "orders-verify-0101120000",
            "labels": {"a": "b"},
            "annotations": {"c": "d", "cronjob.kubernetes.io/instantiate": "manual"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "orders-verify", "uid": "u1"}],
        },
        "spec": {"template": {}},
    }
