"""State beside the log: recovery at start, cutting the log behind a snapshot, and bringing a far-off follower up to
date.

In place of PySyncObj's full dumps, which are pickles and continue with empty state when one does not load. A snapshot
is on disk before the log is cut, so at every moment snapshot and log overlap; recovery refuses to start where they do
not. Encoding, decoding, writing and syncing run beside the event loop (background.py); what the loop does takes no time
that grows with the state, except for taking a decoded state over.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

import msgspec
import structlog
from pysyncobj.node import Node

from rocketmq_controller.raft import configuration
from rocketmq_controller.raft.background import Background, Beside
from rocketmq_controller.raft.chain import GENESIS, Chain
from rocketmq_controller.raft.configuration import Configuration, ConfigurationError
from rocketmq_controller.raft.consensus.elections import NEVER
from rocketmq_controller.raft.consensus.pysyncobj_adapter import LEADER, NO_OP
from rocketmq_controller.raft.consensus.replication import Progress, Replication
from rocketmq_controller.raft.errors import ApplyError, StoreMismatchError, WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.ports import LogStore, Snapshot, SnapshotStore, StateMachine
from rocketmq_runtime.files.filesystem import DiskFullError

log = structlog.get_logger(__name__)


class Incoming(msgspec.Struct):
    """A snapshot on its way in."""

    index: int
    index_term: int
    digest: bytes
    total: int
    data: bytearray
    chain: bytes = b""
    node: Node | None = None
    """The leader that was heard last about it."""
    stamp: float = NEVER
    promise: float = 0.0
    """What was promised when the stamp came."""
    members: Configuration | None = None
    answered_at: float = NEVER

    @property
    def whole(self) -> bool:
        """All bytes are here; they are verified beside the loop."""
        return len(self.data) >= self.total


class DamagedOnTheWayError(Exception):
    """What came in is not what the leader sent."""


class Stored(msgspec.Struct, frozen=True):
    """Outcome of a job: a snapshot that is on disk."""

    snapshot: Snapshot
    digest: bytes
    take_over: Callable[[], None] | None = None
    """Puts the snapshot's state in the place of ours; None for a snapshot of our own."""


