"""Who the members are: a value that the log carries, and the rules for changing it by one member at a time; and what a
majority of its voters is. Pure.

A configuration counts from the moment that its entry is in a member's log, committed or not; if the entry is cut, the
configuration before it counts again (Raft, dissertation, section 4.1). Two configurations beside each other
differ by one voter at most, so a majority of the one and a majority of the other share a member.

The first configuration is what the configuration files named when the stores were made. A quorum begins only where all
named the same. A leader whose log has no configuration puts the first one into it, so that a store that joins later
gets it from there. That entry has ids only: the configuration files have the addresses until the first change.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated

import msgspec

from rocketmq_formats.addresses import format_address

MAX_MEMBERS = 15
"""Voters and learners of one quorum."""
MAX_LEARNERS = 1
"""Members that are being caught up: a second one is added when the first one votes."""
MAX_ID_BYTES = 100
"""Of a member's id: two of them have to fit one handshake message."""
VERSION = 1

_Text = Annotated[str, msgspec.Meta(max_length=255)]


class MembershipError(Exception):
    """Base of the reasons to refuse a change of the members; nothing was proposed."""


class ChangePendingError(MembershipError):
    """Another change is not finished: try again later."""


class UnknownMemberError(MembershipError):
    """There is no such member."""


class MemberExistsError(MembershipError):
    """The member is one already, and at that address; or another member has the address."""


class QuorumAtRiskError(MembershipError):
    """Too few of the remaining voters are connected and caught up: nothing could be committed afterwards."""


class ConfigurationError(ValueError):
    """Bytes that are no configuration."""


class Member(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One member: `host` and `port` are where it takes Raft traffic; both empty or 0 where they are not known."""

    id: _Text
    host: _Text = ""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    voter: bool = True
    """False: a learner, which gets the log and neither votes nor counts."""


class Configuration(msgspec.Struct, frozen=True, dict=True):
    """The members as of one entry. The sets of ids are kept: they are asked for with each message of a member."""

    members: tuple[Member, ...]
    """Sorted by id."""
    index: int = 0
    """Of its entry; 0: the first configuration, while the log has none."""

    @cached_property
    def ids(self) -> frozenset[str]:
        return frozenset(member.id for member in self.members)

    @cached_property
    def voters(self) -> frozenset[str]:
        return frozenset(member.id for member in self.members if member.voter)

    @property
    def learners(self) -> frozenset[str]:
        return self.ids - self.voters

    def get(self, member_id: str) -> Member | None:
        return next((member for member in self.members if member.id == member_id), None)

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where members take Raft traffic, those that are known."""
        return {member.id: (member.host, member.port) for member in self.members if member.host}


class AddMember(msgspec.Struct, frozen=True):
    """Take a member in as a learner; it votes once it has caught up. Of a member that is one: give it an address."""

    id: str
    host: str
    port: int


class PromoteMember(msgspec.Struct, frozen=True):
    """Let a learner vote: proposed by the leader itself."""

    id: str


class RemoveMember(msgspec.Struct, frozen=True):
    """Take a voter or a learner out."""

    id: str


Change = AddMember | PromoteMember | RemoveMember


def of_voters(addresses: Mapping[str, tuple[str, int]]) -> Configuration:
    """A first configuration."""
    return Configuration(tuple(Member(member, host, port) for member, (host, port) in sorted(addresses.items())))


def of_ids(ids: Iterable[str], index: int = 0) -> Configuration:
    """Voters without addresses."""
    return Configuration(tuple(Member(member) for member in sorted(ids)), index)


def with_addresses(configuration: Configuration, addresses: Mapping[str, tuple[str, int]]) -> Configuration:
    """The same members, with `addresses` for those that have none."""
    members = []
    for member in configuration.members:
        host, port = (member.host, member.port) if member.host else addresses.get(member.id, ("", 0))
        members.append(msgspec.structs.replace(member, host=host, port=port))
    return Configuration(tuple(members), configuration.index)


def changed(before: Configuration, change: Change, index: int) -> Configuration:
    """The configuration of the entry at `index` that makes `change`.

    Raises:
        MembershipError: there is no such configuration; the text says why.
    """
    members = {member.id: member for member in before.members}
    known = members.get(change.id)
    match change:
        case AddMember():
            _check_new(before, change)
            members[change.id] = Member(change.id, change.host, change.port, voter=known is not None and known.voter)
        case PromoteMember():
            if known is None or known.voter:
                raise UnknownMemberError(f"{change.id} is not a learner")
            members[change.id] = msgspec.structs.replace(known, voter=True)
        case RemoveMember():
            if known is None:
                raise UnknownMemberError(f"{change.id} is not among the members {', '.join(sorted(members))}")
            del members[change.id]
    after = Configuration(tuple(members[member] for member in sorted(members)), index)
    if not after.voters:
        raise QuorumAtRiskError(f"{change.id} is the last voter")
    return after


def _check_new(before: Configuration, change: AddMember) -> None:
    if not 0 < len(change.id.encode()) <= MAX_ID_BYTES:
        raise MembershipError(f"member id {change.id!r}: 1 to {MAX_ID_BYTES} bytes are allowed")
    address = format_address(change.host, change.port)
    if not change.host or len(change.host) > 255 or not 0 < change.port < 65536:
        raise MembershipError(f"address {address} of {change.id}: a host and a port are needed")
    for member in before.members:
        if (member.host, member.port) == (change.host, change.port):
            raise MemberExistsError(f"{member.id} is a member and has the address {address}")
    if change.id in before.ids:
        return
    if len(before.learners) >= MAX_LEARNERS:
        raise ChangePendingError(f"{', '.join(sorted(before.learners))} is not caught up: wait until it votes")
    if len(before.members) >= MAX_MEMBERS:
        raise MembershipError(f"{len(before.members)} members are there already, {MAX_MEMBERS} are allowed")


def encode(configuration: Configuration) -> bytes:
    """As an entry holds it: a version and the members; the index is the entry's own."""
    return bytes([VERSION]) + msgspec.msgpack.encode(configuration.members)


_decoder = msgspec.msgpack.Decoder(tuple[Member, ...])


def decode(data: bytes, index: int) -> Configuration:
    """The configuration of the entry at `index`.

    Raises:
        ConfigurationError: not one, or one that no leader can have made.
    """
    if data[:1] != bytes([VERSION]):
        raise ConfigurationError(f"configuration of version {data[:1].hex() or 'none'}, this release reads {VERSION}")
    try:
        members = _decoder.decode(memoryview(data)[1:])
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"not a configuration: {error}") from error
    configuration = Configuration(members, index)
    ids = [member.id for member in members]
    if ids != sorted(set(ids)) or not configuration.voters or len(ids) > MAX_MEMBERS:
        raise ConfigurationError("a configuration whose members are out of order, too many or without a voter")
    if not all(0 < len(member.encode()) <= MAX_ID_BYTES for member in ids):
        raise ConfigurationError("a configuration with an id that is empty or too long")
    return configuration


