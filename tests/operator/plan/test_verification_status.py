"""The condition LogsAligned, and when a comparison is overdue: by what the job wrote, the schedule and the clock."""

import msgspec
import pytest
from prometheus_client import generate_latest

from rocketmq_operator.domain.conditions import rfc3339
from rocketmq_operator.domain.manifests.verification.cron_jobs import candidates
from rocketmq_operator.domain.observed import ObservedGroup
from rocketmq_operator.domain.plan.groups.objects import identity_of
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.groups.verification import PATIENCE
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_operator.metrics import Group, OperatorMetrics, Resource
from rocketmq_operator.metrics import Verification as Verified
from rocketmq_resources.decoding import Json
from rocketmq_resources.schema.verification import HistoryStorage, Verification, VerificationHistory
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW, World

HOUR = 3600.0
HOURLY = Verification(schedule="0 * * * *", timeout_seconds=900)
OVERDUE = 2 * HOUR + 900 + PATIENCE
"""More than this after any moment, the comparison of the next full hour has had its time."""


@pytest.fixture(scope="module")
def whole() -> ObservedGroup:
    driver = Driver(World({"replicas": 3}, seed=3))
    driver.run(well)
    return driver.world.observe()


def planned(
    observed: ObservedGroup,
    verification: Verification | None,
    status: Json | None = None,
    *,
    now: float = NOW,
    since: float | None = NOW,
    hibernated: bool = False,
    present: frozenset[tuple[str, str]] = frozenset(),
) -> Plan:
    group = observed.group
    spec = msgspec.structs.replace(group.spec, verification=verification, hibernated=hibernated)
    said = group.status if status is None else {**group.status, "verification": status}
    group = msgspec.structs.replace(group, spec=spec, status=said)
    world = msgspec.structs.replace(observed, group=group, verified_since=since, verification_objects=present)
    return plan_group(world, PlanSettings(), now)


def aligned(plan: Plan) -> tuple[str, str, str]:
    assert plan.status is not None
    conditions = plan.status["conditions"]
    assert isinstance(conditions, list)
    (one,) = [one for one in conditions if one["type"] == "LogsAligned"]
    return one["status"], one["reason"], one["message"]


def said(result: str, message: str = "as it is", *, at: float = NOW) -> Json:
    return {"lastTime": rfc3339(at), "result": result, "message": message, "alignedUpTo": 7}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("Aligned", ("True", "Aligned", "as it is")),
        ("Different", ("False", "Different", "as it is")),
        ("Failed", ("Unknown", "Failed", "as it is")),
    ],
)
def test_what_the_job_wrote(whole: ObservedGroup, result: str, expected: tuple[str, str, str]) -> None:
    assert aligned(planned(whole, HOURLY, said(result))) == expected


def test_before_the_first_one(whole: ObservedGroup) -> None:
    assert aligned(planned(whole, HOURLY)) == ("Unknown", "NotVerified", "never compared")
    assert aligned(planned(whole, None))[2] == "never compared: spec.verification is not set"


@pytest.mark.parametrize(
    ("result", "expected"),
    [("Aligned", "Unknown Stale"), ("Failed", "Unknown Stale"), ("Different", "False Different")],
)
def test_stale_and_failed_runs_clear_no_difference(whole: ObservedGroup, result: str, expected: str) -> None:
    status, reason, _ = aligned(planned(whole, HOURLY, said(result), now=NOW + OVERDUE))
    assert f"{status} {reason}" == expected


def test_a_first_run_that_never_came_is_reported(whole: ObservedGroup) -> None:
    status, reason, message = aligned(planned(whole, HOURLY, now=NOW + OVERDUE))
    assert (status, reason) == ("Unknown", "Stale")
    assert message.startswith("never compared, the first has been overdue since ")
    assert "describe jobs,pods -l rocketmq-ha.io/group=" in message


