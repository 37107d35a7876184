"""What a slave's broker hears about the master: whether there is one decides whether the slave may act for it."""

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.replica_link import MasterKnown
from rocketmq_sidecar.domain.actions import Actions, SendToBroker
from rocketmq_sidecar.domain.control.known_master import KnownMaster
from rocketmq_sidecar.domain.control.role import BeSlave
from tests.sidecar.world.controllers import CONTROLLERS
from tests.sidecar.world.node import Node
from tests.sidecar.world.world import World, others, settled

MASTER, NEXT = BeSlave(1, 1, "10.0.0.1:10911"), BeSlave(2, 2, "10.0.0.2:10911")


def told(actions: Actions) -> list[bool]:
    return [
        action.message.known
        for action in actions
        if isinstance(action, SendToBroker) and isinstance(action.message, MasterKnown)
    ]


def test_a_master_is_known_while_controllers_name_it_or_it_is_connected() -> None:
    one = KnownMaster()
    assert told(one.step(MASTER, named=True, controllers=True)) == []
    one.on_caught_up()
    assert told(one.step(MASTER, named=True, controllers=False)) == []
    one.on_master_lost()
    assert told(one.step(MASTER, named=True, controllers=False)) == [False]
    assert told(one.step(MASTER, named=True, controllers=False)) == [], "once"
    assert told(one.step(MASTER, named=True, controllers=True)) == [True]
    assert told(one.step(MASTER, named=False, controllers=True)) == [False], "the controllers' word counts"
    one.on_caught_up()
    assert told(one.step(MASTER, named=True, controllers=False)) == [True], "it came back"


def test_a_connected_master_that_hangs_is_none_until_it_is_heard() -> None:
    one = KnownMaster()
    one.step(MASTER, named=True, controllers=True)
    one.on_caught_up()
    one.on_heard(heard=False)
    assert told(one.step(MASTER, named=True, controllers=True)) == [], "the controllers' word counts"
    assert told(one.step(MASTER, named=True, controllers=False)) == [False]
    one.on_heard(heard=True)
    assert told(one.step(MASTER, named=True, controllers=False)) == [True]
    one.on_heard(heard=False)
    assert told(one.step(MASTER, named=True, controllers=False)) == [False]
    one.on_master_lost()
    one.on_caught_up()
    assert told(one.step(MASTER, named=True, controllers=False)) == [True], "a new connection is heard"


def test_a_connected_master_stays_known_in_its_next_epoch() -> None:
    """The connection stays, so catching up is not reported again."""
    again = BeSlave(2, MASTER.master_broker_id, "10.0.0.9:10911")
    one = KnownMaster()
    one.step(MASTER, named=True, controllers=True)
    one.on_caught_up()
    assert told(one.step(again, named=True, controllers=True)) == []
    assert told(one.step(again, named=True, controllers=False)) == []


def test_who_follows_anew_begins_with_a_master() -> None:
    one = KnownMaster()
    one.on_caught_up()
    one.step(MASTER, named=True, controllers=True)
    one.on_master_lost()
    assert told(one.step(MASTER, named=True, controllers=False)) == [False]
    assert told(one.step(NEXT, named=True, controllers=True)) == []
    assert told(one.step(NEXT, named=True, controllers=False)) == [False], "the connection to the last one says nothing"
    assert told(one.step(None, named=False, controllers=False)) == []


def lose(world: World, nodes: list[Node]) -> None:
    """The connection to their master broke."""
    for node in nodes:
        world._report(node, lambda machine, now: machine.on_master_lost(now))
    world._settle()


def known(nodes: list[Node]) -> list[bool]:
    return [node.broker is not None and node.broker.master_known for node in nodes]


def test_controllers_and_master_gone() -> None:
    world = settled()
    master = world.master()
    slaves = others(world, master)
    world.controllers.deaf = set(CONTROLLERS)
    world.run(30)
    assert known(slaves) == [True, True], "the master still replicates"
    world.kill(master)
    lose(world, slaves)
    world.run(1)
    assert known(slaves) == [False, False]
    world.controllers.deaf = set()
    world.run_until(lambda: bool(world.accepting()))
    world.run_until(world.in_order)
    assert known([node for node in slaves if node is not world.master()]) == [True]


def test_in_an_ordinary_failover_no_slave_acts() -> None:
    world = settled()
    master = world.master()
    slaves = others(world, master)
    world.kill(master)
    lose(world, slaves)
    world.run_until(world.in_order)
    assert not [message for node in slaves for message in node.told if isinstance(message, MasterKnown)]


def test_when_controllers_lead_again_a_slave_asks_them_at_once() -> None:
    """Meanwhile they may have elected another master, or this one has another address."""
    world = settled()
    master = world.master()
    slave, other = others(world, master)
    world.controllers.deaf = set(CONTROLLERS)
    world.kill(master)
    lose(world, [slave, other])
    world.run(5)
    assert known([slave]) == [False]
    slave.asked.clear()
    world.controllers.deaf = set()
    world.run_until(lambda: known([slave]) == [True] or (slave.broker is not None and slave.broker.role != "slave"))
    world.run(0.1)
    assert RequestCode.CONTROLLER_GET_REPLICA_INFO in slave.asked
