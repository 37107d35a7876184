"""What a comparison can find, how bad it is, and how it is said in a sentence."""

from enum import StrEnum
from typing import Final

import msgspec

from rocketmq_verify.domain.model import Extent, RecordName, ReplicaName


class Kind(StrEnum):
    """One per class of findings; the value is what JSON, metrics and the history say."""

    CORRUPT_RECORD = "corruptRecord"
    """A record differs between replicas, and at least one copy is known to be right or wrong."""
    DIVERGENT_HISTORY = "divergentHistory"
    """The epoch tables contradict each other below the confirm offset."""
    MISSING_SEGMENT = "missingSegment"
    """A file between a replica's first byte and its end is not there, or is too short."""
    BAD_STRUCTURE = "badStructure"
    """Bytes that are no chain of records, alike in all replicas that have them."""
    QUEUE_MISMATCH = "queueMismatch"
    """A consume queue's unit does not lead to the record that it stands for."""
    UNREACHABLE = "unreachable"
    """A replica could not be read; nothing is said about it."""
    LAGGING = "lagging"
    """A replica ends before what the group has confirmed; what it has was compared."""
    STALE_TAIL = "staleTail"
    """Bytes behind the common history: left over from a master that lost its post, or not written over yet."""
    UNUSED_BYTES = "unusedBytes"
    """Bytes that no record uses differ: the rest of a blank at the end of a file, which brokers may leave as it was."""


class Severity(StrEnum):
    """What it means for the run's result."""

    MISMATCH = "mismatch"
    """The promise is broken: exit code 1."""
    UNVERIFIED = "unverified"
    """Nothing can be said: exit code 3, unless there is a mismatch as well."""
    INFORMATION = "information"


SEVERITY: Final = {
    Kind.CORRUPT_RECORD: Severity.MISMATCH,
    Kind.DIVERGENT_HISTORY: Severity.MISMATCH,
    Kind.MISSING_SEGMENT: Severity.MISMATCH,
    Kind.BAD_STRUCTURE: Severity.MISMATCH,
    Kind.QUEUE_MISMATCH: Severity.MISMATCH,
    Kind.UNREACHABLE: Severity.UNVERIFIED,
    Kind.LAGGING: Severity.INFORMATION,
    Kind.STALE_TAIL: Severity.INFORMATION,
    Kind.UNUSED_BYTES: Severity.INFORMATION,
}


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica has in place of a differing record: some of its bytes, for people."""

    replica: ReplicaName
    right: bool | None
    """None: not to be told."""
    reason: str
    """Why: `body CRC wrong`, `as two others have it`, ..."""
    hex_offset: int = 0
    """Physical offset of the first byte of `hex`."""
    hex: str = ""
    """Up to 64 bytes around the first difference."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found. Sorted by severity, offset, replica in reports."""

    kind: Kind
    replicas: tuple[ReplicaName, ...]
    """Who is concerned: those with the wrong copy, the lagging one, ...; all where nobody can tell."""
    extent: Extent
    """Where."""
    first_difference: int | None = None
    """Physical offset of the first differing byte."""
    segment: int | None = None
    """Start of the file it is in."""
    epoch: int | None = None
    record: RecordName | None = None
    copies: tuple[Copy, ...] = ()
    detail: str
    """One sentence."""

    @property
    def severity(self) -> Severity:
        return SEVERITY[self.kind]
