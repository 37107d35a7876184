"""Replicas, logs, chunks and reads as plain values. All offsets are physical, in bytes; ends are exclusive."""

from typing import NewType

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.given_up import GivenUp

ReplicaName = NewType("ReplicaName", str)
"""Given by the user or the operator: `a`, or the pod's name."""


class ReplicaLog(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's log as its source describes it at one moment."""

    name: ReplicaName
    broker_id: int | None = None
    """None without an identity file."""
    group: str = ""
    """`clusterName/brokerName`; empty: unknown."""
    min_offset: int
    """Start of the first file."""
    confirm_offset: int
    """The replica's own confirm offset; `max_offset` where it has none."""
    max_offset: int
    """End of the last whole record."""
    segment_size: int
    segments: tuple[int, ...]
    """Start of every file, ascending."""
    short: tuple[tuple[int, int], ...] = ()
    """Files that end early: start, length. Files are created with their full length."""
    epochs: EpochList
    master: bool = False
    """It reports that it is master now; always False for files."""
    strict: bool = False
    """Its confirm offset is a promise: all replicas in sync had everything below it (durability=strict, or Java's
    allAckInSyncStateSet=true). False where that is unknown: Java by default confirms what only its master has."""
    given_up: tuple[GivenUp, ...] = ()
    """What it had acknowledged and no master has had since, as it has noted."""

    @property
    def extent(self) -> Extent:
        """Everything it has, including missing files in between."""
        return Extent(self.min_offset, self.max_offset)


class Chunk(msgspec.Struct, frozen=True, order=True):
    """One piece of all logs: inside one segment, inside one epoch of the reference."""

    offset: int
    length: int
    epoch: int

    @property
    def extent(self) -> Extent:
        return Extent(self.offset, self.offset + self.length)


class ChunkDigest(msgspec.Struct, frozen=True):
    """The digest in one replica; None: the bytes are not there (any longer), or cannot be read."""

    replica: ReplicaName
    offset: int
    length: int
    digest: bytes | None
    error: str = ""
    """Why they cannot be read: a broken disk."""


class ReadRequest(msgspec.Struct, frozen=True):
    """One read from a replica: the digest of these bytes, or the bytes themselves.

    The answer is an xxh3-128, or `extent.length` bytes; None: (some of) them are no longer there.
    """

    replica: ReplicaName
    extent: Extent
    digest: bool
