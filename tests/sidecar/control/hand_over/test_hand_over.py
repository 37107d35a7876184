"""Hand-overs in virtual time, under the controllers' real domain: which replica is master and what the caller gets,
where it goes well and where it is refused from the start."""

import pytest

from rocketmq_sidecar.domain.actions import HandedOver
from rocketmq_sidecar.domain.control.hand_over import SETTLE, Outcome
from tests.sidecar.control.hand_over.hand_over_kit import settled
from tests.sidecar.world.world import World, others


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_the_other_one_is_master_at_once(relaxed: bool, named: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    epoch = master.epochs[-1]
    target = others(world, master)[1]
    world.hand_over(master, target if named else None)
    successor = world.master()
    assert successor is (target if named else others(world, master)[0])
    assert [one.outcome for one in master.handed] == [Outcome.ELECTED]
    assert (master.handed[0].master_id, master.handed[0].master_epoch) == (successor.broker_id, epoch + 1)
    world.run_until(world.in_order)
    assert master.broker is not None
    assert master.broker.held is None, "as master again it would take sends"


@pytest.mark.parametrize("relaxed", [False, True])
def test_without_a_named_target_the_controllers_choose(relaxed: bool) -> None:
    world = World(3, relaxed=relaxed)
    world.nodes[2].priority = 1
    world.start_all()
    world.run_until(world.in_order)
    world.run(1)
    master = world.master()
    assert master is not world.nodes[2]
    world.hand_over(master)
    assert world.master() is world.nodes[2]


def test_who_is_preferred_and_lags_is_waited_for_a_moment_only() -> None:
    world = World(3, relaxed=True)
    world.nodes[2].priority = 1
    world.start_all()
    world.run_until(world.in_order)
    world.run(1)
    master = world.master()
    world.nodes[2].lags = True
    world.hand_over(master)
    world.run_until(lambda: bool(master.handed), seconds=2 * SETTLE)
    assert world.master() is world.nodes[1]


def test_there_and_back() -> None:
    world = settled(relaxed=True)
    first = world.master()
    second = others(world, first)[0]
    for here, there in ((first, second), (second, first), (first, second)):
        world.hand_over(here, there)
        assert world.master() is there
        world.run_until(world.in_order)


def test_to_oneself_is_done_already() -> None:
    world = settled()
    master = world.master()
    world.hand_over(master, master)
    assert master.handed[-1] == HandedOver(1, Outcome.ELECTED, "", master.broker_id, master.epochs[-1])
    assert world.master() is master


# Refused


def test_of_a_slave() -> None:
    world = settled()
    slave = others(world, world.master())[0]
    world.hand_over(slave)
    assert slave.handed[-1].outcome == Outcome.NOT_NOW
    assert f"the master is brokerId {world.master().broker_id}" in slave.handed[-1].reason


def test_no_replica_to_hand_over_to() -> None:
    world = settled(1)
    world.hand_over(world.master())
    assert world.nodes[0].handed[-1].outcome == Outcome.NOT_NOW
    assert "no other replica" in world.nodes[0].handed[-1].reason


def test_target_not_in_sync() -> None:
    world = settled()
    master = world.master()
    target = others(world, master)[0]
    world.kill(target)
    world.run_until(world.in_order)
    assert master.machine is not None
    gone = 2 if target.number == 2 else target.number
    world._do(master, master.machine.on_hand_over(gone, 5.0, world.now))
    world._settle()
    assert master.handed[-1].outcome == Outcome.NOT_NOW
    assert "not in the SyncStateSet" in master.handed[-1].reason


def test_twice_at_once() -> None:
    world = settled()
    master = world.master()
    target = others(world, master)[0]
    target.lags = True
    world.hand_over(master, target)
    world.hand_over(master)
    assert [one.outcome for one in master.handed] == [Outcome.UNDER_WAY]
    world.catch_up(target)
    assert [one.outcome for one in master.handed] == [Outcome.UNDER_WAY, Outcome.ELECTED]


# Orderly ends


def test_orderly_end_chooses_who_is_level() -> None:
    world = settled(relaxed=True)
    master = world.master()
    behind, level = others(world, master)
    behind.lags = True
    world.stop(master)
    assert world.master() is level


def test_orderly_end_of_the_last_one() -> None:
    world = settled(1)
    world.stop(world.master())
    assert not world.accepting()
