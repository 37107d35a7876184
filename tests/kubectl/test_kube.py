"""The way to the API server: what goes wrong is one clear error."""

import pytest

from rocketmq_kubectl.cluster.kube import checked_name, connect, refusal
from rocketmq_kubectl.cluster.kube_options import KubeOptions
from rocketmq_kubectl.errors import (
    CommandRefusedError,
    ForbiddenError,
    NotFoundError,
    PluginError,
    UnreachableError,
    WrongUsageError,
)
from rocketmq_kubectl.options import seconds
from tests.kubectl.fake_cluster import GROUPS, FakeCluster


@pytest.mark.parametrize(
    ("status", "kind", "exit_code"),
    [
        (401, ForbiddenError, 1), (403, ForbiddenError, 1), (404, NotFoundError, 1), (409, CommandRefusedError, 1),
        (422, CommandRefusedError, 1), (429, UnreachableError, 3), (500, UnreachableError, 3),
        (503, UnreachableError, 3),
    ],
)  # fmt: skip
def test_statuses(status: int, kind: type[PluginError], exit_code: int) -> None:
    for content in (b'{"kind":"Status","message":"because"}', b"because", b'{"message":3} because'):
        error = refusal(status, content, "GET /x")
        assert type(error) is kind
        assert error.exit_code == exit_code
        assert "because" in str(error)
    assert "GET /x: HTTP" in str(refusal(status, b"", "GET /x"))


@pytest.mark.parametrize("name", ["", "a/b", "..", "../secrets", "A", "a?b", "-a", "a" * 254, "a b", "ä"])
def test_nothing_but_a_name_gets_into_a_path(name: str) -> None:
    with pytest.raises(WrongUsageError):
        checked_name(name, "GROUP")


@pytest.mark.parametrize(
    ("text", "value"),
    [(None, 10), ("5", 5), ("5s", 5), ("1.5s", 1.5), ("250ms", 0.25), ("1m", 60), ("0", 600), ("2h", 600)],
)
def test_request_timeout(text: str | None, value: float) -> None:
    assert seconds(text) == value


async def test_an_api_server_that_is_not_there(cluster: FakeCluster) -> None:
    kube = connect(KubeOptions(request_timeout=2))
    cluster.kubeconfig.write_text(cluster.kubeconfig.read_text().replace(str(cluster.api.port), "1"))
    gone = connect(KubeOptions(request_timeout=2))
    assert (await kube.get("/version"))["gitVersion"] == "v1.33.0"
    with pytest.raises(UnreachableError, match="does not answer"):
        await gone.get("/version")


async def test_an_answer_that_is_no_json(cluster: FakeCluster) -> None:
    cluster.api.logs["orders-0", "broker", False] = "<html>"
    kube = connect(KubeOptions())
    with pytest.raises(UnreachableError, match="not JSON"):
        await kube.get("/api/v1/namespaces/shop/pods/orders-0/log", {"container": "broker"})


async def test_namespace_of_the_flag_the_context_or_default(cluster: FakeCluster) -> None:
    assert connect(KubeOptions()).namespace == "shop"
    assert connect(KubeOptions(namespace="other")).namespace == "other"
    assert connect(KubeOptions(context="elsewhere")).namespace == "default"


async def test_a_status_of_another_release_is_shown_without_what_it_does_not_know(cluster: FakeCluster) -> None:
    from rocketmq_kubectl.cluster import resources

    body = cluster.api.objects[f"{GROUPS}/orders"]
    body["status"] |= {"masterEpoch": "three", "somethingNew": {"a": 1}, "replicaStatuses": "many"}
    status = resources.group_status(resources.broker_group(body))
    assert (status.phase, status.master_epoch, status.replica_statuses) == ("Running", None, ())
