"""Consume queues on disk against the records of an extent of the log: for the verification that reads files, and for
the sidecar (`range_check`).

Most queues are right, so the units that the records require are packed and compared with the file's bytes; only if they
differ is every unit checked (`rocketmq_formats.soundness.queues`). The broker may be writing: what seems wrong is read
again before it counts.

Only queues with records in the extent are checked. Brokers make units in the log's order (`DISPATCH_SPAN`). So once a
record has its unit, missing units of earlier records at a queue's end will not come: the queue was cut or emptied. Two
harmless cases reading the same: a topic that was deleted (its queues are deleted, its records stay), and one that was
created again, whose numbers start at 0 again. So a queue counts as cut if its last unit is older than the lost ones,
and as emptied if another replica has its units and the topic exists. A store without any queue has lost all of them.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rocketmq_commitlog.errors import AbsentError, LogReadError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.state import NATIVE_IDENTITY, LogPaths
from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queue_states import QueueState
from rocketmq_formats.soundness.queues import (
    MAX_FAULTS,
    PRE_BLANK_SIZE,
    QueueCheck,
    QueueFault,
    QueueReason,
    Unit,
    check_queue,
    checkable,
)
from rocketmq_formats.soundness.records import MAGICS
from rocketmq_formats.store import walk as heads
from rocketmq_formats.store.consume_queue import DISPATCH_SPAN, UNIT_SIZE, is_unit, iter_units, pack_units
from rocketmq_formats.store.segment_names import SegmentNameError, segment_offset

FOLDER: Final = "consumequeue"
ROCKSDB_FOLDER: Final = "consumequeue_r"
"""Java's consume queues in RocksDB."""
TOPICS: Final = "config/topics.json"
LONGEST_TABLE: Final = 64 << 20
"""Bytes of the table of topics."""
ATTEMPTS: Final = 4
"""Reads of a queue that seems wrong, before it is reported."""
PAUSE: Final = 0.25
"""Seconds between such reads."""
CUT: Final = "the queue ends before it, though later messages have their units"
NO_QUEUES: Final = "the store has no consume queues at all"
MOST_UNITS: Final = 1 << 22
"""Between a queue's first and last record of one extent; of numbers farther apart some are damaged, or of a topic that
was deleted."""


def check_queues(
    batches: Iterable[rows.Batch],
    extent: Extent,
    roots: Mapping[str, Path],
    *,
    sleep: Callable[[float], None] = time.sleep,
    rest: Callable[[int], None] = lambda _: None,
) -> dict[str, list[QueueState]]:
    """Every queue that records of the extent are in, in every store, as far as the store's own log still has them.

    Args:
        batches: all records of the extent. If the last one is not whole, because the log that was read ends in it,
            the extent is checked up to its start.
        roots: storePathRootDir of each replica.
        rest: called after each queue with the bytes that were read of it.
    """
    queues, whole = _by_queue(batches)
    extent = Extent(extent.start, min(max(whole, extent.start), extent.end))
    stores = {name: _Store(root) for name, root in roots.items()}
    readings: dict[tuple[str, str, int], _Reading] = {}
    suspects = [(name, *queue) for name in stores for queue in sorted(queues)]
    before = reach = dict.fromkeys(stores, -1)
    for attempt in range(ATTEMPTS):
        if attempt:
            sleep(PAUSE)
            stores = {name: _Store(root) for name, root in roots.items()}  # as they are now
        before = reach  # what is dispatched while the queues are read one by one proves nothing
        for name, topic, queue_id in suspects:
            reading = stores[name].check(topic, queue_id, queues[topic, queue_id], extent)
            readings[name, topic, queue_id] = reading
            rest(reading.size)
        reach = {
            name: max((reading.dispatched for (whose, *_), reading in readings.items() if whose == name), default=-1)
            for name in stores
        }
        reach |= {name: extent.end + DISPATCH_SPAN for name, store in stores.items() if reach[name] < 0 and store.bare}
        suspects = [key for key in suspects if readings[key].faulty or _lost(readings[key], reach[key[0]])]
        if not suspects:
            break
    lasting = set(suspects)
    found: dict[str, list[QueueState]] = {name: [] for name in stores}
    for key, reading in readings.items():
        name, topic, queue_id = key
        check, emptied = reading.check, None
        if key in lasting:
            if stores[name].min_offset(extent) > reading.extent.start:
                continue  # it is expiring
            lost, bare = _lost(reading, before[name]), stores[name].bare
            why = NO_QUEUES if bare else CUT
            if lost and _was_cut(reading.last, lost[0]):
                check = _with_lost(check, lost, why)
            elif lost and reading.last is None and stores[name].has_topic(topic):
                if bare and stores[name].has_no_folder:
                    check = _with_lost(check, lost, why)
                else:
                    emptied = _with_lost(check, lost, why)
        state = QueueState(topic=topic, queue_id=queue_id, check=check, dispatched=reading.dispatched, emptied=emptied)
        if check is not None or emptied is not None:
            found[name].append(state)
    return found


