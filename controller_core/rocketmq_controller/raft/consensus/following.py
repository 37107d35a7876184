"""How a follower takes the leader's log, in place of PySyncObj's part of append_entries. A layer of `RaftMachine`.

Differences that matter: a follower cuts only where an entry of another term conflicts, and never below what is
committed; it acknowledges what it has synced and what this leader has verified, once per turn; acknowledgements carry
their term.
"""

import msgspec
from pysyncobj.node import Node

from rocketmq_controller.raft import configuration
from rocketmq_controller.raft.chain import Chain
from rocketmq_controller.raft.consensus.elections import Elections
from rocketmq_controller.raft.consensus.pysyncobj_adapter import KINDS, MEMBERS
from rocketmq_controller.raft.errors import DivergedError, InvariantViolationError, WireError
from rocketmq_controller.raft.network import messages


class DueAck(msgspec.Struct):
    """What a follower owes its leader once the journal is synced."""

    stamp: float
    promise: float
    """What was promised when that came."""
    rejected: tuple[int, int] | None = None
    """(prev_index that did not fit, where to continue)"""


class Following(Elections):
    """The follower as far as entries go."""

    chain: Chain
    """Set by the recovery of the log."""

    def start_following(self) -> None:
        self._verified = 0
        self._verified_term = 0
        self._due: dict[Node, DueAck] = {}

    def on_append(self, node: Node, message: messages.Append) -> None:
        if message.term < self.term:
            self.refuse_old_leader(node, message.stamp)
            return
        promise = self.on_leader_message(node, message.term, message.stamp, message.promise)
        self.enter_term_of_leader()
        due = self.owe_ack(node, message.stamp, promise)
        last_verified = self._take_entries(message, due)
        self.remember_commit(message.commit)
        if last_verified is not None:
            self.verified_up_to(last_verified)
            # what our log has behind that may be of an older term, and not the entries that the leader has committed
            self.commit_up_to(min(message.commit, last_verified))

    def enter_term_of_leader(self) -> None:
        """First message of a term's leader: only what is committed is known to equal its log."""
        if self._verified_term != self.term:
            self._verified_term = self.term
            self._verified = self.commit_index

    def verified_up_to(self, index: int) -> None:
        """The log equals the present leader's up to `index`; a leader never changes its log, so this only grows in a
        term."""
        self._verified = max(self._verified, index)

    def refuse_old_leader(self, node: Node, stamp: float) -> None:
        self.send(node, messages.Ack(self.term, success=False, next_index=0, rejected_prev=0, stamp=stamp))

    def owe_ack(self, node: Node, stamp: float, promise: float) -> DueAck:
        due = self._due.get(node)
        if due is None:
            due = self._due[node] = DueAck(stamp, promise)
        elif stamp > due.stamp:
            due.stamp, due.promise = stamp, promise
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
            # What the snapshot covers is committed, so it is equal.
            entries = entries[first - prev :]
            prev = first
        elif self.term_at(prev) != message.prev_term:
            if prev <= self.commit_index:
                raise InvariantViolationError(
                    f"leader {self.leader} of term {self.term} has term {message.prev_term} at committed index {prev}, "
                    f"we have {self.term_at(prev)} (commit {self.commit_index}, applied {self.last_applied})"
                )
            # the leader goes back by a whole term: entry by entry would be a round trip for each
            due.rejected = (prev, self._start_of_term_at(prev))
            return None
        else:
            self.compare_chain(prev, message.chain)
        index = prev
        add = self.log.add
        for position, (term, command) in enumerate(entries):
            index = prev + 1 + position
            if index <= last:
                # the same entry; a message that comes late must not cut off what came after it
                if self.term_at(index) == term:
                    continue
                self._cut_conflict(index, term)
                last = index - 1
            if command[:1] not in KINDS:
                raise WireError(f"entry {index} is of no known kind")
            if command[:1] == MEMBERS:
                self._take_configuration(index, term, command)
            else:
                add(command, index, term)
        return max(end, first)

    def _take_configuration(self, index: int, term: int, command: bytes) -> None:
        try:
            configuration.decode(command[1:], index)
        except configuration.ConfigurationError as error:
            raise WireError(f"entry {index}: {error}") from error
        self.log.add(command, index, term)
        self.append_configuration(index, command)

    def compare_chain(self, index: int, theirs: bytes) -> None:
        """Index and term are equal here and at the leader: then so is every byte up to there."""
        ours = self.chain.at(index, self.log)
        if ours and theirs and ours != theirs:
            raise DivergedError(
                f"the log up to entry {index} has hash {ours.hex()}, that of leader {self.leader} has {theirs.hex()}: "
                "find out which members agree, and start the others with an empty controllerStorePath, one at a time"
            )

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
        self.delete_entries_from(index)
        self.chain.cut(index)
        if self.configurations.cut(index):
            self.reconfigure()

    def send_due_acks(self) -> None:
        """After the journal's sync: acknowledge what is on disk, once per leader heard in this turn."""
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
                    messages.Ack(
                        self.term,
                        success=True,
                        next_index=on_disk + 1,
                        rejected_prev=0,
                        stamp=ack.stamp,
                        counts=self.is_sound(),
                        promise=ack.promise,
                    ),
                )
            if ack.rejected is not None:
                prev, wanted = ack.rejected
                self.send(
                    node,
                    messages.Ack(
                        self.term,
                        success=False,
                        next_index=wanted,
                        rejected_prev=prev,
                        stamp=ack.stamp,
                        counts=self.is_sound(),
                        promise=ack.promise,
                    ),
                )

    def held_index(self) -> int:
        """Up to where our disk is known to equal the log of the present term's leader."""
        return min(self._verified, self.log.durable_index) if self._verified_term == self.term else 0

    def commit_up_to(self, index: int) -> None:
        """Never backwards. The journal refuses a cut below."""
        if index > self.commit_index:
            self.commit_index = index
            self.log.set_commit_index(index)
