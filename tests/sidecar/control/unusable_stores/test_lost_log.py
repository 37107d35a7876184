"""A replica whose log lost what it had acknowledged, though it has its id: never elected while it counts as in sync."""

from rocketmq_formats.codes import RequestCode
from tests.sidecar.world.node import Node
from tests.sidecar.world.world import World, all_down, settled


def empty(node: Node) -> None:
    node.max_offset = 0


def test_it_is_not_elected_even_as_the_only_one() -> None:
    world = settled()
    all_down(world)
    emptied, other, _ = world.nodes
    empty(emptied)
    emptied.asked.clear()
    world.start(emptied)
    world.run(30)
    assert world.accepting() == []
    assert emptied.machine is not None
    assert emptied.machine.unready(world.now) == "files are missing"
    assert [note.values for note in emptied.notes if note.level == "error"] == [{"reason": "files are missing"}]
    assert RequestCode.CONTROLLER_ELECT_MASTER not in emptied.asked

    world.start(other)
    world.run_until(world.in_order)
    assert world.master() is other
    assert emptied.max_offset == other.max_offset


def test_the_order_of_starts_does_not_matter() -> None:
    world = settled()
    emptied = world.master()
    all_down(world)
    empty(emptied)
    world.start_all()
    world.run_until(world.in_order)
    assert world.master() is not emptied


def test_emptied_while_the_others_went_on_it_is_rebuilt_at_once() -> None:
    world = settled()
    emptied = next(node for node in world.nodes if node is not world.master())
    world.kill(emptied)
    world.run_until(world.in_order)
    empty(emptied)
    world.start(emptied)
    world.run_until(world.in_order, seconds=2)
    assert emptied.mark == emptied.max_offset == world.master().max_offset


def test_emptied_while_its_strict_master_was_alone_it_is_rebuilt_though_it_still_is_a_member() -> None:
    """The master drops no member, so it could be elected; it first gets back what it has lost."""
    world = settled(2)
    emptied = next(node for node in world.nodes if node is not world.master())
    world.kill(emptied)
    world.run(1)
    empty(emptied)
    emptied.asked.clear()
    world.start(emptied)
    world.run_until(world.in_order, seconds=2)
    assert world.controllers.group is not None
    assert world.controllers.group.sync_state_set == {1, 2}
    assert emptied.mark == emptied.max_offset == world.master().max_offset
    assert [note.text for note in emptied.notes if note.level != "info"][-2:] == [
        "log has lost what it held",
        "the log has recovered what it had lost",
    ]


def test_what_is_given_up_by_hand_is_elected_again() -> None:
    world = settled()
    all_down(world)
    emptied = world.nodes[0]
    empty(emptied)
    world.start(emptied)
    world.run(5)
    world.kill(emptied)
    emptied.mark = 0  # as the log says: write 0 into the file
    world.start(emptied)
    world.run_until(lambda: world.accepting() == [emptied])


def test_a_restarted_master_that_lost_its_log_makes_room_for_another() -> None:
    for relaxed in (False, True):
        world = World(3, relaxed=relaxed)
        world.start_all()
        world.run_until(world.in_order)
        emptied = world.master()
        world.kill(emptied)
        empty(emptied)
        world.start(emptied)
        world.run_until(world.in_order)
        assert world.master() is not emptied


def test_an_election_requested_by_another_does_not_choose_it_either() -> None:
    """To the controllers the life before may last as long as its lease, though its connection has closed."""
    world = World(3, relaxed=True)
    emptied, member, stranger = world.nodes
    for node in (emptied, member):
        world.start(node)
        world.run(1)
    world.run_until(lambda: world.controllers.group is not None and len(world.controllers.group.sync_state_set) == 2)
    assert world.master() is emptied
    world.run(3)
    all_down(world)
    empty(emptied)
    world.start(emptied)
    world.run(0.1)
    world.start(stranger)
    world.run(5)
    assert world.accepting() == []
    world.start(member)
    world.run_until(world.in_order)
    assert world.master() is member
