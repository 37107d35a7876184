"""State beside the log: recovery at start, cutting the log behind a snapshot, and bringing a far-off follower up to
date.

In place of PySyncObj's full dumps, which are pickles and go on with empty state when one does not load. A snapshot is
on disk before the log is cut, so at every moment snapshot and log overlap; recovery refuses to start where they do not.
"""

import hashlib

import msgspec
import structlog
from pysyncobj.node import Node

from rocketmq_controller.raft import messages
from rocketmq_controller.raft.errors import ApplyError, StoreMismatchError, WireError
from rocketmq_controller.raft.replication import Progress, Replication
from rocketmq_controller.raft.seam import LEADER, NO_OP
from rocketmq_controller.raft.stores import LogStore, Snapshot, SnapshotStore, StateMachine
from rocketmq_runtime.filesystem import DiskFullError

log = structlog.get_logger(__name__)


class Incoming(msgspec.Struct):
    """A snapshot on its way in."""

    index: int
    index_term: int
    digest: bytes
    total: int
    data: bytearray


def digest_of(data: bytes | bytearray) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class Snapshots(Replication):
    """Everything that moves the log's beginning."""

    _snapshot: Snapshot | None = None

    def recover(self, journal: LogStore, snapshots: SnapshotStore, state_machine: StateMachine) -> None:
        """Take over what is on disk.

        Raises:
            StoreMismatchError: journal, snapshot and vote do not belong together.
            ApplyError: the state machine cannot read its snapshot.
            FatalRaftError: the snapshot is damaged.
        """
        self._snapshots = snapshots
        self._state_machine = state_machine
        self._snapshot = snapshots.load()
        self._incoming: Incoming | None = None
        self.log = journal
        index = 1
        if self._snapshot is not None:
            index = self._snapshot.index
            self._restore(self._snapshot)
        self._fit_log_to_snapshot()
        term = journal.getCurrentTerm()
        if term < self.last_term:
            raise StoreMismatchError(
                f"the journal ends in term {self.last_term}, but the stored term is {term}: the file with term and "
                "vote is lost or older than the journal; restore the whole folder as it was at one moment"
            )
        self._SyncObj__raftCurrentTerm = term
        self._SyncObj__votedForNodeId = journal.getVotedForNodeId()
        # What the journal remembers as committed was synced before and can be applied before a leader is heard.
        self.commit_index = max(index, min(journal.getRaftCommitIndex(), self.last_index))
        self.last_applied = index
        self._compact_at = index + self.limits.compact_after

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
        elif self.first_index > snapshot.index:
            raise StoreMismatchError(
                f"the journal begins at entry {self.first_index}, the snapshot ends at {snapshot.index}"
            )

    def _begin_log_at(self, snapshot: Snapshot) -> None:
        self.log.clear()
        self.log.add(NO_OP, snapshot.index, snapshot.term)
        self.log.sync()

    def _restore(self, snapshot: Snapshot) -> None:
        try:
            self._state_machine.restore(snapshot.data)
        except Exception as error:
            raise ApplyError(
                f"the state machine cannot restore the snapshot of entry {snapshot.index}: {error!r}"
            ) from error

    # -- cutting the log

    def compact_if_due(self) -> None:
        if self.last_applied >= self._compact_at:
            try:
                self.compact()
            except DiskFullError as error:
                log.warning("no space for a snapshot, the log stays as it is", reason=str(error))
            self._compact_at = self.last_applied + self.limits.compact_after

    def compact(self) -> None:
        """Store the state as applied so far, then cut the log behind it."""
        term = self.term_at(self.last_applied)
        if term is None or self.last_applied <= self.snapshot_index:
            return
        try:
            data = self._state_machine.snapshot()
        except Exception as error:
            raise ApplyError(f"the state machine cannot write its snapshot: {error!r}") from error
        self._keep(Snapshot(self.last_applied, term, data))
        self._SyncObj__deleteEntriesTo(max(self.first_index, self.last_applied - self.limits.keep_after_compaction))

    def _keep(self, snapshot: Snapshot) -> None:
        self._snapshots.save(snapshot)
        self._snapshot = snapshot

    # -- leader

    def send_snapshot(self, node: Node, progress: Progress, *, due: bool) -> None:
        """Send the next chunk once the last one is acknowledged; meanwhile empty ones, which ask how far it got."""
        if progress.snapshot is None:
            if self._snapshot is None:
                raise StoreMismatchError(
                    f"the journal begins at {self.first_index}, and there is no snapshot to send to {node}"
                )
            progress.snapshot, progress.snapshot_offset = self._snapshot, 0
            progress.snapshot_digest = digest_of(self._snapshot.data)
            progress.probing, progress.waiting = True, False
            progress.under_way.clear()
        if progress.waiting and not due:
            return
        snapshot, offset = progress.snapshot, progress.snapshot_offset
        data = b"" if progress.waiting else snapshot.data[offset : offset + self.limits.snapshot_chunk_bytes]
        stamp = self.next_stamp()
        total = len(snapshot.data)
        chunk = messages.SnapshotChunk(
            self.term, stamp, snapshot.index, snapshot.term, total, offset, progress.snapshot_digest, data
        )
        self.send(node, chunk)
        progress.chunk_stamp = stamp
        progress.waiting = True
        progress.sent_at = self.now

    def on_snapshot_ack(self, node: Node, message: messages.SnapshotAck) -> None:
        if message.term != self.term or self.state != LEADER:
            return
        self.take_echo(node, message.stamp)
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
        self.hear_leader(node, message.term, message.stamp)
        self.enter_term_of_leader()
        if message.index <= self.commit_index:
            self.owe_ack(node, message.stamp)
            return
        if message.total > self.limits.max_snapshot_bytes:
            raise WireError(f"snapshot of {message.total} bytes, {self.limits.max_snapshot_bytes} are allowed")
        incoming = self._incoming
        if incoming is None or (incoming.index, incoming.index_term, incoming.digest) != (
            message.index,
            message.index_term,
            message.digest,
        ):
            incoming = self._incoming = Incoming(
                message.index, message.index_term, message.digest, message.total, bytearray()
            )
        if message.offset == len(incoming.data):
            incoming.data += message.data
        if len(incoming.data) < incoming.total:
            self.send(node, messages.SnapshotAck(self.term, message.stamp, incoming.index, len(incoming.data)))
            return
        self._incoming = None
        if len(incoming.data) > incoming.total or digest_of(incoming.data) != incoming.digest:
            log.warning("snapshot came in damaged, asking again", index=incoming.index, leader=node.id)
            self.send(node, messages.SnapshotAck(self.term, message.stamp, incoming.index, 0))
            return
        self._install(Snapshot(incoming.index, incoming.index_term, bytes(incoming.data)))
        self.verified_up_to(incoming.index)
        self.owe_ack(node, message.stamp)

    def _install(self, snapshot: Snapshot) -> None:
        self._restore(snapshot)
        self._keep(snapshot)
        if self.term_at(snapshot.index) == snapshot.term:
            self._SyncObj__deleteEntriesTo(snapshot.index)
        else:
            self._begin_log_at(snapshot)
        self.commit_up_to(snapshot.index)
        self.last_applied = snapshot.index
        self._compact_at = snapshot.index + self.limits.compact_after
        log.info("snapshot installed", index=snapshot.index, term=snapshot.term, bytes=len(snapshot.data))
