"""The operator's shells against an API server: from an event to applied objects and back, and what idling costs."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rocketmq_operator.app import Operator
from rocketmq_operator.kubernetes.kube import Kube
from rocketmq_operator.settings import OperatorSettings
from rocketmq_resources import names
from tests.operator.model.api import FakeApi

KINDS = {"ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet"}


@asynccontextmanager
async def operating(api: FakeApi, *, resync: float = 3600.0, namespaces: str = "ns") -> AsyncIterator[Operator]:
    async with api.running() as configuration:
        kube = Kube(configuration)
        settings = OperatorSettings(
            namespaces=namespaces, namespace="ns", pod_name="p", resync_seconds=resync, workers=2
        )
        operator = Operator(settings, kube, configuration, leading=lambda: True, signals=lambda: None)
        kube.count = operator.metrics.called
        task = asyncio.create_task(operator.run())
        try:
            yield operator
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await kube.close()


def name_server(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "NameServer",
        "metadata": {"name": "one", "namespace": "ns"},
        "spec": spec,
    }


def group(**spec: object) -> dict[str, Any]:
    # No process listens there: the operator runs without controllers.
    addresses = {"controllerAddr": "127.0.0.1:9", "controllerGrpcAddr": "127.0.0.1:9", "namesrvAddr": "n:9876"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "BrokerGroup",
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {**addresses, **spec},
    }


def controller_cluster(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ControllerCluster",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": spec,
    }


def made(api: FakeApi) -> set[str]:
    return {kind for kind, _, _ in api.objects} & KINDS


def conditions(body: dict[str, Any] | None) -> dict[str, str]:
    return {} if body is None else {one["type"]: one["reason"] for one in body.get("status", {}).get("conditions", ())}


async def quiet(api: FakeApi, operator: Operator) -> None:
    """Until a turn of all queues changes nothing any more."""
    before = -1
    while before != len(api.calls):
        before = len(api.calls)
        await asyncio.sleep(0.3)  # the queue's own delay, ten times


async def test_a_name_server_becomes_objects_and_a_status() -> None:
    api = FakeApi()
    api.put(name_server(replicas=2))
    async with operating(api):
        await api.wait_until(lambda: conditions(api.get("NameServer", "one")).get("Ready") == "PodsNotReady")
    assert made(api) == KINDS
    stateful_set = api.get("StatefulSet", "one-namesrv")
    assert stateful_set is not None
    assert stateful_set["spec"]["replicas"] == 2
    assert stateful_set["metadata"]["ownerReferences"][0]["kind"] == "NameServer"


async def test_an_idle_group_costs_no_call_and_drift_is_repaired() -> None:
    api = FakeApi()
    api.put(group())
    async with operating(api) as operator:
        await api.wait_until(lambda: "Available" in conditions(api.get("BrokerGroup", "g")))
        await quiet(api, operator)
        calls = len(api.calls)
        body = api.get("BrokerGroup", "g")
        assert body is not None
        # Another client writes an irrelevant change: an event without news.
        api.put({**body, "metadata": {**body["metadata"], "annotations": {"other": "1"}}})
        await quiet(api, operator)
        assert [call for call in api.calls[calls:] if not call.endswith("/events")] == []

        service = api.get("Service", "g")
        assert service is not None
        ports = service["spec"]["ports"]
        api.put({**service, "spec": {**service["spec"], "ports": []}})
        await api.wait_until(lambda: (api.get("Service", "g") or {})["spec"]["ports"] == ports)
        api.remove("ConfigMap", "ns", names.group_config("g"))
        await api.wait_until(lambda: api.get("ConfigMap", names.group_config("g")) is not None)
        api.remove("StatefulSet", "ns", "g")
        await api.wait_until(lambda: api.get("StatefulSet", "g") is not None)


async def test_a_group_is_given_a_secret() -> None:
    api = FakeApi()
    api.put(group())
    async with operating(api):
        await api.wait_until(lambda: api.get("StatefulSet", "g") is not None)
        made = api.get("Secret", "g-replication")
        assert made is not None
        assert len(base64.b64decode(made["data"]["replication.secret"])) == 64


async def test_a_new_operator_applies_everything_once_and_changes_nothing() -> None:
    api = FakeApi()
    api.put(group())
    async with operating(api) as operator:
        await api.wait_until(lambda: "Available" in conditions(api.get("BrokerGroup", "g")))
        await quiet(api, operator)
    versions = {key: body["metadata"]["resourceVersion"] for key, body in api.objects.items() if key[0] in KINDS}
    api.calls.clear()
    again = FakeApi()
    again.objects, again._version = api.objects, api._version
    async with operating(again) as operator:
        await again.wait_until(lambda: sum(call.startswith("PATCH") for call in again.calls) >= len(KINDS))
        await quiet(again, operator)
    assert {
        key: body["metadata"]["resourceVersion"] for key, body in again.objects.items() if key[0] in KINDS
    } == versions
    applied = [call for call in again.calls if call.startswith("PATCH") and "rocketmq-ha.io" not in call]
    assert len(applied) == len(KINDS)


async def test_a_refused_resource_reports_why_and_the_others_continue() -> None:
    api = FakeApi()
    api.put(group(controllerRef={"name": "c"}))  # beside controllerAddr
    api.put(name_server(replicas=1))
    async with operating(api):
        await api.wait_until(lambda: conditions(api.get("BrokerGroup", "g")).get("Ready") == "InvalidSpec")
        await api.wait_until(lambda: "Ready" in conditions(api.get("NameServer", "one")))
        body = api.get("BrokerGroup", "g")
        assert body is not None
        api.put({**body, "spec": group()["spec"]})
        await api.wait_until(lambda: conditions(api.get("BrokerGroup", "g")).get("Ready") == "ControllersUnreachable")


async def test_what_is_referred_to_may_come_later() -> None:
    api = FakeApi()
    api.put(group(namesrvAddr=None, nameServerRef={"name": "one"}))
    async with operating(api):
        await api.wait_until(lambda: conditions(api.get("BrokerGroup", "g")).get("Degraded") == "ReferenceNotFound")
        assert api.get("StatefulSet", "g") is None
        api.put(name_server())
        await api.wait_until(lambda: api.get("StatefulSet", "g") is not None)


async def test_a_change_of_the_controllers_reconciles_their_groups_too() -> None:
    api = FakeApi()
    api.put(group(controllerAddr=None, controllerRef={"name": "c"}))
    api.put(controller_cluster(tuning={"brokerSuspectTimeoutMs": 1500}))
    async with operating(api):
        await api.wait_until(
            lambda: conditions(api.get("BrokerGroup", "g")).get("Degraded") == "LeaseOutlivesSuspicion"
        )
        assert api.get("StatefulSet", "g") is not None
        api.put(controller_cluster(tuning={"brokerSuspectTimeoutMs": 2500}))
        await api.wait_until(lambda: conditions(api.get("BrokerGroup", "g")).get("Degraded") == "AsWanted")


async def test_a_refused_call_is_tried_again() -> None:
    api = FakeApi()
    refusals = 3

    def refuse(method: str, path: str) -> int | None:
        nonlocal refusals
        if method == "PATCH" and path.endswith("/statefulsets/g") and refusals:
            refusals -= 1
            return 503
        return None

    api.refuse = refuse
    api.put(group())
    async with operating(api):
        await api.wait_until(lambda: api.get("StatefulSet", "g") is not None)
    assert refusals == 0


async def test_a_finalizer_is_there_only_with_delete_and_lets_go() -> None:
    api = FakeApi()
    api.put(group(storage={"reclaimPolicy": "Delete"}))
    async with operating(api):
        await api.wait_until(
            lambda: names.FINALIZER in (api.get("BrokerGroup", "g") or {})["metadata"].get("finalizers", ())
        )
        await api.wait_until(lambda: api.get("StatefulSet", "g") is not None)
        body = api.get("BrokerGroup", "g")
        assert body is not None
        api.put({**body, "spec": {**body["spec"], "storage": {"reclaimPolicy": "Retain"}}})
        await api.wait_until(lambda: not (api.get("BrokerGroup", "g") or {})["metadata"].get("finalizers"))


async def test_what_went_unnoticed_is_found_out() -> None:
    api = FakeApi()
    api.put(group())
    async with operating(api, resync=0.05) as operator:
        await api.wait_until(lambda: api.get("Service", "g") is not None)
        await no_writes_for_a_resync(api)
        api.remove("Service", "ns", "g", quietly=True)
        await api.wait_until(lambda: api.get("Service", "g") is not None)
        assert operator.watching


async def no_writes_for_a_resync(api: FakeApi) -> None:
    calls = len(api.calls)
    await api.wait_until(lambda: sum(call.startswith("GET") for call in api.calls[calls:]) > 2)


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_name_server_follows_its_spec(replicas: int) -> None:
    api = FakeApi()
    api.put(name_server(replicas=2))
    async with operating(api):
        await api.wait_until(lambda: api.get("StatefulSet", "one-namesrv") is not None)
        body = api.get("NameServer", "one")
        assert body is not None
        api.put({**body, "spec": {"replicas": replicas}})
        await api.wait_until(
            lambda: (
                (api.get("StatefulSet", "one-namesrv") or {})["spec"]["replicas"] == replicas
                and (api.get("NameServer", "one") or {}).get("status", {}).get("observedGeneration") == 2
            )
        )


async def test_a_volume_that_cannot_grow_is_reported_and_not_requested_again() -> None:
    api = FakeApi()
    api.put(group(storage={"size": "2Gi"}))
    labels = names.labels("broker", "g")
    for ordinal in range(3):
        metadata = {"name": f"data-g-{ordinal}", "namespace": "ns", "labels": labels}
        requests = {"resources": {"requests": {"storage": "1Gi"}}}
        api.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": requests})
    api.refuse = lambda method, path: 403 if method == "PATCH" and "/persistentvolumeclaims/" in path else None
    async with operating(api) as operator:
        await api.wait_until(lambda: conditions(api.get("BrokerGroup", "g")).get("Degraded") == "StorageNotExpandable")
        await quiet(api, operator)
    assert sum("/persistentvolumeclaims/" in call for call in api.calls) == 3


@pytest.mark.parametrize("namespaces", ["ns,other", ""])
async def test_some_namespaces_or_all_are_watched(namespaces: str) -> None:
    api = FakeApi()
    api.put(name_server())
    elsewhere = name_server()
    api.put({**elsewhere, "metadata": {**elsewhere["metadata"], "namespace": "other"}})
    async with operating(api, namespaces=namespaces):
        await api.wait_until(
            lambda: all(api.get("StatefulSet", "one-namesrv", where) is not None for where in ("ns", "other"))
        )


async def test_nothing_is_done_elsewhere() -> None:
    api = FakeApi()
    elsewhere = name_server()
    api.put({**elsewhere, "metadata": {**elsewhere["metadata"], "namespace": "other"}})
    api.put(name_server())
    async with operating(api):
        await api.wait_until(lambda: api.get("StatefulSet", "one-namesrv") is not None)
    assert not [call for call in api.calls if "/other/" in call]


async def test_a_step_that_fails_does_not_hide_the_facts() -> None:
    api = FakeApi()
    api.put(group(storage={"reclaimPolicy": "Delete"}))
    api.refuse = lambda method, path: 500 if method == "PATCH" and path.endswith("/brokergroups/g") else None
    async with operating(api):
        await api.wait_until(lambda: "Available" in conditions(api.get("BrokerGroup", "g")))
    body = api.get("BrokerGroup", "g")
    assert body is not None
    assert not body["metadata"].get("finalizers")
