"""Pods that are not made, which only Events of their StatefulSet tell, and pods that do not stop
(docs/field-reports.md)."""

from typing import Any, cast

import pytest
from msgspec import structs

from rocketmq_operator.domain.conditions import STOPPING_SECONDS, find, pod_problems, rfc3339
from rocketmq_operator.domain.observed import ObservedGroup, Pod, StatefulSet
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.step import PODS_REQUEUE_SECONDS, Plan, PlanSettings, ask_for_pods
from rocketmq_operator.kubernetes.kube import Kube, UnavailableError
from rocketmq_operator.kubernetes.pod_refusals import PodRefusals
from tests.operator.model.api import FakeApi
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW as MODEL_NOW
from tests.operator.model.world import World
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


@pytest.mark.parametrize(
    ("resource", "stateful_set"),
    [(group(), "g"), (controller_cluster(), "c-controller"), (name_server(), "one-namesrv")],
    ids=["group", "controllers", "name server"],
)
async def test_the_status_says_what_to_do_about_a_pod_that_does_not_stop(
    resource: dict[str, Any], stateful_set: str
) -> None:
    """The kubelet of a lost node never reports that it has stopped."""
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
        template = made["spec"]["template"]["metadata"]
        times = {"deletionTimestamp": rfc3339(NOW), "finalizers": ["the/kubelet"]}
        pod = {"name": f"{stateful_set}-0", "namespace": "ns", "labels": template["labels"], **times}
        api.put({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {"nodeName": "lost"}, "status": {}})
        await api.wait_until(lambda: degraded().get("reason") == "PodsFailing")
    assert degraded()["message"].startswith(f"{stateful_set}-0: it should have stopped by {rfc3339(NOW)}")


def test_a_pod_that_is_stopping_is_no_problem_before_its_time() -> None:
    stopping = Pod(name="g-0", ordinal=0, uid="p", deleting=True, ends=NOW)
    assert pod_problems((stopping,), SET, NOW + STOPPING_SECONDS) == ""
    assert "by force" in pod_problems((stopping,), SET, NOW + STOPPING_SECONDS + 1)
    assert ask_for_pods(SET, (stopping, Pod(name="g-1", ordinal=1, uid="q"))).requeue == PODS_REQUEUE_SECONDS


@pytest.fixture(scope="module")
def whole() -> ObservedGroup:
    driver = Driver(World({"replicas": 3}, seed=3))
    driver.run(well)
    return driver.world.observe()


def planned(whole: ObservedGroup, *, without: int, **changes: Any) -> Plan:
    assert whole.stateful_set is not None
    stateful_set = structs.replace(whole.stateful_set, **changes)
    pods = tuple(pod for pod in whole.pods if pod.ordinal != without)
    return plan_group(structs.replace(whole, stateful_set=stateful_set, pods=pods), PlanSettings(), MODEL_NOW)


def test_a_group_that_could_not_grow_shrinks_again(whole: ObservedGroup) -> None:
    """Two pods more than there is room for were never made."""
    plan = planned(whole, without=3, replicas=5, refused_pods={"g-3": "quota"})
    [replicas] = [made["spec"]["replicas"] for made in plan.objects if made["kind"] == "StatefulSet"]  # type: ignore[index]
    assert replicas == 4


def test_an_update_waits_for_a_pod_that_is_refused(whole: ObservedGroup) -> None:
    plan = planned(whole, without=1, update_revision="other", refused_pods={"g-1": "quota"})
    assert plan.actions == ()
    assert plan.status is not None
    assert str(plan.status["phaseReason"]).endswith("g-1 has no pod: quota")
