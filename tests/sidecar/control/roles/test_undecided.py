"""A strict master that waits for a replica of which no one can say whether it is a member: another one is elected."""

import pytest

from rocketmq_formats.codes import RequestCode
from rocketmq_sidecar.domain.actions import LogLine, Request, WatchCatchUp
from rocketmq_sidecar.domain.control.hand_over import HandOver, Situation
from rocketmq_sidecar.domain.control.undecided import Undecided
from rocketmq_sidecar.domain.options import Timing
from tests.sidecar.world.node import Node
from tests.sidecar.world.world import World, others, settled

PATIENCE = 15.0
AWAY = 99
"""A replica that was proposed."""


def leading(*, leads: bool = True, connected: int | None = 2, controllers: bool = True) -> Situation:
    return Situation(1, leads, 1, 1 if leads else 2, frozenset({1, 2}), connected, controllers, None, (0, ""))


def waiting() -> tuple[Undecided, HandOver]:
    """Since 100 s, with 2 of the 3 in sync."""
    one, hand_over = Undecided(PATIENCE), HandOver()
    assert one.step(leading(), frozenset({3}), hand_over, 100.0) == ()
    assert one.wake_at == 100.0 + PATIENCE
    return one, hand_over


def test_after_a_while_it_hands_over_and_reports_why() -> None:
    one, hand_over = waiting()
    assert one.step(leading(), frozenset({3}), hand_over, 114.9) == ()
    assert one.reason is None
    note, begun, watch = one.step(leading(), frozenset({3}), hand_over, 115.0)
    assert isinstance(note, LogLine)
    assert isinstance(begun, LogLine)
    assert isinstance(watch, WatchCatchUp)
    assert hand_over.active
    assert "brokerId 3" in (one.reason or "")


def test_a_hand_over_that_failed_is_repeated_without_another_warning() -> None:
    one, hand_over = waiting()
    one.step(leading(), frozenset({3}), hand_over, 115.0)
    assert one.step(leading(), frozenset({3}), hand_over, 130.0) == (), "the first one is under way"
    hand_over.step(leading(), 130.0)
    assert not hand_over.active
    actions = one.step(leading(), frozenset({3}), hand_over, 130.0)
    assert [action.text for action in actions if isinstance(action, LogLine)] == ["handing over"]


@pytest.mark.parametrize(
    ("situation", "undecided"),
    [
        pytest.param(leading(leads=False), {3}, id="no longer master"),
        pytest.param(leading(connected=None), {3}, id="another epoch"),
        pytest.param(leading(), set(), id="decided"),
        pytest.param(leading(connected=3), {3}, id="it follows and acknowledges"),
        pytest.param(leading(connected=1), {3}, id="alone"),
    ],
)
def test_the_wait_ends(situation: Situation, undecided: set[int]) -> None:
    one, hand_over = waiting()
    one.step(leading(), frozenset({3}), HandOver(), 115.0)
    assert one.step(situation, frozenset(undecided), hand_over, 140.0) == ()
    assert (one.reason, one.wake_at, hand_over.active) == (None, None, False)


def test_without_controllers_nobody_can_be_elected() -> None:
    one, hand_over = waiting()
    assert one.step(leading(controllers=False), frozenset({3}), hand_over, 200.0) == ()
    assert one.step(leading(), frozenset({3}), hand_over, 201.0)


def in_doubt(*, java: bool) -> tuple[World, Node]:
    """A group in order, whose master proposed one more and got no answer; now that one is away."""
    world = settled()
    master = world.master()
    world.controllers.java = java
    lost: list[Request] = []

    def lose(_node: Node, ask: Request) -> bool:
        if ask.code is not RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET or lost:
            return False
        lost.append(ask)
        return True

    world.controllers.lose = lose
    assert world.controllers.group is not None
    world.want_set(master, frozenset({*world.controllers.group.sync_state_set, AWAY}))
    assert lost
    return world, master


def test_under_controllers_that_cannot_exclude_it_another_member_becomes_master() -> None:
    world, master = in_doubt(java=True)
    for slave in others(world, master):
        slave.lags = True
    assert master.machine is not None
    world.run(Timing().unfollowed - 1)
    assert master.machine.unready(world.now) is None
    world.run(4)
    assert f"brokerId {AWAY}" in (master.machine.unready(world.now) or "")
    assert [note.level for note in master.notes if "cannot be excluded" in note.text] == ["warning"]
    for slave in others(world, master):
        world.catch_up(slave)
    world.run_until(lambda: world.in_order() and world.master() is not master)
    assert master.machine.unready(world.now) is None


def test_under_controllers_that_exclude_it_nothing_changes() -> None:
    world, master = in_doubt(java=False)
    world.run(2 * Timing().unfollowed)
    assert world.master() is master
    assert not master.handed
