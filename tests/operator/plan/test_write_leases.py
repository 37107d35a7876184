"""How long a master believes in itself, and what its controllers wait for: what is refused, and what is only told."""

from typing import NamedTuple

import msgspec
import pytest

from rocketmq_controller.domain import liveness
from rocketmq_formats.remoting.controller import CLOCKS_DIFFER, LONGEST_WRITE_LEASE_MS, NEW_LEADER_WAITS_MS
from rocketmq_operator.domain.observed import ObservedGroup
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_resources.schema.broker_group_parts import Failover
from rocketmq_resources.schema.common import Reference
from rocketmq_settings.replica import Durability
from rocketmq_settings.sidecar import Engine
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW, World


@pytest.fixture(scope="module")
def running() -> ObservedGroup:
    """Three replicas in sync, whose pods are out of date."""
    driver = Driver(World({"replicas": 3}, seed=3))
    driver.run(well)
    observed = driver.world.observe()
    assert observed.stateful_set is not None
    newer = msgspec.structs.replace(observed.stateful_set, update_revision="newer")
    return msgspec.structs.replace(observed, stateful_set=newer)


class Case(NamedTuple):
    durability: Durability
    lease: int
    suspect: int | None
    """Milliseconds of the ControllerCluster; None: it is outside, or not there."""
    reason: str
    """Of Degraded."""
    said: tuple[str, ...] = ()
    rolled: bool = True
    engine: Engine = "native"


STRICT = ("still takes sends", "below 3000", "above {lease}", "ControllerCluster ns/main")
CASES = (
    Case("strict", 2000, 3000, "AsWanted"),
    Case("strict", 2999, 3000, "AsWanted"),
    Case("strict", 3000, 3000, "LeaseOutlivesSuspicion", STRICT),
    Case("strict", 9000, 3000, "LeaseOutlivesSuspicion", STRICT),
    Case("strict", 9000, 10_000, "AsWanted"),
    Case("strict", 9000, None, "AsWanted"),
    Case("relaxed", 2000, 3000, "AsWanted"),
    Case("relaxed", 3000, 3000, "LeaseOutlivesSuspicion", ("only when its lease has ended", "below 3000")),
    Case("relaxed", 4761, 10_000, "AsWanted"),
    Case("relaxed", 4762, 10_000, "LeaseTooLong", ("4762", "5000", "4761 or less"), rolled=False),
    Case("relaxed", 9000, 3000, "LeaseTooLong", ("9000", "5000", "4761 or less"), rolled=False),
    Case("relaxed", 9000, None, "LeaseTooLong", ("9000", "5000", "4761 or less"), rolled=False),
    Case("strict", 9000, 3000, "AsWanted", engine="apache"),
    Case("relaxed", 9000, 3000, "AsWanted", engine="apache"),
)


def seen(running: ObservedGroup, case: Case) -> ObservedGroup:
    spec = msgspec.structs.replace(
        running.group.spec,
        durability=case.durability,
        engine=case.engine,
        failover=Failover(lease_timeout_ms=case.lease),
        controller_ref=Reference("main"),
        controller_addr=None,
    )
    group = msgspec.structs.replace(running.group, spec=spec)
    return msgspec.structs.replace(running, group=group, broker_suspect_timeout_ms=case.suspect)


def degraded(plan: Plan) -> dict[str, str]:
    assert plan.status is not None
    conditions = plan.status["conditions"]
    assert isinstance(conditions, list)
    [found] = [one for one in conditions if one["type"] == "Degraded"]
    return dict(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.engine}-{case.durability}-{case.lease}-{case.suspect}")
def test_leases(running: ObservedGroup, case: Case) -> None:
    plan = plan_group(seen(running, case), PlanSettings(), NOW)
    condition = degraded(plan)
    assert condition["reason"] == case.reason
    for words in case.said:
        assert words.format(lease=case.lease) in condition["message"]
    assert bool(plan.objects) == case.rolled
    assert any(action.disruptive for action in plan.actions) == case.rolled
    assert plan.removals == ()


def test_controllers_wait_for_the_longest_lease() -> None:
    assert LONGEST_WRITE_LEASE_MS == 4761
    assert round(CLOCKS_DIFFER * LONGEST_WRITE_LEASE_MS) <= NEW_LEADER_WAITS_MS
    assert liveness.DEFAULT_GRACE == NEW_LEADER_WAITS_MS / 1000


@pytest.mark.parametrize("case", [CASES[2], CASES[9]], ids=["told", "refused"])
def test_it_serves_all_the_same(running: ObservedGroup, case: Case) -> None:
    """It is not ready: the pods run without what this generation of the spec changes."""
    status = plan_group(seen(running, case), PlanSettings(), NOW).status
    assert status is not None
    assert isinstance(conditions := status["conditions"], list)
    assert {one["type"]: one["status"] for one in conditions if one["type"] in {"Ready", "Available"}} == {
        "Ready": "False",
        "Available": "True",
    }


def test_advice_comes_after_problems(running: ObservedGroup) -> None:
    unheard = msgspec.structs.replace(running.controllers, reachable=False, group=None)
    world = msgspec.structs.replace(seen(running, CASES[2]), controllers=unheard)
    assert degraded(plan_group(world, PlanSettings(), NOW))["reason"] == "ControllersUnreachable"


def test_a_group_that_goes_is_not_held_up(running: ObservedGroup) -> None:
    world = seen(running, CASES[9])
    metadata = msgspec.structs.replace(world.group.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    spec = msgspec.structs.replace(
        world.group.spec, storage=msgspec.structs.replace(world.group.spec.storage, reclaim_policy="Delete")
    )
    group = msgspec.structs.replace(world.group, metadata=metadata, spec=spec)
    whole = msgspec.structs.replace(running.group, metadata=metadata, spec=spec)
    assert (
        plan_group(msgspec.structs.replace(world, group=group), PlanSettings(), NOW).actions
        == plan_group(msgspec.structs.replace(running, group=whole), PlanSettings(), NOW).actions
    )
