"""Commands and barriers: from a proposal through the log to its result or error.

A layer of `RaftMachine`. What a leader proposes waits under its index; what is committed is applied in order and
answered; when leadership is lost all waiting callers get the error that the outcome is unknown.
"""

from collections.abc import Callable
from queue import Empty

from pysyncobj import FAIL_REASON

from rocketmq_controller.raft.consensus.pysyncobj_adapter import LEADER, MEMBERS, NO_OP, REGULAR
from rocketmq_controller.raft.consensus.transfer import Transfers
from rocketmq_controller.raft.errors import (
    ApplyError,
    CommandTooLargeError,
    NotLeaderError,
    OverloadedError,
    ProposalLostError,
    RaftError,
)

Result = Callable[[object, RaftError | None], None]
"""Receives what `apply` returned, or why that is not known."""


class Commands(Transfers):
    def start_commands(self) -> None:
        """Begin without waiting commands."""
        self._barriers: list[tuple[float, int, Result]] = []
        self.waiting_count = 0
        """Commands that were proposed and have no answer."""

    def propose(self, command: bytes, result: Result) -> None:
        """Put a command into the next tick's batch.

        Raises:
            NotLeaderError, OverloadedError, CommandTooLargeError: nothing was proposed.
        """
        if self.state != LEADER or self.transferring:
            raise NotLeaderError(self.leader.id if self.leader is not None and self.state != LEADER else None)
        if self.disk_full:
            raise OverloadedError("the disk is full")
        if self.waiting_count >= self.limits.max_pending:
            raise OverloadedError(f"{self.waiting_count} commands wait for commit already")
        if len(command) > self.limits.max_command_bytes:
            raise CommandTooLargeError(f"command of {len(command)} bytes, {self.limits.max_command_bytes} are allowed")
        self.queue_command(REGULAR + command, self.settler(result))

    def settler(self, result: Result) -> Callable[[object, int], None]:
        """PySyncObj's callback of one command that waits from here on."""
        self.waiting_count += 1

        def settle(value: object, reason: int) -> None:
            self.waiting_count -= 1
            if reason == FAIL_REASON.SUCCESS:
                result(value, None)
            elif reason == FAIL_REASON.NOT_LEADER:
                result(None, NotLeaderError(self.leader.id if self.leader is not None else None))
            else:
                result(
                    None, ProposalLostError("leadership was lost before the command committed; its outcome is unknown")
                )

        return settle

    @property
    def is_serving(self) -> bool:
        """Leads and has applied an entry of its own term: its state holds all that was ever committed."""
        noop = self.noop_index
        return self.state == LEADER and noop is not None and self.last_applied >= noop

    def barrier(self, result: Result) -> None:
        """Call `result` when everything that was committed anywhere before this call is applied here."""
        self.now = self.clock()
        if self.state != LEADER or self.transferring:
            raise NotLeaderError(self.leader.id if self.leader is not None and self.state != LEADER else None)
        noop = self.noop_index or 0
        self._barriers.append((self.next_stamp(), max(self.commit_index, noop), result))
        for node in self.peers:
            self.progress[node].sent_at = -1.0e9  # a heartbeat is due now
        self.behind = True

    def append_commands(self) -> None:
        """Move proposed commands into the log, where we lead; PySyncObj would forward them to the leader."""
        queue = self.command_queue
        index, term = self.last_index, self.term
        leads = self.state == LEADER
        add, waiting = self.log.add, self.waiting_for_commit
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

    def apply_committed(self) -> None:
        """Apply what is committed, up to a turn's share, and answer. PySyncObj would retry forever when applying
        raises."""
        count = min(self.commit_index - self.last_applied, self.limits.apply_batch)
        if count > 0:
            waiting = self.waiting_for_commit
            for command, index, term in self.entries_from(self.last_applied + 1, count):
                value = self._apply(command)
                self.last_applied = index
                for proposed_in, callback in waiting.pop(index, ()):
                    callback(value, FAIL_REASON.SUCCESS if proposed_in == term else FAIL_REASON.DISCARDED)
            self.behind = self.commit_index > self.last_applied

    def _apply(self, command: bytes) -> object:
        kind = command[:1]
        if kind in (NO_OP, MEMBERS):
            return None
        index = self.last_applied + 1
        if kind != REGULAR:
            raise ApplyError(f"entry {index} is of kind {kind.hex()}, which this version does not know")
        try:
            return self._state_machine.apply(index, command[1:])
        except Exception as error:
            raise ApplyError(f"the state machine cannot apply entry {index}: {error!r}") from error

    def settle_barriers(self) -> None:
        """Answer those that a quorum has confirmed since they came."""
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

    def abandon(self) -> None:
        """The member stops: all waiting callers get the error that the outcome is unknown."""
        self.on_leadership_lost()
        while True:
            try:
                _, callback = self.command_queue.get_nowait()
            except Empty:
                break
            if callback is not None:
                callback(None, FAIL_REASON.NOT_LEADER)

    def on_leadership_lost(self) -> None:
        self.end_transfer()
        waiting = self.waiting_for_commit
        for index in sorted(waiting):
            for _, callback in waiting[index]:
                callback(None, FAIL_REASON.LEADER_CHANGED)
        waiting.clear()
        barriers, self._barriers = self._barriers, []
        for _, _, result in barriers:
            result(None, NotLeaderError(None))
