"""How the log reaches the followers, in place of PySyncObj's append_entries and next_node_idx.

Differences that matter: a follower cuts only where an entry of another term conflicts, and never below what is
committed; it acknowledges what it has synced and what this leader has verified, once per turn; acknowledgements carry
their term; a leader counts itself up to what it has synced; entries under way are not sent again until the follower
says so.
"""

from collections import deque

import msgspec
from pysyncobj.node import Node

from rocketmq_controller.raft import messages, quorum
from rocketmq_controller.raft.elections import NEVER, Elections
from rocketmq_controller.raft.errors import InvariantViolationError, WireError
from rocketmq_controller.raft.seam import LEADER, NO_OP, REGULAR
from rocketmq_controller.raft.stores import Snapshot


class Progress(msgspec.Struct):
    """What a leader knows of one follower beside PySyncObj's next and match index; reset by each new leader and
    connection."""

    probing: bool = True
    """The follower's log is unknown beyond match: one Append at a time, until one is accepted."""
    waiting: bool = False
    """While probing: an Append is under way."""
    under_way: deque[int] = msgspec.field(default_factory=deque)
    """Last index of each Append that is not acknowledged."""
    reset_stamp: float = NEVER
    """Newest stamp when the last refusal was heeded: what was sent before is refused too, and means nothing new."""
    sent_at: float = NEVER
    snapshot: Snapshot | None = None
    """What is being sent, to its end even if there is a newer one meanwhile: else a slow link would never get one
    whole."""
    snapshot_digest: bytes = b""
    snapshot_offset: int = 0
    """Bytes of it that the follower holds."""
    chunk_stamp: float = NEVER
    """Stamp of the chunk that is under way: only its answer asks for the next one."""


class DueAck(msgspec.Struct):
    """What a follower owes its leader once the journal is synced."""

    stamp: float
    rejected: tuple[int, int] | None = None
    """(prev_index that did not fit, where to go on)"""


