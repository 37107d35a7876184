"""What the control machine wants done; `agent` does it and tells the machine how it ended.

Every action may be lost with the process: the machine chooses its next step from what is known, never from what it
once asked for.
"""

from typing import Literal

import msgspec

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.replica_link import FromSidecar, Hello


class Ask(msgspec.Struct, frozen=True, eq=False):
    """Ask a controller; ends in `on_answer`, with None if no answer came. Told apart by identity, not by value."""

    address: str
    code: RequestCode
    sent_at: float
    """`time.monotonic()` before it leaves."""
    header: Header | None = None
    body: bytes = b""


class Beat(msgspec.Struct, frozen=True):
    """Send 904 to each address, with the log's present epoch and offsets; each ends in `on_beat`."""

    addresses: tuple[str, ...]
    broker_id: int
    broker_address: str
    sent_at: float
    lease: float | None = None
    """Seconds of the write lease that it begins, see `steward`; 0 of a slave that would need one as master, None of a
    replica that never needs one."""


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connections to all controllers at once: to them this replica is dead. No answers come any more."""


class SaveApplied(msgspec.Struct, frozen=True):
    """Write the temporary identity file, durably; ends in `on_stored`."""

    applied: AppliedIdentity


class SaveIdentity(msgspec.Struct, frozen=True):
    """Write the identity file, durably, then remove the temporary one; ends in `on_stored`."""

    identity: BrokerIdentity


class ForgetApplied(msgspec.Struct, frozen=True):
    """Remove the temporary identity file: its id went to somebody else; ends in `on_stored`."""


class Tell(msgspec.Struct, frozen=True):
    """Say it to the broker."""

    message: FromSidecar


class Identified(msgspec.Struct, frozen=True):
    """Tell replication who we are."""

    broker_id: int


class Opened(msgspec.Struct, frozen=True):
    """Tell replication the bounds of the log; nothing is being replicated then. Ends in `on_opened`."""

    hello: Hello


class Follow(msgspec.Struct, frozen=True):
    """Replicate from this master, for ever."""

    epoch: int
    master_broker_id: int
    master_address: str


class Begin(msgspec.Struct, frozen=True):
    """Write the epoch to the epoch file, durably, and serve slaves; ends in `on_begun`."""

    epoch: int
    max_offset: int
    agreed: SyncStateSet


class Forgive(msgspec.Struct, frozen=True):
    """The group goes on without what was missing from the log: what is there counts from now on."""


class StopReplication(msgspec.Struct, frozen=True):
    """Neither follow nor serve; ends in `on_replication_stopped`, when nothing appends and the lock is free."""


class Adopt(msgspec.Struct, frozen=True):
    """The controllers agreed to this SyncStateSet."""

    agreed: SyncStateSet


class SetRefused(msgspec.Struct, frozen=True):
    """The controllers definitely refused the SyncStateSet that replication wanted."""


class WatchLevel(msgspec.Struct, frozen=True):
    """As master: tell in `on_level` which replicas' logs reach `offset` (None: what this one's holds now), at once and
    whenever that changes, until the next of these; `watch` 0: nothing any more."""

    watch: int
    offset: int | None


class HandedOver(msgspec.Struct, frozen=True):
    """How what `on_hand_over` was asked ended."""

    number: int
    """Of the hand-over, 0 if none was begun."""
    outcome: str
    """A `hand_over.Outcome`."""
    reason: str
    """Why, unless another was elected."""
    master_id: int | None = None
    master_epoch: int = 0


class Note(msgspec.Struct, frozen=True):
    """Log a line: a constant text and what varies."""

    text: str
    values: dict[str, object]
    level: Literal["info", "warning", "error"] = "info"


Stored = SaveApplied | SaveIdentity | ForgetApplied
ToReplication = Identified | Opened | Forgive | Follow | Begin | StopReplication | Adopt | SetRefused | WatchLevel
Action = Ask | Beat | Disconnect | Stored | Tell | ToReplication | HandedOver | Note
Actions = tuple[Action, ...]
