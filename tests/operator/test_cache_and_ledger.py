"""What is kept of objects, whom their news concerns, and when something has to be applied again."""

from typing import Any

import pytest

from rocketmq_operator.domain.observed import Claim, Pod, StatefulSet
from rocketmq_operator.kubernetes.cache import REMEMBERED, Cache, Key
from rocketmq_operator.kubernetes.handlers import apply_event
from rocketmq_operator.kubernetes.ledger import REFUSAL_SECONDS, Ledger
from rocketmq_resources import names

OWNER = Key("BrokerGroup", "ns", "g")


def labelled(kind: str, name: str, version: int = 1, uid: str = "u", **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return {"kind": kind, "metadata": {**metadata, "labels": names.labels("broker", "g")}, **rest}


@pytest.fixture
def notified() -> list[Key]:
    return []


@pytest.fixture
def cache(notified: list[Key]) -> Cache:
    return Cache(notified.append)


def test_a_child_wakes_its_owner_once_per_news(cache: Cache, notified: list[Key]) -> None:
    cache.put(labelled("Service", "g", 1, spec={"a": 1}))
    assert notified == [OWNER]
    cache.put(labelled("Service", "g", 2, spec={"a": 1}))  # bookkeeping only
    assert notified == [OWNER]
    cache.put(labelled("Service", "g", 3, spec={"a": 2}))
    assert notified == [OWNER, OWNER]
    assert cache.revision(OWNER) == 2


def test_older_news_does_not_undo_newer_ones(cache: Cache) -> None:
    cache.put(labelled("Service", "g", 7, spec={"a": 2}))
    cache.put(labelled("Service", "g", 5, spec={"a": 1}))
    entry = cache.get(Key("Service", "ns", "g"))
    assert entry is not None
    assert entry.version == 7


def test_the_end_of_a_former_object_is_not_the_end_of_its_successor(cache: Cache) -> None:
    cache.put(labelled("Pod", "g-0", 1, uid="old"))
    cache.put(labelled("Pod", "g-0", 2, uid="new"))
    cache.remove(Key("Pod", "ns", "g-0"), "old")
    assert cache.get(Key("Pod", "ns", "g-0")) is not None
    cache.remove(Key("Pod", "ns", "g-0"), "new")
    assert list(cache.children(OWNER, "Pod")) == []


def test_late_news_of_a_former_object_does_not_replace_its_successor(cache: Cache) -> None:
    """It would show the revision and the replicas of a StatefulSet that was recreated."""
    cache.put(labelled("StatefulSet", "g", 9, uid="new", spec={"replicas": 3}))
    cache.put(labelled("StatefulSet", "g", 7, uid="old", spec={"replicas": 5}))
    entry = cache.get(Key("StatefulSet", "ns", "g"))
    assert entry is not None
    assert (entry.uid, entry.version) == ("new", 9)


def test_late_news_of_a_deleted_object_does_not_bring_it_back(cache: Cache) -> None:
    """The answer to a call may come after the event of the deletion."""
    cache.put(labelled("Pod", "g-0", 1, uid="old"))
    apply_event(cache, "DELETED", labelled("Pod", "g-0", 3, uid="old"))
    cache.put(labelled("Pod", "g-0", 2, uid="old"))
    assert cache.get(Key("Pod", "ns", "g-0")) is None
    cache.put(labelled("Pod", "g-0", 4, uid="new"))
    assert cache.get(Key("Pod", "ns", "g-0")) is not None


def test_an_object_that_gets_its_label_back_is_seen_again(cache: Cache) -> None:
    """A watch by label reports the loss of the label as a deletion; the uid stays."""
    key = Key("Service", "ns", "g")
    cache.put(labelled("Service", "g", 1))
    apply_event(cache, "DELETED", labelled("Service", "g", 3))
    for late in (2, 3):
        cache.put(labelled("Service", "g", late))
        assert cache.get(key) is None
    cache.put(labelled("Service", "g", 4))
    entry = cache.get(key)
    assert entry is not None
    assert entry.version == 4


def test_only_the_latest_deletions_are_remembered(cache: Cache) -> None:
    key = Key("Pod", "ns", "g-0")
    for number in range(REMEMBERED + 1):
        cache.end(key, f"uid-{number}", 1)
    cache.put(labelled("Pod", "g-0", 1, uid="uid-1"))
    assert cache.get(key) is None
    cache.put(labelled("Pod", "g-0", 1, uid="uid-0"))
    assert cache.get(key) is not None


def test_an_object_without_an_owner_reconciles_nothing(cache: Cache, notified: list[Key]) -> None:
    cache.put({"kind": "Service", "metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "1"}})
    assert notified == []


def test_pods_claims_and_stateful_sets_are_kept_as_the_plan_needs_them(cache: Cache) -> None:
    status = {
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "broker", "state": {"running": {}}},
            {"name": "sidecar", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ],
    }
    cache.put(labelled("Pod", "g-2", spec={"nodeName": "n"}, status=status))
    claim = labelled("PersistentVolumeClaim", "data-g-2", spec={"resources": {"requests": {"storage": "1Gi"}}})
    claim["metadata"]["annotations"] = {names.ANNOTATION_BROKER_ID: "7", names.ANNOTATION_RETIRED: "true"}
    cache.put(claim)
    template = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    stateful_set = labelled(
        "StatefulSet", "g", spec={"replicas": 3, "volumeClaimTemplates": [template]}, status={"observedGeneration": 1}
    )
    stateful_set["metadata"]["generation"] = 2
    cache.put(stateful_set)

    (pod,) = [entry.value for entry in cache.children(OWNER, "Pod")]
    assert isinstance(pod, Pod)
    assert (pod.ordinal, pod.ip, pod.node, pod.ready, pod.running) == (2, "10.0.0.1", "n", True, True)
    assert pod.problem == "CrashLoopBackOff (sidecar)"
    (kept,) = [entry.value for entry in cache.children(OWNER, "PersistentVolumeClaim")]
    assert isinstance(kept, Claim)
    assert (kept.volume, kept.ordinal, kept.broker_id, kept.retired, kept.requested) == ("data", 2, 7, True, 2**30)
    (whole,) = [entry.value for entry in cache.children(OWNER, "StatefulSet")]
    assert isinstance(whole, StatefulSet)
    assert (whole.replicas, whole.settled, dict(whole.claim_sizes)) == (3, False, {"data": 2 * 2**30})


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({}, False),
        ({"status": {"observed": 1}}, False),
        ({"spec": {"ports": []}}, True),
        ({"spec": {"ports": [1], "more": 1}}, True),
    ],
)
def test_applied_again_only_when_the_object_was_changed(cache: Cache, change: dict[str, Any], again: bool) -> None:
    ledger, key = Ledger(cache), Key("Service", "ns", "g")
    made = {"kind": "Service", "metadata": {"name": "g", "namespace": "ns"}, "spec": {"ports": [1]}}
    assert ledger.needs(key, made)
    cache.put(labelled("Service", "g", 1, spec={"ports": [1]}))
    ledger.applied(key, made)
    assert not ledger.needs(key, made)
    assert not ledger.needs(key, {**made})
    cache.put({**labelled("Service", "g", 2, spec={"ports": [1]}), **change})
    assert ledger.needs(key, made) == again


