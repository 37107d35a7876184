"""What the controllers report, as plain values beside the messages of controller_admin.proto, without gRPC.

Used by `controllers` for callers, and by callers' pure code, which must not need gRPC to hold a view.
"""

from enum import StrEnum

import msgspec


class Liveness(StrEnum):
    """By the heartbeat table of the member that answered."""

    ALIVE = "alive"
    DEAD = "dead"
    UNHEARD = "unheard"
    """Unknown: that member has not led long enough, and never received a heartbeat of the replica."""
    UNKNOWN = "unknown"


class ReplicaStanding(msgspec.Struct, frozen=True, kw_only=True):
    """`Replica` of controller_admin.proto, where each field is described."""

    broker_id: int
    address: str = ""
    in_sync: bool = False
    liveness: Liveness = Liveness.UNKNOWN
    max_offset: int | None = None
    confirm_offset: int | None = None
    epoch: int | None = None
    election_priority: int | None = None
    heartbeat_age_millis: int | None = None


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """`Group` of controller_admin.proto, where each field is described."""

    cluster_name: str
    broker_name: str
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    master_broker_id: int | None = None
    master_address: str = ""
    replicas: tuple[ReplicaStanding, ...] = ()
    """Ordered by id."""
    next_broker_id: int = 0


class GroupChange(msgspec.Struct, frozen=True):
    """One message of a watch: the state of a group, or that it was removed."""

    broker_name: str
    group: GroupView | None


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """One controller as the member that answered sees it."""

    id: str
    address: str
    grpc_address: str = ""
    is_leader: bool = False
    connected: bool = False
    match_index: int | None = None
    voter: bool = True
    """False: a learner."""
    counts: bool | None = None
    """Its store is caught up and its vote counts; None: not known."""


class QuorumView(msgspec.Struct, frozen=True, kw_only=True):
    """`GetMembersResponse`."""

    group: str
    answered_by: str
    leader_id: str
    term: int = 0
    commit_index: int = 0
    applied_index: int = 0
    lineage: str = ""
    members_index: int = 0
    members: tuple[MemberView, ...] = ()

    @property
    def from_leader(self) -> bool:
        """The leader answered: only it knows who is connected and has caught up."""
        return bool(self.leader_id) and self.answered_by == self.leader_id
