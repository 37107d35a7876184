"""One simulated member: a machine on a simulated disk with a clock of its own, which can crash, sleep and come back."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from random import Random

import msgspec
from pysyncobj.node import Node

from rocketmq_controller.raft import LeadershipTerms, Limits, StateMachine, Timings
from rocketmq_controller.raft.consensus.machine import RaftMachine
from rocketmq_controller.raft.consensus.pysyncobj_adapter import REGULAR
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.storage.journal import JournalOptions
from rocketmq_controller.raft.storage.store import Store, open_store
from tests.sim.disk import SimDisk
from tests.sim.quorum.network import Endpoint

LONGEST_SYNCS = 1.5
"""Seconds that a slow disk takes for what one step syncs, at most: calm times have to follow."""


def timings_of(election_timeout: float, limit: float = 1.5) -> Timings:
    """As the controller makes them of raftElectionTimeoutMs, raftElectionTimeoutMaxMs and raftHeartbeatIntervalMs."""
    return Timings(
        heartbeat=min(0.1, 0.25 * election_timeout),
        election_min=election_timeout,
        election_limit=limit,
        step_down=max(0.7, 1.75 * election_timeout),
    )


class Observed:
    """The application's state machine, with a running digest that travels in its snapshots (ReplayEqual)."""

    def __init__(self, inner: StateMachine, applied: Callable[[int, bytes], None]) -> None:
        self.inner = inner
        self.digest = b""
        self._applied = applied

    def apply(self, index: int, command: bytes) -> object:
        result = self.inner.apply(index, command)
        self.digest = hashlib.blake2b(self.digest + command, digest_size=12).digest()
        self._applied(index, self.digest)
        return index, result

    def capture(self) -> Callable[[], bytes]:
        digest, encode = self.digest, self.inner.capture()
        return lambda: msgspec.msgpack.encode((digest, encode()))

    def load(self, snapshot: bytes) -> Callable[[], None]:
        digest, data = msgspec.msgpack.decode(snapshot, type=tuple[bytes, bytes])
        inner = self.inner.load(data)

        def take_over() -> None:
            self.digest = digest
            inner()

        return take_over