class _Reading(NamedTuple):
    """One read of a queue."""

    check: QueueCheck | None
    """None: the queue does not exist, or was deleted during the read."""
    extent: Extent
    """Of the log, as far as the replica had it."""
    late: Sequence[Unit]
    """Records beyond the queue's last unit, ascending."""
    last: Unit | None
    """The last unit of those that were read."""
    dispatched: int
    """The physical offset of the last record that has its unit; -1: none."""
    size: int = 0
    """Bytes that were read of the queue."""

    @property
    def faulty(self) -> bool:
        return self.check is not None and self.check.fault_count > 0


def _lost(reading: _Reading, dispatched: int) -> list[Unit]:
    """Records whose unit must be there, because that of a later record is."""
    return [record for record in reading.late if record.physical_offset < dispatched - DISPATCH_SPAN]


def _was_cut(last: Unit | None, lost: Unit) -> bool:
    return last is not None and last.size != PRE_BLANK_SIZE and last.physical_offset < lost.physical_offset


class _Topics(msgspec.Struct, frozen=True):
    table: dict[str, msgspec.Raw] = msgspec.field(name="topicConfigTable", default_factory=dict)


def _with_lost(check: QueueCheck | None, lost: Sequence[Unit], why: str) -> QueueCheck:
    known = check or QueueCheck(units=0, lag=len(lost))
    faults = [
        QueueFault(record.queue_offset, record.physical_offset, QueueReason.NO_UNIT, why)
        for record in lost[: MAX_FAULTS - len(known.faults)]
    ]
    return msgspec.structs.replace(
        known,
        lag=max(known.lag - len(lost), 0),
        faults=(*known.faults, *faults),
        fault_count=known.fault_count + len(lost),
    )


def _by_queue(batches: Iterable[rows.Batch]) -> tuple[dict[tuple[str, int], list[Unit]], int]:
    """The records of each queue, by their numbers; and the offset up to which there are whole records."""
    queues: dict[tuple[str, int], list[Unit]] = {}
    whole = 0
    for part, next_offset in batches:
        whole = next_offset
        for topic, queue_id, queue_offset, physical_offset, size, code, queued in zip(
            part.topic,
            part.queue_id,
            part.queue_offset,
            part.physical_offset,
            part.size,
            part.tags_code,
            part.queued,
            strict=True,
        ):
            if not queued or queue_offset < 0 or "/" in topic or "\0" in topic:
                continue
            key = topic, queue_id
            records = queues.get(key)
            if records is None:
                if not checkable(topic):
                    continue
                records = queues[key] = []
            records.append(Unit(queue_offset, physical_offset, size, code))
    for records in queues.values():
        records.sort()
    return queues, whole


def log_start(root: Path, extent: Extent) -> int:
    """Where the log of this store begins now; the extent's end without a log."""
    starts = []
    with suppress(OSError):
        for file in LogPaths.of(root).commit_log.iterdir():
            with suppress(SegmentNameError):
                starts.append(segment_offset(file.name))
    return min(starts, default=extent.end)


