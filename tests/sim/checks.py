"""What must hold at every step of a simulated quorum, by name; `Violation` says which broke and how.

The checker sees every member's machine after each event that touched it, every applied command, every message sent, and
every answer a client got.
"""

from typing import Protocol

from rocketmq_controller.raft import Role, messages
from rocketmq_controller.raft.machine import RaftMachine


class Violation(AssertionError):  # noqa: N818 - reads better in a report
    """An invariant does not hold."""


class Led(Protocol):
    """What the checker needs to know of a simulated member."""

    name: str
    machine: RaftMachine | None
    paused: bool


class Checker:
    """Holds what is true for the whole quorum, whoever crashes."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.committed_in: dict[int, int] = {}
        """Term in which an index was first seen committed; the leaders of later terms must hold it."""
        self.last_committed = 1
        self.digests: dict[int, bytes] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.acked_index = 0
        """Highest index of a command that a client was told is done."""
        self.entries: dict[tuple[int, int], tuple[int | None, bytes]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._commit_seen: dict[str, int] = {}

    def forget(self, name: str) -> None:
        """The member's process has ended."""
        self._seen.pop(name, None)
        self._commit_seen.pop(name, None)

    def member(self, name: str, machine: RaftMachine) -> None:
        """Check one member after something happened to it."""
        self._log_matching(name, machine)
        self._committed_once(name, machine)
        if machine.role is Role.LEADER:
            self._election_safety(name, machine)

    def _election_safety(self, name: str, machine: RaftMachine) -> None:
        leader = self.leaders.get(machine.term)
        if leader == name:
            return
        if leader is not None:
            raise Violation(f"ElectionSafety: {name} and {leader} both lead term {machine.term}")
        self.leaders[machine.term] = name
        # Leader completeness: whatever was committed before is in the new leader's log.
        for index in range(machine.first_index + 1, self.last_committed + 1):
            # What one member committed and cut within one step was never seen here.
            committed = self.committed.get(index)
            if committed is None or self.committed_in[index] >= machine.term:
                continue
            if machine.term_at(index) != committed[0]:
                raise Violation(
                    f"LeaderCompleteness: {name} leads term {machine.term} with term {machine.term_at(index)} at "
                    f"index {index}, committed there: {committed}"
                )

    def _log_matching(self, name: str, machine: RaftMachine) -> None:
        seen_index, seen_term = self._seen.get(name, (0, 0))
        start = seen_index + 1 if machine.term_at(seen_index) == seen_term else machine.first_index + 1
        start = max(start, machine.first_index + 1)
        log, base = machine.log, machine.first_index
        for index in range(start, machine.last_index + 1):
            command, _, term = log[index - base]
            before = log[index - base - 1][2]
            known = self.entries.setdefault((index, term), (before, command))
            if known != (before, command):
                raise Violation(
                    f"LogMatching: entry {index} of term {term} at {name}: {(before, command)}, elsewhere {known}"
                )
        self._seen[name] = (machine.last_index, machine.last_term)

    def _committed_once(self, name: str, machine: RaftMachine) -> None:
        commit = machine.commit_index
        start = self._commit_seen.get(name, 1)
        if commit < start:
            raise Violation(f"CommitMonotonic: {name} went from {start} back to {commit}")
        if machine.last_applied > commit:
            raise Violation(f"AppliedIsCommitted: {name} applied {machine.last_applied}, committed {commit}")
        if commit > machine.last_index:
            raise Violation(f"CommitHeld: {name} committed {commit}, its log ends at {machine.last_index}")
        log, base = machine.log, machine.first_index
        for index in range(max(start, base) + 1, commit + 1):
            command, _, term = log[index - base]
            known = self.committed.setdefault(index, (term, command))
            self.committed_in.setdefault(index, machine.term)
            if known != (term, command):
                raise Violation(
                    f"StateMachineSafety: {name} committed {(term, command)} at index {index}, elsewhere {known}"
                )
        self._commit_seen[name] = commit
        self.last_committed = max(self.last_committed, commit)

    def applied(self, name: str, index: int, digest: bytes) -> None:
        """A member's running digest after applying `index`."""
        known = self.digests.setdefault(index, digest)
        if known != digest:
            raise Violation(f"ReplayEqual: {name} has another state than others after index {index}")

    def sent(self, sender: str, receiver: str, message: messages.AnyMessage) -> None:
        """A message leaves a member."""
        if isinstance(message, messages.VoteReply) and message.granted:
            self._vote(sender, message.term, receiver)
        elif isinstance(message, messages.Vote):
            self._vote(sender, message.term, sender)

    def _vote(self, voter: str, term: int, candidate: str) -> None:
        known = self.votes.setdefault((voter, term), candidate)
        if known != candidate:
            raise Violation(f"OneVote: {voter} voted for {known} and {candidate} in term {term}")

    def leases(self, members: list[Led]) -> None:
        """At most one member may answer for the quorum, and it has to know every answer given before."""
        leading = [m.name for m in members if m.machine is not None and m.machine.is_leader]
        if len(leading) > 1:
            raise Violation(f"LeaseSafety: {' and '.join(leading)} both hold the lease")
        for member in members:
            if member.name in leading and member.machine is not None and member.machine.last_applied < self.acked_index:
                raise Violation(
                    f"LinearizableReads: {member.name} leads and has applied {member.machine.last_applied}, "
                    f"a client was answered for {self.acked_index}"
                )
