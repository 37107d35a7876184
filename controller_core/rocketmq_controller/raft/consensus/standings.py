"""Which stores vote and count (NewStoresWait): how a quorum begins, and how a new or set-back store joins one.

A store that was just made has forgotten whatever its member acknowledged and voted for before, if there was a before.
So it neither votes nor counts, except when all members of the configuration report at the same time that they are new
and have the same members configured: then the one with the least id makes a lineage, 16 random bytes, and gives it to
the others. From there on every store carries the lineage, and members of two lineages do not talk to each other.

A new store in a quorum that exists follows its leader without counting. The leader puts an entry into its log after it
has heard of the new store, and once that entry is committed by the others and on the new store's disk it admits it.
Why that is enough: a majority without the new store has moved past everything that the old store can have acknowledged,
voted for or promised. What was committed with its help is in the leader's log, since the leader needed a majority of
the others; a candidate that holds an old vote of it lacks the entry and needs the vote of a member that has it.

The log that admits a store also has the members, unless its configured members are its leader's: so all stores
that count have the same first configuration, whatever a configuration file says (OneFirstConfiguration).

A store that was set back may have forgotten too. A copy of its files is not the files that it wrote (hard_state.py),
and waits like a new store, whatever it holds. Older blocks of the whole disk are detected by members that remember more
of it: a newer term, an acknowledged index, a vote. They send it a SetBack, and it waits likewise.
"""

import msgspec
import structlog
from pysyncobj.node import Node

from rocketmq_controller.raft import configuration
from rocketmq_controller.raft.configuration import Configuration, majority
from rocketmq_controller.raft.consensus.pysyncobj_adapter import FOLLOWER
from rocketmq_controller.raft.consensus.reports import Reports
from rocketmq_controller.raft.errors import ForeignLineageError, WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.ports import Standing

log = structlog.get_logger(__name__)

LINEAGE_BITS = 128
REMIND_AFTER = 10.0
"""Seconds between two log lines about waiting."""
NOTIFY_AFTER = 1.0
"""Seconds between two messages to a member whose store was set back: one of them may be lost."""


