"""One Raft member as a deterministic machine: messages, commands and the clock go in; messages, journal writes and
results come out.

No sockets, threads, timers or randomness of its own: `Replica` drives it in the event loop, the simulation in virtual
time. The driver calls `receive` for every message and `tick` once after all that arrived together and ask for it
(and at `next_deadline` at the latest). One tick sends new entries, syncs the journal once, and only then acknowledges,
commits, applies and answers. Below it, a layer a file: `changes`, `commands`, `transfer`, `snapshots`, `replication`,
`elections`, `timeouts`, `standings`, `members`, and PySyncObj behind `pysyncobj_adapter`.
"""

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from rocketmq_controller.raft.background import Beside
from rocketmq_controller.raft.configuration import Configuration
from rocketmq_controller.raft.consensus.changes import Changes
from rocketmq_controller.raft.consensus.pysyncobj_adapter import CANDIDATE, FOLLOWER, LEADER, Clock
from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.ports import LogStore, SnapshotStore, StateMachine
from rocketmq_controller.raft.settings import Limits, Timings
from rocketmq_controller.raft.status import MemberStatus, RaftStatus, Role
from rocketmq_runtime.files.filesystem import DiskFullError

log = structlog.get_logger(__name__)

COMPLAIN_AFTER = 10.0
"""Seconds between two log lines about a disk that is too full to vote."""


