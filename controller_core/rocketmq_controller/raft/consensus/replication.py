"""How a leader brings the log to the followers, in place of PySyncObj's append_entries and next_node_idx.

Differences that matter: a leader counts itself up to what it has synced; entries under way are not sent again until the
follower asks for them. The other end is `following.py`.
"""

from collections import deque
from collections.abc import Collection

import msgspec
from pysyncobj.node import Node

from rocketmq_controller.raft import configuration
from rocketmq_controller.raft.consensus.elections import NEVER
from rocketmq_controller.raft.consensus.following import Following
from rocketmq_controller.raft.consensus.pysyncobj_adapter import LEADER, NO_OP
from rocketmq_controller.raft.errors import InvariantViolationError, WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.ports import Snapshot


class Progress(msgspec.Struct):
    """What a leader keeps of one follower beside PySyncObj's next and match index; reset by each new leader and
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
    """What is being sent, to its end even if there is a newer one by then: else a slow link would never get one
    whole."""
    snapshot_digest: bytes = b""
    snapshot_offset: int = 0
    """Bytes of it that the follower holds."""
    chunk_stamp: float = NEVER
    """Stamp of the chunk that is under way: only its answer asks for the next one."""


class Replication(Following):
    """The leader as far as entries go, and what changes for both with peers and connections."""

    def start_replication(self) -> None:
        self.start_following()
        self.progress: dict[Node, Progress] = {node: Progress() for node in self.peers}
        self.muted = False
        self._sound: set[Node] = set()
        """Followers whose stores may count: see standings."""
        self.counting: set[Node] = set()
        """Those of them that are voters: their acknowledgements and confirmations count."""
        self._markers: dict[Node, int] = {}
        """Entries of ours that were made after we heard of a store that does not count."""

    def become_leader(self) -> None:
        self.progress = {node: Progress() for node in self.peers}
        self.muted = False
        self._sound = set()
        self.counting = set()
        self._markers = {}
        super().become_leader()

    def send_append_entries(self) -> None:
        """Send every follower what it lacks, and a heartbeat where one is due."""
        if self.state != LEADER or self.muted:
            return
        nodes = [node for node in self.peers if node in self.connected]
        # One heartbeat that is due takes along those that soon will be: we wake up once for all of them.
        period = self.timings.heartbeat
        if any(self.now >= self.progress[node].sent_at + period for node in nodes):
            period /= 2
        for node in nodes:
            self.replicate_to(node, period)

    def replicate_to(self, node: Node, period: float | None = None) -> None:
        """Send what it lacks, and a heartbeat if the last message is older than `period`, by default a heartbeat's."""
        progress = self.progress[node]
        due = self.now >= progress.sent_at + (self.timings.heartbeat if period is None else period)
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
            # Its answer also shows the outcome of a probe: entries are never sent again just because time went by.
            self._send_append(node, progress, 0)

    def _may_send(self, node: Node, progress: Progress) -> bool:
        if self.next_index[node] > self._last_for(node):
            return False
        return not progress.waiting if progress.probing else len(progress.under_way) < self.limits.window_batches

    def _last_for(self, node: Node) -> int:
        """The entry that takes a member out is not sent to it until it is committed: with the entry in its log it would
        refuse its vote to one that lacks it."""
        return self.configuration.index - 1 if self.is_changing and self.leaves(node) else self.last_index

    def _send_append(self, node: Node, progress: Progress, count: int) -> None:
        next_index = self.next_index[node]
        prev_term = self.term_at(next_index - 1)
        if prev_term is None:
            raise InvariantViolationError(
                f"log {self.first_index}..{self.last_index} has no entry before {next_index} for {node}"
            )
        count = min(count, self._last_for(node) + 1 - next_index)
        entries = self.entries_from(next_index, count, self.limits.batch_bytes) if count > 0 else []
        if entries and not progress.probing:
            progress.under_way.append(entries[-1][1])
            self.next_index[node] = entries[-1][1] + 1
        pairs = tuple((term, command) for command, _, term in entries)
        self.send(
            node,
            messages.Append(
                self.term,
                next_index - 1,
                prev_term,
                self.commit_index,
                self.next_stamp(),
                pairs,
                self.asking,
                self.chain.at(next_index - 1, self.log),
            ),
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
        self.take_standing(node, counts=message.counts)
        self.take_echo(node, message.stamp, message.promise)
        progress = self.progress[node]
        if message.success:
            self._accepted(node, progress, message.next_index - 1)
            if message.counts:
                self.remember_ack(node, message.term, message.next_index - 1)
            self._admit_if_due(node)
        else:
            self._rejected(node, progress, message)
        if not self.muted:
            self.replicate_to(node)

    def take_standing(self, node: Node, *, counts: bool) -> None:
        """A follower of the present term reports whether its store may count."""
        if counts and self.is_trusted(node):
            self._sound.add(node)
        else:
            self._sound.discard(node)
        self.counting = self._sound & self.voters

    def is_ready_to_vote(self, node: Node) -> bool:
        """A follower whose store may count, and that is not far behind."""
        near = self.last_index - self.match_index.get(node, 0) <= self.limits.promote_lag
        return near and node in self._sound and node in self.connected

    def _admit_if_due(self, node: Node) -> None:
        if node in self._sound or self.muted or self.disk_full or self.has_other_members(node):
            return
        marker = self._markers.get(node)
        if marker is None:
            marker = self._markers[node] = self.last_index + 1
            self.log.add(NO_OP, marker, self.term)
        elif self._may_share() and self._is_ready(node):
            self.send(node, messages.Admit(self.term, self._markers[node]))

    def forget_markers(self) -> None:
        """Stores are admitted behind entries that are made from here on."""
        self._markers = {}

    def _is_ready(self, node: Node) -> bool:
        marker = self._markers.get(node)
        return marker is not None and min(self.commit_index, self.match_index[node]) >= marker

    def _may_share(self) -> bool:
        """One that decides alone stops to, durably, before any other may vote: when enough of them are ready, and hold
        what it committed alone."""
        standing = self.log.standing
        if not standing.sole:
            return True
        holders = [node for node in self._ready() if self.match_index[node] >= self.commit_index]
        if not self._are_enough(holders):
            return False
        self.log.set_standing(msgspec.structs.replace(standing, sole=False))
        self._led_since = self.now
        self._markers = {node: max(marker, self.commit_index) for node, marker in self._markers.items()}
        for node in holders:
            self.send(node, messages.Admit(self.term, self._markers[node]))
        return True

    def _ready(self) -> list[Node]:
        """Stores that do not count yet, and could be admitted."""
        return [node for node in self.peers if self._is_ready(node)]

    def _are_enough(self, others: Collection[Node]) -> bool:
        """With this member they are a majority."""
        voting = {node.id for node in others} | {self.self_id}
        return len(voting & self.configuration.voters) >= configuration.majority(len(self.configuration.voters))

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
        # Never above what was refused, or two members could refuse each other's guess forever.
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
        # One that decides alone commits with the others as soon as enough are ready: then they soon hold all of it.
        counting = self._ready() if self.log.standing.sole else self.counting
        if self.log.standing.sole and not self._are_enough(counting):
            index = self.log.durable_index
        else:
            own = [self.log.durable_index] if self.counts_itself() else []
            others = [self.match_index[node] if node in counting else 0 for node in self.voters]
            index = int(configuration.reached_by_majority(own + others))
        if index > self.commit_index and self.term_at(index) == self.term:
            self.commit_up_to(index)

    # -- other members

    def peer_joined(self, node: Node) -> None:
        super().peer_joined(node)
        self.progress[node] = Progress()
        self.match_index[node] = 0
        self.next_index[node] = self.last_index + 1

    def peer_left(self, node: Node) -> None:
        if self.state == LEADER and node in self.connected and node in self.introduced:
            self._send_removal(node)
        super().peer_left(node)
        self.mark_disconnected(node)
        self._due.pop(node, None)
        self._sound.discard(node)
        self._markers.pop(node, None)
        for kept in (self.progress, self.match_index, self.next_index):
            kept.pop(node, None)

    def _send_removal(self, node: Node) -> None:
        """Send a removed member the entry that removes it, behind all that is under way to it."""
        if not self.progress[node].probing and self.next_index[node] > self.first_index:
            self._send_append(node, self.progress[node], self.limits.batch_entries)

    def recount(self) -> None:
        self.counting = self._sound & self.voters
        super().recount()

    # -- connections

    def on_connected(self, node: Node) -> None:
        if node not in self.peers:  # it was let go since
            return
        self.mark_connected(node)
        self._forget_connection(node)
        self.introduce(node)

    def on_disconnected(self, node: Node) -> None:
        self.mark_disconnected(node)
        if node in self.peers:
            self._forget_connection(node)

    def _forget_connection(self, node: Node) -> None:
        """What was under way on the old connection is lost, and what the peer confirmed there no longer counts
        (see elections)."""
        self._due.pop(node, None)
        self._forget_echoes(node)
        self._questions.pop(node, None)
        self.forget_introduction(node)
        self._sound.discard(node)
        self.counting.discard(node)
        self._markers.pop(node, None)
        self.progress[node] = Progress()
        if self.state == LEADER:
            # Not even the acknowledged entries are taken for granted: a member may come back with an empty disk.
            self.match_index[node] = 0
            self.next_index[node] = self.last_index + 1
