"""One replica as its sidecar shows it: plain values beside the messages of sidecar_admin.proto, without gRPC.

Used by `sidecars` for callers and by the sidecar, which must not need gRPC to know what it would say.
"""

from enum import StrEnum

import msgspec

MAX_REASON_BYTES = 1024
"""Limit of a fence's reason in UTF-8 bytes."""


class ReplicaRole(StrEnum):
    """The current role of a replica."""

    UNKNOWN = "unknown"
    """The sidecar is starting, or the broker is not connected."""
    MASTER = "master"
    SLAVE = "slave"
    NONE = "none"
    """Neither: no master is known, or the controllers cannot be reached."""


class EpochRange(msgspec.Struct, frozen=True):
    """One line of the epoch file: physical offsets, `end_offset` exclusive."""

    epoch: int
    start_offset: int
    end_offset: int


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """`Replica` of sidecar_admin.proto, where each field is described."""

    cluster_name: str
    broker_name: str
    broker_id: int | None = None
    role: ReplicaRole = ReplicaRole.UNKNOWN
    master_broker_id: int | None = None
    master_epoch: int = 0
    sync_state_set: tuple[int, ...] = ()
    sync_state_set_epoch: int = 0
    max_offset: int = 0
    confirm_offset: int = 0
    min_offset: int = 0
    epochs: tuple[EpochRange, ...] = ()
    fenced: bool = False
    fence_reason: str = ""
    fenced_at_millis: int = 0
    broker_connected: bool = False
    ready_reason: str = ""
    engine: str = "native"
    version: str = ""
    address: str = ""
    acting_master: bool = False
    remark: str = ""


class NewMaster(msgspec.Struct, frozen=True):
    """The result of a hand-over."""

    master_broker_id: int
    master_epoch: int