class RaftMachine(Changes):
    """See the module's docstring. After a FatalRaftError or OSError out of any method the machine must not be used
    again."""

    def __init__(
        self,
        self_id: str,
        initial: Configuration,
        *,
        journal: LogStore,
        snapshots: SnapshotStore,
        state_machine: StateMachine,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        timings: Timings,
        limits: Limits,
        beside: Beside,
        joins: bool = False,
        hints: Iterable[str] = (),
    ) -> None:
        """`initial`: the members while the log has no configuration. `joins`: the quorum exists, never begin one.
        `hints`: other members to listen to without a leader."""
        others = initial.ids - {self_id}
        super().__init__(self_id, others, transport=transport, clock=clock, rng=rng, timings=timings, limits=limits)
        self.start_commands()
        self._one_second_timer = self.now + 1.0
        self._complain_at = self.now
        self.recover(journal, snapshots, state_machine, beside, initial=initial, hints=frozenset(hints))
        self.start_standings(joins=joins)
        self.start_clockwork()
        self.start_replication()
        self._handlers: dict[type, Callable[[Node, Any], None]] = {
            messages.Append: self.on_append,
            messages.Ack: self.on_ack,
            messages.PreVote: self.on_pre_vote,
            messages.PreVoteReply: self.on_pre_vote_reply,
            messages.Vote: self.on_vote,
            messages.VoteReply: self.on_vote_reply,
            messages.SnapshotChunk: self.on_snapshot_chunk,
            messages.SnapshotAck: self.on_snapshot_ack,
            messages.TimeoutNow: self.on_timeout_now,
            messages.Goodbye: self.on_goodbye,
            messages.Found: self.on_found,
            messages.Admit: self.on_admit,
            messages.SetBack: self.on_set_back,
        }

    # -- state for the driver

    @property
    def role(self) -> Role:
        if self.state == LEADER:
            return Role.LEADER
        return Role.CANDIDATE if self.state == CANDIDATE else Role.FOLLOWER

    @property
    def is_leader(self) -> bool:
        """Serving, and right now no other member can have been elected."""
        return self.is_serving and self.lease_holds(self.clock())

    def next_deadline(self) -> float:
        """When `tick` has to run at the latest if nothing arrives."""
        if self.behind:
            return self.now
        if self.state != LEADER:
            return min(self.election_deadline, self.pulse_at())
        deadline = min(self.step_down_at(), self.pulse_at()) if self.peers else math.inf
        if self._transfer is not None:
            deadline = min(deadline, self._transfer.give_up_at)
        if not self.muted:
            sent = [self.progress[node].sent_at for node in self.peers if node in self.connected]
            deadline = min([deadline, *(moment + self.timings.heartbeat for moment in sent)])
        return deadline

    # -- input

    def on_message(self, node: Node, message: object) -> None:
        self.now = self.clock()
        if isinstance(message, messages.Introduction):
            self.on_introduction(node, message)
            return
        if node not in self.introduced:  # of another quorum
            return
        handler = self._handlers.get(type(message))
        if handler is None:
            raise WireError(f"{node} sent {type(message).__name__}")
        try:
            handler(node, message)
        except DiskFullError as error:
            self._cannot_vote(error)

    def receive(self, sender: str, message: messages.AnyMessage) -> bool:
        """A message of another member. Returns whether a tick has to follow; it may cover several messages. If none
        has to, `next_deadline` may be another one.

        Raises:
            WireError: the sender breaks the protocol; drop its connection.
            FatalRaftError, OSError: this member must stop.
        """
        node = self._node(sender)
        if node is None:
            return False
        if isinstance(message, messages.Ack) and self._is_plain_ack(node, message):
            self.now = self.clock()
            self.take_echo(node, message.stamp, message.promise)
            return False
        if isinstance(message, messages.Append) and self._is_plain_heartbeat(node, message):
            self.on_message(node, message)
            self.notice_stall()
            self.send_due_acks()
            return False
        self.on_message(node, message)
        return True

    def _is_plain_ack(self, node: Node, ack: messages.Ack) -> bool:
        """The answer to a heartbeat, where all that was proposed is committed, applied and at `node`: it only renews
        the lease."""
        if self.state != LEADER or node not in self.counting or self._barriers or self.transferring:
            return False
        progress, last = self.progress[node], self.last_index
        return (
            ack.success
            and ack.counts
            and ack.term == self.term
            and ack.next_index - 1 == self.match_index[node] == self.last_applied == last
            and not progress.probing
            and not progress.under_way
        )

    def _is_plain_heartbeat(self, node: Node, append: messages.Append) -> bool:
        """A heartbeat of the leader that we follow, where all that it has is here, on disk and applied: only the answer
        is left to do."""
        last, log = self.last_index, self.log
        return (
            node == self.leader
            and self.state == FOLLOWER
            and append.term == self.term == self._verified_term
            and not append.entries
            and append.prev_index == append.commit == self.last_applied == log.durable_index == last
            and append.promise == log.promised
            and log.standing.voter
            and not self._questions
            and not self.disk_full
            and not self._background.busy
            and self.clock() < self._one_second_timer
        )

    def _node(self, member: str) -> Node | None:
        """None for a member that is no longer connected to."""
        return next((node for node in self.peers if node.id == member), None)

    # -- the tick

    def on_tick(self) -> None:
        self.now = self.clock()
        self.behind = False
        self.notice_stall()
        self.settle_snapshots()
        try:
            self.tick_standing()
            self.tick_election()
        except DiskFullError as error:
            self._cannot_vote(error)
        self.answer_pre_votes()
        self.append_commands()
        self.send_append_entries()
        if self.log.durable_index < self.last_index:
            self._sync_log()
        self.send_due_acks()
        self.keep_reports()
        self.advance_commit()
        self.apply_committed()
        self.settle_barriers()
        self.drive_members()
        self.drive_transfer()
        self.compact_if_due()
        if self.now >= self._one_second_timer:
            self._one_second_timer = self.now + 1.0
            self.log.sync_mark()

    def _cannot_vote(self, error: DiskFullError) -> None:
        """Term, vote, promise and standing are overwritten in place, but a file system that copies on write needs space
        even for that. They are written before anything else changes: so a message counts as lost, and a candidacy as
        not begun."""
        if self.now >= self._complain_at:
            self._complain_at = self.now + COMPLAIN_AFTER
            log.error("disk full: this member cannot vote or promise until there is space", reason=str(error))

    def _sync_log(self) -> None:
        """One group commit. A full disk is waited out: entries stay in memory, and neither acknowledge nor count."""
        try:
            self.log.sync()
        except DiskFullError as error:
            self.on_full_disk(error)
            if self.state == LEADER and self.peers:
                self.become_follower(self.term)
        else:
            self.disk_full = False

    def on_full_disk(self, error: DiskFullError) -> None:
        """The disk is full until the next sync that works."""
        if not self.disk_full:
            log.error("disk full: this member neither leads nor acknowledges until there is space", reason=str(error))
        self.disk_full = True

    # -- status

    def status(self) -> RaftStatus:
        """The member's present state; reads only."""
        leads = self.state == LEADER
        return RaftStatus(
            self_id=self.self_id,
            role=self.role,
            is_leader=self.is_leader,
            is_serving=self.is_serving,
            term=self.term,
            leader_id=self.leader.id if self.leader is not None else None,
            commit_index=self.commit_index,
            last_applied=self.last_applied,
            first_index=self.first_index,
            last_index=self.last_index,
            durable_index=self.log.durable_index,
            snapshot_index=self.snapshot_index,
            pending=self.waiting_count,
            voter=self.is_voter(),
            configuration=self.configuration,
            lineage=self.log.standing.lineage.hex() if self.log.standing.lineage is not None else None,
            election_timeout=self.current_timeout(),
            members=tuple(
                MemberStatus(
                    id=node.id,
                    connected=node in self.connected,
                    match_index=self.match_index.get(node, 0) if leads else None,
                    next_index=self.next_index.get(node, 0) if leads else None,
                    voter=(node in self.counting) if leads else None,
                    learner=node.id in self.configuration.learners,
                )
                for node in self.peers
            ),
        )
