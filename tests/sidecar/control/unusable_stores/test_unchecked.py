"""Replicas whose logs were not read again after an unclean stop, or are damaged: others are elected."""

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.replica_link import LogState
from tests.sidecar.world.world import World, all_down, cut, others, settled

UNCHECKED = LogState(checked=False)
DAMAGED = LogState(damage=40, reason="no whole record at offset 40")
WHOLE = LogState()


def down() -> World:
    world = settled()
    all_down(world)
    return world


def test_no_replica_is_elected_before_its_log_is_read_again() -> None:
    world = down()
    for node in world.nodes:
        node.log = UNCHECKED
        node.asked.clear()
        world.start(node)
    world.run(30)
    assert world.accepting() == []
    for node in world.nodes:
        assert RequestCode.CONTROLLER_ELECT_MASTER not in node.asked
        assert node.machine is not None
        assert "read again" in str(node.machine.unready(world.now))
    second = world.nodes[1]
    world.looked(second, WHOLE)
    world.run_until(lambda: len(world.accepting()) == 1, seconds=3)
    assert world.master() is second


def test_who_was_checked_is_elected_in_place_of_who_was_not() -> None:
    world = down()
    first, second, third = world.nodes
    first.log = third.log = UNCHECKED
    for node in world.nodes:
        world.start(node)
    world.run_until(world.in_order, seconds=3)
    assert world.master() is second
    world.looked(first, WHOLE)
    world.run(5)
    assert world.master() is second


def test_a_damaged_log_waits_for_one_that_is_whole() -> None:
    world = down()
    first, second, third = world.nodes
    first.log = second.log = DAMAGED
    for node in (first, second):
        world.start(node)
    world.run(30)
    assert world.accepting() == [], "the third may have what is damaged here"
    assert first.machine is not None
    assert "damaged" in str(first.machine.unready(world.now))
    world.start(third)
    world.run_until(world.in_order, seconds=3)
    assert world.master() is third


def test_a_damaged_slave_is_not_ready_and_says_why() -> None:
    world = down()
    for node in world.nodes:
        world.start(node)
    world.run_until(world.in_order, seconds=3)
    slave = next(node for node in world.nodes if node is not world.master())
    world.looked(slave, DAMAGED)
    world.run(0.1)
    assert slave.machine is not None
    assert "damaged" in str(slave.machine.unready(world.now))
    world.looked(slave, WHOLE)
    world.run(0.1)
    assert slave.machine.unready(world.now) is None


def test_where_all_are_damaged_the_one_that_is_whole_furthest_is_elected() -> None:
    world = down()
    for node, damage in zip(world.nodes, (40, 70, 60), strict=True):
        node.log = LogState(damage=damage, reason="damaged")
        world.start(node)
    world.run_until(lambda: len(world.accepting()) == 1, seconds=3)
    assert world.master() is world.nodes[1]


def test_after_a_power_cut_unchecked_logs_do_not_count_as_reported() -> None:
    world = down()
    for node, end in zip(world.nodes, (80, 95, 90), strict=True):
        cut(node, end)
        node.log = UNCHECKED
        world.start(node)
    first, longest, last = world.nodes
    world.looked(first, WHOLE)
    world.looked(last, WHOLE)
    world.run(30)
    assert world.accepting() == []
    world.looked(longest, WHOLE)
    world.run_until(world.in_order, seconds=3)
    assert world.master() is longest


def test_a_slave_is_not_elected_while_it_is_damaged_and_again_when_it_is_repaired() -> None:
    world = settled()
    master = world.master()
    damaged, other = others(world, master)
    world.looked(damaged, DAMAGED)
    world.run(1)
    world.kill(master)
    world.run_until(lambda: other in world.accepting(), seconds=5)
    world.start(master)
    world.run_until(world.in_order)
    world.looked(damaged, WHOLE)
    world.looked(master, DAMAGED)
    world.run(1)
    world.kill(other)
    world.run_until(lambda: damaged in world.accepting(), seconds=5)


def test_a_new_broker_reports_the_state_of_the_log_first() -> None:
    world = settled()
    master = world.master()
    slave = others(world, master)[0]
    world.looked(slave, DAMAGED)
    world.kill(slave)
    slave.log = WHOLE
    world.start(slave)
    world.run_until(world.in_order)
    assert slave.machine is not None
    assert slave.machine.session.reported_unproven is None
