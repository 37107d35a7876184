"""The machine of a hand-over alone: what each step waits for, and how it ends when that does not come in time."""

import pytest

from rocketmq_sidecar.domain.actions import HandedOver, WatchCatchUp
from rocketmq_sidecar.domain.control.hand_over import SETTLE, HandOver, Outcome, Phase, Situation


def situation(*, end: int | None = None, in_sync: frozenset[int] = frozenset({1, 2, 3})) -> Situation:
    return Situation(
        own_id=1,
        leads=True,
        epoch=7,
        master_id=1,
        in_sync=in_sync,
        connected=len(in_sync),
        controllers=True,
        end=end,
        refused=(0, ""),
    )


def watch_of(actions: tuple[object, ...]) -> int:
    return next(one.watch for one in actions if isinstance(one, WatchCatchUp) and one.watch)


def outcome_of(actions: tuple[object, ...]) -> HandedOver | None:
    return next((one for one in actions if isinstance(one, HandedOver)), None)


def test_levelling_waits_for_the_target_and_a_moment_for_the_others() -> None:
    over = HandOver()
    begun = over.begin(2, 5.0, situation(), 0.0)
    over.on_replicas_caught_up(watch_of(begun), frozenset({2}), acked=False)
    over.step(situation(), 0.1)
    assert over.phase is Phase.HOLDING
    watch = watch_of(over.step(situation(end=500), 0.2))
    over.on_replicas_caught_up(watch, frozenset({3}), acked=False)
    assert over.step(situation(end=500), 0.3) == ()
    over.on_replicas_caught_up(watch, frozenset({2, 3}), acked=False)
    over.step(situation(end=500), 0.4)
    assert (over.phase, over.wake_at) == (Phase.FINAL_CATCH_UP, 0.4 + SETTLE)
    over.step(situation(end=500), 0.4 + SETTLE)
    assert over.electing == (2,)


def test_level_of_an_earlier_watch_counts_for_nothing() -> None:
    over = HandOver()
    first = watch_of(over.begin(2, 5.0, situation(), 0.0))
    over.on_replicas_caught_up(first, frozenset({2}), acked=True)
    over.step(situation(), 0.1)
    over.step(situation(end=500), 0.2)
    over.on_replicas_caught_up(first, frozenset({2}), acked=True)
    over.step(situation(end=500), 0.3)
    assert over.phase is Phase.FINAL_CATCH_UP


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_time_out_of_each_step(steps: int) -> None:
    over = HandOver()
    watch = watch_of(over.begin(2, 1.0, situation(), 0.0))
    if steps > 0:
        over.on_replicas_caught_up(watch, frozenset({2}), acked=True)
        over.step(situation(), 0.1)
    if steps > 1:
        watch = watch_of(over.step(situation(end=500), 0.2))
    if steps > 2:
        over.on_replicas_caught_up(watch, frozenset({2}), acked=True)
        over.step(situation(end=500), 0.3)
    reached = over.phase
    assert reached is list(Phase)[steps + 1]
    ended = outcome_of(over.step(situation(end=500 if steps > 1 else None), 1.0))
    assert ended is not None
    assert ended.outcome == Outcome.FAILED
    assert reached in ended.reason
    assert not over.holds


def test_target_that_leaves_the_set_while_it_is_elected() -> None:
    over = HandOver()
    watch = watch_of(over.begin(None, 1.0, situation(), 0.0))
    over.on_replicas_caught_up(watch, frozenset({2, 3}), acked=True)
    over.step(situation(), 0.1)
    watch = watch_of(over.step(situation(end=500), 0.2))
    over.on_replicas_caught_up(watch, frozenset({3}), acked=True)
    over.step(situation(end=500), 0.3)
    assert over.electing == (), "2 may be preferred, and has a moment"
    over.step(situation(end=500), 0.3 + SETTLE)
    assert over.electing == (3,)
    ended = outcome_of(over.step(situation(end=500, in_sync=frozenset({1, 2})), 0.5))
    assert ended is not None
    assert ended.outcome == Outcome.FAILED