def test_applied_again_when_the_desired_state_changes_or_the_object_is_deleted(cache: Cache) -> None:
    ledger, key = Ledger(cache), Key("Service", "ns", "g")
    made = {"kind": "Service", "metadata": {"name": "g", "namespace": "ns"}, "spec": {"ports": [1]}}
    cache.put(labelled("Service", "g", 1, spec={"ports": [1]}))
    ledger.applied(key, made)
    assert ledger.needs(key, {**made, "spec": {"ports": [2]}})
    cache.remove(key)
    assert ledger.needs(key, made)


def test_claim_templates_are_no_reason_to_apply_a_stateful_set_again(cache: Cache) -> None:
    ledger, key = Ledger(cache), Key("StatefulSet", "ns", "g")
    made: dict[str, Any] = {"kind": "StatefulSet", "metadata": {}, "spec": {"replicas": 1, "volumeClaimTemplates": [1]}}
    cache.put(labelled("StatefulSet", "g", 1, spec={"replicas": 1}))
    ledger.applied(key, made)
    assert not ledger.needs(key, {**made, "spec": {"replicas": 1, "volumeClaimTemplates": [2]}})
    assert ledger.needs(key, {**made, "spec": {"replicas": 2, "volumeClaimTemplates": [2]}})


def test_refusals_are_forgotten_in_time(cache: Cache) -> None:
    clock = 0.0
    ledger = Ledger(cache, clock=lambda: clock)
    ledger.refuse("resize a 2Gi", "the class does not expand")
    assert ledger.refusals() == {"resize a 2Gi": "the class does not expand"}
    clock = REFUSAL_SECONDS + 1
    assert ledger.refusals() == {}
