"""What slaves know of a master that hangs (SIGSTOP) while the controllers are away: a slave acts for it only after
brokerNotActiveTimeoutMillis of silence on a connection that stays open, and not a moment after it is heard again.
"""

import pytest

from tests.sim.groups.replica import SimReplica
from tests.sim.groups.scripts import PATIENT, acknowledging, lose_controllers, restart_controllers
from tests.sim.groups.world import GroupWorld

SILENCE = 10.0
"""Java's default of brokerNotActiveTimeoutMillis."""
AT_ONCE = 0.1
"""Seconds from the master's first turn to its slaves' brokers: far less than a new connection takes."""


def _known(replicas: list[SimReplica]) -> list[bool]:
    return [replica.broker is not None and replica.broker.role.master_known for replica in replicas]


def _hang(world: GroupWorld, master: SimReplica, seconds: float) -> None:
    for half in master.halves:
        world.pause(half, seconds)


def _run(world: GroupWorld, seconds: float) -> None:
    world.schedule.run_until(world.schedule.now + seconds)


@pytest.mark.parametrize("seed", range(2))
def test_a_hung_master_is_known_until_it_was_silent_for_long_and_again_when_it_is_heard(seed: int) -> None:
    with acknowledging(seed, **PATIENT) as (world, master, slaves):
        lose_controllers(world)
        _run(world, 3)
        _hang(world, master, SILENCE + 3)
        _run(world, SILENCE - 1.5)
        assert _known(slaves) == [True, True], "a heartbeat may have been read a second before"
        _run(world, 3)
        assert _known(slaves) == [False, False], "although the connection is there"
        _run(world, 1.5 + AT_ONCE)
        assert _known(slaves) == [True, True]
        restart_controllers(world)


def test_a_master_that_stutters_stays_the_master() -> None:
    with acknowledging(0, **PATIENT) as (world, master, slaves):
        lose_controllers(world)
        _run(world, 3)
        for _ in range(2):
            _hang(world, master, SILENCE - 1)
            for _ in range(20):
                _run(world, (SILENCE - 0.9) / 20)
                assert _known(slaves) == [True, True]
        restart_controllers(world)
