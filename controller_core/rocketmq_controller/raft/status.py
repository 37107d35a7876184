"""A member's status, for people and metrics."""

import enum

import msgspec

from rocketmq_controller.raft.configuration import Configuration


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
    voter: bool | None = None
    """Its votes and acknowledgements count: it is no learner, and caught up after it was new or set back; None as
    above."""
    learner: bool = False
    """It gets the log and does not vote, by the newest configuration."""


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
    """The leader that this member follows, or itself."""
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
    """The others that this member talks to, sorted by id."""
    voter: bool = True
    """This member votes and counts."""
    configuration: Configuration = Configuration(())
    """The members by the newest entry in this member's log."""
    lineage: str | None = None
    """The quorum that its store belongs to; None while it is new."""
    election_timeout: float = 0.0
    """Seconds of silence that this member allows a leader now: see timeouts."""

    @property
    def removed(self) -> bool:
        """A committed configuration no longer has this member."""
        known = self.configuration
        return self.self_id not in known.ids and known.index <= self.commit_index

    @property
    def learner(self) -> bool:
        return self.self_id in self.configuration.learners


class LeadershipTerms:
    """Detects when a member begins to serve: once per term that it serves in.

    By `is_serving`, never by `is_leader`: the lease may have run out when the first entry of the term commits (a slow
    disk). It returns with the next heartbeat, and no callback reports that.
    """

    def __init__(self) -> None:
        self._term: int | None = None

    def begins(self, status: RaftStatus) -> bool:
        """To be called at every change of `is_serving`."""
        before, self._term = self._term, status.term if status.is_serving else None
        return self._term is not None and self._term != before
