"""A reference that cannot be used is named in the conditions, and the operator continues when it can."""

from typing import Any, cast

import pytest

from rocketmq_operator.domain.conditions import find
from rocketmq_operator.domain.observed import Reference
from rocketmq_operator.kubernetes.cache import Key
from rocketmq_operator.kubernetes.kube import Kube, NotFoundError, UnavailableError
from rocketmq_operator.kubernetes.parse import pod_of
from rocketmq_operator.kubernetes.secrets import READ_AGAIN, Secrets
from rocketmq_resources import names
from tests.operator.model.api import Body
from tests.operator.model.whole import RESOURCES, Whole, made

pytestmark = pytest.mark.looptime


@pytest.fixture
async def model() -> Whole:
    """At rest, everything Ready; events come at once."""
    model = Whole()
    model.interleaves = 0.0
    await model.settle()
    return model


def secret(name: str, *keys: str) -> Body:
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": dict.fromkeys(keys, "eA==")}


async def shown(model: Whole, kind: str) -> tuple[str, str]:
    """Reason and message of Ready, which Degraded repeats."""
    while model.server.news:
        model.deliver()
    for _ in range(4):
        await model.reconcile(Key(kind, "ns", RESOURCES[kind]))
    conditions = model.resource(kind)["status"]["conditions"]
    ready, degraded = find(conditions, "Ready"), find(conditions, "Degraded")
    assert (ready["status"], degraded["status"]) == ("False", "True")
    assert (degraded["reason"], degraded["message"]) == (ready["reason"], ready["message"])
    return str(ready["reason"]), str(ready["message"])


async def test_a_name_server_that_does_not_exist_and_then_does(model: Whole) -> None:
    uids = {pod["metadata"]["uid"] for pod in model.cluster.pods("BrokerGroup")}
    model.edit("BrokerGroup", nameServerRef={"name": "other"})
    assert await shown(model, "BrokerGroup") == ("ReferenceNotFound", "NameServer ns/other does not exist")
    assert {pod["metadata"]["uid"] for pod in model.cluster.pods("BrokerGroup")} == uids
    other = made("NameServer", replicas=1)
    model.server.put({**other, "metadata": {**other["metadata"], "name": "other"}})
    await model.settle()


async def test_a_broker_name_that_another_group_has(model: Whole) -> None:
    """To the controllers the two would be one group."""
    other = made("BrokerGroup", replicas=2, brokerName="g", controllerRef={"name": "c"}, nameServerRef={"name": "n"})
    created = {"name": "h", "creationTimestamp": "2100-01-01T00:00:00Z"}
    model.server.put({**other, "metadata": {**other["metadata"], **created}})
    while model.server.news:
        model.deliver()
    await model.reconcile(Key("BrokerGroup", "ns", "h"))
    conditions = model.server.objects[("BrokerGroup", "ns", "h")]["status"]["conditions"]
    assert find(conditions, "Degraded")["reason"] == "BrokerNameTaken"
    assert ("StatefulSet", "ns", "h") not in model.server.objects
    await model.settle()


async def test_a_resource_of_another_kind(model: Whole) -> None:
    model.edit("BrokerGroup", nameServerRef={"name": "c"})
    message = "NameServer ns/c does not exist, only a ControllerCluster of that name"
    assert await shown(model, "BrokerGroup") == ("ReferenceInvalid", message)
    model.edit("BrokerGroup", nameServerRef={"name": "n"})
    await model.settle()


async def test_a_resource_whose_own_spec_is_refused(model: Whole) -> None:
    """It exists: only its own status would say why it cannot be used."""
    model.edit("NameServer", replicas="many")
    reason, message = await shown(model, "BrokerGroup")
    assert reason == "ReferenceInvalid"
    assert message.startswith("NameServer ns/n is refused: spec.replicas")
    model.edit("NameServer", replicas=2)
    await model.settle()


async def test_a_namespace_that_is_not_watched(model: Whole) -> None:
    model.namespaces = ("ns", "two")
    model.restart()
    model.edit("BrokerGroup", nameServerRef={"name": "n", "namespace": "three"})
    message = "NameServer three/n is not seen: this operator watches ns, two"
    assert await shown(model, "BrokerGroup") == ("ReferenceInvalid", message)


@pytest.mark.parametrize(
    ("kind", "field", "keys"),
    [
        ("BrokerGroup", "replicationSecretName", [names.KEY_REPLICATION_SECRET]),
        ("BrokerGroup", "grpcTlsSecretName", ["ca.crt", "tls.crt", "tls.key"]),
        ("ControllerCluster", "raftSecretName", [names.KEY_RAFT_SECRET]),
        ("ControllerCluster", "grpcTlsSecretName", ["ca.crt", "tls.crt", "tls.key"]),
    ],
)
async def test_a_secret(model: Whole, kind: str, field: str, keys: list[str]) -> None:
    uids = {pod["metadata"]["uid"] for pod in model.cluster.pods(kind)}
    model.edit(kind, **{field: "mine"})
    assert await shown(model, kind) == ("ReferenceNotFound", "Secret ns/mine does not exist")
    model.server.put(secret("mine", "else"))
    assert await shown(model, kind) == ("ReferenceInvalid", f"Secret ns/mine has no {', '.join(keys)}")
    assert {pod["metadata"]["uid"] for pod in model.cluster.pods(kind)} == uids, "a new pod would not start"
    assert Key(kind, "ns", RESOURCES[kind]) in model.dirty, "no event reports a Secret"
    model.server.put(secret("mine", *keys))
    await model.settle()
    assert not {pod["metadata"]["uid"] for pod in model.cluster.pods(kind)} & uids


class OneSecret:
    """Stands for the client of the API server."""

    def __init__(self) -> None:
        self.reads = 0
        self.fails: Exception | None = None

    async def get(self, *_: str) -> dict[str, Any]:
        self.reads += 1
        if self.fails is not None:
            raise self.fails
        return secret("mine", "key")


async def test_a_good_secret_is_read_rarely_and_a_missing_one_always() -> None:
    kube, now = OneSecret(), 0.0
    secrets = Secrets(cast("Kube", kube), clock=lambda: now)
    wanted = {"mine": ("key",)}
    for _ in range(3):
        assert await secrets.problems("ns", wanted) == {}
    assert kube.reads == 1
    now += READ_AGAIN
    kube.fails = NotFoundError("get", 404, "gone")
    for _ in range(3):
        assert await secrets.problems("ns", wanted) == {Reference("Secret", "ns", "mine"): ""}
    assert kube.reads == 4


async def test_what_cannot_be_read_is_not_called_missing() -> None:
    kube = OneSecret()
    kube.fails = UnavailableError("get", 503, "no answer")
    assert await Secrets(cast("Kube", kube)).problems("ns", {"mine": ("key",)}) == {}


def test_a_reference_in_the_environment_is_named_by_its_pod() -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": 'configmap "mine" not found'}
    status = {"containerStatuses": [{"name": "broker", "state": {"waiting": waiting}}]}
    pod = pod_of({"metadata": {"name": "g-0"}, "status": status})
    assert pod is not None
    assert pod.problem == 'CreateContainerConfigError (broker): configmap "mine" not found'
