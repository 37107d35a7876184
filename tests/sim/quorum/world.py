"""A whole quorum in virtual time, from one seed: its members, clients and time, and the checks after each step.

`run(seed)` of `run.py` is what the tests and `python -m tests.sim` call. Everything random comes from the seed, so
a seed is a story that can be repeated. What the members replicate is a `Workload`: numbered commands by default, the
application's own where it has one.
"""

import heapq
from collections.abc import Callable
from random import Random

from rocketmq_controller.raft import Change, Limits, MembershipError, NotLeaderError, RaftError, Timings
from rocketmq_controller.raft.configuration import of_voters
from rocketmq_controller.raft.consensus.machine import RaftMachine
from rocketmq_controller.raft.errors import DivergedError, WireError
from rocketmq_controller.raft.network import messages
from rocketmq_runtime.files.filesystem import DiskFullError
from tests.sim.checks import Checker, Violation
from tests.sim.disk import SimCrash
from tests.sim.quorum.clients import Numbered, Serving, Workload
from tests.sim.quorum.connections import Connections
from tests.sim.quorum.damaged_stores import DamagedStores
from tests.sim.quorum.member import Member, timings_of
from tests.sim.quorum.network import Network


class World:
    """See the module's docstring."""

    def __init__(
        self, seed: int, workload: "Callable[[World], Workload] | None" = None, *, story: bool = False
    ) -> None:
        self.rng = rng = Random(seed)
        self._beside_rng = Random(seed + 1)
        self.hosts = ("fd00::1", "fd00::2:1") if seed % 3 == 0 else ("host", "elsewhere")
        """Of members that are added, and of brokers."""
        self.workload = Numbered() if workload is None else workload(self)
        self.now = 0.0
        self.story: list[str] | None = [] if story else None
        self.steps = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.answers = 0
        self.clients_stop = False
        self.calm = False
        self.lost = 0
        self.stores = DamagedStores(self)
        names = ["a", "b", "c", "d", "e"][: rng.choices((1, 3, 5), (1, 7, 2))[0]]
        self.checker = Checker(of_voters(dict.fromkeys(names, ("", 0))))
        self.network = Network(names, rng, lambda: self.now, self.after, self._deliver)
        self.connections = Connections(self)
        self._limits = Limits(
            batch_entries=rng.choice((1, 3, 4096)),
            window_batches=rng.choice((1, 2, 16)),
            apply_batch=rng.choice((2, 5000)),
            snapshot_chunk_bytes=rng.choice((64, 1000)),
            compact_after=rng.choice((5, 20, 10_000)),
            keep_after_compaction=rng.choice((0, 3, 1000)),
            max_pending=rng.choice((5, 1000)),
            promote_lag=rng.choice((0, 10, 1000)),
        )
        unequal, usual = rng.random() < 0.2, rng.choice((0.12,) * 3 + (0.4, 1.5))
        self.members = {
            name: self._make(name, names, timings_of(rng.choice((0.12, 0.4, 0.4, 1.5)) if unequal else usual))
            for name in names
        }
        for member in self.members.values():
            self.start(member)

    # -- time

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay, self._sequence, action))

    def log(self, text: str, *values: object) -> None:
        if self.story is not None:
            self.story.append(f"{self.now:9.4f} {text % values}")

    def step(self) -> None:
        """The next event, and all checks."""
        self.now, _, action = heapq.heappop(self._events)
        self.steps += 1
        action()
        self.stores.check()
        self.checker.leases(list(self.members.values()))

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.step()
        self.now = end

    # -- members

    def _make(self, name: str, names: list[str], timings: Timings) -> Member:
        return Member(
            name,
            [other for other in names if other != name],
            Random(self.rng.random()),
            true_time=lambda: self.now,
            send=lambda receiver, message, sender=name: self._send(sender, receiver, message),
            make_state_machine=self.workload.make_state_machine,
            applied=lambda index, digest, name=name: self.checker.applied(name, index, digest),
            timings=timings,
            limits=self._limits,
            later=lambda job: self._beside(self.members[name], job),
        )

    def newcomer(self) -> Member:
        """A process that is not a member, with an empty disk; its configuration has the members, and that it joins
        them."""
        name = "fghijklmnopqrstuvwxyz"[len(self.members) - len(self.checker.first.ids)]
        member = self._make(name, [*self.members, name], timings_of(0.4))
        member.joins = True
        for other in self.members.values():
            other.others.append(name)
        self.members[name] = member
        self.inform(member)
        self.start(member)
        return member

    def change(self, leader: Member, change: Change) -> bool:
        """Ask a member that may lead; False if it refuses."""
        machine = leader.machine
        if machine is None or leader.paused:
            return False
        try:
            self.guarded(leader, lambda: machine.change_members(change, lambda _value, _error: None))
        except (RaftError, MembershipError) as error:
            self.log("%s refuses %s: %s", leader.name, change, error)
            return False
        self.log("%s: %s", leader.name, change)
        self.wake(leader)
        return True

    def inform(self, member: Member) -> None:
        """Write who the members are into its configuration file, for its next start: also one whose addition is not
        committed yet, or undone later."""
        member.configured = sorted(set().union(*(held.ids for held in self.checker.possible())) - {member.name})

    def start(self, member: Member) -> None:
        if member.machine is not None:
            return
        if self.calm or self.rng.random() < 0.7:  # the configuration files are updated sooner or later
            self.inform(member)
        try:
            member.start()
        except SimCrash:
            self._crashed(member, power=True)
            return
        except DiskFullError as error:
            self._gives_up(member, error)
            return
        self.log("%s starts: %s", member.name, member.picture)
        self._checked(member)
        for other in member.others:
            if self.members[other].machine is not None:
                self.connections.connect_later(member.name, other)
        self.wake(member)

    def crash(self, member: Member, *, power: bool) -> None:
        if member.machine is not None:
            self._crashed(member, power=power)

    @property
    def begun(self) -> bool:
        """Some member leads or has led: the quorum exists."""
        return bool(self.checker.leaders)

    def stop(self, member: Member) -> None:
        """The process ends in order, except for the hand-over."""
        if member.machine is not None and not member.paused:
            self.guarded(member, member.machine.goodbye)
            self.crash(member, power=False)

    def _crashed(self, member: Member, *, power: bool) -> None:
        self.log("%s %s", member.name, "loses power" if power else "is killed")
        member.end(power=power)
        self.checker.forget(member.name)
        if power:
            self.stores.forgotten(member.name)
        for other in member.others:
            self.network.disconnect_end(member.name, other)
            # A killed process's kernel says so; a machine without power says nothing, and TCP finds out.
            delay = self.rng.uniform(3, 5) if power and self.rng.random() < 0.5 else self.rng.uniform(0.0005, 0.05)
            self.connections.notice_end(other, member.name, delay)
        self.after(self.rng.choice((0.03, 0.3, 3)) * self.rng.uniform(0.3, 1), lambda: self.start(member))

    def _gives_up(self, member: Member, error: DiskFullError) -> None:
        """A start that has to write and cannot is refused."""
        if member.disk.capacity is None:
            raise Violation(f"DiskFull: {member.name} says so of a disk with space") from error
        self.log("%s gives up: %s", member.name, error)
        self._crashed(member, power=False)

    def pause(self, member: Member, seconds: float) -> None:
        if member.machine is None or member.paused:
            return
        self.log("%s sleeps for %.3f", member.name, seconds)
        member.paused = True
        incarnation = member.incarnation
        self.after(seconds, lambda: self._resume(member, incarnation))

    def _resume(self, member: Member, incarnation: int) -> None:
        if member.machine is None or member.incarnation != incarnation:
            return
        self.log("%s wakes up", member.name)
        member.paused = False
        notices, member.notices = member.notices, []
        inbox, member.inbox = member.inbox, []
        if self.rng.random() < 0.5:  # some event loops run timers before they look at sockets
            self._turn(member)
        for sender, message in inbox:
            self._deliver(sender, member.name, message)
        for notice in notices:
            if member.paused:  # by a slow disk
                member.notices.append(notice)
            elif member.machine is not None:
                self.guarded(member, lambda notice=notice, machine=member.machine: notice(machine))
        self.wake(member)

    def guarded(self, member: Member, action: Callable[[], object]) -> None:
        """Run code of a member: its disk may crash inside, and what happened is checked."""
        if member.machine is None:
            return
        try:
            action()
        except SimCrash:
            self._crashed(member, power=True)
        except DiskFullError as error:
            raise Violation(f"DiskFull: {member.name} ends of a full disk: {error}") from error
        except DivergedError as error:
            if member.name not in self.checker.altered:
                raise Violation(f"LogMatching: {member.name} ends: {error}") from error
            self.log("%s ends: %s", member.name, error)
            self.stores.replace_disk(member)
        else:
            self._checked(member)
            if member.held_up:  # the disk took that long: whatever comes now has to wait
                seconds, member.held_up = member.held_up, 0.0
                self.pause(member, seconds)

    def _checked(self, member: Member) -> None:
        if member.machine is not None and member.state is not None:
            self.checker.member(member.name, member.machine)
            member.waits = not member.machine.is_sound()
            self.connections.follow_members(member, member.machine)
            self.workload.check(member.name, member.state.inner)

    def wake(self, member: Member) -> None:
        if member.machine is None or member.turn_due or member.paused:
            return
        member.turn_due = True
        incarnation = member.incarnation
        self.after(self.rng.choice((0.0, 0.0002, 0.001)), lambda: self._turn_if(member, incarnation))

    def _turn_if(self, member: Member, incarnation: int) -> None:
        if member.incarnation == incarnation:
            member.turn_due = False
            if not member.paused:
                self._turn(member)

    def _turn(self, member: Member) -> None:
        machine = member.machine
        if machine is None:
            return
        before = (machine.role, machine.term, machine.leader)

        def tick() -> None:
            machine.tick()
            member.log_role()

        self.guarded(member, tick)
        if member.machine is None:
            return
        if self.story is not None and before != (machine.role, machine.term, machine.leader):
            self.log("%s: %s", member.name, member.picture)
        self._arm(member, machine)

    def _arm(self, member: Member, machine: RaftMachine) -> None:
        at = self.now + member.true_delay(machine.next_deadline())
        if self.now < member.timer_at <= at:
            return
        member.timer_at = at
        incarnation = member.incarnation
        self.after(at - self.now, lambda: self._timer(member, incarnation, at))

    def _timer(self, member: Member, incarnation: int, at: float) -> None:
        if member.incarnation == incarnation and member.timer_at == at and not member.paused:
            self._turn(member)

    def _beside(self, member: Member, job: Callable[[], None]) -> None:
        """A thread of the process comes to it at some time, if the process lives that long."""
        incarnation = member.incarnation

        def run() -> None:
            if member.incarnation != incarnation or member.machine is None:
                return
            if member.paused:
                self.after(0.05, run)
                return
            self.guarded(member, job)
            self.wake(member)

        self.after(self._beside_rng.choice((0.0, 0.003, 0.1, 1.0)), run)

    # -- network

    def _send(self, sender: str, receiver: str, message: messages.AnyMessage) -> None:
        self.checker.sent(sender, receiver, message)
        self.network.send(sender, receiver, message, self.members[sender].held_up)

    def _deliver(self, sender: str, receiver: str, message: messages.AnyMessage) -> None:
        member = self.members[receiver]
        if member.paused:
            member.inbox.append((sender, message))
        else:
            self._take(member, sender, message)

    def _take(self, member: Member, sender: str, message: messages.AnyMessage) -> None:
        machine = member.machine
        if machine is None:
            return

        def receive() -> None:
            if machine.receive(sender, message):
                self.wake(member)
            else:
                self._arm(member, machine)

        try:
            self.guarded(member, receive)
        except WireError as error:
            raise Violation(f"NoWireErrors: {member.name} refuses {message} of {sender}: {error}") from error

    # -- clients

    def client(self) -> None:
        """One client asks some member; then the next one comes."""
        if self.clients_stop:
            return
        self.after(self.rng.expovariate(1 / 0.03), self.client)
        asked = [m for m in self.members.values() if m.machine is not None and not m.paused]
        if not asked:
            return
        member = self.rng.choice(asked)
        machine, state = member.machine, member.state
        if machine is None or state is None:
            return
        if self.rng.random() < 0.1:
            self._barrier(member, machine)  # whatever its lease says
        if not machine.is_leader:
            return
        self.workload.client(Serving(self, member, machine, state.inner))

    def answer(self, value: object, error: RaftError | None, done: Callable[[object, RaftError | None], None]) -> None:
        """An entry that a client waits for has its fate."""
        if error is not None:
            self.lost += 1
        else:
            assert isinstance(value, tuple)
            self.answers += 1
            self.checker.acked_index = max(self.checker.acked_index, value[0])
        done(value, error)

    def _barrier(self, member: Member, machine: RaftMachine) -> None:
        known = self.checker.acked_index

        def passed(_: object, error: RaftError | None) -> None:
            if error is None and machine.last_applied < known:
                raise Violation(
                    f"Barrier: {member.name} has applied {machine.last_applied}, {known} was answered before"
                )

        try:
            machine.barrier(passed)
        except NotLeaderError:
            return
        self.wake(member)
