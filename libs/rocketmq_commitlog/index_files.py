"""Index files on disk against the records of an extent of the log: for the verification that reads files, and for the
sidecar (`range_check`), beside `queue_files`. Only official brokers have such files.

A broker may be writing. It writes an entry, then its slot, then the header, so what the header counts is there; what
seems wrong is read again before it counts. A file may have 400 MB: the entries that lead into the extent are searched,
and read in small pieces.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from rocketmq_commitlog import queue_files
from rocketmq_commitlog.errors import LogReadError
from rocketmq_commitlog.state import LogPaths, read_epochs
from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.indexes import (
    EntryCheck,
    Ground,
    IndexCheck,
    IndexFault,
    IndexReason,
    Keyed,
    Part,
    bad_ends,
    bad_header,
    is_empty,
)
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.index_file import (
    ENTRY_SIZE,
    FOLDER,
    HEADER_SIZE,
    NOTHING,
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
PIECE: Final = 256
"""Entries between two rests: some milliseconds of work that holds the interpreter."""
MOST_SKIPPED: Final = 1024
"""Entries out of order that a search passes; a page has 204."""
MOST_KNOWN: Final = 1000
_GONE: Final = (errno.ENOENT, errno.ENODATA, errno.ESTALE)
_NOTHING: Final = IndexCheck(entries=0)

_known: set[tuple[Path, IndexFault]] = set()
"""Files that stayed wrong when they were read again: every extent meets them, and waits for them once."""


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
        rest: called after each piece with the bytes that were read.
    """
    extent = Extent(extent.start, min(max(seen.whole, extent.start), extent.end))
    indexed = {name: root for name, root in roots.items() if any(True for _ in _names(_folder(root)))}
    found: dict[str, IndexCheck] = {}
    if not indexed:
        return found
    cuts = _cuts(roots.values(), sleep)
    for name, root in indexed.items():
        lasting = set[tuple[Path, IndexFault]]()
        for attempt in range(queue_files.ATTEMPTS):
            if attempt:
                sleep(queue_files.PAUSE)
            check = found[name] = _Index(root, extent, seen.records, cuts, rest).check()
            lasting = {(root, fault) for fault in check.files}
            if check.sound or (not check.fault_count and lasting <= _known):
                break
        else:
            if len(_known) + len(lasting) > MOST_KNOWN:
                _known.clear()
            _known.update(lasting)
    return found


def _cuts(roots: Iterable[Path], sleep: Callable[[float], None]) -> list[int] | None:
    """Where the logs may have been cut: where epochs start, in any of these stores. None: one has lost its table."""
    starts = set[int]()
    for root in roots:
        try:
            starts.update(start for _, start in read_epochs(LogPaths.of(root), sleep).starts())
        except LogReadError:
            return None
    return sorted(starts)


class _Index:
    """The index files of one store, once."""

    def __init__(
        self,
        root: Path,
        extent: Extent,
        records: Sequence[Keyed],
        cuts: Sequence[int] | None,
        rest: Callable[[int], None],
    ) -> None:
        start = queue_files.log_start(root, extent)
        extent = Extent(min(max(start, extent.start), extent.end), extent.end)
        self._ground = Ground(extent, records, [record.offset for record in records], cuts)
        self._folder, self._rest = _folder(root), rest

    def check(self) -> IndexCheck:
        whole = _NOTHING
        for name in _names(self._folder):
            try:
                with _opened(self._folder / name) as fd:
                    whole = whole.plus(self._file(_File(fd, name)))
            except _BadFileError as error:
                fault = IndexFault(name, error.entry, None, error.reason, str(error))
                whole = whole.plus(IndexCheck(entries=0, files=(fault,)))
            except OSError as error:
                if error.errno not in _GONE:  # it may be expiring
                    why = f"it cannot be read: {os.strerror(error.errno or errno.EIO)}"
                    fault = IndexFault(name, None, None, IndexReason.UNREADABLE, why)
                    whole = whole.plus(IndexCheck(entries=0, files=(fault,)))
        return whole

    def _file(self, file: "_File") -> IndexCheck:
        """Raises `_BadFileError`."""
        header, layout, extent = file.header, file.layout, self._ground.extent
        self._rest(HEADER_SIZE)
        if layout is None or header is None:
            return _NOTHING
        if header.end_offset < extent.start or header.begin_offset >= extent.end or not extent.length:
            return _NOTHING
        low, before = file.first_from(extent.start)
        high = min(file.first_from(extent.end)[0], low + MOST_ENTRIES)
        check = EntryCheck(file.name, layout, header, self._ground, before)
        for first in range(low, high, PIECE):
            part = file.part(first, min(first + PIECE, high))
            check.feed(part)
            self._rest(len(part.entries) * ENTRY_SIZE + len(part.slots) * SLOT_SIZE)
        return check.finish()


