"""The kinds of findings, how severe each is, and what else the verification needs to know of it."""

from enum import StrEnum
from typing import Self

import msgspec

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_verify.domain.model import ReplicaName


class Severity(StrEnum):
    """Effect on the run's result."""

    MISMATCH = "mismatch"
    """The promise is broken: exit code 1."""
    UNVERIFIED = "unverified"
    """Nothing is known: exit code 3, unless there is a mismatch as well."""
    INFORMATION = "information"


class State(StrEnum):
    """What is known of a replica's bytes."""

    DIFFERING = "differing"
    MISSING = "missing"
    UNREAD = "unread"
    """Not compared at all: the replica could not be read, or changed during the run; or no run had the time yet."""
    BEHIND = "behind"
    """Beyond the end of what is compared: not confirmed yet, or a stale tail."""
    ALONE = "alone"
    """No other replica has it (any longer)."""
    EARLIER = "earlier"
    """Compared by an earlier run."""
    VERIFIED = "verified"
    """Compared by this run."""


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of the verification needs to know of a kind of findings. A new kind is a member of `Kind`."""

    severity: Severity
    title: str
    """In reports."""
    advice: str | None = None
    """What to do about one finding; `{who}` stands for its replicas. None: `repair` makes a plan for all of this
    kind."""
    state: State | None = None
    """How its extent is drawn on the map of the replicas it names."""
    explains_difference: bool
    """Chunks in its extent that differ need no other finding."""
    covers_extent: bool = True
    """Findings of the structure and queue checks in its extent are not reported again."""
    ends_comparison: bool = False
    """The replicas it names are aligned up to it at most."""
    names_end: bool = False
    """It begins where the log of a replica ends."""
    ends_early: bool = False
    """The replicas it names end there, before others or before what they have noted."""


class Kind(StrEnum):
    """One per class of findings; the value is its name in JSON, metrics and the history."""

    traits: Traits

    def __new__(cls, value: str, traits: Traits) -> Self:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.traits = traits
        return kind

    CORRUPT_RECORD = (
        "corruptRecord",
        Traits(
            severity=Severity.MISMATCH,
            title="corrupt record",
            state=State.DIFFERING,
            explains_difference=True,
        ),
    )
    """A record differs between replicas, and at least one copy is known to be right or wrong."""
    DIVERGENT_HISTORY = (
        "divergentHistory",
        Traits(
            severity=Severity.MISMATCH,
            title="divergent history",
            state=State.DIFFERING,
            explains_difference=True,
            names_end=True,
        ),
    )
    """The epoch tables contradict each other below the confirm offset."""
    MISSING_SEGMENT = (
        "missingSegment",
        Traits(
            severity=Severity.MISMATCH,
            title="missing file",
            state=State.MISSING,
            explains_difference=True,
            ends_comparison=True,
        ),
    )
    """A file between a replica's first byte and its end is missing or too short."""
    BAD_STRUCTURE = (
        "badStructure",
        Traits(
            severity=Severity.MISMATCH,
            title="bad structure",
            state=State.DIFFERING,
            explains_difference=False,
        ),
    )
    """Bytes that are not a chain of records, equal in all replicas that have them."""
    QUEUE_MISMATCH = (
        "queueMismatch",
        Traits(
            severity=Severity.MISMATCH,
            title="consume queue",
            advice="Consume queues are built from the log, nothing is lost: stop {who}, move its consumequeue "
            "directory away, start it; it builds them again (if it is master, switch over first).",
            explains_difference=False,
        ),
    )
    """A consume queue's unit does not point to its record."""
    CHANGED_SINCE = (
        "changedSince",
        Traits(
            severity=Severity.MISMATCH,
            title="changed since",
            state=State.DIFFERING,
            explains_difference=False,
            covers_extent=False,
        ),
    )
    """Bytes that an earlier run read right are others now; no comparison of the replicas need show it."""
    LOST_CONFIRMED = (
        "lostConfirmed",
        Traits(
            severity=Severity.MISMATCH,
            title="confirmed bytes lost",
            advice="Keep the disks of {who} as they are and let nothing expire. Look for these bytes in backups and "
            "snapshots of the volumes, and in replicas that were not read; else send the messages again from their "
            "producers. A rebuild does not bring them back.",
            explains_difference=False,
            covers_extent=False,
            names_end=True,
            ends_early=True,
        ),
    )
    """A replica has noted bytes as confirmed and has lost them; no other has them, or that note was a promise. Or the
    ledger has bytes that no log has any more."""
    UNREACHABLE = (
        "unreachable",
        Traits(
            severity=Severity.UNVERIFIED,
            title="unreachable",
            advice="Find out why {who} cannot be read (running? network policy? path and rights?), then verify again; "
            "nothing is known about its log.",
            explains_difference=False,
            ends_comparison=True,
        ),
    )
    """A replica could not be read; nothing is known about it."""
    LOST_COPY = (
        "lostCopy",
        Traits(
            severity=Severity.UNVERIFIED,
            title="confirmed copy lost",
            advice="Do not make {who} the master. It copies what its master has of them when it connects; verify "
            "again after that, and find out why it lost them (a power cut, a disk, a file that was deleted).",
            explains_difference=False,
            covers_extent=False,
            names_end=True,
            ends_early=True,
        ),
    )
    """A replica has noted bytes as confirmed and has lost them; others are that long, or the note may be old. Or a
    newer master lacks what two others have noted."""
    REPLACED_SINCE = (
        "replacedSince",
        Traits(
            severity=Severity.UNVERIFIED,
            title="replaced since",
            advice="Find out when and why {who} took another history: the result of a run has the time before, the "
            "controllers' log the elections since. What was confirmed may be lost: look for it in backups. The next "
            "run compares with what is there now.",
            explains_difference=False,
            covers_extent=False,
        ),
    )
    """Confirmed bytes that an earlier run read were cut off or written again after a later election, or all were."""
    NOT_READ_IN_TIME = (
        "notReadInTime",
        Traits(
            severity=Severity.UNVERIFIED,
            title="not read in time",
            advice="Give the verification more time, a higher rate, or more runs, or promise less: "
            "timeoutSeconds, rateLimit, schedule and rereadDays of spec.verification.",
            explains_difference=False,
            covers_extent=False,
        ),
    )
    """Bytes that no run has read in the promised time (`rereadDays`)."""
    LAGGING = (
        "lagging",
        Traits(
            severity=Severity.INFORMATION,
            title="lagging",
            advice="Nothing, if {who} is catching up; check that it runs and is connected.",
            explains_difference=False,
            covers_extent=False,
            names_end=True,
            ends_early=True,
        ),
    )
    """A replica ends before what the group has confirmed; what it has was compared."""
    STALE_TAIL = (
        "staleTail",
        Traits(
            severity=Severity.INFORMATION,
            title="stale tail",
            advice="Nothing: {who} drops these bytes when it connects to its master. If it cannot connect, its log "
            "has the reason.",
            state=State.BEHIND,
            explains_difference=True,
            covers_extent=False,
            ends_comparison=True,
            names_end=True,
        ),
    )
    """Bytes beyond the common history: left over from a former master, or not overwritten yet."""
    UNUSED_BYTES = (
        "unusedBytes",
        Traits(
            severity=Severity.INFORMATION,
            title="unused bytes",
            advice="Nothing: no message is in these bytes ({who}).",
            explains_difference=True,
            covers_extent=False,
        ),
    )
    """Bytes that no record uses differ: the rest of a blank at the end of a file, which brokers may not overwrite."""

    INDEX_MISMATCH = (
        "indexMismatch",
        Traits(
            severity=Severity.INFORMATION,
            title="index file",
            advice="Nothing is lost, but queries by key on {who} may miss messages, or not end. Stop it, move its "
            "index and consumequeue directories away, start it; it builds both again (a master: switch over first).",
            explains_difference=False,
            covers_extent=False,
        ),
    )
    """An entry of an index file does not lead to a record with its key, or cannot be found."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's copy of a differing record: some of its bytes, for people."""

    replica: ReplicaName
    right: bool | None
    """None: unknown."""
    reason: str
    """Why: `body CRC wrong`, `as two others have it`, ..."""
    hex_offset: int = 0
    """Physical offset of the first byte of `hex`."""
    hex: str = ""
    """Up to 64 bytes around the first difference."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. Reports sort by severity, offset, replica."""

    kind: Kind
    replicas: tuple[ReplicaName, ...]
    """Those with the wrong copy, the lagging one, ...; all of them where that is unknown."""
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
        return self.kind.traits.severity
