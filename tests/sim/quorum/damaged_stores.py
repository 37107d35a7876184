"""Stores of members that are emptied, set back or changed behind their backs, and until when that may stay unseen.

A quorum is promised to survive what happens to less than a majority of its stores. So `may_lose` is asked first, and
a changed store that no leader can find any more is emptied, as an operator does it.
"""

from typing import TYPE_CHECKING, Any

import msgspec
from pysyncobj.node import Node

from rocketmq_controller.raft import Role
from rocketmq_controller.raft.consensus.machine import RaftMachine
from rocketmq_controller.raft.consensus.reports import Kept, Known
from tests.sim.checks import Violation
from tests.sim.disk import SimDisk
from tests.sim.quorum.member import Member

if TYPE_CHECKING:
    from tests.sim.quorum.world import World

FOUND_WITHIN = 3.0
"""Seconds within which a leader finds a changed store. After that, an operator empties it."""


class Suspect(msgspec.Struct, frozen=True):
    """A member whose store was changed behind its back. Only the member that led and knows what it had can find that,
    so it reaches no other one until then. Of an older copy it knows it also when its process has restarted or follows,
    except what it had not kept yet, on which no commit rests; of other bytes as long as it leads. If it can no longer,
    nothing else can tell, and an operator empties the store."""

    leader: str
    term: int
    until: float
    altered: int = 0
    """Index of an entry with other bytes; 0: the store is an older copy."""
    process: RaftMachine | None = None
    """The leader's, the last one that was seen."""
    known: int = 0
    """Index of the last committed entry that the member acknowledged before, for all that this process knows."""


class DamagedStores:
    """The members of a `World` whose stores are not what they were."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.suspects: dict[str, Suspect] = {}

    def may_lose(self, member: Member) -> bool:
        """Whether the quorum outlives it if the member's disk is emptied: a majority still knows everything."""
        for held in self._world.checker.possible():
            waiting = {m.name for m in self._world.members.values() if self.lacks(m)} | {member.name}
            if member.name in held.voters and len(waiting & held.voters) > (len(held.voters) - 1) // 2:
                return False
        return self._world.begun

    def lacks(self, member: Member) -> bool:
        """The member's store does not vote and count, or must not."""
        return member.waits or member.name in self.suspects

    def keeps_from(self, name: str, peer: str) -> bool:
        """Whether a member may not reach another one, which would not find that the store is changed."""
        suspect = self.suspects.get(name)
        return suspect is not None and peer != suspect.leader

    def wipe(self, member: Member, copy: SimDisk | None = None) -> None:
        """The process is killed and comes back on an empty disk, or with an older copy of its files."""
        if self.may_lose(member):
            self.replace_disk(member, copy)

    def replace_disk(self, member: Member, copy: SimDisk | None = None) -> None:
        """`wipe`, whatever the quorum loses by it."""
        world = self._world
        world.crash(member, power=False)
        world.log("%s has a new disk, %s", member.name, "with an older copy of its files" if copy else "empty")
        self._cleared(member)
        self.forgotten(member.name)
        member.new_disk(copy)
        world.inform(member)
        # Who is no member any more must not begin a quorum of its own, whatever the file says.
        member.joins = not any(member.name in held.ids for held in world.checker.possible())
        world.checker.forget_votes(member.name)

    def set_back(self, member: Member, leader: Member, copy: SimDisk) -> None:
        """The process is killed and comes back on an older copy of its disk, though the leader knows that it had more
        (`known_of`)."""
        self._world.crash(member, power=False)
        self._world.log("%s is set back", member.name)
        member.set_back(copy)
        self.forgotten(member.name)
        self._world.checker.forget_votes(member.name)
        assert leader.machine is not None
        self._suspect(member, leader, process=leader.machine, known=known_of(leader.machine, member.name))

    def alter(self, member: Member, leader: Member) -> None:
        """The process is killed and comes back with other bytes in the last entry of its log. A leader that lacks the
        entry could not find that, so then the disk is emptied at once."""
        self._world.crash(member, power=False)
        entry = member.alter()
        if entry is None:
            return
        index, term = entry
        self._world.log("%s: entry %d of term %d has other bytes", member.name, index, term)
        self._world.checker.altered[member.name] = index
        self._suspect(member, leader, altered=index)
        if leader.machine is None or leader.machine.term_at(index) != term:
            self.replace_disk(member)

    def forgotten(self, name: str) -> None:
        """The member lost power or its disk, and with it maybe what it knew of others' stores."""
        for suspect, found in list(self.suspects.items()):
            if found.leader == name:
                self.replace_disk(self._world.members[suspect])

    def check(self) -> None:
        """After each step: suspects are found, emptied in the end, or not counted until then."""
        for name, suspect in list(self.suspects.items()):
            self._watch(self._world.members[name], suspect)

    def _suspect(self, member: Member, leader: Member, **what: Any) -> None:
        assert leader.machine is not None
        until = self._world.now + FOUND_WITHIN
        self.suspects[member.name] = Suspect(leader.name, leader.machine.term, until, **what)

    def _watch(self, member: Member, suspect: Suspect) -> None:
        world = self._world
        machine, leader = member.machine, world.members[suspect.leader].machine
        late = world.calm or world.now > suspect.until
        leads = leader is not None and leader.role is Role.LEADER and leader.term == suspect.term
        if late or (suspect.altered and not leads):
            self.replace_disk(member)
        elif machine is None or leader is None:
            return
        elif suspect.altered:
            if machine.first_index >= suspect.altered:  # a snapshot took the entry's place
                self._cleared(member)
        elif member.waits:
            self._cleared(member)
        elif leader is not suspect.process:
            known = min(suspect.known, _kept(leader, member.name))
            self.suspects[member.name] = msgspec.structs.replace(suspect, process=leader, known=known)
        elif (
            machine.durable_index() < suspect.known
            and world.network.whole(suspect.leader, member.name)
            and _is_believed(leader, Node(member.name))
        ):
            raise Violation(f"NewStoresWait: {suspect.leader} believes {member.name}, whose store was set back")

    def _cleared(self, member: Member) -> None:
        self.suspects.pop(member.name, None)
        self._world.checker.altered.pop(member.name, None)


def _is_believed(machine: RaftMachine, node: Node) -> bool:
    said = machine.introduced.get(node)
    return said is not None and said.voter and machine.is_trusted(node)


def known_of(leader: RaftMachine, member: str) -> int:
    """Index of the last committed entry that the member acknowledged in the present term."""
    term, index = leader._known.get(Node(member), Known()).acked
    return min(index, leader.commit_index) if term == leader.term else 0


def _kept(machine: RaftMachine, member: str) -> int:
    """Index of the last entry that the member acknowledged, as the leader's disk has it."""
    reports = machine.log.reports
    kept = msgspec.msgpack.decode(reports, type=Kept).members if reports else {}
    return kept.get(member, Known()).acked[1]