def test_a_failure_hides_no_difference(whole: ObservedGroup) -> None:
    """Neither the first one nor those after it; what aligns does."""
    found: Json = {"type": "LogsAligned", "status": "False", "reason": "Different", "message": "a differs from b"}
    for why in ("a is not heard", "interrupted"):
        group = msgspec.structs.replace(whole.group, status={**whole.group.status, "conditions": [found]})
        now = msgspec.structs.replace(whole, group=group)
        status, reason, message = aligned(planned(now, HOURLY, said("Failed", why)))
        assert (status, reason) == ("False", "Different")
        assert message == f"a differs from b; a later comparison failed: {why}"
        found = {**found, "message": message}
    assert aligned(planned(now, HOURLY, said("Aligned")))[0] == "True"


def test_it_is_looked_at_again_when_it_becomes_overdue(whole: ObservedGroup) -> None:
    plan = planned(whole, HOURLY, said("Aligned"))
    assert plan.requeue is not None
    assert 900 + PATIENCE < plan.requeue <= HOUR + 900 + PATIENCE + 1
    later = NOW + plan.requeue
    assert aligned(planned(whole, HOURLY, said("Aligned"), now=later - 2))[1] == "Aligned"
    assert aligned(planned(whole, HOURLY, said("Aligned"), now=later))[1] == "Stale"


@pytest.mark.parametrize("hibernated", [True, False])
def test_a_suspended_verification_is_never_overdue(whole: ObservedGroup, hibernated: bool) -> None:
    verification = HOURLY if hibernated else msgspec.structs.replace(HOURLY, suspend=True)
    plan = planned(whole, verification, said("Aligned"), now=NOW + OVERDUE, hibernated=hibernated)
    assert aligned(plan)[1] == "Aligned"


def test_what_is_not_wanted_any_more_goes_but_for_the_history(whole: ObservedGroup) -> None:
    name = whole.group.name
    full = msgspec.structs.replace(
        HOURLY, full_schedule="@weekly", history=VerificationHistory(storage=HistoryStorage())
    )
    made = {identity_of(one) for one in planned(whole, full).objects}
    there = frozenset(candidates(name))
    assert there <= made
    assert ("PersistentVolumeClaim", f"{name}-verify") in made
    assert planned(whole, full, present=there).removals == ()
    assert planned(whole, HOURLY, present=there).removals == (("CronJob", f"{name}-verify-full"),)
    assert set(planned(whole, None, present=there).removals) == there
    assert planned(whole, None).removals == ()


def test_metrics() -> None:
    groups = [
        Group("C", "broker-a", 3, 3, Verified("Different", ended=10.0, due=20.0, aligned_up_to=30, oldest_read=5.0)),
        Group("C", "broker-b", 3, 3, Verified(due=20.0)),
        Group("C", "broker-c", 3, 3),
    ]
    resources = [Resource("BrokerGroup", "mq", one.broker_set, "Running", ready=True, group=one) for one in groups]
    metrics = OperatorMetrics(leading=lambda: True, waiting=lambda: 0, resources=lambda: resources)
    lines = generate_latest(metrics.registry).decode().splitlines()
    found = sorted(line for line in lines if line.startswith("rocketmq_operator_verification"))
    a, b = (f'broker_set="broker-{one}",cluster="C",name="broker-{one}",resource_namespace="mq"' for one in "ab")
    assert found == sorted(
        [
            f"rocketmq_operator_verification_aligned_offset{{{a}}} 30.0",
            f"rocketmq_operator_verification_due_timestamp_seconds{{{a}}} 20.0",
            f"rocketmq_operator_verification_due_timestamp_seconds{{{b}}} 20.0",
            f"rocketmq_operator_verification_oldest_read_timestamp_seconds{{{a}}} 5.0",
            f"rocketmq_operator_verification_timestamp_seconds{{{a}}} 10.0",
            f'rocketmq_operator_verification_result{{{a},result="Aligned"}} 0.0',
            f'rocketmq_operator_verification_result{{{a},result="Different"}} 1.0',
            f'rocketmq_operator_verification_result{{{a},result="Failed"}} 0.0',
        ]
    )
