"""This replica's role, epoch and lease: the one place that decides whether a send is accepted and whether an accepted
one may be acknowledged.

`ReplicaRole` takes the sidecar's messages (`rocketmq_formats.replica_link`). The send path checks it before it appends,
the waiting list before it answers. Times are seconds of `boot_clock`, given by the caller.

    NONE --Following--> SLAVE --Prepare--> PREPARING --Grant--> MASTER     (NONE --Prepare--> PREPARING too)
    any --Release, NoRole, link lost--> NONE

A slave of a group without a master serves consumers (`acting`, RIP-32): no role of the log, nothing is appended.

A `Hold` overrides all of these: while it lasts no send is accepted; what was accepted before is still answered.

Invariants: OneWriter (with relaxed durability a send is accepted only by a master whose lease runs), AckedSurvives
(with strict durability an answer leaves only for an offset that the replication of the same epoch has acknowledged, and
needs no lease).
"""

from enum import StrEnum
from typing import Final

import msgspec

from rocketmq_formats.replica_link import CopyKey, Hold, HoldKind, Replication

UNACKNOWLEDGED_SECONDS: Final = 2.0
"""A strict master without a lease refuses sends after it has waited this long for an acknowledgement."""


class Role(StrEnum):
    """What a replica can be."""

    NONE = "none"
    SLAVE = "slave"
    PREPARING = "preparing"
    """Elected; the epoch is not on disk yet."""
    MASTER = "master"


class Refusal(StrEnum):
    """Why a send is not accepted now."""

    SLAVE = "slave"
    ACTING = "the group has no master; this slave acts for it and serves readers only"
    NOT_MASTER = "not master"
    HELD = "held"
    """The sidecar has an operator's order to refuse sends, or is handing mastership over."""
    LEASE_ENDED = "lease ended"
    """Relaxed: another replica may be elected."""
    NOT_ACKNOWLEDGED = "not all members of the SyncStateSet acknowledge, and no controller answers"
    """Strict, without a lease: the set cannot shrink, so what waits now would only time out."""
    TOO_FEW_IN_SYNC = "too few in sync"


class Durability(msgspec.Struct, frozen=True):
    """What PUT_OK promises."""

    copies_needed: int
    """Minimum of replicas in sync to accept sends."""
    strict: bool
    """The whole SyncStateSet acknowledges. Then the answer needs no lease: a replica that was elected before it was
    among those that acknowledged."""
    alone: bool = False
    """An answer waits only for the master's log, neither for another copy nor for the disk."""