class _Store:
    """The files of one replica."""

    def __init__(self, root: Path) -> None:
        self._log = LogPaths.of(root).commit_log
        self._root = self._log.parent
        self._zeroes = (self._root / NATIVE_IDENTITY).is_file()  # Java leaves old units behind a cut
        self._folder: LogFolder | None = None

    def min_offset(self, extent: Extent) -> int:
        """See `log_start`."""
        return log_start(self._root, extent)

    @property
    def has_no_folder(self) -> bool:
        """A deleted topic leaves the folder."""
        return not (self._root / FOLDER).exists()

    @cached_property
    def bare(self) -> bool:
        """Whether no queue of any topic has a file, nor RocksDB any."""
        if (self._root / ROCKSDB_FOLDER).exists():
            return False
        with suppress(OSError):
            return next((self._root / FOLDER).glob("*/*/*"), None) is None
        return False

    def has_topic(self, topic: str) -> bool:
        """Whether the broker's table of topics has it."""
        try:
            text = (self._root / TOPICS).read_bytes()[:LONGEST_TABLE]
            return topic in msgspec.json.decode(text, type=_Topics).table
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return False

    def check(self, topic: str, queue_id: int, records: list[Unit], extent: Extent) -> _Reading:
        """Read one queue. `records`: those of the extent that belong to it, by their numbers."""
        start = self.min_offset(extent)
        if start > extent.start:
            extent = Extent(min(start, extent.end), extent.end)
            records = [record for record in records if record.physical_offset >= start]
        nothing = _Reading(None, extent, records, None, -1)
        if not records:
            return nothing
        records = _together(records)
        first, last = records[0].queue_offset, records[-1].queue_offset
        try:
            data = _Queue(self._root / FOLDER / topic / str(queue_id)).read(
                max(first - 1, 0), last + (2 if self._zeroes else 1)
            )
        except OSError:
            data = None
        if data is None:
            return nothing
        begin, packed = data
        units = list(_units(packed[max(last + 1 - begin, 0) * UNIT_SIZE :], max(last + 1, begin)))
        nowhere = self._nowhere(units, extent)
        if not nowhere and _plain(packed, begin, records, extent):
            check = QueueCheck(units=len(records), lag=0)
            return _Reading(check, extent, (), records[-1], records[-1].physical_offset, len(packed))
        units = list(_units(packed, begin))
        nowhere = self._nowhere(units, extent)
        end = units[-1].queue_offset if units else -1
        there = {unit[:2] for unit in units}
        return _Reading(
            check_queue(units, records, extent, nowhere=nowhere),
            extent,
            [record for record in records if record.queue_offset > end],
            units[-1] if units else None,
            max((unit.physical_offset for unit in records if unit[:2] in there), default=-1),
            len(packed),
        )

    def _nowhere(self, units: Iterable[Unit], extent: Extent) -> set[int]:
        """Where those of these units lead that point beyond `extent` and to no record of its own log."""
        beyond = {unit.physical_offset for unit in units if unit.physical_offset >= extent.end}
        if not beyond:
            return set()
        try:
            if self._folder is None:
                self._folder = LogFolder(self._log)  # lists all files: once for all queues
            with self._folder as log:
                return {offset for offset in beyond if not _has_record(log, offset)}
        except LogReadError:
            return set()  # nothing is known


def _has_record(log: LogFolder, offset: int) -> bool:
    """Whether a record starts there, by its head; raises `LogReadError` where that cannot be read."""
    try:
        _, magic, place = heads.unpack_place(log.read(offset, heads.PLACE_SIZE), 0)
    except AbsentError:
        return False
    return magic in MAGICS and place == offset


def _together(records: list[Unit]) -> list[Unit]:
    """Most of these records, with numbers at most MOST_UNITS apart: one number that is damaged does not keep all others
    from being checked, and its unit leads to a record without that number."""
    if records[-1].queue_offset - records[0].queue_offset <= MOST_UNITS:
        return records
    best, start = (0, 0), 0
    for end, record in enumerate(records, 1):
        while record.queue_offset - records[start].queue_offset > MOST_UNITS:
            start += 1
        best = max(best, (end - start, -start))
    count, begin = best
    return records[-begin : -begin + count]


def _plain(units: bytes, start: int, records: list[Unit], extent: Extent) -> bool:
    """Whether exactly the units of these records are there, and the neighbours point elsewhere."""
    first = records[0].queue_offset
    # each number: of 76, 76, 78 count and ends fit, too
    if first < start or any(record.queue_offset != number for number, record in enumerate(records, first)):
        return False
    codes = [record.tags_code for record in records]
    if None in codes:
        return False
    wanted = pack_units([(unit.physical_offset, unit.size, unit.tags_code or 0) for unit in records])
    at = (first - start) * UNIT_SIZE
    if units[at : at + len(wanted)] != wanted:
        return False
    around = [*iter_units(units[:at]), *iter_units(units[at + len(wanted) :])]
    return not any(is_unit(unit) and extent.start <= unit[0] < extent.end for unit in around)


def _units(data: bytes, start: int) -> Iterable[Unit]:
    for number, unit in enumerate(iter_units(data), start):
        if is_unit(unit):
            yield Unit(number, *unit)


class _Queue:
    """The files of one queue, as they are now."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[int, Path] = {}
        for path in folder.iterdir():
            try:
                self._files[segment_offset(path.name)] = path
            except SegmentNameError:
                continue

    def read(self, first: int, end: int) -> tuple[int, bytes] | None:
        """Units `[first, end)` as far as they are contiguous, and the number of the first; None without files."""
        starts = sorted(self._files)
        if not starts:
            return None
        position = max(first * UNIT_SIZE, starts[0])
        begin = position
        data = bytearray()
        for start in starts:
            length = self._files[start].stat().st_size // UNIT_SIZE * UNIT_SIZE
            if start + length <= position:
                continue
            if start > position or position >= end * UNIT_SIZE:
                break
            with self._files[start].open("rb") as file:
                file.seek(position - start)
                data += file.read(min(end * UNIT_SIZE, start + length) - position)
            position = begin + len(data)
        return begin // UNIT_SIZE, bytes(data[: len(data) // UNIT_SIZE * UNIT_SIZE])
