"""Do the entries of an index file lead to records that have their key, and do their chains end?

Only what an official broker needs to find messages by their keys. Whether every key has an entry is not checked: an
index may have been switched on late (messageIndexEnable), and brokers leave out what they write over a cut.

Not a fault: an entry of a record that was cut when masters changed. Java does not cut its index files, and gives the
records that it writes there no entries. Such an entry is older than the record that has its place now (`stale`).
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.index_file import Entry, Header, Layout

MAX_FAULTS: Final = 100
"""Faults that are described; the others are counted."""
SECOND_MS: Final = 1000
"""How exactly an entry knows the time of its record."""


class IndexReason(StrEnum):
    """The fault; the value is its name in JSON."""

    HEADER = "header"
    """Numbers that cannot be, or that contradict the entries: nothing else of the file is checked."""
    ORDER = "order"
    """An entry that leads behind the next one, or before the one in front of it."""
    NO_RECORD = "noRecord"
    """An entry that leads into a record of its time, not to its start."""
    KEY = "key"
    """An entry that leads to a record without such a key."""
    SLOT = "slot"
    """A slot that does not lead to its entries: they are not found."""
    CHAIN = "chain"
    """An entry whose chain leaves out others, leads out of the file, or never ends: a query would not end either."""


class IndexFault(msgspec.Struct, frozen=True):
    """One entry that is wrong, or a header."""

    file: str
    entry: int | None
    """None: the header."""
    physical_offset: int | None
    """Where it leads, if that is in the log that was checked."""
    reason: IndexReason
    detail: str


class IndexCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result for all index files of a replica, as far as they lead into one extent of the log."""

    entries: int
    """That were checked."""
    stale: int = 0
    """Of records that were cut."""
    faults: tuple[IndexFault, ...] = ()
    fault_count: int = 0

    def plus(self, other: "IndexCheck") -> "IndexCheck":
        """With those of another file."""
        return IndexCheck(
            entries=self.entries + other.entries,
            stale=self.stale + other.stale,
            faults=(*self.faults, *other.faults)[:MAX_FAULTS],
            fault_count=self.fault_count + other.fault_count,
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
    if not 0 <= header.count <= layout.entries:
        return f"it counts {header.count} entries of at most {layout.entries}"
    if not 0 <= header.used_slots <= min(max(header.count - 1, 0), layout.slots):
        return f"it counts {header.used_slots} slots in use, for {max(header.count - 1, 0)} entries"
    if not 0 <= header.begin_offset <= header.end_offset:
        return f"it reaches from offset {header.begin_offset} to {header.end_offset}"
    return None


class EntryCheck:
    """Checks entries of one file, ascending and without holes, against the records of an extent."""

    def __init__(self, file: str, layout: Layout, header: Header, extent: Extent, records: Sequence[Keyed]) -> None:
        """`records`: all of the extent, by their offsets."""
        self._file, self._layout, self._header, self._extent = file, layout, header, extent
        self._records = records
        self._starts = [record.offset for record in records]
        self._newest: dict[int, int] = {}
        self._unsure: set[int] = set()
        """Numbers of entries whose slot, or place in the log, is unknown."""
        self._faults: list[IndexFault] = []
        self._entries = self._stale = self._fault_count = 0

    def feed(self, first: int, entries: Sequence[Entry], slots: Mapping[int, int], newest: int) -> IndexCheck:
        """
        Args:
            first: the number of the first entry.
            slots: what the slots of these entries have.
            newest: the highest number that a slot may have: of an entry that may not be counted yet.
        """
        before, last = self._header.begin_offset, self._header.end_offset
        following = [*(entry.physical_offset for entry in entries[1:]), last]
        for number, (entry, after) in enumerate(zip(entries, following, strict=True), first):
            if not before <= entry.physical_offset <= (after if after >= before else last):
                self._unsure.add(number)
                self._fault(number, None, IndexReason.ORDER, f"it leads to {entry.physical_offset}, out of order")
                continue
            before = entry.physical_offset
            if not self._extent.start <= before < self._extent.end:
                continue
            self._entries += 1
            if self._record(number, entry):
                self._chain(number, entry, slots, newest)
            else:
                self._unsure.add(number)
        return IndexCheck(
            entries=self._entries, stale=self._stale, faults=tuple(self._faults), fault_count=self._fault_count
        )

    def _record(self, number: int, entry: Entry) -> bool:
        """Whether its key can be right, so that its slot is known."""
        at = bisect_right(self._starts, entry.physical_offset) - 1
        if at < 0 or entry.physical_offset >= self._records[at].end:
            return True  # no record is known there: the structural check tells of it
        record = self._records[at]
        exact = entry.physical_offset == record.offset
        if exact and ((hashes := record.hashes()) is None or entry.key_hash in hashes):
            return True
        if record.store_ms - (self._header.begin_ms + SECOND_MS * entry.seconds) >= SECOND_MS:
            self._stale += 1
            return True
        if exact:
            detail = f"it leads to {record.offset}, where no key has its hash {entry.key_hash}"
            self._fault(number, entry.physical_offset, IndexReason.KEY, detail)
        else:
            detail = f"it leads to {entry.physical_offset}, into the record at {record.offset}"
            self._fault(number, entry.physical_offset, IndexReason.NO_RECORD, detail)
        return not exact

    def _chain(self, number: int, entry: Entry, slots: Mapping[int, int], newest: int) -> None:
        place, slot = entry.physical_offset, entry.key_hash % self._layout.slots
        head, known = slots.get(slot, number), self._newest.get(slot, entry.before)
        if not number <= head <= newest:
            self._fault(number, place, IndexReason.SLOT, f"its slot {slot} leads to {head} of {newest} entries")
        if not 0 <= entry.before < number:
            self._fault(
                number, place, IndexReason.CHAIN, f"its chain goes on with {entry.before}, in a circle or nowhere"
            )
        elif entry.before != known and entry.before not in self._unsure:
            detail = f"its chain goes on with {entry.before}, and leaves out {known} of the same slot {slot}"
            self._fault(number, place, IndexReason.CHAIN, detail)
        self._newest[slot] = number

    def _fault(self, number: int, place: int | None, reason: IndexReason, detail: str) -> None:
        self._fault_count += 1
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(IndexFault(self._file, number, place, reason, f"entry {number}: {detail}"))