def majority(voters: int) -> int:
    """How many of `voters` make a majority: 1 of 1, 2 of 3, 3 of 5, and 3 of 4."""
    return voters // 2 + 1


def reached_by_majority(values: Iterable[float]) -> float:
    """The largest value that a majority has reached or passed. `values`: one of each voter, at least one."""
    ordered = sorted(values)
    return ordered[len(ordered) - majority(len(ordered))]


class Configurations:
    """The configurations of a log: of all that it holds, and the one before."""

    def __init__(self, first: Configuration, base: Configuration | None = None) -> None:
        """`first`: where no entry says otherwise; `base`: of the snapshot, None if it says nothing."""
        self.first = first
        self._held = [base or first]

    @property
    def latest(self) -> Configuration:
        """The one that counts."""
        return self._held[-1]

    def since(self, index: int) -> Iterable[Configuration]:
        """The one that counts at `index`, and all later ones."""
        start = max(position for position, held in enumerate(self._held) if position == 0 or held.index <= index)
        return self._held[start:]

    def at(self, index: int) -> Configuration:
        """The one that counts where the log ends at `index`."""
        return next(iter(self.since(index)))

    def append(self, configuration: Configuration) -> None:
        """Its entry was appended."""
        self._held.append(configuration)

    def cut(self, index: int) -> bool:
        """The entries from `index` on are cut; True if another configuration counts now."""
        kept = [held for position, held in enumerate(self._held) if position == 0 or held.index < index]
        changed, self._held = len(kept) < len(self._held), kept
        return changed

    def forget(self, index: int) -> None:
        """The log begins at `index` now."""
        self._held = list(self.since(index))

    def install(self, index: int, base: Configuration | None, *, keep: bool) -> None:
        """A snapshot of `index` came in; `keep`: the log equals it there, and the entries behind it stay. `base`: the
        snapshot's configuration; None: up to there it is the first one, whatever the log said that it replaces."""
        later = [held for held in self._held[1:] if held.index > index] if keep else []
        self._held = [base or self.first, *later]
