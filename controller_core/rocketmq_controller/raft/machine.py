"""One Raft member as a deterministic machine: messages, commands and the clock go in; messages, journal writes and
results come out.

No sockets, threads, timers or randomness of its own: `Replica` drives it in the event loop, the simulation in virtual
time. The driver calls `receive` for every message and `doTick` once after all that arrived together (and at
`next_deadline` at the latest). One tick sends new entries, syncs the journal once, and only then acknowledges, commits,
applies and answers. Below it, a layer a file: `commands`, `transfer`, `snapshots`, `replication`, `elections`, `seam`.
"""

import random
from collections.abc import Iterable

import structlog
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from rocketmq_controller.raft import messages
from rocketmq_controller.raft.commands import Commands
from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.seam import CANDIDATE, LEADER, Clock
from rocketmq_controller.raft.settings import Limits, Timings
from rocketmq_controller.raft.snapshots import Snapshots
from rocketmq_controller.raft.status import MemberStatus, RaftStatus, Role
from rocketmq_controller.raft.stores import LogStore, SnapshotStore, StateMachine
from rocketmq_runtime.filesystem import DiskFullError

log = structlog.get_logger(__name__)


class RaftMachine(Commands):
    """See the module's docstring. After a FatalRaftError or OSError out of any method the machine must not be used
    again."""

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
        self.start_commands()
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
        if self.behind:
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
        self.behind = False
        self.tick_election()
        self._checkCommandsToApply()
        self._SyncObj__sendAppendEntries()
        if self.log.durable_index < self.last_index:
            self._sync_log()
        self.send_due_acks()
        self.advance_commit()
        self._SyncObj__applyLogEntries()
        self.settle_barriers()
        self.drive_transfer()
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

    _SyncObj__tryLogCompaction = Snapshots.compact_if_due

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
            pending=self.waiting_count,
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