class ReplicaRole:
    """Role, epoch, lease and progress of replication; every method is total: an unfitting call is ignored."""

    def __init__(self, durability: Durability) -> None:
        self.durability = durability
        self.role = Role.NONE
        self.reason = "not connected to the sidecar"
        """Why there is no role; for the operator."""
        self.epoch = 0
        """Of the role; the highest seen."""
        self.lease_until = float("-inf")
        self.broker_id: int | None = None
        """As the controllers assigned it, from 1, or as configured without them; None until the sidecar has sent it."""
        self.copy_key: CopyKey | None = None
        """None: the group has no secret."""
        self.master_address: str | None = None
        """While SLAVE, of whom to copy the tables; None: without controllers, while no connected master's log is known
        to continue this replica's."""
        self.master_known = False
        """While SLAVE: the sidecar knows a living master."""
        self.least_registered: int | None = None
        """The least brokerId of the group at the name servers; None without enableSlaveActingMaster."""
        self.acked_offset = 0
        self._awaited: tuple[int, float] | None = None
        """The end of the oldest send that was found unacknowledged, and when it was stored."""
        self.in_sync = 0
        self.members: frozenset[int] | None = None
        """Broker ids of the SyncStateSet, as `in_sync`; None until the sidecar has sent them to this master."""
        self.joins: dict[int, int] = {}
        self.officials: frozenset[int] = frozenset()
        """As in `Replication`."""
        self.held: Hold | None = None
        """Set while sends are refused in every role."""

    # messages of the sidecar

    def welcomed(self, broker_id: int) -> None:
        """The sidecar has sent the broker id."""
        self.broker_id = broker_id

    def prepare(self, epoch: int) -> bool:
        """Elected for `epoch`; False if it is over, or this is its master already."""
        if epoch < self.epoch or (self.role is Role.MASTER and epoch == self.epoch):
            return False
        self._leave(Role.PREPARING, f"preparing for epoch {epoch}")
        self.epoch = epoch
        return True

    def grant(self, epoch: int, lease_until: float) -> bool:
        """Be master of `epoch`, which was prepared or is a later one of the same mastership; False if it is neither."""
        if self.role is Role.PREPARING and epoch == self.epoch:
            self.role = Role.MASTER
            self.acked_offset = self.in_sync = 0
        elif self.role is not Role.MASTER or epoch < self.epoch:
            return False
        elif epoch > self.epoch:
            self.epoch = epoch
            self.members = None
        self.lease_until = lease_until
        return True

    def extend_lease(self, epoch: int, until: float) -> bool:
        """The lease runs longer (or shorter); False if it is not this epoch's."""
        if self.role is not Role.MASTER or epoch != self.epoch:
            return False
        self.lease_until = until
        return True

    def replicated(self, progress: Replication) -> bool:
        """Take the replicas' progress; False if it is not this epoch's.

        The acknowledged offset never goes back within an epoch: what was acknowledged stays so when a slave joins.
        """
        if self.role is not Role.MASTER or progress.epoch != self.epoch:
            return False
        self.acked_offset = max(self.acked_offset, progress.acked_offset)
        if self._awaited is not None and self._awaited[0] <= self.acked_offset:
            self._awaited = None
        self.in_sync = progress.in_sync
        self.members, self.joins, self.officials = progress.members, progress.joins, progress.officials
        return True

    def appended(self, end: int, now: float) -> None:
        """A message was stored; the log ends at `end`. One is watched at a time: the next one after its
        acknowledgement."""
        if self._awaited is None:
            self._awaited = end, now

    def follow(self, epoch: int, master_address: str) -> None:
        """Be the slave of `master_address`; empty: see `copy_from`."""
        self._leave(Role.SLAVE, f"slave of {master_address}" if master_address else "slave")
        self.epoch = max(epoch, self.epoch)
        self.master_address = master_address or None
        self.master_known = True

    def copy_from(self, master_address: str) -> bool:
        """Copy the tables of the master there; empty: of none. False if that changes nothing."""
        if self.role is not Role.SLAVE or (master_address or None) == self.master_address:
            return False
        self.master_address = master_address or None
        return True

    def master_is_known(self, known: bool) -> bool:  # noqa: FBT001 - the message's only word
        """There is a master to follow, or none; False if that changes nothing."""
        if self.role is not Role.SLAVE or known == self.master_known:
            return False
        self.master_known = known
        return True

    def hold(self, hold: Hold) -> None:
        """Refuse sends or, with a hold without a kind, accept them again."""
        self.held = None if hold.kind is None else hold

    def lose_role(self, reason: str) -> None:
        """Neither master nor slave."""
        self._leave(Role.NONE, reason)

    def forget_epoch(self) -> None:
        """The link is lost: the next connection starts with the full state, so what it does not repeat is dropped."""
        self.epoch = 0
        self.copy_key = None
        self.held = None

    # decisions

    @property
    def handing_over(self) -> bool:
        """Another replica is about to become master, with everything that was acknowledged before."""
        return self.held is not None and self.held.kind is HoldKind.HANDING_OVER

    @property
    def acting(self) -> bool:
        """Serve consumers in a master's place: no living master is known (the controllers' word counts), and of the
        members that name servers list this one is to be asked."""
        return (
            self.role is Role.SLAVE
            and not self.master_known
            and self.broker_id is not None
            and self.broker_id == self.least_registered
        )

    @property
    def outward_id(self) -> int | None:
        """The broker id that name servers and clients see: 0 for a master, the controllers' for a slave; None while
        this replica should not be registered."""
        if self.role is Role.MASTER:
            return 0
        return self.broker_id if self.role is Role.SLAVE else None

    def refusal(self, now: float) -> Refusal | None:
        """Why a send is refused now; None if it may be appended."""
        if self.role is not Role.MASTER:
            slave = Refusal.ACTING if self.acting else Refusal.SLAVE
            return slave if self.role is Role.SLAVE else Refusal.NOT_MASTER
        if self.held is not None:
            return Refusal.HELD
        if now >= self.lease_until:
            if not self.durability.strict:
                return Refusal.LEASE_ENDED
            if self._awaited is not None and now - self._awaited[1] >= UNACKNOWLEDGED_SECONDS:
                return Refusal.NOT_ACKNOWLEDGED
        if self.in_sync < self.durability.copies_needed:
            return Refusal.TOO_FEW_IN_SYNC
        return None

    @property
    def edit_refusal(self) -> str | None:
        """Why topics and groups may not be changed here, where Java has words for it in these; None at a master. A
        slave's tables become its master's, so a change would not last."""
        if self.role is Role.MASTER:
            return None
        if self.role is not Role.SLAVE:
            return f"topics and subscription groups are changed at the master; this broker is not master: {self.reason}"
        words = "Can't modify topic or subscription group from slave broker, please execute it from master broker"
        if self.acting or not self.master_known:
            return f"{words}; the group has no master now, repeat it when it has one"
        return f"{words}, {self.master_address}" if self.master_address else words

    @property
    def leaves_deletions_to_master(self) -> bool:
        """A tool that deletes asks every member, slaves too, in any order (DefaultMQAdminExtImpl.deleteTopic). The
        master's deletion reaches a slave with the log and the tables."""
        return self.role is Role.SLAVE and self.master_known and not self.acting

    def releasable(self, now: float) -> int:
        """Sends that end at this offset or before may be answered PUT_OK; 0: none."""
        if self.role is not Role.MASTER or (not self.durability.strict and now >= self.lease_until):
            return 0
        return self.acked_offset

    def acknowledged(self, now: float, max_offset: int) -> int:
        """Messages that end at this offset or before were, or may be, answered PUT_OK; the log ends at `max_offset`."""
        return max_offset if self.acknowledges_alone(now) else self.releasable(now)

    def acknowledges_alone(self, now: float) -> bool:
        """Whether a send that has just been appended may be answered PUT_OK without a confirmed copy."""
        return self.durability.alone and self.role is Role.MASTER and now < self.lease_until

    def _leave(self, role: Role, reason: str) -> None:
        self.role = role
        self.reason = reason
        self.lease_until = float("-inf")
        self.master_address = None
        self.master_known = False
        self.acked_offset = self.in_sync = 0
        self._awaited = None
        self.members = None
        self.joins, self.officials = {}, frozenset()