class Replication(Elections):
    """Leader and follower as far as entries go."""

    def start_replication(self) -> None:
        self.progress: dict[Node, Progress] = {node: Progress() for node in self.peers}
        self.muted = False
        self._verified = 0
        self._verified_term = 0
        self._due: dict[Node, DueAck] = {}

    # -- leader

    def _on_become_leader(self) -> None:
        self.lead()
        self.progress = {node: Progress() for node in self.peers}
        self.muted = False
        # PySyncObj: role, next and match index, the term's first entry, and a first round of Appends.
        super()._SyncObj__onBecomeLeader()

    _SyncObj__onBecomeLeader = _on_become_leader

    def _send_append_entries(self) -> None:
        """Send every follower what it lacks, and a heartbeat where one is due."""
        if self.state != LEADER or self.muted:
            return
        for node in self.peers:
            if node in self.connected:
                self.replicate_to(node)

    _SyncObj__sendAppendEntries = _send_append_entries

    def replicate_to(self, node: Node) -> None:
        progress = self.progress[node]
        due = self.now >= progress.sent_at + self.timings.heartbeat
        if self.next_index[node] <= self.first_index:
            self.send_snapshot(node, progress, due=due)
            return
        progress.snapshot = None
        while self._may_send(node, progress):
            self._send_append(node, progress, self.limits.batch_entries)
            due = False
            if progress.probing:
                progress.waiting = True
        if due:
            # Its answer also tells what became of a probe: entries are never sent again just because time went by.
            self._send_append(node, progress, 0)

    def _may_send(self, node: Node, progress: Progress) -> bool:
        if self.next_index[node] > self.last_index:
            return False
        return not progress.waiting if progress.probing else len(progress.under_way) < self.limits.window_batches

    def _send_append(self, node: Node, progress: Progress, count: int) -> None:
        next_index = self.next_index[node]
        prev_term = self.term_at(next_index - 1)
        if prev_term is None:
            raise InvariantViolationError(
                f"log {self.first_index}..{self.last_index} has no entry before {next_index} for {node}"
            )
        entries = self._SyncObj__getEntries(next_index, count, self.limits.batch_bytes) if count else []
        if entries and not progress.probing:
            progress.under_way.append(entries[-1][1])
            self.next_index[node] = entries[-1][1] + 1
        pairs = tuple((term, command) for command, _, term in entries)
        self.send(
            node, messages.Append(self.term, next_index - 1, prev_term, self.commit_index, self.next_stamp(), pairs)
        )
        progress.sent_at = self.now

    def send_snapshot(self, node: Node, progress: Progress, *, due: bool) -> None:
        """Defined where snapshots are."""
        raise NotImplementedError

    def on_ack(self, node: Node, message: messages.Ack) -> None:
        if message.term > self.term:
            self.become_follower(message.term)
            return
        if message.term < self.term or self.state != LEADER:
            return
        self.take_echo(node, message.stamp)
        progress = self.progress[node]
        if message.success:
            self._accepted(node, progress, message.next_index - 1)
        else:
            self._rejected(node, progress, message)
        if not self.muted:
            self.replicate_to(node)

    def _accepted(self, node: Node, progress: Progress, match: int) -> None:
        if match > self.last_index:
            raise WireError(f"{node} acknowledges {match}, the log ends at {self.last_index}")
        if match < self.match_index[node]:
            return
        self.match_index[node] = match
        while progress.under_way and progress.under_way[0] <= match:
            progress.under_way.popleft()
        self.next_index[node] = max(self.next_index[node], match + 1)
        if progress.snapshot is not None and progress.snapshot.index <= match:
            progress.snapshot = None
            progress.waiting = False
        if match + 1 == self.next_index[node]:
            # Only the answer to a probe may let the next one go: a follower that also refuses answers twice.
            progress.probing = progress.waiting = False

    def _rejected(self, node: Node, progress: Progress, message: messages.Ack) -> None:
        known = message.rejected_prev <= self.match_index[node]
        other_probe = progress.probing and message.rejected_prev != self.next_index[node] - 1
        if known or other_probe or (not progress.probing and message.stamp <= progress.reset_stamp):
            return
        # Never above what was refused, or two members could refuse each other's guess for ever.
        wanted = min(message.next_index, message.rejected_prev)
        self.next_index[node] = max(self.match_index[node] + 1, wanted)
        progress.probing = True
        progress.waiting = False
        progress.under_way.clear()
        progress.reset_stamp = self._last_stamp

    def advance_commit(self) -> None:
        """Commit what a majority has on disk, as soon as the newest of it is of our own term."""
        if self.state != LEADER:
            return
        match = self.match_index
        index = int(quorum.reached_by_majority(self.log.durable_index, [match[node] for node in self.peers]))
        if index > self.commit_index and self.term_at(index) == self.term:
            self.commit_up_to(index)

    def commit_up_to(self, index: int) -> None:
        """Never backwards. The journal is told so that it refuses a cut below."""
        if index > self.commit_index:
            self.commit_index = index
            self.log.setRaftCommitIndex(index)

    # -- follower

    def on_append(self, node: Node, message: messages.Append) -> None:
        if message.term < self.term:
            self.refuse_old_leader(node, message.stamp)
            return
        self.hear_leader(node, message.term, message.stamp)
        self.enter_term_of_leader()
        due = self.owe_ack(node, message.stamp)
        last_verified = self._take_entries(message, due)
        if last_verified is not None:
            self.verified_up_to(last_verified)
            self.commit_up_to(min(message.commit, last_verified))

    def enter_term_of_leader(self) -> None:
        """First message of a term's leader: what we know to equal its log is what is committed, no more."""
        if self._verified_term != self.term:
            self._verified_term = self.term
            self._verified = self.commit_index

    def verified_up_to(self, index: int) -> None:
        """The log equals the present leader's up to `index`; a leader never changes its log, so this only grows in a
        term."""
        self._verified = max(self._verified, index)

    def refuse_old_leader(self, node: Node, stamp: float) -> None:
        self.send(node, messages.Ack(self.term, success=False, next_index=0, rejected_prev=0, stamp=stamp))

    def owe_ack(self, node: Node, stamp: float) -> DueAck:
        due = self._due.get(node)
        if due is None:
            due = self._due[node] = DueAck(stamp)
        else:
            due.stamp = max(due.stamp, stamp)
        return due

    def _take_entries(self, message: messages.Append, due: DueAck) -> int | None:
        """Bring the log in line with the message; the last index that is now known to equal the leader's, None if it
        does not fit."""
        prev, entries = message.prev_index, message.entries
        end = prev + len(entries)
        first, last = self.first_index, self.last_index
        if prev > last:
            due.rejected = (prev, last + 1)
            return None
        if prev < first:
            # What the snapshot covers is committed, hence equal.
            entries = entries[first - prev :]
            prev = first
        elif self.term_at(prev) != message.prev_term:
            if prev <= self.commit_index:
                raise InvariantViolationError(
                    f"leader {self.leader} of term {self.term} has term {message.prev_term} at committed index {prev}, "
                    f"we have {self.term_at(prev)} (commit {self.commit_index}, applied {self.last_applied})"
                )
            due.rejected = (prev, self._start_of_term_at(prev))
            return None
        index = prev
        add = self.log.add
        for position, (term, command) in enumerate(entries):
            index = prev + 1 + position
            if index <= last:
                if self.term_at(index) == term:
                    continue
                self._cut_conflict(index, term)
                last = index - 1
            if command[:1] not in (REGULAR, NO_OP):
                raise WireError(f"entry {index} is of no known kind")
            add(command, index, term)
        return max(end, first)

    def _start_of_term_at(self, index: int) -> int:
        term = self.term_at(index)
        while index - 1 > max(self.commit_index, self.first_index) and self.term_at(index - 1) == term:
            index -= 1
        return index

    def _cut_conflict(self, index: int, term: int) -> None:
        if index <= max(self.commit_index, self.last_applied, self._verified):
            raise InvariantViolationError(
                f"leader {self.leader} of term {self.term} has term {term} at index {index}, "
                f"we have {self.term_at(index)}, and that is committed or acknowledged "
                f"(commit {self.commit_index}, applied {self.last_applied}, "
                f"verified {self._verified})"
            )
        self._SyncObj__deleteEntriesFrom(index)

    def send_due_acks(self) -> None:
        """After the journal's sync: say what is on disk, once per leader heard in this turn."""
        if not self._due:
            return
        due, self._due = self._due, {}
        for node, ack in due.items():
            if node != self.leader:
                continue
            if self._verified_term == self.term:
                on_disk = min(self._verified, self.log.durable_index)
                self.send(
                    node,
                    messages.Ack(self.term, success=True, next_index=on_disk + 1, rejected_prev=0, stamp=ack.stamp),
                )
            if ack.rejected is not None:
                prev, wanted = ack.rejected
                self.send(
                    node, messages.Ack(self.term, success=False, next_index=wanted, rejected_prev=prev, stamp=ack.stamp)
                )

    # -- connections

    def _on_node_connected(self, node: Node) -> None:
        super()._SyncObj__onNodeConnected(node)
        self._forget_connection(node)

    _SyncObj__onNodeConnected = _on_node_connected

    def _on_node_disconnected(self, node: Node) -> None:
        super()._SyncObj__onNodeDisconnected(node)
        self._forget_connection(node)

    _SyncObj__onNodeDisconnected = _on_node_disconnected

    def _forget_connection(self, node: Node) -> None:
        """What was under way on the old connection is lost, and what the peer confirmed there counts no more (see
        elections)."""
        self._due.pop(node, None)
        self._forget_echoes(node)
        self.progress[node] = Progress()
        if self.state == LEADER:
            # Not even the acknowledged entries are taken for granted: a member may come back with an empty disk.
            self.match_index[node] = 0
            self.next_index[node] = self.last_index + 1
