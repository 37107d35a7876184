"""One simulated member: a machine on a simulated disk with a clock of its own, which can crash, sleep and come back."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from rocketmq_controller.raft import Limits, StateMachine, Timings, messages
from rocketmq_controller.raft.journal import JournalOptions
from rocketmq_controller.raft.machine import RaftMachine
from rocketmq_controller.raft.store import Store, open_store
from tests.sim.disk import SimDisk
from tests.sim.network import Endpoint


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

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.digest, self.inner.snapshot()))

    def restore(self, snapshot: bytes) -> None:
        self.digest, data = msgspec.msgpack.decode(snapshot, type=tuple[bytes, bytes])
        self.inner.restore(data)


class Member:
    """`machine` is None while the process is down."""

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
    ) -> None:
        self.name = name
        self.others = others
        self.disk = SimDisk()
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
        self._true_time = true_time
        self._send = send
        self._make_state_machine = make_state_machine
        self._applied = applied
        self._timings = timings
        self._limits = limits
        # Clocks start anywhere and run up to 4 % wrong; leases allow for 12 % between two of them.
        self._offset = rng.uniform(0, 1e6)
        self._speed = rng.uniform(0.96, 1.04)
        self._store: Store | None = None

    def clock(self) -> float:
        return self._offset + self._true_time() * self._speed

    def true_delay(self, deadline: float) -> float:
        """True seconds until this member's clock shows `deadline`, a little more so that it has surely passed."""
        return max(0.0, (deadline - self.clock()) / self._speed) + 1e-6

    def start(self) -> None:
        """Start the process on what the disk holds. Raises SimCrash if the power goes meanwhile."""
        self.incarnation += 1
        self._store = open_store(
            Path("/store"),
            self.name,
            self.others,
            options=JournalOptions(segment_bytes=4096, zero_ahead_bytes=self._rng.choice((0, 256))),
            filesystem=self.disk,
            make_store_id=lambda: self.name.encode().ljust(16, b"."),
        )
        self.state = Observed(self._make_state_machine(), self._applied)
        self.machine = RaftMachine(
            self.name,
            self.others,
            journal=self._store.journal,
            snapshots=self._store.snapshots,
            state_machine=self.state,
            transport=Endpoint(self._send),
            clock=self.clock,
            rng=Random(self._rng.random()),
            timings=self._timings,
            limits=self._limits,
        )

    def end(self, *, power: bool) -> None:
        """The process ends at once; with `power` the machine under it too, and what was not synced may be lost or
        torn."""
        self.machine = self.state = self._store = None
        self.paused = self.turn_due = False
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