class _BadFileError(Exception):
    """A file of which nothing more can be checked."""

    def __init__(self, reason: IndexReason, why: str, entry: int | None = None) -> None:
        super().__init__(why)
        self.reason, self.entry = reason, entry


class _File:
    """One file with a header that can be, and that agrees with the first and the last entry."""

    def __init__(self, fd: int, name: str) -> None:
        """Raises `_BadFileError`."""
        self._fd, self.name = fd, name
        status = os.fstat(fd)
        self.header: Header | None = None
        self.layout = Layout.of(status.st_size) if stat.S_ISREG(status.st_mode) else None
        """None: unknown."""
        if self.layout is None:
            return
        header = unpack_header(_read(fd, HEADER_SIZE, 0))
        if (why := bad_header(header, self.layout)) is None:
            if header.index_count > 1:
                why = bad_ends(header, self._entry(1), self._entry(header.index_count - 1))
            following = max(header.index_count, 1)
            if following < self.layout.entries and _read(fd, ENTRY_SIZE, self.layout.at(following)) != NOTHING:
                why = why or f"it counts {following - 1} entries, and there are more"
        if why is not None:
            raise _BadFileError(IndexReason.HEADER, f"its header is wrong: {why}")
        if header.index_count > 1:
            self.header = header

    def first_from(self, offset: int) -> tuple[int, int]:
        """Number of the first entry that leads to `offset` or behind it, the header's `index_count` if none does; and
        where one before it leads. Entries out of order count as those behind them. Raises `_BadFileError`."""
        assert self.header is not None
        low, high = 1, self.header.index_count
        least, most = self.header.begin_offset, self.header.end_offset
        while low < high:
            middle = number = (low + high) // 2
            entry = self._entry(number)
            while is_empty(number, entry) or not least <= entry.physical_offset <= most:
                number += 1
                if number == high:
                    break
                if number - middle > MOST_SKIPPED:
                    why = f"its entries from {middle} on are out of order, and are not checked"
                    raise _BadFileError(IndexReason.ORDER, why, middle)
                entry = self._entry(number)
            if number < high and entry.physical_offset < offset:
                low, least = number + 1, entry.physical_offset
            elif number < high:
                high, most = middle, entry.physical_offset
            else:
                high = middle
        return low, least

    def part(self, first: int, stop: int) -> Part:
        """The entries from `first` to before `stop`."""
        assert self.header is not None
        assert self.layout is not None
        count = self.header.index_count
        packed = _read(self._fd, (min(stop + 1, count) - first) * ENTRY_SIZE, self.layout.at(first))
        entries = [Entry(*fields) for fields in iter_entries(packed)]
        following = entries.pop() if stop < count else None
        slots = {}
        for slot in sorted({entry.key_hash % self.layout.slots for entry in entries}):
            (slots[slot],) = unpack_slot(_read(self._fd, SLOT_SIZE, self.layout.slot_at(slot)))
        newest = unpack_header(_read(self._fd, HEADER_SIZE, 0)).index_count  # one may be there, not yet counted
        return Part(first, entries, following, slots, max(newest, count))

    def _entry(self, number: int) -> Entry:
        assert self.layout is not None
        (fields,) = iter_entries(_read(self._fd, ENTRY_SIZE, self.layout.at(number)))
        return Entry(*fields)


def _read(fd: int, size: int, at: int) -> bytes:
    data = os.pread(fd, size, at)
    if len(data) < size:
        raise OSError(errno.ENODATA, "the file has become shorter")
    return data


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
