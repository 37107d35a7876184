"""Replicas whose machines lost power: who has everything acknowledged is waited for."""

from rocketmq_formats.codes import RequestCode
from tests.sidecar.world.world import World, all_down, cut, others, settled


def down() -> World:
    world = settled()
    all_down(world)
    return world


def test_the_longest_log_is_elected_when_all_have_come_back() -> None:
    world = down()
    for node, end in zip(world.nodes, (80, 95, 90), strict=True):
        cut(node, end)
    first, longest, last = world.nodes
    world.start(first)
    world.start(last)
    world.run(30)
    assert world.accepting() == []
    assert first.machine is not None
    assert first.machine.unready(world.now) == "lost power"
    world.start(longest)
    world.run_until(world.in_order)
    assert world.master() is longest
    assert {node.max_offset for node in world.nodes} == {95}
    assert [node.unproven for node in world.nodes] == [None] * 3


def test_who_was_only_killed_is_elected_at_once() -> None:
    world = down()
    kept, *lost = world.nodes
    for node in lost:
        cut(node, 80)
        world.start(node)
    world.run(10)
    assert world.accepting() == []
    for node in lost:
        assert RequestCode.CONTROLLER_ELECT_MASTER not in node.asked[-20:]
    world.start(kept)
    world.run_until(world.in_order, seconds=3)
    assert world.master() is kept


def test_a_slave_that_lost_power_counts_again_when_it_has_what_its_master_has() -> None:
    world = settled()
    master = world.master()
    slave = others(world, master)[0]
    world.kill(slave)
    cut(slave, 80)
    world.start(slave)
    world.run_until(world.in_order, seconds=3)
    assert slave.unproven is None
    assert slave.max_offset == master.max_offset