class Standings(Reports):
    """Whether this member's own store and the others' stores count."""

    joins = False
    """The quorum exists: this member never begins one."""

    def start_standings(self, *, joins: bool) -> None:
        """To be called when the log is there."""
        self.joins = joins
        self.start_reports()
        self.introduced: dict[Node, messages.Introduction] = {}
        """The last Introduction of each member that sent a fitting one on its present connection."""
        self._configurations_of: dict[Node, Configuration] = {}
        """The newest that each of these reports."""
        self.readers: set[Node] = set()
        """Those that read configurations in the log: they sent theirs, on this connection or an earlier one."""
        self._foreign: dict[Node, bytes] = {}
        standing = self.log.standing
        self._remind_at = self.now + REMIND_AFTER * standing.voter
        self._notify_at = self.now + NOTIFY_AFTER
        if self.peers:
            return
        if standing.lineage is None:
            if not self.joins:
                self._found()
        elif not standing.voter and self.self_id in self.configuration.voters:
            # A copy, and no other member in its log or its configuration: none could have gone on, none can admit it.
            self._stand(msgspec.structs.replace(standing, voter=True))

    def is_sound(self) -> bool:
        """Whether its store may vote and count. A member grants votes by this alone: a candidate may know of a
        configuration in which it votes before it does, and need it."""
        return self.log.standing.voter

    def is_voter(self) -> bool:
        """Whether this member counts in its quorum: its store may, and it is no learner."""
        return self.is_sound() and self.counts_itself()

    def durable_index(self) -> int:
        """Last entry that is on this member's disk, in the log or in a snapshot."""
        return self.log.durable_index

    # -- introductions

    def introduce(self, *nodes: Node) -> None:
        """Sent first on each connection, and again when it changes."""
        standing = self.log.standing
        known = self.configuration
        if not known.index:
            known = configuration.of_ids(known.ids)
        introduction = messages.Introduction(
            self.term,
            standing.lineage,
            standing.voter,
            self._is_pristine(),
            self.voted_for,
            self.durable_index(),
            known.index,
            configuration.encode(known),
            max(self.commit_index, self.known_commit),
        )
        for node in nodes or self.peers:
            self.send(node, introduction)

    def _is_pristine(self) -> bool:
        """Nothing has ever been voted for or written here."""
        return self.term == 0 and self.voted_for is None and self.last_index == 1

    def forget_introduction(self, node: Node) -> None:
        """The connection ended or is a new one."""
        self.introduced.pop(node, None)
        self._configurations_of.pop(node, None)
        self._foreign.pop(node, None)

    def on_introduction(self, node: Node, message: messages.Introduction) -> None:
        ours = self.log.standing.lineage
        if ours is not None and message.lineage not in (None, ours):
            self._meet_foreigner(node, message)
            return
        if not message.voter:
            self.forgets(node, message.term)
        elif node not in self.introduced and self.has_forgotten(node, message):
            self.send(node, messages.SetBack(self.term))
        self.introduced[node] = message
        self.remember_term(node, message.term)
        if ours is not None and message.lineage == ours:
            self.remember_commit(message.commit)
        self._on_configuration(node, message)

    def _on_configuration(self, node: Node, message: messages.Introduction) -> None:
        if not message.members:  # of a release that has no configurations
            self.readers.discard(node)
            return
        try:
            said = configuration.decode(message.members, message.members_index)
        except configuration.ConfigurationError as error:
            raise WireError(f"introduction of {node}: {error}") from error
        self.readers.add(node)
        self._configurations_of[node] = said
        self.learn_members(said)
        if self.has_other_members(node):
            log.warning(
                "raft peer has other members configured: compare controllerDLegerPeers",
                peer=node.id,
                configured=sorted(said.ids),
                members=sorted(self.configuration.ids),
            )

    def has_other_members(self, node: Node) -> bool:
        """Neither log has a configuration, and that member has other members configured."""
        said = self._configurations_of.get(node, self.configuration)
        return not said.index and not self.configuration.index and said.ids != self.configuration.ids

    def recount(self) -> None:
        """Members that lack the entry learn of it too, if they are connected to us and not to the leader."""
        super().recount()
        self.introduce()

    def peer_left(self, node: Node) -> None:
        super().peer_left(node)
        self.forget_introduction(node)

    def _meet_foreigner(self, node: Node, message: messages.Introduction) -> None:
        self.introduced.pop(node, None)
        assert message.lineage is not None
        if message.voter:  # a store that waits follows a quorum
            self._foreign[node] = message.lineage
        text = (
            f"{node.id} has a store of another quorum: lineage {message.lineage.hex()}, ours is "
            f"{(self.log.standing.lineage or b'').hex()}"
        )
        log.error("raft peer of another quorum", peer=node.id, reason=text)
        same = [other.id for other, lineage in self._foreign.items() if lineage == message.lineage]
        if len(same) >= majority(len(self.configuration.voters)):
            raise ForeignLineageError(
                f"the store belongs to another quorum than those of {', '.join(sorted(same))}: a majority has lineage "
                f"{message.lineage.hex()}; to join them start with an empty controllerStorePath"
            )

    # -- changes of our own standing

    def _stand(self, standing: Standing) -> None:
        self.log.set_standing(standing)
        self.introduce()

    def _found(self) -> None:
        lineage = self.rng.getrandbits(LINEAGE_BITS).to_bytes(LINEAGE_BITS // 8, "big")
        log.info("new quorum", member=self.self_id, lineage=lineage.hex(), members=len(self.configuration.members))
        self._stand(Standing(lineage, voter=True))

    def tick_standing(self) -> None:
        """Begin a quorum where all are new; log the members that are missing, and notify stores that were set back."""
        if self.now >= self._notify_at:
            self._notify_at = self.now + NOTIFY_AFTER
            for node, said in self.introduced.items():
                if said.voter and not self.is_trusted(node):
                    self.send(node, messages.SetBack(self.term))
        standing = self.log.standing
        if standing.voter:
            if standing.lineage is not None and self._is_pristine():
                self._invite(standing.lineage)
            self._report_missing_entries()
            return
        others = self.introduced.values()
        if standing.lineage is None and self._all_agree():
            least = all(self.self_id < node.id for node in self.peers)
            if least and not self.joins and all(other.lineage is None for other in others):
                self._found()
                return
        if self.now >= self._remind_at:
            self._remind_at = self.now + REMIND_AFTER
            log.warning(
                "store is new or was set back: it neither votes nor counts until a leader has caught it up, "
                "or all members are here, new, and have the same members configured",
                member=self.self_id,
                missing=sorted(node.id for node in self.peers if node not in self.introduced),
                other_members=sorted(node.id for node in self.introduced if self.has_other_members(node)),
            )

    def _report_missing_entries(self) -> None:
        """While our log alone prevents an election that would lose entries."""
        if self.leader is not None or self.holds_commit(self.last_index):
            self._remind_at = self.now + REMIND_AFTER
        elif self.now >= self._remind_at:
            self._remind_at = self.now + REMIND_AFTER
            log.warning(
                "no member is elected whose log ends before what is known to be committed: start a member that has it",
                member=self.self_id,
                committed=self.known_commit,
                last_index=self.last_index,
                missing=sorted(node.id for node in self.peers if node not in self.introduced),
            )

    def _all_agree(self) -> bool:
        """All members are here and have the same members configured."""
        return len(self.introduced) == len(self.peers) and not any(map(self.has_other_members, self.introduced))

    def _invite(self, lineage: bytes) -> None:
        """Nothing has begun in this lineage anywhere: the others may join it as voters."""
        others = self.introduced
        if not self._all_agree():
            return
        new = [node for node, other in others.items() if other.lineage is None]
        if new and all(other.lineage is None or (other.voter and other.pristine) for other in others.values()):
            for node in new:
                self.send(node, messages.Found(self.term, lineage))

    def on_found(self, node: Node, message: messages.Found) -> None:
        if self.log.standing.lineage is None and self._is_pristine() and not self.joins:
            log.info("new quorum", member=self.self_id, lineage=message.lineage.hex(), invited_by=node.id)
            self._stand(Standing(message.lineage, voter=True))

    def join_lineage_of(self, node: Node) -> None:
        """A new store that takes entries of a leader belongs to its quorum from there on."""
        if self.log.standing.lineage is None and node in self.introduced:
            lineage = self.introduced[node].lineage
            if lineage is not None:
                self.log.set_standing(Standing(lineage))

    def held_index(self) -> int:
        """Up to where our disk is known to equal the log of the present term's leader."""
        raise NotImplementedError

    def on_admit(self, node: Node, message: messages.Admit) -> None:
        standing, held = self.log.standing, self.held_index()
        if standing.lineage is None or standing.voter:
            return
        if node == self.leader and message.term == self.term and held >= message.index:
            log.info("caught up: this member votes and counts from here on", member=self.self_id, index=held)
            self._stand(Standing(standing.lineage, voter=True))

    def on_set_back(self, node: Node, message: messages.SetBack) -> None:
        del message
        standing = self.log.standing
        if standing.voter:
            log.error(
                "this store was set back to an older copy: it neither votes nor counts until a leader has caught it up",
                member=self.self_id,
                found_by=node.id,
            )
            self.forget_reports()
            if self.state != FOLLOWER:
                self.become_follower(self.term)
            self._stand(Standing(standing.lineage))

    def become_follower(self, term: int) -> None:
        """Defined where elections are."""
        raise NotImplementedError
