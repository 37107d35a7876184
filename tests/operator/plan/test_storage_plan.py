"""A StatefulSet whose claim templates have to change is made again around its pods, but not while it is new."""

from types import SimpleNamespace
from typing import cast

import pytest

from rocketmq_operator.domain.actions import DeleteStatefulSet
from rocketmq_operator.domain.observed import Claim, StatefulSet
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.groups.storage import ADOPTED_AFTER, grow
from rocketmq_operator.domain.plan.step import NOTHING

CREATED = 1_795_000_000.0


def planned(age: float) -> tuple[list[type], float | None, bool]:
    present = StatefulSet(name="g", uid="u", replicas=3, claim_sizes={"data": 1}, created=CREATED)
    spec = SimpleNamespace(storage=SimpleNamespace(size="2", commit_log=None))
    group = SimpleNamespace(spec=spec, storage_bytes=2, commit_log_bytes=None)
    state = cast("GroupState", SimpleNamespace(stateful_set=present, group=group, members=()))
    step = grow(state, CREATED + age)
    return [type(action) for action in step.actions], step.requeue, step.busy


@pytest.mark.parametrize("age", [0.0, 0.7, ADOPTED_AFTER - 1])
def test_a_new_stateful_set_is_not_made_again_before_its_pods_are_known_to_be_its_own(age: float) -> None:
    """Its pods would be deleted with it: the garbage collector does not know yet whose they are."""
    actions, requeue, busy = planned(age)

    assert (actions, busy) == ([], True)
    assert requeue == pytest.approx(ADOPTED_AFTER - age)


@pytest.mark.parametrize("age", [ADOPTED_AFTER, 3600.0, -5.0])
def test_later_it_is(age: float) -> None:
    assert planned(age) == ([DeleteStatefulSet], None, True)


def test_a_volume_that_somebody_enlarged_by_hand_stays_so() -> None:
    spec = SimpleNamespace(storage=SimpleNamespace(size="2", commit_log=None))
    group = SimpleNamespace(spec=spec, storage_bytes=2, commit_log_bytes=None)
    present = StatefulSet(name="g", uid="u", replicas=1, claim_sizes={"data": 2}, created=CREATED)
    larger = Claim(name="data-g-0", volume="data", ordinal=0, uid="c", requested=5)
    members = (SimpleNamespace(claims=(larger,)),)
    state = cast("GroupState", SimpleNamespace(stateful_set=present, group=group, members=members))

    assert grow(state, CREATED + 3600) == NOTHING
