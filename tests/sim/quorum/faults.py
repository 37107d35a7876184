"""What goes wrong in a simulated run, and when. Used by run.py."""

from collections.abc import Callable, Collection

from rocketmq_controller.raft import AddMember, NotLeaderError, RemoveMember, Role, Timings, TransferError
from tests.sim.quorum.damaged_stores import known_of
from tests.sim.quorum.member import Member, timings_of
from tests.sim.quorum.network import Weather
from tests.sim.quorum.world import World

MOST_MEMBERS = 9
"""Processes of one run, members and former ones."""


class Storm:
    """Faults at random moments; each undoes itself after a while."""

    def __init__(self, world: World, only: Collection[str] = ()) -> None:
        """`only`: the kinds of fault to choose from, by the names of the methods; all if empty."""
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
            (self.foreign_reset, 3),
            (self.stop, 2),
            (self.other_timings, 2),
            (self.weather, 4),
            (self.hand_over, 4),
            (self.disk_full, 1),
            (self.slow_disk, 3),
            (self.wipe, 2),
            (self.restore, 2),
            (self.set_back, 4),
            (self.alter, 4),
            (self.lean_on_promises, 2),
            (self.starve, 2),
            (self.add, 2),
            (self.remove, 2),
            (self.replace, 2),
        ]
        # Each run favours some kinds and leaves out others: rare meetings of two faults become common in some runs.
        self.kinds = [(kind, weight * self.rng.choice((0, 1, 1, 5))) for kind, weight in self.kinds]
        if only:
            self.kinds = [(getattr(self, name), 1) for name in only]
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

    def kill_leader(self) -> None:
        for member in self.world.members.values():
            if member.machine is not None and member.machine.is_leader and not self.over:
                self.world.crash(member, power=False)

    def power(self) -> None:
        self.world.crash(self._member(), power=True)

    def power_all(self) -> None:
        for member in self.world.members.values():
            self.world.crash(member, power=True)

    def crash_at_write(self) -> None:
        member = self._member()
        member.disk.crash_at = member.disk.calls + self.rng.randint(1, 30)
        self.world.log("%s will lose power in a write", member.name)

    def sleep(self) -> None:
        self.world.pause(self._member(), self.rng.choice((0.05, 0.3, 0.5, 1.0, 3.0)) * self.rng.uniform(0.5, 1.5))

    def starve(self) -> None:
        """Some get too little processor for a while."""
        starved = self.rng.sample(list(self.world.members.values()), self.rng.randint(1, len(self.world.members)))
        longest = self.rng.choice((0.1, 0.3, 1.0))
        until = self.world.now + self.rng.uniform(0.5, 4)
        self.world.log("%s: starved", " ".join(member.name for member in starved))

        def hold(member: Member) -> None:
            if not self.over and self.world.now < until:
                seconds = longest * self.rng.uniform(0.1, 1)
                self.world.pause(member, seconds)
                self.world.after(seconds + self.rng.uniform(0.01, 0.3), lambda: hold(member))

        for member in starved:
            hold(member)

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
        self.world.log("blocked: %s", " ".join(f"{a}>{b}" for a, b in sorted(network.blocked)))
        self.world.after(self.rng.choice((0.1, 0.5, 1.0, 3.0)) * self.rng.uniform(0.5, 1.5), self._heal)

    def _heal(self) -> None:
        if self.world.network.blocked:
            self.world.log("links are back")
        self.world.network.heal()

    def reset(self) -> None:
        one = self._member()
        others = self.rng.sample(one.others, self.rng.randint(0, len(one.others)))
        closes = self.rng.random() < 0.5
        for other in others:
            self.world.connections.reset(*((one.name, other) if closes else (other, one.name)))

    def foreign_reset(self) -> None:
        """A device on the path cuts connections, and maybe the links: each end believes sooner or later that the other
        did."""
        one = self._member()
        others = self.rng.choice((one.others, self.rng.sample(one.others, self.rng.randint(0, len(one.others)))))
        first = self.rng.random() < 0.5
        for other in others:
            self.world.connections.cut(*((one.name, other) if first else (other, one.name)))
        if self.rng.random() < 0.7:
            self._block({pair for other in others for pair in ((one.name, other), (other, one.name))})

    def stop(self) -> None:
        self.world.stop(self._member())

    def other_timings(self) -> None:
        """An operator rolls out raftElectionTimeoutMs: members restart with another one, one after the other, maybe not
        the leader."""
        timings = timings_of(self.rng.choice((0.12, 0.4, 1.5)))
        members = list(self.world.members.values())
        if self.rng.random() < 0.5 and len(members) > 1:
            members = [m for m in members if m.machine is None or not m.machine.is_leader]
        for number, member in enumerate(self.rng.sample(members, self.rng.randint(1, len(members)))):

            def restart(member: Member = member) -> None:
                if not self.over:
                    member.timings = timings
                    self.world.log("%s: time-out %.2f from its next start", member.name, timings.election_min)
                    if self.rng.random() < 0.5:
                        self.world.stop(member)
                    else:
                        self.world.crash(member, power=False)

            self.world.after(number * self.rng.uniform(0.05, 1), restart)

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
        self.world.log("%s", network.weather)

    def hand_over(self) -> None:
        member = self._member()
        if member.machine is None or member.paused:
            return
        try:
            member.machine.transfer(None)
        except (NotLeaderError, TransferError):
            return
        self.world.log("%s hands over", member.name)
        self.world.wake(member)

    def disk_full(self) -> None:
        member = self._member()
        if member.machine is None:
            return
        member.disk.capacity = sum(len(data) for data in member.disk.files().values()) + self.rng.randint(0, 300)
        self.world.log("%s: disk nearly full", member.name)

        def space() -> None:
            member.disk.capacity = None

        self.world.after(self.rng.uniform(0.1, 2), space)

    def wipe(self) -> None:
        self.world.stores.wipe(self._member())

    def restore(self) -> None:
        """Somebody copies a member's files, and replaces them by the copy some time later."""
        member = self._member()
        copy = member.disk.copy()
        if member.name in self.world.stores.suspects:
            return

        def replace() -> None:
            if not self.over:
                self.world.stores.wipe(member, copy)

        self.world.after(self.rng.choice((0.1, 1.0, 5.0)) * self.rng.uniform(0.5, 1.5), replace)

    def _serving(self) -> Member | None:
        """The member that holds the lease, unless it sleeps."""
        members = self.world.members.values()
        return next((m for m in members if m.machine is not None and m.machine.is_leader and not m.paused), None)

    def _counted(self, leader: Member | None) -> Member | None:
        """A member whose acknowledgements count at this leader."""
        if leader is None or leader.machine is None or not leader.machine.counting:
            return None
        return self.world.members[self.rng.choice(sorted(node.id for node in leader.machine.counting))]

    def set_back(self) -> None:
        """A member comes back on an older copy of its disk. The leader knows that it had more, though it may restart
        at the same time."""
        member = self._counted(self._serving())
        if member is None or member.machine is None or member.name in self.world.checker.altered:
            return
        copy, had = member.disk.snapshot(), member.machine.last_index

        def restore() -> None:
            leader = self._serving()
            if leader is None or leader.machine is None or leader is member or self.over:
                return
            if known_of(leader.machine, member.name) > had and self.world.stores.may_lose(member):
                self.world.stores.set_back(member, leader, copy)
                if self.rng.random() < 0.5:
                    self.world.crash(leader, power=False)

        self.world.after(self.rng.uniform(0.2, 3), restore)

    def alter(self) -> None:
        """An entry on a member's disk gets other bytes, and no checksum shows it."""
        leader = self._serving()
        member = self._counted(leader)
        if leader is None or member is None or member.machine is None or member.disk.capacity is not None:
            return
        if self.world.stores.may_lose(member):
            self.world.stores.alter(member, leader)

    def lean_on_promises(self) -> None:
        """The leader is cut off, and the others restart at once, maybe with a shorter time-out: only their disks know
        what they promised it."""
        leader = self._serving()
        if leader is None:
            return
        others = [self.world.members[name] for name in leader.others]
        self._block({pair for other in leader.others for pair in ((leader.name, other), (other, leader.name))})
        shorter = self.rng.random() < 0.5
        for other in others:
            if shorter:
                other.timings = timings_of(0.12)
            self.world.crash(other, power=self.rng.random() < 0.3)
            self.world.after(self.rng.uniform(0.001, 0.02), lambda other=other: self.world.start(other))

    def _leading(self) -> Member | None:
        """A member that leads, or believes so."""
        members = self.world.members.values()
        leaders = [m for m in members if m.machine is not None and m.machine.role is Role.LEADER and not m.paused]
        return self.rng.choice(leaders) if leaders else None

    def add(self) -> Member | None:
        """A member is added: a new one, or one that was removed before, on its old store or a new one."""
        leader = self._leading()
        if leader is None or leader.machine is None or not self.world.begun:
            return None
        known = set().union(*(held.ids for held in self.world.checker.possible()))
        former = [m for m in self.world.members.values() if m.name not in known]
        if former and (self.rng.random() < 0.3 or len(self.world.members) >= MOST_MEMBERS):
            member = self.rng.choice(former)
            if self.rng.random() < 0.5:
                self.world.stores.wipe(member)
        elif len(self.world.members) < MOST_MEMBERS:
            member = self.world.newcomer()
        else:
            return None
        place = self.rng.choice(self.world.hosts), 1 + len(member.name) + ord(member.name[0])
        return member if self.world.change(leader, AddMember(member.name, *place)) else None

    def remove(self) -> None:
        """A member is removed, the leader as likely as all others together."""
        leader = self._leading()
        if leader is None or leader.machine is None:
            return
        names = sorted(leader.machine.configuration.ids)
        name = leader.name if self.rng.random() < 0.3 else self.rng.choice(names)
        if len(names) > 1 and self._outlives_removal(leader.machine.configuration.voters - {name}):
            self.world.change(leader, RemoveMember(name))

    def _outlives_removal(self, left: frozenset[str]) -> bool:
        """Whether a majority of those that are left has its store. The leader refuses what it knows to be otherwise,
        but it may learn too late that a store has just been lost."""
        waiting = {m.name for m in self.world.members.values() if self.world.stores.lacks(m)}
        return 2 * len(left - waiting) > len(left)

    def replace(self) -> None:
        """As an operator does it: add one, wait until it votes, remove another one."""
        new = self.add()
        old = self._member().name
        if new is None or new.name == old:
            return

        def go_on(tries: int) -> None:
            leader = self._leading()
            if tries and not self.over:
                ready = leader is not None and new.name in self.world.checker.members.voters
                ready = ready and self._outlives_removal(self.world.checker.members.voters - {old})
                if not ready or leader is None or not self.world.change(leader, RemoveMember(old)):
                    self.world.after(0.3, lambda: go_on(tries - 1))

        go_on(30)

    def slow_disk(self) -> None:
        members = list(self.world.members.values())
        slow = members if self.rng.random() < 0.5 else [self.rng.choice(members)]
        seconds = self.rng.choice((0.02, 0.2, 0.4, 0.4, 0.4, 1.0)) * self.rng.uniform(0.8, 1.2)
        share = self.rng.choice((0.1, 0.3, 1.0))
        for member in slow:
            member.slow_sync, member.slow_syncs = seconds, share
        names = " ".join(member.name for member in slow)
        self.world.log("%s: %.0f %% of the syncs take %.3f", names, 100 * share, seconds)

        def quick() -> None:
            for member in slow:
                member.slow_sync = 0.0

        self.world.after(self.rng.uniform(0.5, 4), quick)
        if self.rng.random() < 0.5:  # and so is the first commit of the next leader
            self.world.after(self.rng.uniform(0, 0.5), self.kill_leader)

    def end(self) -> None:
        """Everything works from here on."""
        self.over = True
        world = self.world
        world.calm = True
        world.after(1.5, self._reconfigure_lost_members)
        self._heal()
        world.network.weather = Weather()
        for member in world.members.values():
            member.disk.crash_at = None
            member.disk.capacity = None
            member.slow_sync = 0.0
            member.timings = Timings()  # from its next start

    def _reconfigure_lost_members(self) -> None:
        """Members that find no leader get a configuration file of today."""
        world = self.world
        for member in world.members.values():
            machine, told = member.machine, member.configured
            if machine is not None and machine.leader is None and member.name in world.checker.members.ids:
                world.inform(member)
                if member.configured != told:
                    world.crash(member, power=False)
                    world.after(0.05, lambda member=member: world.start(member))


MEMBER_FAULTS = (
    "add",
    "remove",
    "replace",
    "kill",
    "power",
    "crash_at_write",
    "sleep",
    "split",
    "one_way",
    "wipe",
    "restore",
    "set_back",
    "alter",
    "hand_over",
)
"""While members come and go."""
