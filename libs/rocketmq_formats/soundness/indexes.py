"""Do the entries of an index file lead to records that have their key, and do their chains end?

Only what an official broker needs to find messages by their keys. Whether every key has an entry is not checked: an
index may have been switched on late (messageIndexEnable), and brokers leave out what they write over a cut.

Not a fault: an entry of a record that was cut when masters changed. Java does not cut its index files, and gives the
records that it writes there no entries. So from where an epoch starts, entries may be `stale`, up to the first record
with right ones. Times alone do not tell: a master that was killed may have a successor within a second.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.index_file import Entry, Header, Layout, seconds_since

MAX_FAULTS: Final = 100
"""Faults that are described; the others are counted."""
SECOND_MS: Final = 1000
"""How exactly an entry knows the time of its record."""


class IndexReason(StrEnum):
    """The fault; the value is its name in JSON."""

    UNREADABLE = "unreadable"
    """The disk does not return the file."""
    HEADER = "header"
    """Numbers that cannot be, or that contradict the entries: nothing else of the file is checked."""
    ORDER = "order"
    """An entry that leads behind the next one, or before the one in front of it."""
    NO_RECORD = "noRecord"
    """An entry that leads into a record, not to its start."""
    KEY = "key"
    """An entry that leads to a record without such a key."""
    TIME = "time"
    """An entry that has another time than its record: queries for that time do not find it."""
    SLOT = "slot"
    """A slot that does not lead to its entries: they are not found."""
    CHAIN = "chain"
    """An entry whose chain leaves out others, leads out of the file, or never ends: a query would not end either."""


class IndexFault(msgspec.Struct, frozen=True):
    """One entry that is wrong, or a file."""

    file: str
    entry: int | None
    """None: its header, or all of it."""
    physical_offset: int | None
    """Where it leads, if that is in the log that was checked."""
    reason: IndexReason
    detail: str


class IndexCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result for all index files of a replica, as far as they lead into one extent of the log."""

    entries: int
    """That were checked."""
    stale: int = 0
    """That may be of records that were cut."""
    faults: tuple[IndexFault, ...] = ()
    """Of entries."""
    fault_count: int = 0
    files: tuple[IndexFault, ...] = ()
    """Of files that could not be checked, one each; every extent tells them again."""

    @property
    def sound(self) -> bool:
        return not self.fault_count and not self.files

    def plus(self, other: "IndexCheck") -> "IndexCheck":
        """With those of another file."""
        return IndexCheck(
            entries=self.entries + other.entries,
            stale=self.stale + other.stale,
            faults=(*self.faults, *other.faults)[:MAX_FAULTS],
            fault_count=self.fault_count + other.fault_count,
            files=(*self.files, *other.files)[:MAX_FAULTS],
        )


class Keyed(NamedTuple):
    """A record, as far as an index needs to know it."""

    offset: int
    end: int
    store_ms: int
    hashes: Callable[[], frozenset[int] | None]
    """Of its keys, see `index_file.key_hashes`."""


def bad_header(header: Header, layout: Layout) -> str | None:
    """What cannot be in it; None: nothing."""
    most = max(header.index_count - 1, 0)
    if not 0 <= header.index_count <= layout.entries:
        return f"it counts {header.index_count} entries of at most {layout.entries}"
    if not 0 <= header.used_slots <= min(most, layout.slots):
        return f"it counts {header.used_slots} slots in use, for {most} entries"
    if not 0 <= header.begin_offset <= header.end_offset:
        return f"it reaches from offset {header.begin_offset} to {header.end_offset}"
    return None


def bad_ends(header: Header, first: Entry, last: Entry) -> str | None:
    """What the header contradicts in its first and last entry; None: nothing."""
    reach = first.physical_offset, last.physical_offset
    if reach != (header.begin_offset, header.end_offset):
        told = f"{header.begin_offset} to {header.end_offset}"
        return f"its entries reach from offset {reach[0]} to {reach[1]}, its header says {told}"
    span = seconds_since(header.begin_ms, header.end_ms)
    if header.index_count > 2 and last.seconds != span:
        return f"its last entry is {last.seconds} s behind its first one, its header says {span} s"
    if header.index_count == 2 and header.begin_ms != header.end_ms:
        return f"it has one entry, and begins at {header.begin_ms} and ends at {header.end_ms}"
    return None


def is_empty(number: int, entry: Entry) -> bool:
    """Whether it was never written. Only of the first record's keys could one be zeros."""
    return number > 1 and not any(entry)


class Part(NamedTuple):
    """Some entries of a file, without holes, and what else is needed to judge them."""

    first: int
    """The number of the first one."""
    entries: Sequence[Entry]
    following: Entry | None
    """The entry behind them; None: it is not there, or not yet."""
    slots: Mapping[int, int]
    """What the slots of these entries have."""
    newest: int
    """The highest number that a slot may have: of an entry that may not be counted yet."""


