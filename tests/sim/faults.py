"""What goes wrong in a simulated run, and the run itself: a time of faults, then all is well and must become well."""

from collections.abc import Callable

import msgspec

from rocketmq_controller.raft import NotLeaderError, TransferError
from tests.sim.checks import Violation
from tests.sim.clients import Workload
from tests.sim.member import Member
from tests.sim.network import Weather
from tests.sim.world import World

STORM_SECONDS = 12.0
CALM_SECONDS = 5.5
"""How long it may take until everybody lives again and one leads: a restart, a dead host noticed, an election."""
QUIET_SECONDS = 4.0
"""How long until everybody holds everything once no more comes in."""


class Outcome(msgspec.Struct, frozen=True):
    """What a run amounted to."""

    seed: int
    members: int
    steps: int
    answers: int
    lost: int
    terms: int
    entries: int


class Storm:
    """Faults at random moments; each undoes itself after a while."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.over = False
        self.mean_pause = self.rng.choice((0.1, 0.4, 1.0))
        self.kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill, 3),
            (self.power, 2),
            (self.crash_at_write, 6),
            (self.power_all, 1),
            (self.sleep, 4),
            (self.split, 4),
            (self.one_way, 4),
            (self.reset, 3),
            (self.weather, 4),
            (self.hand_over, 4),
            (self.disk_full, 1),
        ]
        # Each run favours some kinds and leaves out others: rare meetings of two faults become common in some runs.
        self.kinds = [(kind, weight * self.rng.choice((0, 1, 1, 5))) for kind, weight in self.kinds]
        if not any(weight for _, weight in self.kinds):
            self.kinds = [(self.kill, 1)]

    def blow(self) -> None:
        if self.over:
            return
        kinds, weights = zip(*self.kinds, strict=True)
        self.rng.choices(kinds, weights)[0]()
        self.world.after(self.rng.expovariate(1 / self.mean_pause), self.blow)

    def _member(self) -> Member:
        members = list(self.world.members.values())
        leaders = [m for m in members if m.machine is not None and m.machine.is_leader]
        if leaders and self.rng.random() < 0.5:
            return leaders[0]
        return self.rng.choice(members)

    def kill(self) -> None:
        self.world.crash(self._member(), power=False)

    def power(self) -> None:
        self.world.crash(self._member(), power=True)

    def power_all(self) -> None:
        for member in self.world.members.values():
            self.world.crash(member, power=True)

    def crash_at_write(self) -> None:
        member = self._member()
        member.disk.crash_at = member.disk.calls + self.rng.randint(1, 30)
        self.world.tell("%s will lose power in a write", member.name)

    def sleep(self) -> None:
        self.world.pause(self._member(), self.rng.choice((0.05, 0.3, 0.5, 1.0, 3.0)) * self.rng.uniform(0.5, 1.5))

    def split(self) -> None:
        names = list(self.world.members)
        side = set(self.rng.sample(names, self.rng.randint(0, len(names) // 2)))
        self._block({(a, b) for a in names for b in names if (a in side) != (b in side)})

    def one_way(self) -> None:
        names = list(self.world.members)
        deaf = self._member().name
        sources = self.rng.sample(names, self.rng.randint(1, len(names)))
        pairs = {(source, deaf) for source in sources}
        self._block(pairs if self.rng.random() < 0.5 else {(b, a) for a, b in pairs})

    def _block(self, pairs: set[tuple[str, str]]) -> None:
        network = self.world.network
        network.blocked |= pairs
        network.holding = self.rng.random() < 0.5
        self.world.tell("blocked: %s", " ".join(f"{a}>{b}" for a, b in sorted(network.blocked)))
        self.world.after(self.rng.choice((0.1, 0.5, 1.0, 3.0)) * self.rng.uniform(0.5, 1.5), self._heal)

    def _heal(self) -> None:
        if self.world.network.blocked:
            self.world.tell("links are back")
        self.world.network.heal()

    def reset(self) -> None:
        one = self._member()
        others = self.rng.sample(one.others, self.rng.randint(0, len(one.others)))
        closes = self.rng.random() < 0.5
        for other in others:
            self.world.reset(*((one.name, other) if closes else (other, one.name)))

    def weather(self) -> None:
        network = self.world.network
        network.weather = self.rng.choice(
            (
                Weather(),
                Weather(delay=0.02),
                Weather(delay=0.0001),
                Weather(slow_share=0.2, slow_delay=0.5),
                Weather(loss=0.1),
                Weather(loss=0.3, slow_share=0.1, doubled=0.1),
                Weather(doubled=0.3, slow_share=0.05, slow_delay=2.0),
            )
        )
        self.world.tell("%s", network.weather)

    def hand_over(self) -> None:
        member = self._member()
        if member.machine is None or member.paused:
            return
        try:
            member.machine.transfer(None)
        except (NotLeaderError, TransferError):
            return
        self.world.tell("%s hands over", member.name)
        self.world.wake(member)

    def disk_full(self) -> None:
        member = self._member()
        if member.machine is None:
            return
        member.disk.capacity = sum(len(data) for data in member.disk.files().values()) + self.rng.randint(0, 300)
        self.world.tell("%s: disk nearly full", member.name)

        def space() -> None:
            member.disk.capacity = None

        self.world.after(self.rng.uniform(0.1, 2), space)

    def end(self) -> None:
        """Everything works from here on."""
        self.over = True
        world = self.world
        self._heal()
        world.network.weather = Weather()
        for member in world.members.values():
            member.disk.crash_at = None
            member.disk.capacity = None


def run(
    seed: int,
    workload: Callable[[World], Workload] | None = None,
    *,
    story: bool = False,
    seconds: float = STORM_SECONDS,
) -> Outcome:
    """One story. Raises Violation, with the world's story in `world.story` if asked for."""
    world = World(seed, workload, story=story)
    try:
        return _run(world, seed, seconds)
    except Exception as error:
        error.add_note(f"seed {seed}: python -m tests.sim --seed {seed}")
        if world.story is not None:
            error.add_note("\n".join(world.story[-400:]))
        raise


def _run(world: World, seed: int, seconds: float) -> Outcome:
    storm = Storm(world)
    world.after(world.rng.uniform(0, 1), world.client)
    world.after(world.rng.uniform(0, 2), storm.blow)
    world.run_for(seconds)
    storm.end()
    world.tell("the storm is over")
    world.run_for(CALM_SECONDS)
    members = list(world.members.values())
    for member in members:
        if member.machine is None or member.state is None:
            raise Violation(f"Alive: {member.name} is down in calm times")
    leaders = [m.name for m in members if m.machine is not None and m.machine.is_leader]
    if len(leaders) != 1:
        raise Violation(f"Alive: {leaders} lead in calm times")
    world.clients_stop = True
    world.run_for(QUIET_SECONDS)
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
