"""A simulated run: a time of faults, then all is well and must become well."""

from collections.abc import Callable, Collection

import msgspec

from tests.sim.checks import Violation
from tests.sim.quorum.clients import Workload
from tests.sim.quorum.faults import Storm
from tests.sim.quorum.world import World

STORM_SECONDS = 12.0
CALM_SECONDS = 5.5
"""How long it may take until everybody lives again and one leads: a restart, a dead host noticed, an election."""
PATIENCE = 3
"""As many times that long, where time-outs have grown because members were starved."""
QUIET_SECONDS = 4.0
"""Seconds until all members hold everything after the last command."""


class Outcome(msgspec.Struct, frozen=True):
    """What a run amounted to."""

    seed: int
    members: int
    steps: int
    answers: int
    lost: int
    terms: int
    entries: int


def run(
    seed: int,
    workload: Callable[[World], Workload] | None = None,
    *,
    story: bool = False,
    seconds: float = STORM_SECONDS,
    only: Collection[str] = (),
) -> Outcome:
    """One story. Raises Violation, with the world's story in `world.story` if asked for."""
    world = World(seed, workload, story=story)
    try:
        return _run(world, Storm(world, only), seed, seconds)
    except Exception as error:
        error.add_note(f"seed {seed}: python -m tests.sim --seed {seed}")
        if world.story is not None:
            error.add_note("\n".join(world.story[-400:]))
        raise


def _run(world: World, storm: Storm, seed: int, seconds: float) -> Outcome:
    world.after(world.rng.uniform(0, 1), world.client)
    world.after(world.rng.uniform(0, 2), storm.blow)
    world.run_for(seconds)
    storm.end()
    world.log("the storm is over")
    for _ in range(PATIENCE):
        world.run_for(CALM_SECONDS)
        if _leaders(world):
            break
    members = [member for name, member in world.members.items() if name in world.checker.members.ids]
    for member in members:
        if member.machine is None or member.state is None:
            raise Violation(f"Alive: {member.name} is down in calm times")
    leaders = _leaders(world)
    if len(leaders) != 1:
        for member in members:
            world.log("%s waits: %s, %s", member.name, member.waits, member.picture)
        raise Violation(f"Alive: {leaders} lead in calm times, of {world.checker.members}")
    world.clients_stop = True
    world.run_for(QUIET_SECONDS)
    if world.checker.members.learners:
        raise Violation(f"Alive: a learner is left in calm times: {world.checker.members}")
    indexes = {m.name: m.machine.last_applied for m in members if m.machine is not None}
    if len(set(indexes.values())) != 1:
        raise Violation(f"Alive: members applied {indexes} in calm times")
    world.workload.finish([m.state.inner for m in members if m.state is not None])
    if not world.answers:
        raise Violation("Alive: not one command was answered")
    checker = world.checker
    return Outcome(
        seed,
        len(members),
        world.steps,
        world.answers,
        world.lost,
        max(checker.leaders, default=0),
        checker.last_committed,
    )


def _leaders(world: World) -> list[str]:
    return [m.name for m in world.members.values() if m.machine is not None and m.machine.is_leader]
