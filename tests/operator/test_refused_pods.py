"""Pods that the API server refuses, which only Events of their StatefulSet tell (docs/field-reports.md)."""

from typing import Any, cast

import pytest

from rocketmq_operator.domain.conditions import find, rfc3339
from rocketmq_operator.domain.observed import Pod, StatefulSet
from rocketmq_operator.domain.plan.step import PODS_REQUEUE_SECONDS
from rocketmq_operator.kubernetes.kube import Kube, UnavailableError
from rocketmq_operator.kubernetes.pod_refusals import PodRefusals
from tests.operator.model.api import FakeApi
from tests.operator.test_app import controller_cluster, group, name_server, operating

QUOTA = 'pods "{pod}" is forbidden: failed quota: compute: must specify limits.cpu for: broker'
NO_ACCOUNT = 'pods "{pod}" is forbidden: error looking up service account ns/mq: serviceaccount "mq" not found'
NOW = 1_795_000_000.0


def failed(pod: str, why: str, uid: str, *, at: float = NOW) -> dict[str, Any]:
    name = pod.rpartition("-")[0]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod}.1", "namespace": "ns"},
        "involvedObject": {"kind": "StatefulSet", "name": name, "uid": uid},
        "reason": "FailedCreate",
        "type": "Warning",
        "message": f"create Pod {pod} in StatefulSet {name} failed error: {why.format(pod=pod)}",
        "lastTimestamp": rfc3339(at),
    }


@pytest.mark.parametrize(
    ("resource", "stateful_set", "why"),
    [(group(), "g", QUOTA), (controller_cluster(), "c-controller", QUOTA), (name_server(), "one-namesrv", NO_ACCOUNT)],
    ids=["group", "controllers", "name server"],
)
async def test_the_status_says_why_a_pod_is_not_made(resource: dict[str, Any], stateful_set: str, why: str) -> None:
    api = FakeApi()
    api.put(resource)
    kind, name = resource["kind"], resource["metadata"]["name"]

    def degraded() -> dict[str, Any]:
        body = api.get(kind, name) or {}
        return dict(find(body.get("status", {}).get("conditions"), "Degraded"))

    async with operating(api):
        await api.wait_until(lambda: api.get("StatefulSet", stateful_set) is not None)
        made = api.get("StatefulSet", stateful_set)
        assert made is not None
        api.put(failed(f"{stateful_set}-0", why, made["metadata"]["uid"]))
        api.put({**made, "status": {"observedGeneration": made["metadata"]["generation"]}})
        await api.wait_until(lambda: degraded().get("reason") == "PodsFailing")
    pod = f"{stateful_set}-0"
    assert (degraded()["status"], degraded()["message"]) == ("True", f"{pod}: {why.format(pod=pod)}")


class Events:
    """Stands for `Kube`."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = list(events)
        self.asked: list[str] = []
        self.fails = False

    async def list(self, kind: str, namespace: str, *, fields: str) -> dict[str, Any]:
        self.asked.append(f"{kind} {namespace} {fields}")
        if self.fails:
            raise UnavailableError("list events", 503, "")
        return {"items": self.events}


def refusals(events: Events, now: list[float]) -> PodRefusals:
    return PodRefusals(cast("Kube", events), clock=lambda: now[0])


SET = StatefulSet(name="g", uid="u", replicas=2)


async def test_the_newest_reason_counts_and_is_asked_for_now_and_then() -> None:
    events = Events(failed("g-1", "old", "u", at=NOW - 60), failed("g-1", "new", "u"), failed("g-7", "other", "u"))
    pods, now = (Pod(name="g-0", ordinal=0, uid="p", created=NOW - 100),), [0.0]
    found = refusals(events, now)
    assert await found.of("ns", SET, pods) == {"g-1": "new"}
    assert events.asked == ["Event ns involvedObject.uid=u,reason=FailedCreate"]
    now[0], events.events = PODS_REQUEUE_SECONDS - 0.1, [failed("g-1", "newer", "u")]
    assert await found.of("ns", SET, pods) == {"g-1": "new"}
    now[0], events.fails = PODS_REQUEUE_SECONDS, True
    assert await found.of("ns", SET, pods) == {"g-1": "new"}, "what is known stays"
    now[0], events.fails = 2 * PODS_REQUEUE_SECONDS, False
    assert await found.of("ns", SET, pods) == {"g-1": "newer"}
    assert len(events.asked) == 3


async def test_a_reason_from_before_the_last_pod_of_that_name_does_not_count() -> None:
    """It stays among the Events for an hour, also if the pod was made later and is being replaced now."""
    events, now = Events(failed("g-1", "quota", "u")), [0.0]
    both = tuple(Pod(name=f"g-{n}", ordinal=n, uid=f"p{n}", created=NOW + 5) for n in range(2))
    found = refusals(events, now)
    assert await found.of("ns", SET, both) == {}
    assert events.asked == [], "no pod is missing"
    assert await found.of("ns", SET, both[:1]) == {}
    events.events = [failed("g-1", "quota again", "u", at=NOW + 9)]
    now[0] = PODS_REQUEUE_SECONDS
    assert await found.of("ns", SET, both[:1]) == {"g-1": "quota again"}


async def test_nothing_is_asked_while_the_pods_are_not_expected() -> None:
    events = Events()
    for unexpected in (
        StatefulSet(name="g", uid="u", replicas=0),
        StatefulSet(name="g", uid="u", replicas=1, settled=False),
        StatefulSet(name="g", uid="u", replicas=1, deleting=True),
    ):
        assert await refusals(events, [0.0]).of("ns", unexpected, ()) == {}
    assert events.asked == []
