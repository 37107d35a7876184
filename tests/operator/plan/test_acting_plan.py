"""A slave that acts for a missing master, as the operator sees and reports it."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from rocketmq_operator.domain.actions import Event
from rocketmq_operator.domain.observed import ObservedGroup, SidecarState
from rocketmq_operator.domain.plan.groups.acting import ASK_SECONDS, may_act
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_resources.schema.common import Reference
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW, World
from tests.operator.plan.test_group_status import unheard, without_master

Change = Callable[[ObservedGroup], ObservedGroup]


@pytest.fixture(scope="module")
def running() -> ObservedGroup:
    driver = Driver(World({"replicas": 3, "actingMaster": "reads"}, seed=3))
    driver.run(well)
    observed = driver.world.observe()
    return msgspec.structs.replace(
        observed, group=msgspec.structs.replace(observed.group, status=driver.world.status), acting_master_shown=True
    )


def slave_of(observed: ObservedGroup) -> str:
    """A pod that is not the master's."""
    return next(pod.name for pod in observed.pods if pod.name != observed.group.status["master"])


def acts(observed: ObservedGroup) -> ObservedGroup:
    """A slave's sidecar says so."""
    uid = next(pod.uid for pod in observed.pods if pod.name == slave_of(observed))
    told: Mapping[str, SidecarState] = {
        **observed.sidecars,
        uid: msgspec.structs.replace(observed.sidecars[uid], acting=True),
    }
    return msgspec.structs.replace(observed, sidecars=told)


def with_spec(observed: ObservedGroup, **spec: object) -> ObservedGroup:
    group = observed.group
    changed = msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, **spec))
    return msgspec.structs.replace(observed, group=changed)


def planned(observed: ObservedGroup) -> Plan:
    return plan_group(observed, PlanSettings(), NOW)


def condition(plan: Plan, kind: str = "ActingMaster") -> tuple[str, str, str]:
    """Status, reason and message."""
    assert plan.status is not None
    conditions = plan.status["conditions"]
    assert isinstance(conditions, list)
    [found] = [one for one in conditions if one["type"] == kind]
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize("lose", [without_master, unheard])
def test_it_is_in_the_status(running: ObservedGroup, lose: Change) -> None:
    plan = planned(lose(acts(running)))
    slave = slave_of(running)
    assert plan.status is not None
    assert plan.status["actingMaster"] == slave
    message = (
        f"{slave} serves consumers until there is a master; new messages are refused, and stored delayed ones wait"
    )
    assert condition(plan) == ("True", "ServesConsumers", message)
    assert Event("ActingMaster", message, warning=True) in plan.events


def test_it_says_where_delayed_messages_are(running: ObservedGroup) -> None:
    escapes = with_spec(without_master(acts(running)), acting_master="readsAndEscape")
    message = condition(planned(escapes))[2]
    assert message.endswith("; new messages are refused, and stored delayed ones go to other groups when they are due")


def test_consumers_are_served_though_no_message_is_taken(running: ObservedGroup) -> None:
    plan = planned(without_master(acts(running)))
    expected = ("False", "NoMaster", f"no replica is master; {slave_of(running)} serves consumers")
    assert condition(plan, "Available") == expected


def test_two_that_act_are_both_named(running: ObservedGroup) -> None:
    """Name servers that contradict each other can make it happen."""
    lost = without_master(running)
    told = {uid: msgspec.structs.replace(sidecar, acting=True) for uid, sidecar in lost.sidecars.items()}
    message = condition(planned(msgspec.structs.replace(lost, sidecars=told)))[2]
    names = " and ".join(sorted(pod.name for pod in lost.pods))
    assert message.startswith(f"{names} serve consumers until there is a master; ")


def test_it_is_one_event(running: ObservedGroup) -> None:
    lost = without_master(acts(running))
    status = planned(lost).status
    assert status is not None
    known = msgspec.structs.replace(lost, group=msgspec.structs.replace(lost.group, status=status))
    assert planned(known).events == ()


def test_sidecars_are_asked_again_until_there_is_a_master(running: ObservedGroup) -> None:
    assert not may_act(running.group, running.controllers)
    assert planned(running).requeue is None
    never: tuple[dict[str, object], ...] = ({"acting_master": "off"}, {"hibernated": True})
    for lost in (without_master(running), unheard(running)):
        assert may_act(lost.group, lost.controllers)
        assert planned(lost).requeue == ASK_SECONDS
        assert planned(with_spec(lost, paused=True)).requeue == ASK_SECONDS
        for spec in never:
            assert not may_act(with_spec(lost, **spec).group, lost.controllers)
    assert planned(with_spec(without_master(running), acting_master="off")).requeue is None


def test_what_a_sidecar_said_before_there_was_a_master_does_not_count(running: ObservedGroup) -> None:
    plan = planned(acts(running))
    assert plan.status is not None
    assert "actingMaster" not in plan.status
    assert condition(plan)[:2] == ("False", "MasterServes")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda observed: with_spec(without_master(acts(observed)), acting_master="off"), "Off"),
        (without_master, "NoneActs"),
        (unheard, "NoneActs"),
        (lambda observed: with_spec(without_master(acts(observed)), hibernated=True), "NoneActs"),
    ],
)
def test_none_acts(running: ObservedGroup, change: Change, reason: str) -> None:
    plan = planned(change(running))
    assert plan.status is not None
    assert "actingMaster" not in plan.status
    assert condition(plan)[:2] == ("False", reason)


def test_name_servers_that_hide_it_are_reported(running: ObservedGroup) -> None:
    hidden = msgspec.structs.replace(running, acting_master_shown=False)
    status, reason, message = condition(planned(hidden), "Degraded")
    assert (status, reason) == ("True", "ActingMasterNotShown")
    assert "supportActingMaster: false" in message
    plan = planned(hidden)
    assert plan.actions == planned(running).actions
    assert plan.objects == planned(running).objects, "nothing waits for it"
    for changed in (
        with_spec(hidden, acting_master="off"),
        msgspec.structs.replace(hidden, acting_master_shown=True),
        msgspec.structs.replace(hidden, acting_master_shown=None),
    ):
        assert condition(planned(changed), "Degraded")[1] == "AsWanted"


def test_the_message_names_who_hides_it(running: ObservedGroup) -> None:
    hidden = msgspec.structs.replace(running, acting_master_shown=False)
    own = with_spec(hidden, name_server_ref=Reference("names"), namesrv_addr=None)
    assert "NameServer ns/names says" in condition(planned(own), "Degraded")[2]
    embedded = with_spec(
        hidden, name_server_ref=None, namesrv_addr=None, controller_ref=Reference("main"), controller_addr=None
    )
    assert "ControllerCluster ns/main says" in condition(planned(embedded), "Degraded")[2]