def digest_of(data: bytes | bytearray) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class Snapshots(Replication):
    """Everything that moves the log's beginning."""

    _snapshot: Snapshot | None = None
    _digest: bytes = b""
    """Of its state."""

    def recover(
        self,
        journal: LogStore,
        snapshots: SnapshotStore,
        state_machine: StateMachine,
        beside: Beside,
        *,
        initial: Configuration,
        hints: frozenset[str],
    ) -> None:
        """Take over what is on disk.

        Raises:
            StoreMismatchError: journal, snapshot and vote do not belong together.
            ApplyError: the state machine cannot read its snapshot.
            FatalRaftError: the snapshot is damaged.
        """
        self._snapshots = snapshots
        self._state_machine = state_machine
        self._background = Background(beside)
        self._snapshot = snapshots.load()
        self._incoming: Incoming | None = None
        self.use_log(journal)
        index = 1
        if self._snapshot is not None:
            index = self._snapshot.index
            ours = journal.standing.lineage
            if None not in (ours, self._snapshot.lineage) and ours != self._snapshot.lineage:
                raise StoreMismatchError("the snapshot belongs to another quorum than the journal beside it")
            _loaded(state_machine, self._snapshot)()
            self._digest = digest_of(self._snapshot.data)
        self.chain = Chain(1, GENESIS) if self._snapshot is None else Chain(index, self._snapshot.chain)
        self._fit_log_to_snapshot()
        term = journal.term
        if term < self.last_term:
            raise StoreMismatchError(
                f"the journal ends in term {self.last_term}, but the stored term is {term}: the file with term and "
                "vote is lost or older than the journal; restore the whole folder as it was at one moment"
            )
        self.restore_term(term, journal.voted_for)
        # What the journal remembers as committed was synced before and can be applied before a leader is heard.
        self.commit_index = max(index, min(journal.commit_index, self.last_index))
        self.last_applied = index
        self._compact_at = index + self.limits.compact_after
        try:
            self.start_members(initial, hints, self._snapshot)
        except ConfigurationError as error:
            raise StoreMismatchError(f"the journal has members that this release cannot read: {error}") from error

    def durable_index(self) -> int:
        """A log that a snapshot has just replaced is on disk with the next sync; the snapshot is already."""
        return max(self.log.durable_index, self.snapshot_index)

    @property
    def snapshot_index(self) -> int:
        """Index of the entry that the newest snapshot covers, 0 without one."""
        return self._snapshot.index if self._snapshot is not None else 0

    def _fit_log_to_snapshot(self) -> None:
        journal, snapshot = self.log, self._snapshot
        if snapshot is None:
            if not len(journal):
                journal.add(NO_OP, 1, 0)
                journal.sync()
            if self.first_index != 1:
                raise StoreMismatchError(
                    f"the journal begins at entry {self.first_index}, and the snapshot before it is missing"
                )
        elif not len(journal) or (self.first_index <= snapshot.index and self.term_at(snapshot.index) != snapshot.term):
            # Stopped after storing a snapshot and before cutting what it replaces, or the tail it covers was never
            # synced.
            self._begin_log_at(snapshot)
            self.log.sync()
        elif self.first_index > snapshot.index:
            raise StoreMismatchError(
                f"the journal begins at entry {self.first_index}, the snapshot ends at {snapshot.index}"
            )

    def _begin_log_at(self, snapshot: Snapshot) -> None:
        self.log.clear()
        self.log.add(NO_OP, snapshot.index, snapshot.term)

    def on_full_disk(self, error: DiskFullError) -> None:
        """Defined where syncs are."""
        raise NotImplementedError

    # -- cutting the log

    def compact_if_due(self) -> None:
        if self.last_applied >= self._compact_at and not self._background.busy:
            self._compact_at = self.last_applied + self.limits.compact_after
            self.compact()

    def compact(self) -> None:
        """Store the state as applied so far, then cut the log behind it."""
        index = self.last_applied
        term = self.term_at(index)
        if term is None or index <= self.snapshot_index:
            return
        encode, snapshots = self._state_machine.capture(), self._snapshots
        empty = self._snapshot_of(index, term, b"", self.chain.at(index, self.log))

        def store() -> Stored:
            try:
                data = encode()
            except Exception as error:
                raise ApplyError(f"the state machine cannot write its snapshot: {error!r}") from error
            snapshot = msgspec.structs.replace(empty, data=data)
            snapshots.save(snapshot)
            return Stored(snapshot, digest_of(data))

        self._background.start(store, self._compacted)

    def _compacted(self, outcome: "Future[object]") -> None:
        """Raises what the job raised, except for a full disk."""
        try:
            stored = cast("Stored", outcome.result())
        except DiskFullError as error:
            log.warning("no space for a snapshot, the log stays as it is", reason=str(error))
            return
        self._keep(stored)
        self._cut_behind(stored.snapshot.index - self.limits.keep_after_compaction)

    def _cut_behind(self, index: int) -> None:
        self.delete_entries_to(max(self.first_index, index))
        self.chain.forget(self.first_index)
        self.configurations.forget(self.first_index)

    def _snapshot_of(self, index: int, term: int, data: bytes, chain: bytes) -> Snapshot:
        members = self.configurations.at(index)
        return Snapshot(index, term, data, chain, self.log.standing.lineage, members if members.index else None)

    def _keep(self, stored: Stored) -> None:
        self._snapshot, self._digest = stored.snapshot, stored.digest

    def settle_snapshots(self) -> None:
        """Once each tick: what was stored beside the loop since the last one counts from now on."""
        self._background.settle()
        if self._incoming is not None and self._incoming.whole and not self._background.busy:
            self._install(self._incoming)

    # -- leader

    def send_snapshot(self, node: Node, progress: Progress, *, due: bool) -> None:
        """Send the next chunk once the last one is acknowledged; until then empty ones, which ask how far it got."""
        if progress.snapshot is None:
            if self._snapshot is None:
                raise StoreMismatchError(
                    f"the journal begins at {self.first_index}, and there is no snapshot to send to {node}"
                )
            progress.snapshot, progress.snapshot_offset = self._snapshot, 0
            progress.snapshot_digest = self._digest
            progress.probing, progress.waiting = True, False
            progress.under_way.clear()
        if progress.waiting and not due:
            return
        snapshot, offset = progress.snapshot, progress.snapshot_offset
        data = b"" if progress.waiting else snapshot.data[offset : offset + self.limits.snapshot_chunk_bytes]
        stamp = self.next_stamp()
        total = len(snapshot.data)
        chunk = messages.SnapshotChunk(
            self.term,
            stamp,
            snapshot.index,
            snapshot.term,
            total,
            offset,
            progress.snapshot_digest,
            data,
            self.asking,
            snapshot.chain,
            snapshot.members.index if snapshot.members is not None else 0,
            configuration.encode(snapshot.members) if snapshot.members is not None else b"",
        )
        self.send(node, chunk)
        progress.chunk_stamp = stamp
        progress.waiting = True
        progress.sent_at = self.now

    def on_snapshot_ack(self, node: Node, message: messages.SnapshotAck) -> None:
        if message.term != self.term or self.state != LEADER:
            return
        self.take_standing(node, counts=message.counts)
        self.take_echo(node, message.stamp, message.promise)
        progress = self.progress[node]
        if message.stamp == progress.chunk_stamp and progress.snapshot is not None:
            progress.snapshot_offset = min(message.next_offset, len(progress.snapshot.data))
            progress.waiting = False
        if not self.muted:
            self.replicate_to(node)

    # -- follower

    def on_snapshot_chunk(self, node: Node, message: messages.SnapshotChunk) -> None:
        if message.term < self.term:
            self.refuse_old_leader(node, message.stamp)
            return
        promise = self.on_leader_message(node, message.term, message.stamp, message.promise)
        self.enter_term_of_leader()
        if message.index <= self.commit_index:
            self.owe_ack(node, message.stamp, promise)
            return
        if message.total > self.limits.max_snapshot_bytes:
            raise WireError(f"snapshot of {message.total} bytes, {self.limits.max_snapshot_bytes} are allowed")
        self.remember_commit(message.index)
        incoming = self._incoming
        if incoming is None or (incoming.index, incoming.index_term, incoming.digest) != (
            message.index,
            message.index_term,
            message.digest,
        ):
            incoming = self._incoming = Incoming(
                message.index, message.index_term, message.digest, message.total, bytearray()
            )
        if message.offset == len(incoming.data) and not incoming.whole:
            incoming.data += message.data
        incoming.chain, incoming.node = message.chain, node
        incoming.members = _members_of(message)
        incoming.stamp, incoming.promise = message.stamp, promise
        if incoming.whole:
            if not self._background.busy:
                self._install(incoming)
            # The leader asks again as soon as it is answered, and needs a sign that this member is alive.
            if self._incoming is None or self.now < incoming.answered_at + self.timings.heartbeat / 2:
                return
            incoming.answered_at = self.now
        self._answer_chunk(incoming, len(incoming.data))

    def _answer_chunk(self, incoming: Incoming, next_offset: int) -> None:
        if incoming.node is not None:
            ack = messages.SnapshotAck(
                self.term, incoming.stamp, incoming.index, next_offset, self.is_sound(), incoming.promise
            )
            self.send(incoming.node, ack)

    def _install(self, incoming: Incoming) -> None:
        """Check, decode and store what came in; the state changes when it is on disk."""
        state_machine, snapshots = self._state_machine, self._snapshots
        lineage = self.log.standing.lineage
        empty = Snapshot(incoming.index, incoming.index_term, b"", incoming.chain, lineage, incoming.members)

        def store() -> Stored:
            if len(incoming.data) > incoming.total or digest_of(incoming.data) != incoming.digest:
                raise DamagedOnTheWayError
            snapshot = msgspec.structs.replace(empty, data=bytes(incoming.data))
            take_over = _loaded(state_machine, snapshot)  # first: one that cannot be read must not be kept
            snapshots.save(snapshot)
            return Stored(snapshot, incoming.digest, take_over)

        self._background.start(store, self._stored_incoming)

    def _stored_incoming(self, outcome: "Future[object]") -> None:
        """Raises what the job raised, except for damage and a full disk: the snapshot is then sent again."""
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        try:
            stored = cast("Stored", outcome.result())
        except DamagedOnTheWayError:
            log.warning(
                "snapshot arrived damaged, requesting it again", index=incoming.index, leader=str(incoming.node)
            )
            self._answer_chunk(incoming, 0)
            return
        except DiskFullError as error:
            self.on_full_disk(error)
            self._answer_chunk(incoming, 0)
            return
        self._keep(stored)
        if stored.snapshot.index > self.commit_index and self.state != LEADER:
            self._take_over(stored)
        if incoming.node is not None and incoming.node == self.leader:
            self.owe_ack(incoming.node, incoming.stamp, incoming.promise)

    def _take_over(self, stored: Stored) -> None:
        snapshot = stored.snapshot
        assert stored.take_over is not None
        stored.take_over()
        if self.term_at(snapshot.index) == snapshot.term:
            self.compare_chain(snapshot.index, snapshot.chain)
            self._cut_behind(snapshot.index)
            self.configurations.install(snapshot.index, snapshot.members, keep=True)
        else:  # on disk with the next sync, and acknowledged after that
            self._begin_log_at(snapshot)
            self.chain = Chain(snapshot.index, snapshot.chain)
            self.configurations.install(snapshot.index, snapshot.members, keep=False)
        self.commit_up_to(snapshot.index)
        self.last_applied = snapshot.index
        self.reconfigure()
        self._compact_at = snapshot.index + self.limits.compact_after
        self.verified_up_to(snapshot.index)
        log.info("snapshot installed", index=snapshot.index, term=snapshot.term, bytes=len(snapshot.data))


def _members_of(message: messages.SnapshotChunk) -> Configuration | None:
    if not message.members:
        return None
    try:
        return configuration.decode(message.members, message.members_index)
    except ConfigurationError as error:
        raise WireError(f"snapshot of entry {message.index}: {error}") from error


def _loaded(state_machine: StateMachine, snapshot: Snapshot) -> Callable[[], None]:
    try:
        return state_machine.load(snapshot.data)
    except Exception as error:
        raise ApplyError(f"the state machine cannot read the snapshot of entry {snapshot.index}: {error!r}") from error
