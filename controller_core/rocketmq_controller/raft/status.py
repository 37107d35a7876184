"""What a member tells people and metrics about itself."""

import enum

import msgspec


class Role(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Another member as this one sees it."""

    id: str
    connected: bool
    match_index: int | None
    """Last entry it is known to have on disk; None where this member does not lead."""
    next_index: int | None


class RaftStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of one member at one moment."""

    self_id: str
    role: Role
    is_leader: bool
    """Leads, has applied an entry of its own term, and holds its lease right now."""
    is_serving: bool
    """The same without the lease: what changes only with the role."""
    term: int
    leader_id: str | None
    """Who leads as far as this member knows; itself included."""
    commit_index: int
    last_applied: int
    first_index: int
    last_index: int
    durable_index: int
    """Last entry that is on this member's disk."""
    snapshot_index: int
    """Entry that the newest snapshot covers, 0 without one."""
    pending: int
    """Commands proposed here and not committed yet."""
    members: tuple[MemberStatus, ...]
    """The others, sorted by id."""
