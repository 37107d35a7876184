"""Every step of a sidecar's life is safe to interrupt: the same story, stopped before each step, ends in order."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sidecar.world.controllers import CONTROLLERS
from tests.sidecar.world.node import Node
from tests.sidecar.world.world import World


def end_in_order(world: World) -> None:
    """All start again, the group is in order within a minute, and no replica has changed its id."""
    world.controllers.deaf, world.controllers.leader = set(), CONTROLLERS[1]
    for node in world.nodes:
        node.hung = False
        if node.machine is None:
            world.start_sidecar(node)
        if node.broker is None:
            world.start_broker(node)
    world.run_until(world.in_order, 60)
    ids = [node.broker_id for node in world.nodes]
    assert len(set(ids)) == len(ids)
    assert world.controllers.group is not None
    assert set(ids) == {int(one) for one in world.controllers.group.replicas}
    assert world.controllers.group.next_broker_id == len(ids) + 1, "no id was burnt"


@pytest.mark.parametrize("victim", range(3))
def test_start_stopped_before_every_step(victim: int) -> None:
    for step in itertools.count(1):
        world = World()
        node = world.nodes[victim]
        node.crash_at_step = step
        world.start_all()
        world.run_until(world.in_order)
        node.crash_at_step = None
        end_in_order(world)
        if not node.crashes:
            assert step > 10
            break


def test_failover_with_the_successor_stopped_before_every_step() -> None:
    for step in itertools.count(1):
        world = World()
        world.start_all()
        world.run_until(world.in_order)
        successor = next(node for node in world.nodes if node is not world.master())
        successor.crash_at_step = None
        third = next(node for node in world.nodes if node not in {world.master(), successor})
        world.kill(third)
        world.run_until(world.in_order)
        began = successor.steps
        successor.crash_at_step = began + step
        world.kill(world.master())
        world.run(1)
        successor.crash_at_step = None
        crashed = successor.crashes
        end_in_order(world)
        if not crashed:
            assert step > 10
            break


def test_demotion_stopped_before_every_step() -> None:
    for step in itertools.count(1):
        world = World()
        world.start_all()
        world.run_until(world.in_order)
        master = world.master()
        master.crash_at_step = master.steps + step
        world.reset_connections(master)
        world.run(1)
        master.crash_at_step = None
        crashed = master.crashes
        end_in_order(world)
        if not crashed:
            assert step > 5
            break


Inflict = Callable[[World, Node], None]


def if_running(fault: Inflict) -> Inflict:
    """`fault` for a node whose processes both live and run."""

    def careful(world: World, node: Node) -> None:
        if node.machine is not None and node.broker is not None and not node.hung:
            fault(world, node)

    return careful


def start(world: World, node: Node) -> None:
    if node.machine is None:
        world.start_sidecar(node)
    if node.broker is None:
        world.start_broker(node)


def hang(_world: World, node: Node) -> None:
    node.hung = node.machine is not None


def wake(_world: World, node: Node) -> None:
    node.hung = False


def controller_deaf(world: World, node: Node) -> None:
    world.controllers.deaf.add(CONTROLLERS[node.number - 1])


def controller_hears(world: World, node: Node) -> None:
    world.controllers.deaf.discard(CONTROLLERS[node.number - 1])


def controller_leads(world: World, node: Node) -> None:
    world.controllers.leader = CONTROLLERS[node.number - 1]


def nobody_leads(world: World, _node: Node) -> None:
    world.controllers.leader = None


FAULTS: tuple[Inflict, ...] = (
    World.kill,
    World.kill_sidecar,
    World.kill_broker,
    start,
    hang,
    wake,
    if_running(World.cut_link),
    if_running(World.reset_connections),
    if_running(World.stop),
    controller_deaf,
    controller_hears,
    controller_leads,
    nobody_leads,
)


@example(  # the master hears of its epoch, then another is elected, then a heartbeat is accepted
    [(World.kill, 0, 0.0), (nobody_leads, 0, 0.7), (if_running(World.cut_link), 2, 0.0), (controller_deaf, 1, 3.5)],
    True,
)
@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(FAULTS), st.integers(0, 2), st.sampled_from([0.0, 0.02, 0.1, 0.7, 3.5])), max_size=25
    ),
    st.booleans(),
)
def test_whatever_happens_in_the_end_there_is_order(
    faults: list[tuple[Inflict, int, float]], notices_lost: bool
) -> None:
    world = World()
    world.notices_lost = notices_lost
    world.start_all()
    for inflict, number, pause in faults:
        inflict(world, world.nodes[number])
        world.run(pause)
    end_in_order(world)