class Member:
    """Without `machine` the process is down."""

    def __init__(
        self,
        name: str,
        others: list[str],
        rng: Random,
        *,
        true_time: Callable[[], float],
        send: Callable[[str, messages.AnyMessage], None],
        make_state_machine: Callable[[], StateMachine],
        applied: Callable[[int, bytes], None],
        timings: Timings,
        limits: Limits,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        """`later` runs what the process does in another thread."""
        self.name = name
        self.others = others
        """Everybody else in the world, members or not."""
        self.configured = list(others)
        """The other members as its configuration file has them."""
        self.joins = False
        self.connects_to: tuple[Node, ...] = ()
        # Clocks start anywhere and run up to 4 % wrong; leases allow for 12 % between two of them.
        self._offset = rng.uniform(0, 1e6)
        self._speed = rng.uniform(0.96, 1.04)
        self.new_disk()
        self.slow_sync = 0.0
        """Seconds that some syncs take; the process stands still meanwhile."""
        self.slow_syncs = 1.0
        """The share of those."""
        self.held_up = 0.0
        """How far this process is ahead of the world's time within a step that waited for the disk."""
        self.leadership = LeadershipTerms()
        self.told: object = None
        self.grace_in: int | None = None
        """Term in which the application began its grace period, while it served."""
        self.machine: RaftMachine | None = None
        self.state: Observed | None = None
        self.paused = False
        self.inbox: list[tuple[str, messages.AnyMessage]] = []
        self.notices: list[Callable[[RaftMachine], None]] = []
        """Ends of connections that a paused process has yet to learn of."""
        self.turn_due = False
        self.timer_at = 0.0
        self.incarnation = 0
        self._rng = rng
        self._beside_rng = Random(name)
        self._true_time = true_time
        self._send = send
        self._make_state_machine = make_state_machine
        self._applied = applied
        self.timings = timings
        """Of the next start."""
        self.limits = limits
        self._later = later
        self._store: Store | None = None

    def new_disk(self, disk: SimDisk | None = None) -> None:
        """An empty one, or this one."""
        self.disk = disk or SimDisk()
        self.disk.copies_on_write = int(self._offset) % 3 == 0
        self.disk.on_sync = self._sync_takes_time
        self.waits = True
        """As far as was seen last: its store neither votes nor counts."""

    def set_back(self, copy: SimDisk) -> None:
        """The process, which is down, gets an older copy of its disk."""
        copy.copies_on_write, copy.on_sync = self.disk.copies_on_write, self.disk.on_sync
        self.disk = copy

    def alter(self) -> tuple[int, int] | None:
        """The process, which is down, gets another command in the last entry on its disk, with checksums that fit.
        Returns the entry's (index, term); None if nothing changed, because it is committed or there is no other
        command."""
        store = self._open_store()
        journal, snapshot = store.journal, store.snapshots.load()
        changed = None
        if journal.last_index > max(journal.commit_index, snapshot.index if snapshot is not None else 0):
            command, index, term = journal[-1]
            others = [other for other, *_ in journal[:] if other[:1] == REGULAR and other != command]
            if others and command[:1] == REGULAR:
                journal.cut(index)
                journal.add(self._rng.choice(others), index, term)
                journal.sync()
                changed = index, term
        self.disk.kill()
        return changed

    def clock(self) -> float:
        return self._offset + (self._true_time() + self.held_up) * self._speed

    def _sync_takes_time(self) -> None:
        if (
            self.machine is not None and self.slow_sync and self._rng.random() < self.slow_syncs
        ):  # a start is as slow as the world lets it be
            self.held_up = min(self.held_up + self.slow_sync, LONGEST_SYNCS)

    def log_role(self) -> None:
        """What `Replica` does after each turn: the application learns of changes, and of nothing else."""
        machine = self.machine
        assert machine is not None
        picture = (machine.role, machine.term, machine.leader, machine.is_serving)
        if picture != self.told:
            self.told = picture
            if self.leadership.begins(machine.status()):
                # A grace period that begins sooner does not count: a slow first commit would use it up.
                self.grace_in = machine.term if machine.is_serving else None

    def true_delay(self, deadline: float) -> float:
        """True seconds until this member's clock shows `deadline`, a little more so that it has surely passed."""
        return max(0.0, (deadline - self.clock()) / self._speed) + 1e-6

    def start(self) -> None:
        """Start the process on what the disk holds. Raises SimCrash if the power goes meanwhile."""
        self.incarnation += 1
        self._store = self._open_store()
        self.state = Observed(self._make_state_machine(), self._applied)
        self.machine = RaftMachine(
            self.name,
            self._store.first_configuration({}),
            journal=self._store.journal,
            snapshots=self._store.snapshots,
            state_machine=self.state,
            transport=Endpoint(self._send),
            clock=self.clock,
            rng=Random(self._rng.random()),
            timings=self.timings,
            limits=self.limits,
            beside=self._beside,
            joins=self.joins,
            hints=self.configured,
        )
        self.connects_to = self.machine.peers

    def _open_store(self) -> Store:
        return open_store(
            Path("/store"),
            self.name,
            self.configured,
            options=JournalOptions(segment_bytes=4096, zero_ahead_bytes=self._rng.choice((0, 256))),
            filesystem=self.disk,
            make_store_id=lambda: self.name.encode().ljust(16, b"."),
        )

    def _beside(self, job: Callable[[], object]) -> "Future[object]":
        """Jobs of another thread: at once or some time later, and never if the process ends before."""
        future: Future[object] = Future()

        def run() -> None:
            held_up = self.held_up
            try:
                future.set_result(job())
            except Exception as error:  # noqa: BLE001 - as a thread pool does
                future.set_exception(error)
            self.held_up = held_up  # the loop did not wait for the disk

        if self.machine is None or self._beside_rng.random() < 0.3:
            run()
        else:
            self._later(run)
        return future

    def end(self, *, power: bool) -> None:
        """The process ends at once; with `power` the machine under it too, and what was not synced may be lost or
        torn."""
        self.machine = self.state = self._store = None
        self.paused = self.turn_due = False
        self.timer_at = self.held_up = 0.0
        self.leadership, self.told, self.grace_in = LeadershipTerms(), None, None
        self.inbox.clear()
        self.notices.clear()
        if power:
            self.disk.crash(self._rng)
        else:
            self.disk.kill()

    @property
    def picture(self) -> str:
        """For stories."""
        machine = self.machine
        if machine is None:
            return "down"
        return (
            f"{machine.role.value} term {machine.term} leader {machine.leader} "
            f"log {machine.first_index}..{machine.last_index} durable {machine.log.durable_index} "
            f"commit {machine.commit_index} applied {machine.last_applied}"
        )
