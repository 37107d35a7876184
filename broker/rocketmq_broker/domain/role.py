"""What this replica is at the moment, and therefore what it may do: the one place that decides whether a send is
accepted and whether an accepted one may be acknowledged.

`ReplicaRole` is fed with what the sidecar says (`rocketmq_formats.replica_link`) and asked by the send path before it
appends and by the waiting list before it answers. Times are `time.monotonic()` seconds, given by the caller.

    FENCED --Following--> SLAVE --Prepare--> PREPARING --Grant--> MASTER     (FENCED --Prepare--> PREPARING too)
    any --Release, Fenced, link lost--> FENCED

A `Hold` lies over all of these: while it lasts no send is accepted, and whatever was accepted before is answered.

Invariants: OneWriter (a send is accepted only by a master whose lease runs), AckedSurvives (with strict durability an
answer leaves only for an offset that the replication of the same epoch has acknowledged).
"""

from enum import StrEnum

import msgspec

from rocketmq_formats.replica_link import Hold, Replication


class Role(StrEnum):
    """What a replica can be."""

    FENCED = "fenced"
    SLAVE = "slave"
    PREPARING = "preparing"
    """Elected; the epoch is not on disk yet."""
    MASTER = "master"


class Refusal(StrEnum):
    """Why a send is not accepted now."""

    SLAVE = "slave"
    NOT_MASTER = "not master"
    HELD = "held"
    """The sidecar has an operator's order to refuse sends, or is handing mastership over."""
    LEASE_ENDED = "lease ended"
    TOO_FEW_IN_SYNC = "too few in sync"


class Durability(msgspec.Struct, frozen=True):
    """What PUT_OK promises."""

    copies_needed: int
    """Replicas in sync without which nothing is accepted."""
    strict: bool
    """Acknowledged by the whole SyncStateSet: then no lease is needed for the answer, because whoever may have been
    elected meanwhile was among those that acknowledged."""
    alone: bool = False
    """The master's log is all that an answer waits for, neither another copy nor the disk."""


class ReplicaRole:
    """Role, epoch, lease and progress of replication; every method is total: what does not fit is ignored."""

    def __init__(self, durability: Durability) -> None:
        self.durability = durability
        self.role = Role.FENCED
        self.reason = "not connected to the sidecar"
        """Of being fenced; for the operator."""
        self.epoch = 0
        """Of the role; the highest seen."""
        self.lease_until = float("-inf")
        self.broker_id: int | None = None
        """At the controllers, from 1; known once the sidecar has said it."""
        self.master_address: str | None = None
        """While SLAVE."""
        self.acked_offset = 0
        self.in_sync = 0
        self.held: Hold | None = None
        """While sends are refused whatever the role is."""

    # what the sidecar says

    def welcomed(self, broker_id: int) -> None:
        """The identity is settled."""
        self.broker_id = broker_id

    def prepare(self, epoch: int) -> bool:
        """Elected for `epoch`; False if that epoch is over."""
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
        self.in_sync = progress.in_sync
        return True

    def follow(self, epoch: int, master_address: str) -> None:
        """Be the slave of `master_address`."""
        self._leave(Role.SLAVE, f"slave of {master_address}")
        self.epoch = max(epoch, self.epoch)
        self.master_address = master_address

    def hold(self, hold: Hold) -> None:
        """Refuse sends or, with a hold of no kind, take them again."""
        self.held = None if hold.kind is None else hold

    def fence(self, reason: str) -> None:
        """Neither master nor slave."""
        self._leave(Role.FENCED, reason)

    def forget_epoch(self) -> None:
        """The link is gone: the next connection tells everything anew, whatever epochs and holds were before."""
        self.epoch = 0
        self.held = None

    # what may be done

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
            return Refusal.SLAVE if self.role is Role.SLAVE else Refusal.NOT_MASTER
        if self.held is not None:
            return Refusal.HELD
        if now >= self.lease_until:
            return Refusal.LEASE_ENDED
        if self.in_sync < self.durability.copies_needed:
            return Refusal.TOO_FEW_IN_SYNC
        return None

    def releasable(self, now: float) -> int:
        """Sends that end at this offset or before may be answered PUT_OK; 0: none."""
        if self.role is not Role.MASTER or (not self.durability.strict and now >= self.lease_until):
            return 0
        return self.acked_offset

    def acknowledges_alone(self, now: float) -> bool:
        """Whether a send that has just been appended may be answered PUT_OK without hearing of any other copy."""
        return self.durability.alone and self.role is Role.MASTER and now < self.lease_until

    def _leave(self, role: Role, reason: str) -> None:
        self.role = role
        self.reason = reason
        self.lease_until = float("-inf")
        self.master_address = None
        self.acked_offset = self.in_sync = 0
