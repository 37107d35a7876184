"""A strict master without followers, while other members send heartbeats: another one is elected."""

import pytest

from rocketmq_sidecar.domain.actions import LogLine
from rocketmq_sidecar.domain.control.hand_over import REFUSALS, Situation
from rocketmq_sidecar.domain.control.unfollowed import LONGEST, Unfollowed
from rocketmq_sidecar.domain.options import Timing
from tests.sidecar.world.world import settled

PATIENCE = 15.0


def leading(
    epoch: int = 1, *, leads: bool = True, members: tuple[int, ...] = (1, 2, 3), connected: int = 1, refused: int = 0
) -> Situation:
    return Situation(1, leads, epoch, 1 if leads else 2, frozenset(members), connected, True, None, (refused, ""))


def alone(epoch: int, at: float, wait: float, one: Unfollowed) -> None:
    """Master of `epoch` since `at`, without a follower, until it asks for another one, exactly `wait` later."""
    one.step(leading(epoch), at)
    assert one.wake_at == at + wait
    assert one.step(leading(epoch), at + wait - 0.1) == ()
    (note,) = one.step(leading(epoch), at + wait)
    assert isinstance(note, LogLine)
    assert (one.electing, one.wake_at) == ((2, 3), None)


def test_after_a_while_another_member_is_to_be_elected() -> None:
    alone(1, 100.0, PATIENCE, Unfollowed(PATIENCE))


def test_without_any_follower_mastership_circulates_more_and_more_slowly() -> None:
    one, wait = Unfollowed(PATIENCE), PATIENCE
    for epoch in range(1, 9):
        alone(epoch, 1000.0 * epoch, wait, one)
        assert one.step(leading(epoch + 1, leads=False), 1000.0 * epoch + wait) == ()
        assert (one.electing, one.wake_at) == ((), None)
        wait = min(2 * wait, LONGEST * PATIENCE)
    one.step(leading(20, connected=2), 10_000.0)  # a slave follows: the wait starts again
    alone(21, 11_000.0, PATIENCE, one)


def test_where_no_other_member_lives_it_stays_and_asks_again_later() -> None:
    one = Unfollowed(PATIENCE)
    alone(1, 100.0, PATIENCE, one)
    assert one.step(leading(refused=REFUSALS - 1), 116.0) == ()
    assert one.electing == (2, 3)
    assert one.step(leading(refused=REFUSALS), 117.0) == ()
    assert (one.electing, one.wake_at) == ((), 117.0 + PATIENCE)


@pytest.mark.parametrize(
    "situation",
    [leading(leads=False), leading(members=(1,))],
    ids=["no longer master", "no other member"],
)
def test_no_replica_to_elect(situation: Situation) -> None:
    one = Unfollowed(PATIENCE)
    assert one.step(situation, 100.0) == ()
    assert one.step(situation, 200.0) == ()
    assert one.electing == ()


def test_a_follower_ends_the_wait() -> None:
    one = Unfollowed(PATIENCE)
    one.step(leading(), 100.0)
    one.step(leading(connected=2), 110.0)
    alone(1, 112.0, PATIENCE, one)


@pytest.mark.parametrize("earlier", [False, True], ids=["of its epoch", "of an earlier epoch"])
def test_a_report_counts_for_its_epoch_only(*, earlier: bool) -> None:
    world = settled()
    master = world.master()
    assert master.machine is not None
    epoch = master.machine.session.group.master_epoch
    assert master.machine.on_in_sync(epoch - earlier, 1, world.now) == ()
    world.run(Timing().unfollowed + 4)
    assert (world.master() is master) is earlier
