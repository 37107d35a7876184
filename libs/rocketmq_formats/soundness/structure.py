"""The structure of an extent of one replica's log, and how extents are joined.

True for every log that RocketMQ writes: a record starts where the one before it ends, and where a file
starts; its magic is known, physicalOffset is its place, its lengths add up to its size, it ends within its file; a
non-empty body has its checksum; only a blank may fill a file's end, and reaches it exactly. Only impossible
times are a fault: clocks may be wrong or go back. After a fault the check continues at the next record.

`structure_check` does the work. An extent may start and end anywhere: a record belongs to the extent that it starts
in. Extents that were checked separately (by several Spark tasks) are joined by `join`, which checks the seams.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent

MAX_FAULTS: Final = 100
"""Faults that are reported one by one; the others are counted."""
MAX_TOPICS: Final = 65_536
"""Topics counted by name, since damaged names look like new ones; the others are counted as `OTHER_TOPICS`."""
OTHER_TOPICS: Final = ""


class Reason(StrEnum):
    """The fault; the value is its name in JSON and the history."""

    NO_RECORD = "noRecord"
    """Neither a record's nor a blank's magic; zeros, for example."""
    PLACE = "place"
    """A record with another offset in it."""
    LENGTHS = "lengths"
    """Sizes that are impossible or do not add up."""
    SEGMENT = "segment"
    """A record that does not end within its file, or too little room for one."""
    BODY_CRC = "bodyCrc"
    TIMESTAMP = "timestamp"
    """Stored before 1970 or after the year 9999."""
    BLANK = "blank"
    """A blank that does not reach its file's end exactly."""
    SEAM = "seam"
    """Between extents checked separately: the next one's first record is not where this one's last record ends."""


class Fault(msgspec.Struct, frozen=True):
    extent: Extent
    """The bad record, or all bytes up to where the next record starts."""
    reason: Reason
    detail: str


class TopicCount(msgspec.Struct, frozen=True):
    """A topic's share of an extent."""

    records: int
    bytes: int
    """Of whole records."""


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an extent. `record_bytes + blank_bytes + skipped_bytes` are all bytes from `first` to `next`."""

    extent: Extent
    first: int | None
    """Where the first record (or blank) starts; None: nowhere."""
    next: int | None
    """Where the record after the extent's last one has to start; None if the extent's end was not reached."""
    records: int = 0
    record_bytes: int = 0
    blanks: int = 0
    blank_bytes: int = 0
    skipped_bytes: int = 0
    """Bytes that are not records."""
    unread: int = 0
    """Bytes at the end of the input that may be the beginning of a record: neither sound nor a fault."""
    first_timestamp: int | None = None
    """storeTimestamp, ms, of the first and of the last record with a sane one."""
    last_timestamp: int | None = None
    topics: Mapping[str, TopicCount] = {}
    faults: tuple[Fault, ...] = ()
    """The first ones, in order of their places."""
    fault_count: int = 0


def join(parts: Iterable[Structure], *, max_faults: int = MAX_FAULTS) -> Structure:
    """One structure of extents that follow each other; where one starts as the one before ends, the seam is checked.

    Raises:
        ValueError: no part at all, or parts that overlap: a bug of the caller.
    """
    ordered = sorted(parts, key=lambda part: part.extent)
    if not ordered:
        raise ValueError("nothing to join")
    faults: list[Fault] = []
    fault_count = 0
    topics: dict[str, TopicCount] = {}
    expected = end = None
    for part in ordered:
        if end is not None and part.extent.start < end:
            raise ValueError(f"{part.extent} begins before {end}, where the part before it ends")
        if part.extent.start != end:
            expected = None
        if expected is not None and (seam := _seam(expected, part)) is not None:
            faults.append(seam)
            fault_count += 1
        faults += part.faults
        fault_count += part.fault_count
        add_topics(topics, part.topics)
        if part.first is not None or expected is None or expected < part.extent.end:
            expected = part.next
        end = part.extent.end
    starts = [part.first for part in ordered if part.first is not None]
    return Structure(
        extent=Extent(ordered[0].extent.start, ordered[-1].extent.end),
        first=starts[0] if starts else None,
        next=expected,
        records=sum(part.records for part in ordered),
        record_bytes=sum(part.record_bytes for part in ordered),
        blanks=sum(part.blanks for part in ordered),
        blank_bytes=sum(part.blank_bytes for part in ordered),
        skipped_bytes=sum(part.skipped_bytes for part in ordered),
        unread=sum(part.unread for part in ordered),
        first_timestamp=next((p.first_timestamp for p in ordered if p.first_timestamp is not None), None),
        last_timestamp=next((p.last_timestamp for p in reversed(ordered) if p.last_timestamp is not None), None),
        topics=topics,
        faults=tuple(faults[:max_faults]),
        fault_count=fault_count,
    )


def add_topics(total: dict[str, TopicCount], more: Mapping[str, TopicCount]) -> None:
    """Add `more` to `total`, with at most MAX_TOPICS names in it."""
    for topic, count in more.items():
        name = topic if topic in total or len(total) < MAX_TOPICS else OTHER_TOPICS
        known = total.get(name, TopicCount(0, 0))
        total[name] = TopicCount(known.records + count.records, known.bytes + count.bytes)


def _seam(expected: int, part: Structure) -> Fault | None:
    """The part's first record has to be where the last one before it ends, if that is within the part."""
    if part.first == expected or (part.first is None and expected >= part.extent.end):
        return None
    found = part.first if part.first is not None else part.extent.end
    return Fault(
        Extent(min(expected, found), max(expected, found)),
        Reason.SEAM,
        f"the next record has to start at {expected}, {'none starts' if part.first is None else 'one starts'} "
        f"{'before' if part.first is None else 'at'} {found}",
    )
