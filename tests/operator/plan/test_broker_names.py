"""Two BrokerGroups that would be one group to their controllers: the older one has the name."""

from typing import Any

import msgspec
import pytest

from rocketmq_operator.domain.actions import CleanBrokerData, SetFinalizer
from rocketmq_operator.domain.conditions import find
from rocketmq_operator.domain.observed import ObservedGroup
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.step import PlanSettings
from rocketmq_operator.kubernetes.broker_names import BrokerNames, GroupName
from rocketmq_resources import names
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW, World

HOLDER = "BrokerGroup infra/orders"


@pytest.fixture(scope="module")
def running() -> ObservedGroup:
    driver = Driver(World({"replicas": 3, "storage": {"reclaimPolicy": "Delete"}}, seed=3))
    driver.run(well)
    return driver.world.observe()


def test_a_group_whose_name_is_taken_makes_and_forgets_nothing(running: ObservedGroup) -> None:
    """It would take the other one's replicas for orphans of its own."""
    plan = plan_group(msgspec.structs.replace(running, name_holder=HOLDER), PlanSettings(), NOW)
    assert (plan.actions, plan.objects, plan.removals) == ((), (), ())
    assert plan.requeue is not None
    assert plan.status is not None
    degraded = find(plan.status["conditions"], "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "BrokerNameTaken")
    assert str(degraded["message"]).startswith(f"{HOLDER} has brokerName")


@pytest.mark.parametrize("holder", [None, HOLDER])
def test_its_deletion_leaves_the_record_of_the_other_one(running: ObservedGroup, holder: str | None) -> None:
    metadata = msgspec.structs.replace(
        running.group.metadata, deletion_timestamp="2026-01-01T00:00:00Z", finalizers=(names.FINALIZER,)
    )
    group = msgspec.structs.replace(running.group, metadata=metadata)
    gone = msgspec.structs.replace(running, group=group, pods=(), claims=(), stateful_set=None, name_holder=holder)
    actions = plan_group(gone, PlanSettings(), NOW).actions
    assert any(isinstance(action, CleanBrokerData) for action in actions) == (holder is None)
    assert any(isinstance(action, SetFinalizer) for action in actions) == (holder is not None)


def body(created: int, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"creationTimestamp": f"2026-01-01T00:00:0{created}Z"}, "spec": spec}


def test_the_oldest_has_the_name() -> None:
    ours, theirs, copy = GroupName("a", "orders"), GroupName("b", "g"), GroupName("c", "orders")
    reference = {"name": "main", "namespace": "a"}
    found = BrokerNames()
    found.note(theirs, body(2, brokerName="orders", controllerRef=reference))
    assert found.holder(theirs) is None
    found.note(ours, body(1, controllerRef={"name": "main"}))
    found.note(copy, body(1, controllerRef=reference))
    assert [found.holder(one) for one in (ours, theirs, copy)] == [None, ours, ours]
    found.note(ours, None)
    assert [found.holder(one) for one in (theirs, copy)] == [copy, None]
    found.note(copy, body(1, controllerRef={"name": "main"}))
    assert [found.holder(one) for one in (theirs, copy)] == [None, None], "main of its own namespace"


def test_controllers_outside_are_the_same_with_the_same_addresses() -> None:
    found = BrokerNames()
    for number, spec in enumerate(
        (
            {"controllerAddr": "h1:9878;h2:9878"},
            {"controllerAddr": "H2:9878;h1:9878"},
            {"controllerAddr": "h3:9878"},
            {"failover": {"mode": "none"}},
            {"controllerRef": "no reference"},
            {"controllerAddr": " h1:9878 ; h2:9878;"},
            {"controllerAddr": "h1"},
        )
    ):
        found.note(GroupName(f"ns{number}", "g"), body(number, **spec))
    holders = [found.holder(GroupName(f"ns{number}", "g")) for number in range(7)]
    assert holders == [None, GroupName("ns0", "g"), None, None, None, GroupName("ns0", "g"), None]
