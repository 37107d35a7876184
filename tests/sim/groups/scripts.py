"""What scripts of a broker group begin with and do; for tests that play one story."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.groups.replica import SimReplica
from tests.sim.groups.world import GroupWorld, finish, staged


@contextmanager
def acknowledging(seed: int, **options: Any) -> Iterator[tuple[GroupWorld, SimReplica, list[SimReplica]]]:
    """Three strict replicas that acknowledge: the world, the master, the slaves. In the end all must be well."""
    options = {"durability": "strict", "ha_max_time_slave_not_catchup": 1500} | options
    with staged(seed, replicas=3, **options) as world:
        world.schedule.after(0, world.client)
        world.until(world.well, 30)
        world.until(lambda: len(world.checker.acked) > 5, 30)
        master = world.master()
        assert master is not None
        yield world, master, [one for one in world.replicas if one is not master]
        finish(world)


def down(world: GroupWorld, replica: SimReplica, seconds: float) -> None:
    """Both halves are killed, and start again after so many seconds."""
    for process in replica.halves:
        world.kill(replica, process, after=seconds)


def lose_controllers(world: GroupWorld) -> None:
    """All of them die."""
    for member in world.quorum.members:
        world.quorum.kill(member)


def restart_controllers(world: GroupWorld) -> None:
    for member in world.quorum.members:
        member.start(world.quorum.schedule, world.quorum.network)


def both_ways(one: SimReplica, *names: str) -> set[tuple[str, str]]:
    """For `Network.block`: nothing passes between it and these hosts."""
    return {(one.name, name) for name in names} | {(name, one.name) for name in names}
