"""The members as this machine has them: by the newest configuration in its log, and those it connects to.

Votes and acknowledgements are counted by the newest configuration, from the moment its entry is in the log. A member
that an entry takes out stays connected until the entry is committed: if it leads it has to replicate that entry first,
and if the entry is cut it stays a member. A member without a leader also listens to those that its configuration file
names, and to those that others report: while it was away all members that it had may have been replaced.
"""

import structlog
from pysyncobj.node import Node

from rocketmq_controller.raft import configuration as membership
from rocketmq_controller.raft.configuration import Configuration, Configurations, majority
from rocketmq_controller.raft.consensus.pysyncobj_adapter import LEADER, MEMBERS, RaftCore
from rocketmq_controller.raft.ports import Snapshot

log = structlog.get_logger(__name__)


class Members(RaftCore):
    """See the module's docstring. `start_members` comes first, with the log."""

    def start_members(self, initial: Configuration, hints: frozenset[str], snapshot: Snapshot | None) -> None:
        """Read the configurations of the log. `initial`: where no entry has others. `hints`: who is a member by the
        configuration file.

        Raises:
            ConfigurationError: an entry of the log that this release cannot read.
        """
        base = snapshot.members if snapshot is not None and snapshot.members is not None else initial
        self.configurations = Configurations(initial, base)
        for command, index, _ in self.log[:]:
            if command[:1] == MEMBERS and index > base.index:
                self.configurations.append(membership.decode(command[1:], index))
        self._hints = hints
        self._reported = Configuration(())
        self._settled: object = None
        """What `settle_members` has seen last; None: it has to look again."""
        self._removal_logged = False
        self._was_member = False
        """In a configuration of the log. A member that is added is in none until it has the entry that adds it."""
        self._set_peers()

    @property
    def configuration(self) -> Configuration:
        """The newest in the log, committed or not."""
        return self.configurations.latest

    @property
    def is_changing(self) -> bool:
        """A configuration is in the log and not committed."""
        return self.configuration.index > self.commit_index

    def counts_itself(self) -> bool:
        """Whether its own vote and disk count for a majority."""
        return self.self_id in self.configuration.voters or self.log.standing.sole

    def may_be_elected(self) -> bool:
        """Whether it may be elected: it is a voter, or was one before a change that is not committed. The latter may be
        needed: where no other member has the entry that takes it out, only its log may be long enough."""
        counts = any(self.self_id in held.voters for held in self.configurations.since(self.commit_index))
        return counts or self.log.standing.sole

    def majority(self) -> int:
        """How many voters decide: this member alone, if an operator ordered it."""
        return 1 if self.log.standing.sole else majority(len(self.configuration.voters))

    @property
    def voters(self) -> frozenset[Node]:
        """The others whose votes and acknowledgements may count."""
        return self._voters

    def address_of(self, member: str) -> tuple[str, int] | None:
        """Its Raft address, if the log has one."""
        for held in reversed(list(self.configurations.since(self.commit_index))):
            if (found := held.addresses().get(member)) is not None:
                return found
        return self._reported.addresses().get(member)

    def learn_members(self, said: Configuration) -> None:
        """Another member's newest configuration: used to find a leader, if it is newer than ours."""
        if said.index > max(self.configuration.index, self._reported.index):
            self._reported = said
            self._settled = None

    def leaves(self, node: Node) -> bool:
        """It is no longer a member, though it is still connected to."""
        return node.id not in self.configuration.ids

    def append_configuration(self, index: int, command: bytes) -> None:
        """The entry `command` of kind MEMBERS was appended.

        Raises:
            ConfigurationError: it is not a configuration, and does not count.
        """
        self.configurations.append(membership.decode(command[1:], index))
        self.reconfigure()

    def reconfigure(self) -> None:
        """Another configuration counts."""
        log.info(
            "raft members",
            member=self.self_id,
            index=self.configuration.index,
            voters=sorted(self.configuration.voters),
            learners=sorted(self.configuration.learners),
            committed=not self.is_changing,
        )
        self._follow()
        self.recount()

    def _follow(self) -> None:
        before = set(self.peers)
        self._set_peers()
        now = set(self.peers)
        for node in sorted(now - before, key=str):
            self.peer_joined(node)
        for node in sorted(before - now, key=str):
            self.peer_left(node)

    def settle_members(self) -> None:
        """Once a tick: drop members that a committed configuration took out, and without a leader connect to others."""
        now = (self.configuration, self.is_changing, self.leader, self.state)
        if now != self._settled:
            self._settled = now
            if self._wanted() != {node.id for node in self.peers}:
                self._follow()
        if self.self_id in self.configuration.ids or self.is_changing:
            self._removal_logged = False
            self._was_member |= self.configuration.index > 0 and self.self_id in self.configuration.ids
        elif not self._removal_logged and (self._was_member or self.log.standing.voter):
            self._removal_logged = True
            self.log.sync_mark()  # the commit index: after a restart no other member reports it
            log.error(
                "this member was removed from the quorum: stop it and delete its store",
                member=self.self_id,
                members=sorted(self.configuration.ids),
            )

    def _wanted(self) -> set[str]:
        held = self.configurations.since(self.commit_index)
        wanted = set().union(*(configuration.ids for configuration in held))
        leader = self.leader
        if leader is not None and leader in self.peers:
            wanted.add(leader.id)  # one that takes itself out hands over first
        elif leader is None and self.state != LEADER:
            wanted |= self._hints | self._reported.ids
        return wanted - {self.self_id}

    def _set_peers(self) -> None:
        known = {node.id: node for node in self.peers}
        self.set_peers(tuple(known.get(member) or Node(member) for member in sorted(self._wanted())))
        self._voters = frozenset(node for node in self.peers if node.id in self.configuration.voters)

    def peer_joined(self, node: Node) -> None:
        """A peer is new: layers above this one keep something of each."""

    def peer_left(self, node: Node) -> None:
        """A peer is gone: they forget what they kept of it."""

    def recount(self) -> None:
        """Layers above this one count their majorities again, by the new configuration."""
