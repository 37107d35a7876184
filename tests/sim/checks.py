"""What must hold at every step of a simulated quorum, by name; `Violation` says which broke and how.

The checker sees every member's machine after each event that touched it, every applied command, every message sent, and
every answer a client got.
"""

from typing import Protocol

from rocketmq_controller.raft import Configuration, Role
from rocketmq_controller.raft.consensus.machine import RaftMachine
from rocketmq_controller.raft.consensus.pysyncobj_adapter import MEMBERS
from rocketmq_controller.raft.network import messages


class Violation(AssertionError):  # noqa: N818 - reads better in a report
    """An invariant does not hold. The text begins with its name and a colon."""

    @property
    def invariant(self) -> str:
        return str(self).partition(":")[0]


class Led(Protocol):
    """What the checker needs to know of a simulated member."""

    name: str
    machine: RaftMachine | None
    paused: bool
    grace_in: int | None


class Checker:
    """Holds what is true for the whole quorum, across all crashes."""

    def __init__(self, first: Configuration) -> None:
        self.first = first
        """The members at the beginning."""
        self.members = first
        """The newest committed configuration."""
        self._proposed: list[Configuration] = []
        self._held_by: dict[str, Configuration] = {}
        self._granted: dict[tuple[int, str], set[str]] = {}
        """Who voted for a candidate in a term, ever."""
        self._acked: dict[tuple[str, int], int] = {}
        """Highest index that a member said it has, as one that counts, in a term."""
        self._stored: dict[tuple[str, int], int] = {}
        """The same, whether it counted when it said so; it counts for the leader as soon as the member says that it
        does, also if that is in the rejection of an old message."""
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.committed_in: dict[int, int] = {}
        """Term in which an index was first seen committed; the leaders of later terms must hold it."""
        self.last_committed = 1
        self.digests: dict[int, bytes] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.altered: dict[str, int] = {}
        """Whose disk has other bytes, and at which index. That member must find out before it commits them."""
        self.acked_index = 0
        """Highest index of a command that was acknowledged to a client."""
        self.entries: dict[tuple[int, int], tuple[int | None, bytes]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._commit_seen: dict[str, int] = {}

    def forget(self, name: str) -> None:
        """The member's process has ended."""
        self._seen.pop(name, None)
        self._held_by.pop(name, None)
        self._commit_seen.pop(name, None)

    def forget_votes(self, name: str) -> None:
        """The member's disk is gone. That it may vote twice in a term then must not matter: see ElectionSafety."""
        self.votes = {key: candidate for key, candidate in self.votes.items() if key[0] != name}
        self._stored = {key: index for key, index in self._stored.items() if key[0] != name}

    def member(self, name: str, machine: RaftMachine) -> None:
        """Check one member after something happened to it."""
        if machine.log.standing.voter and machine.log.standing.lineage is None:
            raise Violation(f"NewStoresWait: {name} counts and belongs to no quorum")
        self._log_matching(name, machine)
        self._one_change(name, machine)
        self._commit_quorum(name, machine)
        self._committed_once(name, machine)
        if machine.role is Role.LEADER:
            self._election_safety(name, machine)

    def possible(self) -> list[Configuration]:
        """All that may count at some member: the committed one, and those proposed since."""
        return [self.members, *(held for held in self._proposed if held.index > self.members.index)]

    def _one_change(self, name: str, machine: RaftMachine) -> None:
        """Configurations are those of the log; each differs from the one before by one member, and that one and
        something of the leader's own was committed first."""
        committed = machine.configurations.at(machine.commit_index)
        if committed.index > self.members.index:
            self.members = committed
        latest = machine.configuration
        if not latest.index and machine.is_sound() and latest.ids != self.first.ids:
            raise Violation(
                f"OneFirstConfiguration: {name} counts by {sorted(latest.ids)}, the quorum began with "
                f"{sorted(self.first.ids)}"
            )
        if latest is self._held_by.get(name):
            return
        self._held_by[name] = latest
        if latest.index and latest not in self._proposed:
            self._proposed.append(latest)
        held = list(machine.configurations.since(0))
        entries = [index for command, index, _ in machine.log[:] if command[:1] == MEMBERS and index > held[0].index]
        if entries != [one.index for one in held[1:]]:
            raise Violation(f"ConfigurationIsTheLogs: {name} counts by {held}, its log has entries {entries}")
        if machine.role is not Role.LEADER or machine.term_at(latest.index) != machine.term:
            return
        before = held[-2] if len(held) > 1 else None
        noop = machine.noop_index
        if before is not None and len(before.voters ^ latest.voters) > 1:
            raise Violation(f"AdjacentQuorums: {name} goes from {before} to {latest} in one step")
        if before is not None and before.index > max(self.last_committed, machine.commit_index):
            raise Violation(f"OneChangeAtATime: {name} proposes {latest}, {before} is not committed")
        if max(self.last_committed, machine.commit_index) < noop or noop > latest.index:
            raise Violation(f"CommittedFirst: {name} proposes {latest} before anything of its term is committed")

    def _commit_quorum(self, name: str, machine: RaftMachine) -> None:
        """What a leader commits is on the disks of a majority of the voters, by what they said themselves."""
        commit = machine.commit_index
        if machine.role is not Role.LEADER or commit <= self._commit_seen.get(name, 1) or machine.log.standing.sole:
            return
        if machine.term_at(commit) != machine.term:
            return
        have = {who for (who, term), index in self._acked.items() if term == machine.term and index >= commit}
        if machine.log.durable_index >= commit:
            have.add(name)
        if not any(2 * len(have & held.voters) > len(held.voters) for held in machine.configurations.since(commit)):
            raise Violation(
                f"CommitQuorum: {name} commits {commit} in term {machine.term}, {sorted(have)} have it; "
                f"{machine.configuration}"
            )

    def _election_quorum(self, name: str, machine: RaftMachine) -> None:
        voters = machine.configurations.latest.voters
        granted = self._granted.get((machine.term, name), set()) | {name}
        if 2 * len(granted & voters) <= len(voters) and not machine.log.standing.sole:
            raise Violation(f"ElectionQuorum: {name} leads term {machine.term} by votes of {granted}, voters: {voters}")

    def _election_safety(self, name: str, machine: RaftMachine) -> None:
        leader = self.leaders.get(machine.term)
        if leader == name:
            return
        if leader is not None:
            raise Violation(f"ElectionSafety: {name} and {leader} both lead term {machine.term}")
        self.leaders[machine.term] = name
        self._election_quorum(name, machine)
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
            if index == self.altered.get(name):
                continue
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
        if isinstance(message, messages.Ack):
            key = (sender, message.term)
            if message.success:
                self._stored[key] = max(self._stored.get(key, 0), message.next_index - 1)
            if message.counts:
                self._acked[key] = max(self._acked.get(key, 0), self._stored.get(key, 0))
        if isinstance(message, messages.VoteReply) and message.granted:
            self._vote(sender, message.term, receiver)
        elif isinstance(message, messages.Vote):
            self._vote(sender, message.term, sender)

    def _vote(self, voter: str, term: int, candidate: str) -> None:
        self._granted.setdefault((term, candidate), set()).add(voter)
        known = self.votes.setdefault((voter, term), candidate)
        if known != candidate:
            raise Violation(f"OneVote: {voter} voted for {known} and {candidate} in term {term}")

    def leases(self, members: list[Led]) -> None:
        """At most one member may answer for the quorum, and it has to know every answer given before."""
        leading = [m.name for m in members if m.machine is not None and m.machine.is_leader]
        if len(leading) > 1:
            raise Violation(f"LeaseSafety: {' and '.join(leading)} both hold the lease")
        for member in members:
            if member.name not in leading or member.machine is None:
                continue
            if member.grace_in != member.machine.term:
                raise Violation(
                    f"GraceFirst: {member.name} decides in term {member.machine.term}, it began its grace period in "
                    f"{member.grace_in}"
                )
            if member.machine.last_applied < self.acked_index:
                raise Violation(
                    f"LinearizableReads: {member.name} leads and has applied {member.machine.last_applied}, "
                    f"a client was answered for {self.acked_index}"
                )