class Ground(NamedTuple):
    """What entries are judged by."""

    extent: Extent
    records: Sequence[Keyed]
    """All of the extent, by their offsets."""
    starts: Sequence[int]
    """Their offsets."""
    cuts: Sequence[int] | None
    """Where epochs start, ascending; None: unknown."""


class EntryCheck:
    """Checks entries of one file, ascending and without holes, against the records of an extent."""

    def __init__(self, file: str, layout: Layout, header: Header, ground: Ground, before: int) -> None:
        """`before`: where an entry before the first one leads."""
        self._file, self._layout, self._header = file, layout, header
        self._extent, self._records, self._starts, self._cuts = ground
        self._before = before
        self._newest: dict[int, int] = {}
        self._unsure: set[int] = set()
        """Numbers of entries whose slot, or place in the log, is unknown."""
        self._right = -1
        """The last record all of whose entries are right."""
        self._record_at, self._record_right = -1, False
        self._faults: list[IndexFault] = []
        self._entries = self._stale = self._fault_count = 0

    def feed(self, part: Part) -> None:
        """The next entries."""
        following: list[Entry | None] = [*part.entries[1:], part.following]
        for number, (entry, after) in enumerate(zip(part.entries, following, strict=True), part.first):
            before, last = self._before, self._header.end_offset
            most = after.physical_offset if after is not None and before <= after.physical_offset <= last else last
            if is_empty(number, entry) or not before <= entry.physical_offset <= most:
                self._unsure.add(number)
                self._fault(number, None, IndexReason.ORDER, f"it leads to {entry.physical_offset}, out of order")
                continue
            self._before = entry.physical_offset
            if not self._extent.start <= entry.physical_offset < self._extent.end:
                continue
            self._entries += 1
            if self._leads_right(number, entry):
                self._chain(number, entry, part)
            else:
                self._unsure.add(number)

    def finish(self) -> IndexCheck:
        return IndexCheck(
            entries=self._entries, stale=self._stale, faults=tuple(self._faults), fault_count=self._fault_count
        )

    def _leads_right(self, number: int, entry: Entry) -> bool:
        """Whether its key can be right, so that its slot is known."""
        place = entry.physical_offset
        if place != self._record_at:
            if self._record_right:
                self._right = self._record_at
            self._record_at, self._record_right = place, True
        at = bisect_right(self._starts, place) - 1
        if at < 0 or place >= self._records[at].end:
            self._record_right = False
            return True  # no record is known there: the structural check tells of it
        record = self._records[at]
        hashes = record.hashes() if place == record.offset else frozenset[int]()
        if hashes is None:
            self._record_right = False
            return True
        seconds = seconds_since(self._header.begin_ms, record.store_ms)
        if has_key := entry.key_hash in hashes:
            if number == 1 or entry.seconds == seconds:
                return True
            reason = IndexReason.TIME
            detail = f"it is {entry.seconds} s behind the file's begin, and its record at {place} {seconds} s"
        elif place == record.offset:
            reason, detail = IndexReason.KEY, f"it leads to {place}, where no key has its hash {entry.key_hash}"
        else:
            reason, detail = IndexReason.NO_RECORD, f"it leads to {place}, into the record at {record.offset}"
        self._record_right = False
        if self._may_be_cut(place, entry, record):
            self._stale += 1
            return True
        self._fault(number, place, reason, detail)
        return has_key or place != record.offset

    def _may_be_cut(self, place: int, entry: Entry, record: Keyed) -> bool:
        """Whether its record may have been replaced by this one."""
        if self._cuts is None:
            return True
        at = bisect_right(self._cuts, place) - 1
        if at < 0:
            return False
        if self._cuts[at] > self._right:
            return True
        # an epoch may have a wrong start, if it is not the first one
        newer = record.store_ms - (self._header.begin_ms + SECOND_MS * entry.seconds) >= SECOND_MS
        return self._cuts[at] > 0 and newer

    def _chain(self, number: int, entry: Entry, part: Part) -> None:
        place, slot = entry.physical_offset, entry.key_hash % self._layout.slots
        head, known = part.slots.get(slot, number), self._newest.get(slot, entry.before)
        if not number <= head <= part.newest:
            self._fault(number, place, IndexReason.SLOT, f"its slot {slot} leads to {head} of {part.newest} entries")
        if not 0 <= entry.before < number:
            self._fault(
                number, place, IndexReason.CHAIN, f"its chain continues with {entry.before}, in a circle or nowhere"
            )
        elif entry.before != known and entry.before not in self._unsure:
            detail = f"its chain continues with {entry.before}, and leaves out {known} of the same slot {slot}"
            self._fault(number, place, IndexReason.CHAIN, detail)
        self._newest[slot] = number

    def _fault(self, number: int, place: int | None, reason: IndexReason, detail: str) -> None:
        self._fault_count += 1
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(IndexFault(self._file, number, place, reason, f"entry {number}: {detail}"))
