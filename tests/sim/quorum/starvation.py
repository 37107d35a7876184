"""Members that get too little processor, in virtual time: they run for a moment and are held up for a moment, all the
time, with the controller's default time-outs.
"""

from collections.abc import Callable, Iterable
from random import Random

import msgspec

from rocketmq_controller.raft import Limits, Timings
from rocketmq_runtime.remoting.fair_scheduler import TURN_SECONDS
from tests.sim.quorum.member import Member
from tests.sim.quorum.world import World


class Pattern(msgspec.Struct, frozen=True):
    """How long a member runs and how long it is held up, in turns; seconds, drawn from each range."""

    runs: tuple[float, float]
    held_up: tuple[float, float]

    def draw(self, rng: Random) -> tuple[float, float]:
        return rng.uniform(*self.runs), rng.uniform(*self.held_up)


STALLS = Pattern((0.02, 1.0), (0.05, 1.5))
"""A machine with ten times the load that it can take."""
SHORT_STALLS = Pattern((0.01, 0.3), (0.02, 0.3))
QUOTA = Pattern((0.02, 0.02), (0.18, 0.18))
"""A CPU limit: 20 ms of each 200."""
SMALL_QUOTA = Pattern((0.01, 0.03), (0.4, 0.9))
STRANGERS = Pattern((0.0, 0.001), (TURN_SECONDS, 0.05))
"""Requests of strangers come as fast as they are taken: they get all that the scheduler gives them of each turn of the
event loop, and the last one may take until 50 ms are over, the most that a request may take."""


def quorum(seed: int, members: int = 3, timings: Timings | None = None) -> World:
    """A quorum with `timings`, those of the controller's defaults if None, after its first seconds."""
    while len((world := World(seed)).members) != members:
        seed += 1000
    for member in world.members.values():
        member.end(power=False)
        member.timings = Timings() if timings is None else timings
        member.limits = Limits()
        world.start(member)
    world.after(0.0, world.client)
    world.run_for(5)
    return world


def starve(world: World, members: Iterable[Member], pattern: Pattern) -> Callable[[], None]:
    """From now on, until what is returned is called."""
    over = False

    def hold(member: Member) -> None:
        if over:
            return
        runs, held_up = pattern.draw(world.rng)
        world.pause(member, held_up)
        world.after(held_up + runs, lambda: hold(member))

    def end() -> None:
        nonlocal over
        over = True

    for member in members:
        world.after(world.rng.uniform(0, 0.5), lambda member=member: hold(member))
    return end


def leaders(world: World) -> list[str]:
    """Who may answer for the quorum right now."""
    return [m.name for m in world.members.values() if m.machine is not None and m.machine.is_leader]


def changes(world: World, seconds: float) -> int:
    """Leaders elected while so long passes."""
    before = len(world.checker.leaders)
    world.run_for(seconds)
    return len(world.checker.leaders) - before


def until_next_leader(world: World, old: str, within: float) -> float:
    """Seconds until another member than `old` holds the lease and has committed; `within` if none does."""
    began = world.now
    while world.now < began + within:
        world.run_for(0.001)
        if [name for name in leaders(world) if name != old]:
            break
    return world.now - began
