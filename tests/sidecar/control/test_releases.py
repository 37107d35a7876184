"""Sidecars and controllers of two releases: a group forms, fails over and hands over, is upgraded without a stop."""

import pytest

from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from rocketmq_sidecar.domain.control.hand_over import Outcome
from tests.sidecar.world.releases import LATER, as_first_released
from tests.sidecar.world.world import World

OLDER = {"controllers": {1, 2, 3}, "one sidecar": {1}, "two sidecars": {2, 3}, "nobody": set[int]()}


def test_an_earlier_release_knows_less() -> None:
    assert {"BrokerHeartbeatRequestHeader", "ElectMasterRequestHeader", "InSyncReplica"} <= LATER.keys()
    beat = BrokerHeartbeatRequestHeader("C", "h:1", "b", 1, epoch=3, write_lease_millis=2000, is_learner=True)
    assert as_first_released(beat) == BrokerHeartbeatRequestHeader("C", "h:1", "b", 1, epoch=3)


@pytest.mark.parametrize("relaxed", [False, True], ids=["strict", "relaxed"])
@pytest.mark.parametrize("older", OLDER.values(), ids=OLDER)
def test_a_group_of_two_releases(older: set[int], relaxed: bool) -> None:
    world = World(3, relaxed=relaxed)
    world.controllers.older = set(older)
    world.start_all()
    world.run_until(world.in_order)
    masters = []
    for _ in range(3):
        old = world.master()
        world.kill(old)
        world.run_until(lambda: len(world.accepting()) == 1)
        masters.append(world.master().number)
        world.start(old)
        world.run_until(world.in_order)
    assert len({*masters}) > 1
    master = world.master()
    world.hand_over(master)
    world.run_until(lambda master=master: bool(master.handed))
    assert [one.outcome for one in master.handed] == [Outcome.ELECTED]
    world.run_until(world.in_order)
    world.stop(world.master())
    world.run_until(lambda: len(world.accepting()) == 1)


@pytest.mark.parametrize("back", [False, True], ids=["upgraded", "and back"])
@pytest.mark.parametrize("relaxed", [False, True], ids=["strict", "relaxed"])
def test_one_after_the_other_is_upgraded(relaxed: bool, back: bool) -> None:
    """A sidecar is another release when it starts again; a group that goes back is that of the earlier release."""
    world = World(3, relaxed=relaxed)
    world.controllers.older = {1, 2, 3}
    world.start_all()
    world.run_until(world.in_order)
    for older in [False, True] if back else [False]:
        for node in world.nodes:
            world.stop(node)
            world.kill_broker(node)
            (world.controllers.older.add if older else world.controllers.older.discard)(node.number)
            world.start(node)
            world.run_until(world.in_order)
