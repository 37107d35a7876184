"""What other members have reported and must not forget, and what is known to be committed.

A member whose whole disk was set back does not know it. The others do: they remember its newest term, what it
acknowledged to them and its vote, and they keep that on their own disks, because it must not depend on who restarts. It
is written before an entry is committed, and synced with the votes that make a leader: so it outlives the process of
this member, and all except the last second of it outlives the machine.

The member that remembers may be away. So no log is elected that ends before an index that is known to be committed.
That needs no name: a follower that is behind its leader knows it too, and any member learns it in introductions. Where
no disk was set back it changes nothing, since a majority holds all that is committed.
"""

from collections import defaultdict

import msgspec
import structlog
from pysyncobj.node import Node

from rocketmq_controller.raft.consensus.members import Members
from rocketmq_controller.raft.network import messages

log = structlog.get_logger(__name__)


class Known(msgspec.Struct, array_like=True):
    """Of one member."""

    term: int = 0
    acked: tuple[int, int] = (0, 0)
    """(term, index): the last entry it had on its disk as a follower of ours in that term."""
    voted_in: int = 0
    """Last term in which it voted for us."""


class Kept(msgspec.Struct, array_like=True):
    """As it is on disk."""

    lineage: bytes | None
    """Of the quorum: an operator may have begun another one since."""
    commit: int
    members: dict[str, Known]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Kept)


class Reports(Members):
    """See the module's docstring."""

    def start_reports(self) -> None:
        self._known: defaultdict[Node, Known] = defaultdict(Known)
        """Of former members as well: one that comes back must still hold what it reported."""
        self._distrusted: set[Node] = set()
        self.known_commit = 0
        """Committed, though our log may end before it."""
        self._reports_changed = False
        self._recall()

    def _recall(self) -> None:
        try:
            kept = _decoder.decode(self.log.reports) if self.log.reports else None
        except ValueError as error:  # of another release: as if the file had been lost
            log.warning("what other members have reported cannot be read", member=self.self_id, reason=str(error))
            return
        if kept is not None and kept.lineage == self.log.standing.lineage:
            self.known_commit = kept.commit
            if self.log.standing.voter:  # else it may be from before another store waited
                self._known.update((Node(member), known) for member, known in kept.members.items())

    def forget_reports(self) -> None:
        """Our own store was set back: the others may have waited since it was written."""
        self._known.clear()
        self._reports_changed = True

    def keep_reports(self, *, durable: bool = False) -> None:
        """To disk, if there is news. Before anything that rests on it: a commit, or leading a term."""
        if self._reports_changed:
            members = {node.id: known for node, known in self._known.items() if node.id in self.configuration.ids}
            kept = Kept(self.log.standing.lineage, self.known_commit, members)
            self._reports_changed = not self.log.keep_reports(_encoder.encode(kept), durable=durable)

    def remember_term(self, node: Node, term: int) -> None:
        known = self._known[node]
        if term > known.term:
            known.term, self._reports_changed = term, True

    def remember_ack(self, node: Node, term: int, index: int) -> None:
        """Not of a store that was set back: it first has to hold what it acknowledged before."""
        known = self._known[node]
        if (term, index) > known.acked and self.is_trusted(node):
            known.acked, self._reports_changed = (term, index), True
        self.remember_term(node, term)

    def remember_vote(self, node: Node, term: int) -> None:
        known = self._known[node]
        if term > known.voted_in:
            known.voted_in, self._reports_changed = term, True
        self.remember_term(node, term)

    def remember_commit(self, index: int) -> None:
        """Our own log need not be remembered: it is there."""
        if index > max(self.known_commit, self.last_index):
            self.known_commit, self._reports_changed = index, True

    def forgets(self, node: Node, term: int) -> None:
        """It reports that its store does not count: nothing that it had is held against it."""
        self._known[node] = Known(term)
        self._reports_changed = True
        self._distrusted.discard(node)

    def has_forgotten(self, node: Node, said: messages.Introduction) -> bool:
        """Whether its store lacks what it reported. It is distrusted then, until it waits, or holds all of that on
        another connection."""
        if not self._remembers_more(node, said):
            self._distrusted.discard(node)
            return False
        self._distrusted.add(node)
        log.error(
            "raft peer's store was set back: it has forgotten what it reported before, and has to be caught up",
            peer=node.id,
            said=msgspec.structs.asdict(said),
            known=msgspec.structs.asdict(self._known[node]),
        )
        return True

    def _remembers_more(self, node: Node, said: messages.Introduction) -> bool:
        known = self._known[node]
        return (
            said.term < known.term
            or said.durable < self._must_hold(known, said.term)
            or (said.term == known.voted_in > 0 and said.voted_for != self.self_id)
        )

    def _must_hold(self, known: Known, term: int) -> int:
        """Index up to which the log of a member in `term` cannot have been cut since it acknowledged: in a later term
        than that, up to what is committed of the same entries. It may have heard of that term after it was set back."""
        acked_in, acked = known.acked
        if term == acked_in:
            return acked
        committed = min(acked, self.commit_index)
        written_in = self.term_at(committed)
        return committed if written_in is not None and written_in <= acked_in else 0

    def is_trusted(self, node: Node) -> bool:
        """Its votes and acknowledgements may count, if it declares that itself."""
        return node not in self._distrusted

    def holds_commit(self, last_index: int) -> bool:
        """Whether a log that ends there can have all that is known to be committed."""
        return last_index >= self.known_commit

    def peer_left(self, node: Node) -> None:
        super().peer_left(node)
        self._distrusted.discard(node)
