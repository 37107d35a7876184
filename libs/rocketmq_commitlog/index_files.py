"""Index files on disk against the records of an extent of the log: for the verification that reads files, and for the
sidecar (`range_check`), beside `queue_files`. Only official brokers have such files.

A broker may be writing. It writes an entry, then its slot, then the header, so what the header counts is there; what
seems wrong is read again before it counts.
"""

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from rocketmq_commitlog import queue_files
from rocketmq_commitlog.state import LogPaths
from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.indexes import EntryCheck, IndexCheck, IndexFault, IndexReason, Keyed, bad_header
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.index_file import (
    ENTRY_SIZE,
    FOLDER,
    HEADER_SIZE,
    SLOT_SIZE,
    Entry,
    Header,
    Layout,
    is_index_name,
    iter_entries,
    key_hashes,
    unpack_header,
    unpack_slot,
)

MOST_FILES: Final = 10_000
"""Of one store; brokers keep them as long as the log."""
MOST_ENTRIES: Final = 1 << 20
"""Of one file that are checked with one extent: of more, in so few bytes of log, some are damaged."""


class RecordsSeen:
    """The records of batches that pass, kept if one of the stores has index files."""

    def __init__(self, batches: Iterable[rows.Batch], roots: Iterable[Path]) -> None:
        self._batches = batches
        self._wanted = any(True for root in roots for _ in _names(_folder(root)))
        self.records: list[Keyed] = []
        """Ascending."""
        self.whole = 0
        """Up to here there were whole records."""

    def __iter__(self) -> Iterator[rows.Batch]:
        for batch in self._batches:
            self.whole = batch.next_offset
            if self._wanted:
                part = batch.columns
                self.records += [
                    Keyed(offset, offset + size, store_ms, _once(topic, properties))
                    for offset, size, store_ms, topic, properties in zip(
                        part.physical_offset, part.size, part.store_timestamp, part.topic, part.properties, strict=True
                    )
                ]
            yield batch


def check_indexes(
    seen: RecordsSeen,
    extent: Extent,
    roots: Mapping[str, Path],
    *,
    sleep: Callable[[float], None] = time.sleep,
    rest: Callable[[int], None] = lambda _: None,
) -> dict[str, IndexCheck]:
    """The index files of every store that has any, as far as they lead into the extent.

    Args:
        seen: records of the extent, which have passed.
        roots: storePathRootDir of each replica.
        rest: called after each store with the bytes that were read.
    """
    extent = Extent(extent.start, min(max(seen.whole, extent.start), extent.end))
    found: dict[str, IndexCheck] = {}
    for name, root in roots.items():
        for attempt in range(queue_files.ATTEMPTS):
            if attempt:
                sleep(queue_files.PAUSE)
            check = _check(root, extent, seen, rest)
            if check is None:
                break
            found[name] = check
            if not check.fault_count:
                break
    return found


def _check(root: Path, extent: Extent, seen: RecordsSeen, rest: Callable[[int], None]) -> IndexCheck | None:
    """None: without index files."""
    folder = _folder(root)
    names = list(_names(folder))
    if not names:
        return None
    start = queue_files.log_start(root, extent)
    if start > extent.start:
        extent = Extent(min(start, extent.end), extent.end)
    whole = IndexCheck(entries=0)
    for name in names:
        with suppress(OSError), _opened(folder / name) as fd:  # it may be expiring
            found, read = _check_file(fd, name, extent, seen)
            whole = whole.plus(found)
            rest(read)
    return whole


def _check_file(fd: int, name: str, extent: Extent, seen: RecordsSeen) -> tuple[IndexCheck, int]:
    """And the bytes that were read."""
    nothing = IndexCheck(entries=0)
    layout = Layout.of(os.fstat(fd).st_size)
    if layout is None:
        return nothing, 0
    data = _read(fd, HEADER_SIZE, 0)
    header = unpack_header(data)
    if (why := bad_header(header, layout)) is not None:
        return _bad(name, None, IndexReason.HEADER, f"its header is wrong: {why}"), len(data)
    if header.count <= 1 or header.end_offset < extent.start or header.begin_offset >= extent.end:
        return nothing, len(data)
    ends = _entry(fd, layout, 1).physical_offset, _entry(fd, layout, header.count - 1).physical_offset
    if ends != (header.begin_offset, header.end_offset):
        told = f"{header.begin_offset} to {header.end_offset}"
        why = f"its entries reach from offset {ends[0]} to {ends[1]}, its header says {told}"
        return _bad(name, None, IndexReason.HEADER, why), len(data)
    try:
        low, high = (_first_from(fd, layout, header, offset) for offset in (extent.start, extent.end))
    except _OrderError as error:
        return _bad(name, error.number, IndexReason.ORDER, str(error)), len(data)
    low, high = max(low - 1, 1), min(high + 2, header.count, low + MOST_ENTRIES)  # with neighbours, to see their order
    packed = _read(fd, (high - low) * ENTRY_SIZE, layout.at(low))
    entries = [Entry(*fields) for fields in iter_entries(packed)]
    slots = {}
    for slot in {entry.key_hash % layout.slots for entry in entries}:
        (slots[slot],) = unpack_slot(_read(fd, SLOT_SIZE, layout.slot_at(slot)))
    newest = max(unpack_header(_read(fd, HEADER_SIZE, 0)).count, header.count)  # one may be there, not yet counted
    check = EntryCheck(name, layout, header, extent, seen.records)
    return check.feed(low, entries, slots, newest), len(packed) + SLOT_SIZE * len(slots)


class _OrderError(Exception):
    """An entry that cannot be where it is."""

    def __init__(self, number: int, leads: int) -> None:
        super().__init__(f"entry {number}: it leads to {leads}, out of order: the file's entries are not checked")
        self.number = number


def _first_from(fd: int, layout: Layout, header: Header, offset: int) -> int:
    """Number of the first entry that leads to `offset` or behind it; `header.count` if none does. Raises
    `_OrderError`."""
    low, high = 1, header.count
    least, most = header.begin_offset, header.end_offset
    while low < high:
        middle = (low + high) // 2
        entry = _entry(fd, layout, middle)
        if not least <= entry.physical_offset <= most or (not any(entry) and middle > 1):
            raise _OrderError(middle, entry.physical_offset)
        if entry.physical_offset < offset:
            low, least = middle + 1, entry.physical_offset
        else:
            high, most = middle, entry.physical_offset
    return low


def _entry(fd: int, layout: Layout, number: int) -> Entry:
    (fields,) = iter_entries(_read(fd, ENTRY_SIZE, layout.at(number)))
    return Entry(*fields)


def _read(fd: int, size: int, at: int) -> bytes:
    data = os.pread(fd, size, at)
    if len(data) < size:
        raise OSError(errno.ENODATA, "the file has become shorter")
    return data


def _bad(name: str, entry: int | None, reason: IndexReason, why: str) -> IndexCheck:
    fault = IndexFault(name, entry, None, reason, why)
    return IndexCheck(entries=0, faults=(fault,), fault_count=1)


def _folder(root: Path) -> Path:
    return LogPaths.of(root).commit_log.parent / FOLDER


def _names(folder: Path) -> Iterator[str]:
    """Of its index files, the oldest first."""
    with suppress(OSError):
        yield from sorted(path.name for path in folder.iterdir() if is_index_name(path.name))[-MOST_FILES:]


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield fd
    finally:
        os.close(fd)


def _once(topic: str, properties: bytes) -> Callable[[], frozenset[int] | None]:
    """The hashes of a record's keys, computed when they are needed first: for all entries, and all replicas."""
    return cache(lambda: key_hashes(topic, properties))
