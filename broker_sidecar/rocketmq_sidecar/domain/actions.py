"""The actions of the control machine; `agent` performs them and reports to the machine how it ended.

Every action may be lost with the process: the machine chooses its next step from what is known, never from an earlier
action.
"""

from typing import Literal

import msgspec

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.replica_link import FromSidecar, Hello


class Request(msgspec.Struct, frozen=True, eq=False):
    """Send this to a controller; ends in `on_answer`, with None if no answer came. Compared by identity."""

    address: str
    code: RequestCode
    sent_at: float
    """When it leaves, by the clock of leases."""
    header: Header | None = None
    body: bytes = b""


class Heartbeat(msgspec.Struct, frozen=True):
    """Send 904 to each address, with the log's present epoch and offsets; each ends in `on_heartbeat`."""

    addresses: tuple[str, ...]
    broker_id: int
    broker_address: str
    sent_at: float
    lease: float | None = None
    """Seconds of the write lease that it begins, see `heartbeats`; 0 from a slave that would need one as master, None
    from a replica that never needs one."""
    unproven: bool = False
    """Its log may lack what it acknowledged, or is not known to be whole."""
    whole_to: int | None = None
    """Bytes from there on may be damaged: report this end of the log at most; -1: report that its end is not known."""


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connections to all controllers at once: to them this replica is dead. Answers can no longer come."""


class SaveApplied(msgspec.Struct, frozen=True):
    """Write the temporary identity file, durably; ends in `on_stored`."""

    applied: AppliedIdentity


class SaveIdentity(msgspec.Struct, frozen=True):
    """Write the identity file, durably, then remove the temporary one; ends in `on_stored`."""

    identity: BrokerIdentity


class ForgetApplied(msgspec.Struct, frozen=True):
    """Remove the temporary identity file: its id belongs to another broker; ends in `on_stored`."""


class SaveControllers(msgspec.Struct, frozen=True):
    """Write the file with the group of controllers at which this replica has registered, durably; ends in
    `on_stored`."""

    group: str


class SendToBroker(msgspec.Struct, frozen=True):
    """Send this over the link."""

    message: FromSidecar


class SetBrokerId(msgspec.Struct, frozen=True):
    """Give replication this replica's brokerId."""

    broker_id: int


class OpenLog(msgspec.Struct, frozen=True):
    """Give replication the bounds of the log, while nothing is replicated. Ends in `on_log_opened`."""

    hello: Hello


class Follow(msgspec.Struct, frozen=True):
    """Replicate from this master until further notice."""

    epoch: int
    master_broker_id: int
    master_address: str


class BeginEpoch(msgspec.Struct, frozen=True):
    """Write the epoch to the epoch file, durably, and serve slaves; ends in `on_begun`."""

    epoch: int
    max_offset: int
    agreed: SyncStateSet


class AcceptLoss(msgspec.Struct, frozen=True):
    """The group continues without what was missing from the log: what is there counts from now on."""


class MarkProven(msgspec.Struct, frozen=True):
    """Record that the log has everything that was acknowledged: a power cut before now no longer counts."""


class StopReplication(msgspec.Struct, frozen=True):
    """Neither follow nor serve slaves; ends in `on_replication_stopped`, when nothing appends and the lock is free."""


class AdoptSyncSet(msgspec.Struct, frozen=True):
    """The controllers agreed to this SyncStateSet."""

    agreed: SyncStateSet


class ProposalRefused(msgspec.Struct, frozen=True):
    """The controllers certainly refused what replication proposed last, as far as the machine had heard of it."""

    proposal: SyncStateSet
    """Compared by identity: replication may have proposed since, even the same set."""
    dead: int | None = None
    """The replica that is not alive to the controllers, if that was the reason."""


class WatchCatchUp(msgspec.Struct, frozen=True):
    """As master: report in `on_replicas_caught_up` which replicas' logs reach `offset` (None: the present end of this
    one's), at once and whenever that changes, until the next of these; `watch` 0: stop."""

    watch: int
    offset: int | None


class HandedOver(msgspec.Struct, frozen=True):
    """How a hand-over ended."""

    number: int
    """Of the hand-over, 0 if none was begun."""
    outcome: str
    """A `hand_over.Outcome`."""
    reason: str
    """Why, unless another was elected."""
    master_id: int | None = None
    master_epoch: int = 0


class LogLine(msgspec.Struct, frozen=True):
    """Write this to the log: a constant text and what varies."""

    text: str
    values: dict[str, object]
    level: Literal["info", "warning", "error"] = "info"


Stored = SaveApplied | SaveIdentity | ForgetApplied | SaveControllers
ToReplication = (
    SetBrokerId
    | OpenLog
    | AcceptLoss
    | MarkProven
    | Follow
    | BeginEpoch
    | StopReplication
    | AdoptSyncSet
    | ProposalRefused
    | WatchCatchUp
)
Action = Request | Heartbeat | Disconnect | Stored | SendToBroker | ToReplication | HandedOver | LogLine
Actions = tuple[Action, ...]
