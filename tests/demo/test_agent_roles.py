"""Agents under the real controller domain, in virtual time: who is master, who is in sync, who answers."""

from rocketmq_demo.agent.role import Role
from tests.demo.agent_world import STEP, Node, World


def settled(nodes: int = 3) -> World:
    world = World(nodes)
    world.start_all()
    world.run_until(world.in_sync(*world.nodes))
    world.run(2)
    return world


def others(world: World, node: Node) -> list[Node]:
    return [one for one in world.nodes if one is not node]


def test_three_agents_come_into_sync_under_one_master() -> None:
    world = settled()
    roles = sorted(node.machine.roles.role for node in world.nodes if node.machine is not None)
    assert roles == [Role.MASTER, Role.SLAVE, Role.SLAVE]
    assert sorted(node.broker_id for node in world.nodes) == [1, 2, 3]
    assert [world.probe(node) for node in world.nodes] == [node is world.master() for node in world.nodes]


def test_killed_master_is_replaced_by_a_member_of_the_set_at_once() -> None:
    world = settled()
    master = world.master()
    began = world.now
    world.kill(master)
    world.run(STEP)
    successor = world.master()
    assert successor is not master
    assert world.probe(successor)
    assert world.now - began < 0.2
    world.run_until(world.in_sync(*others(world, master)))
    world.start(master)
    world.run_until(world.in_sync(*world.nodes))
    assert world.master() is successor


def test_hung_master_answers_nothing_from_its_epoch_when_it_wakes() -> None:
    world = settled()
    master = world.master()
    master.hung = True
    world.run_until(lambda: world.master() is not master)
    assert world.probe(world.master())
    world.run(5)
    master.hung = False
    assert not world.probe(master), "what lay in its socket meanwhile"
    world.run(STEP)
    assert not world.probe(master)
    world.run_until(world.in_sync(*world.nodes))
    assert world.master() is not master
    assert master.machine is not None
    assert master.machine.roles.role is Role.SLAVE


def test_agent_that_slept_unnoticed_asks_before_it_answers() -> None:
    world = settled()
    master = world.master()
    master.hung = True
    world.run(1.5)
    master.hung = False
    assert not world.probe(master)
    world.run(2 * STEP)
    assert world.master() is master
    assert world.probe(master)


def test_hung_slave_leaves_the_set_and_comes_back() -> None:
    world = settled()
    master = world.master()
    slave = others(world, master)[0]
    slave.hung = True
    world.run_until(world.in_sync(*others(world, slave)))
    assert world.master() is master
    slave.hung = False
    world.run_until(world.in_sync(*world.nodes))
    assert world.group is not None
    assert world.group.master_epoch == 1


def test_killed_slave_costs_no_epoch() -> None:
    world = settled()
    slave = others(world, world.master())[0]
    world.kill(slave)
    world.run_until(world.in_sync(*others(world, slave)), seconds=0.5)
    world.start(slave)
    world.run_until(world.in_sync(*world.nodes))
    assert world.group is not None
    assert world.group.master_epoch == 1


def test_without_controllers_the_master_goes_on_and_nobody_else_answers() -> None:
    world = settled()
    master = world.master()
    world.leader_down = True
    for _ in range(200):
        world.run(STEP)
        assert [world.probe(node) for node in world.nodes] == [node is master for node in world.nodes]
    world.leader_down = False
    world.run(2)
    assert world.in_sync(*world.nodes)()


def test_when_the_notice_is_lost_a_dead_master_is_hint_enough() -> None:
    world = settled()
    master = world.master()
    world.notices_lost = True
    world.kill(master)
    world.run_until(world.in_sync(*others(world, master)), seconds=1.0)
    assert world.probe(world.master())


def test_restarted_master_of_a_lone_group_is_elected_again_with_a_new_epoch() -> None:
    world = settled(nodes=1)
    node = world.nodes[0]
    world.kill(node)
    world.start(node)
    world.run_until(lambda: node.machine is not None and node.machine.roles.role is Role.MASTER)
    assert world.probe(node)
    assert node.broker_id == 1
    assert world.group is not None
    assert world.group.master_epoch == 2


def test_slave_reports_its_masters_offset_in_heartbeats() -> None:
    world = settled()
    master = world.master()
    world.run(3)
    assert master.machine is not None
    entries = {entry.key.broker_id: entry for entry in world.heartbeats.living(world.now)}
    assert len(entries) == 3
    assert all(entry.max_offset > 0 and entry.epoch == 1 for entry in entries.values())
