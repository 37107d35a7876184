"""A status never runs ahead of the work: the whole reconciler in any order of events."""

import pytest

from rocketmq_operator.execute import StepFailedError
from rocketmq_operator.kubernetes.cache import Key
from rocketmq_operator.reconciler import FIRST_REPEAT
from rocketmq_resources import names
from rocketmq_resources.decoding import SpecError
from tests.operator.model.whole import MARKER, RESOURCES, Whole

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("seed", range(24))
async def test_ready_is_shown_only_for_what_was_carried_out(seed: int) -> None:
    model = Whole(seed)
    await model.churn(300)
    for kind in RESOURCES:
        model.edit(kind, paused=False)
    model.edit("BrokerGroup", fenced=False)
    await model.settle()


@pytest.fixture
async def model() -> Whole:
    """At rest, everything Ready; events come at once."""
    model = Whole()
    model.interleaves = 0.0
    await model.settle()
    return model


GROUP = Key("BrokerGroup", "ns", "g")


def deliver_all(model: Whole) -> None:
    while model.server.news:
        model.deliver()


async def test_a_step_that_fails_after_an_apply_writes_no_status_of_before(model: Whole) -> None:
    pod = model.cluster.pods("BrokerGroup")[0]
    model.server.change(pod, metadata={"labels": {names.LABEL_ROLE: None}})
    model.edit("BrokerGroup", podTemplate={"annotations": {MARKER: "7"}})
    deliver_all(model)
    model.kube.refuse = lambda verb, kind, _name: (verb, kind) == ("patch", "Pod")
    writes = len(model.writes)
    with pytest.raises(StepFailedError):
        await model.reconciler.reconcile(GROUP)
    assert len(model.writes) == writes
    with pytest.raises(StepFailedError):
        await model.reconciler.reconcile(GROUP)
    assert model.writes[writes:] == ["BrokerGroup 2 Updating ['Available', 'Progressing', 'SyncStateSetHealthy']"]


async def test_a_status_is_not_written_to_another_resource_of_that_name(model: Whole) -> None:
    """A user deletes the group and creates it again while the operator is about to write what it saw."""
    body = model.resource("BrokerGroup")

    async def recreate() -> None:
        model.server.remove("BrokerGroup", "ns", "g")
        metadata = {"name": "g", "namespace": "ns"}
        model.server.put({**{key: body[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})

    model.cluster.set_ready(model.cluster.pods("BrokerGroup")[0], ready=False)
    deliver_all(model)
    model.kube.before_status = recreate
    await model.reconcile(GROUP)
    assert model.resource("BrokerGroup")["metadata"]["uid"] != body["metadata"]["uid"]
    assert "status" not in model.resource("BrokerGroup")


async def test_a_refusal_that_is_not_written_has_no_event(model: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user mends the resource while the operator is about to write that it is wrong."""
    events: list[str] = []
    monkeypatch.setattr(model.reconciler._recorder, "record_event", lambda _body, event: events.append(event.reason))

    async def mend() -> None:
        model.edit("BrokerGroup", replicas=3)

    model.edit("BrokerGroup", replicas=-1)
    deliver_all(model)
    model.kube.before_status = mend
    with pytest.raises(SpecError):
        await model.reconciler.reconcile(GROUP)
    assert events == []
    model.edit("BrokerGroup", replicas=-1)
    deliver_all(model)
    with pytest.raises(SpecError):
        await model.reconciler.reconcile(GROUP)
    assert events == ["InvalidSpec"]


async def test_an_object_that_replaced_the_observed_one_is_looked_at_first(model: Whole) -> None:
    """A StatefulSet was deleted, which no event has reported yet: the apply makes another one, equal to the first."""
    model.restart()
    model.server.remove("StatefulSet", "ns", "g")
    assert await model.reconciler.reconcile(GROUP) == FIRST_REPEAT


@pytest.mark.parametrize("kind", RESOURCES)
async def test_an_edit_is_ready_only_at_its_end(model: Whole, kind: str) -> None:
    """Each step by itself: `kubectl wait --for=condition=Ready` returns once, when every pod is new."""
    model.edit(kind, podTemplate={"annotations": {MARKER: "7"}})
    for _ in range(400):
        await model.reconcile(Key(kind, "ns", RESOURCES[kind]))
        if model.is_ready(kind):
            break
        model.happen()
    assert {pod["metadata"]["annotations"][MARKER] for pod in model.cluster.pods(kind)} == {"7"}
    await model.settle()
