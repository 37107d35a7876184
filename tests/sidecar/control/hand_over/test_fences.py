"""Fences in virtual time: a fenced replica accepts nothing, and keeps its role."""

import pytest

from rocketmq_formats.replica_link import HoldKind
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.control.hand_over import Outcome
from tests.sidecar.control.hand_over.hand_over_kit import refuse_designations, settled
from tests.sidecar.world.world import STEP, others

FENCE = Fence("maintenance", 1_763_712_345_678)


def test_fenced_master_stays_master_and_accepts_nothing() -> None:
    world = settled()
    master = world.master()
    epoch = master.epochs[-1]
    world.fence(master, FENCE)
    assert not world.accepting()
    world.run(10)
    assert master.broker is not None
    assert (master.broker.role, master.broker.epoch) == ("master", epoch), "no failover because of a fence"
    assert master.machine is not None
    assert master.machine.unready(world.now) is None
    world.fence(master, None)
    assert world.master() is master


def test_fenced_slave_stays_fenced_as_master() -> None:
    world = settled(2)
    master = world.master()
    (slave,) = others(world, master)
    world.fence(slave, FENCE)
    assert world.master() is master
    world.kill(master)
    world.run(1)
    assert slave.broker is not None
    assert (slave.broker.role, slave.broker.held) == ("master", HoldKind.FENCED)
    said = [type(message).__name__ for message in slave.told if type(message).__name__ in {"Hold", "Grant"}]
    assert said == ["Hold", "Grant"]


@pytest.mark.parametrize("what", ["kill", "kill_sidecar", "kill_broker", "cut_link"])
def test_fence_outlives_both_processes(what: str) -> None:
    world = settled(1)
    (node,) = world.nodes
    world.fence(node, FENCE)
    getattr(world, what)(node)
    if what in {"kill", "kill_sidecar"}:
        world.start_sidecar(node)
    if what in {"kill", "kill_broker"}:
        world.start_broker(node)
    for _ in range(200):
        world.run(STEP)
        assert not world.accepting()
    assert node.broker is not None
    assert (node.broker.role, node.broker.held) == ("master", HoldKind.FENCED)
    world.fence(node, None)
    assert world.master() is node


@pytest.mark.parametrize("relaxed", [False, True])
def test_fenced_master_can_hand_over(relaxed: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    world.fence(master, FENCE)
    world.hand_over(master)
    assert world.master() is not master
    world.run_until(world.in_order)
    assert master.broker is not None
    assert master.broker.held is HoldKind.FENCED


def test_a_failed_hand_over_does_not_end_a_fence() -> None:
    world = settled()
    master = world.master()
    world.fence(master, FENCE)
    refuse_designations(world)
    world.hand_over(master)
    world.run(3)
    assert master.handed[-1].outcome == Outcome.FAILED
    assert master.broker is not None
    assert (master.broker.role, master.broker.held) == ("master", HoldKind.FENCED)
