"""One Raft member as a deterministic machine: messages, commands and the clock go in; messages, journal writes and
results come out.

No sockets, threads, timers or randomness of its own: `Replica` drives it in the event loop, the simulation in virtual
time. The driver calls `receive` for every message and `doTick` once after all that arrived together (and at
`next_deadline` at the latest). One tick sends new entries, syncs the journal once, and only then acknowledges, commits,
applies and answers.
"""

import random
from collections.abc import Callable, Iterable
from queue import Empty

import msgspec
import structlog
from pysyncobj import FAIL_REASON
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from rocketmq_controller.raft import messages
from rocketmq_controller.raft.errors import (
    ApplyError,
    CommandTooLargeError,
    NotLeaderError,
    OverloadedError,
    ProposalLostError,
    RaftError,
    TransferError,
    WireError,
)
from rocketmq_controller.raft.seam import CANDIDATE, LEADER, NO_OP, REGULAR, Clock
from rocketmq_controller.raft.settings import Limits, Timings
from rocketmq_controller.raft.snapshots import Snapshots
from rocketmq_controller.raft.status import MemberStatus, RaftStatus, Role
from rocketmq_controller.raft.stores import LogStore, SnapshotStore, StateMachine
from rocketmq_runtime.filesystem import DiskFullError

log = structlog.get_logger(__name__)

Result = Callable[[object, RaftError | None], None]
"""Told what `apply` returned, or why that is not known."""


class Transfer(msgspec.Struct):
    """A hand-over of leadership on its way."""

    target: Node
    give_up_at: float
    """When to stop waiting: for the target to catch up, then for it to be elected."""
    sent: bool = False


