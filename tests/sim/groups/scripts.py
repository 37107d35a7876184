"""What scripts of a broker group begin with and do; for tests that play one story."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rocketmq_sidecar.domain.replication.mastership import Mastership
from tests.sim.groups.controllers import NAMES
from tests.sim.groups.replica import SimReplica
from tests.sim.groups.world import GroupWorld, finish, staged

PATIENT = {"slave_timeout": 30_000, "ha_housekeeping_interval": 20_000}
"""Options with which neither sends nor connections time out during a story."""


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


def mastership(master: SimReplica) -> Mastership | None:
    server = None if master.agent is None else master.agent.replication._server
    return None if server is None else server.mastership


def acks(master: SimReplica) -> Mapping[int, int]:
    """What its slaves have acknowledged to it."""
    leads = mastership(master)
    return {} if leads is None else leads.acks


def log_end(replica: SimReplica) -> int:
    """Of its log, as its sidecar has it."""
    return 0 if replica.agent is None else replica.agent.replication.max_offset


def begun(replica: SimReplica) -> int | None:
    """The epoch that it has begun as master."""
    machine = None if replica.agent is None else replica.agent.machine
    return None if machine is None else machine.role.begun


def replaced(world: GroupWorld, behind: SimReplica, ahead: SimReplica) -> int:
    """`behind` is elected and begins its epoch, `ahead` truncates its log to follow it; then the new master is cut off
    from the controllers, before it can request another set. Returns its epoch."""
    epoch = max(world.checker.granted) + 1
    cut_off: list[str] = []

    def dies_before(step: str) -> bool:
        if step == "1001":
            world.network.block({(behind.name, name) for name in NAMES})
            cut_off.append(step)
        return False

    behind.dies_before = dies_before
    world.elect(behind)
    world.until(lambda: bool(cut_off) and begun(behind) == epoch and log_end(ahead) == log_end(behind), 5)
    behind.dies_before = lambda _step: False
    return epoch


def elect_again(world: GroupWorld, master: SimReplica, epoch: int) -> None:
    world.elect(master)
    world.until(lambda: world.checker.group is not None and world.checker.group.master_epoch == epoch, 2)