class RaftMachine(Snapshots):
    """See the module's docstring. After a FatalRaftError or OSError out of any method the machine must not be used
    again."""

    _transfer: Transfer | None = None

    def __init__(
        self,
        self_id: str,
        others: Iterable[str],
        *,
        journal: LogStore,
        snapshots: SnapshotStore,
        state_machine: StateMachine,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        timings: Timings,
        limits: Limits,
    ) -> None:
        super().__init__(self_id, others, transport=transport, clock=clock, rng=rng, timings=timings, limits=limits)
        self._barriers: list[tuple[float, int, Result]] = []
        self._waiting_count = 0
        self._behind = True
        self._one_second_timer = self.now + 1.0
        self.recover(journal, snapshots, state_machine)
        self.start_clockwork()
        self.start_replication()

    # -- what the driver asks

    @property
    def role(self) -> Role:
        if self.state == LEADER:
            return Role.LEADER
        return Role.CANDIDATE if self.state == CANDIDATE else Role.FOLLOWER

    @property
    def is_serving(self) -> bool:
        """Leads and has applied an entry of its own term: its state holds all that was ever committed."""
        noop = self._SyncObj__noopIDx
        return self.state == LEADER and noop is not None and self.last_applied >= noop

    @property
    def is_leader(self) -> bool:
        """Serving, and right now no other member can have been elected."""
        return self.is_serving and self.lease_holds(self.clock())

    def next_deadline(self) -> float:
        """When `doTick` has to run at the latest if nothing arrives."""
        if self._behind:
            return self.now
        if self.state != LEADER:
            return self.election_deadline
        deadline = max(self.confirmed_at(), self._led_since) + self.timings.election_max
        if self._transfer is not None:
            deadline = min(deadline, self._transfer.give_up_at)
        if not self.muted:
            sent = [self.progress[node].sent_at for node in self.peers if node in self.connected]
            deadline = min([deadline, *(moment + self.timings.heartbeat for moment in sent)])
        return deadline

    # -- commands

    def propose(self, command: bytes, result: Result) -> None:
        """Put a command into the next tick's batch.

        Raises:
            NotLeaderError, OverloadedError, CommandTooLargeError: nothing was proposed.
        """
        if self.state != LEADER or self._transfer is not None:
            raise NotLeaderError(self.leader.id if self.leader is not None and self.state != LEADER else None)
        if self.disk_full:
            raise OverloadedError("the disk is full")
        if self._waiting_count >= self.limits.max_pending:
            raise OverloadedError(f"{self._waiting_count} commands wait for commit already")
        if len(command) > self.limits.max_command_bytes:
            raise CommandTooLargeError(f"command of {len(command)} bytes, {self.limits.max_command_bytes} are allowed")
        self._waiting_count += 1

        def settle(value: object, reason: int) -> None:
            self._waiting_count -= 1
            if reason == FAIL_REASON.SUCCESS:
                result(value, None)
            elif reason == FAIL_REASON.NOT_LEADER:
                result(None, NotLeaderError(self.leader.id if self.leader is not None else None))
            else:
                result(
                    None, ProposalLostError("leadership was lost before the command committed; its outcome is unknown")
                )

        self._applyCommand(REGULAR + command, settle)

    def barrier(self, result: Result) -> None:
        """Tell when everything that was committed anywhere before this call is applied here."""
        self.now = self.clock()
        if self.state != LEADER or self._transfer is not None:
            raise NotLeaderError(self.leader.id if self.leader is not None and self.state != LEADER else None)
        noop = self._SyncObj__noopIDx or 0
        self._barriers.append((self.next_stamp(), max(self.commit_index, noop), result))
        for node in self.peers:
            self.progress[node].sent_at = -1.0e9  # a heartbeat is due now
        self._behind = True

    def transfer(self, target_id: str | None) -> None:
        """Begin to hand leadership to `target_id`, or to the member that holds most.

        Raises:
            NotLeaderError, TransferError: nothing was begun.
        """
        self.now = self.clock()
        if self.state != LEADER:
            raise NotLeaderError(self.leader.id if self.leader is not None else None)
        if self._transfer is not None:
            raise TransferError(f"leadership is being handed to {self._transfer.target} already")
        candidates = [node for node in self.peers if node in self.connected and target_id in (None, node.id)]
        if not candidates:
            raise TransferError(
                f"{target_id or 'no other member'} is not connected" if target_id else "no other member is connected"
            )
        target = max(candidates, key=lambda node: (self.match_index[node], node.id))
        self._transfer = Transfer(target, self.now + self.timings.election_max)
        self._behind = True

    @property
    def transferring(self) -> bool:
        return self._transfer is not None

    # -- input

    def _on_message(self, node: Node, message: object) -> None:
        self.now = self.clock()
        match message:
            case messages.Append():
                self.on_append(node, message)
            case messages.Ack():
                self.on_ack(node, message)
            case messages.PreVote():
                self.on_pre_vote(node, message)
            case messages.PreVoteReply():
                self.on_pre_vote_reply(node, message)
            case messages.Vote():
                self.on_vote(node, message)
            case messages.VoteReply():
                self.on_vote_reply(node, message)
            case messages.SnapshotChunk():
                self.on_snapshot_chunk(node, message)
            case messages.SnapshotAck():
                self.on_snapshot_ack(node, message)
            case messages.TimeoutNow():
                self.on_timeout_now(node, message)
            case _:
                raise WireError(f"{node} sent {type(message).__name__}")

    _SyncObj__onMessageReceived = _on_message

    def receive(self, sender: str, message: messages.AnyMessage) -> None:
        """A message of another member; the tick that has to follow may cover several.

        Raises:
            WireError: the sender breaks the protocol; drop its connection.
            FatalRaftError, OSError: this member must stop.
        """
        self._on_message(self._node(sender), message)

    def connection_gone(self, peer: str) -> None:
        """The other side closed its connection (call after the transport's disconnect callback)."""
        self.now = self.clock()
        self.peer_gone(self._node(peer))

    def _node(self, member: str) -> Node:
        for node in self.peers:
            if node.id == member:
                return node
        raise WireError(f"{member} is not a member")

    # -- the tick

    def _onTick(self, timeToWait: float = 0.0) -> None:  # noqa: ARG002, N802, N803 - PySyncObj's name
        self.now = self.clock()
        self._behind = False
        self.tick_election()
        self._checkCommandsToApply()
        self._SyncObj__sendAppendEntries()
        if self.log.durable_index < self.last_index:
            self._sync_log()
        self.send_due_acks()
        self.advance_commit()
        self._SyncObj__applyLogEntries()
        self._settle_barriers()
        self._drive_transfer()
        self._SyncObj__tryLogCompaction()
        if self.now >= self._one_second_timer:
            self._one_second_timer = self.now + 1.0
            self.log.onOneSecondTimer()

    def _sync_log(self) -> None:
        """One group commit. A full disk is waited out: entries stay in memory, and neither acknowledge nor count."""
        try:
            self.log.sync()
        except DiskFullError as error:
            if not self.disk_full:
                log.error(
                    "disk full: this member neither leads nor acknowledges until there is space", reason=str(error)
                )
            self.disk_full = True
            if self.state == LEADER and self.peers:
                self.become_follower(self.term)
        else:
            self.disk_full = False

    def _append_commands(self) -> None:
        """Move proposed commands into the log, where we lead; PySyncObj would forward them to the leader."""
        queue = self._SyncObj__commandsQueue
        index, term = self.last_index, self.term
        leads = self.state == LEADER
        add, waiting = self.log.add, self._SyncObj__commandsWaitingCommit
        while True:
            try:
                command, callback = queue.get_nowait()
            except Empty:
                break
            if not leads:
                if callback is not None:
                    callback(None, FAIL_REASON.NOT_LEADER)
                continue
            index += 1
            add(command, index, term)
            if callback is not None:
                waiting[index].append((term, callback))

    _checkCommandsToApply = _append_commands  # noqa: N815 - PySyncObj's name

    def _apply_committed(self) -> bool:
        """Apply what is committed, up to a turn's share, and answer. PySyncObj would retry for ever when applying
        raises."""
        count = min(self.commit_index - self.last_applied, self.limits.apply_batch)
        if count > 0:
            waiting = self._SyncObj__commandsWaitingCommit
            for command, index, term in self._SyncObj__getEntries(self.last_applied + 1, count):
                value = self._SyncObj__doApplyCommand(command)
                self.last_applied = index
                for proposed_in, callback in waiting.pop(index, ()):
                    callback(value, FAIL_REASON.SUCCESS if proposed_in == term else FAIL_REASON.DISCARDED)
            self._behind = self.commit_index > self.last_applied
        return False

    _SyncObj__applyLogEntries = _apply_committed

    def _apply_one(self, command: bytes) -> object:
        kind = command[:1]
        if kind == NO_OP:
            return None
        index = self.last_applied + 1
        if kind != REGULAR:
            raise ApplyError(f"entry {index} is of kind {kind.hex()}, which this version does not know")
        try:
            return self._state_machine.apply(index, command[1:])
        except Exception as error:
            raise ApplyError(f"the state machine cannot apply entry {index}: {error!r}") from error

    _SyncObj__doApplyCommand = _apply_one
    _SyncObj__tryLogCompaction = Snapshots.compact_if_due

    def _settle_barriers(self) -> None:
        if not self._barriers:
            return
        confirmed = self.confirmed_at()
        still = []
        for stamp, index, result in self._barriers:
            if confirmed > stamp and self.last_applied >= index:
                result(None, None)
            else:
                still.append((stamp, index, result))
        self._barriers = still

    def _drive_transfer(self) -> None:
        transfer = self._transfer
        if transfer is None:
            return
        if transfer.sent:
            if self.now >= transfer.give_up_at:
                self._transfer, self.muted, self._behind = None, False, True
        elif self.now >= transfer.give_up_at or transfer.target not in self.connected:
            self._transfer = None
        elif self.match_index[transfer.target] == self.last_index == self.last_applied:
            # From here to its end nothing is sent to anybody, so that no other follower is bound to us anew.
            self.send(transfer.target, messages.TimeoutNow(self.term, self.give_up_lease()))
            self.muted = transfer.sent = True
            transfer.give_up_at = self.now + 0.75 * self.timings.election_min

    def abandon(self) -> None:
        """The member stops: whoever waits for a commit is told that its outcome is unknown."""
        self._on_leadership_lost()
        while True:
            try:
                _, callback = self._SyncObj__commandsQueue.get_nowait()
            except Empty:
                break
            if callback is not None:
                callback(None, FAIL_REASON.NOT_LEADER)

    def _on_leadership_lost(self) -> None:
        self._transfer, self.muted = None, False
        waiting = self._SyncObj__commandsWaitingCommit
        for index in sorted(waiting):
            for _, callback in waiting[index]:
                callback(None, FAIL_REASON.LEADER_CHANGED)
        waiting.clear()
        barriers, self._barriers = self._barriers, []
        for _, _, result in barriers:
            result(None, NotLeaderError(None))

    _SyncObj__onLeaderChanged = _on_leadership_lost

    def transferLeadership(self, node: Node | None = None, callback: object = None) -> None:  # noqa: N802 - PySyncObj's name
        raise NotImplementedError("use transfer()")

    # -- for people

    def status(self) -> RaftStatus:
        """A picture of the member; reads only."""
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
            pending=self._waiting_count,
            members=tuple(
                MemberStatus(
                    id=node.id,
                    connected=node in self.connected,
                    match_index=self.match_index.get(node, 0) if leads else None,
                    next_index=self.next_index.get(node, 0) if leads else None,
                )
                for node in self.peers
            ),
        )
