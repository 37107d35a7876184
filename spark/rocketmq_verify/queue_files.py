"""Consume queues on disk against the records of an extent of the log. Called by `batches` on the executors.

Most queues are as they should be, so what the records ask for is packed and compared with the file's bytes; only where
that is not equal is every unit looked at (`domain.queues`). The broker may be at work: what looks wrong is read again
before it counts.

Only queues of which the extent has records are looked at. A queue without a folder was deleted with its topic.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rocketmq_commitlog.state import LogPaths
from rocketmq_formats.store.consume_queue import UNIT_SIZE, is_unit, iter_units, pack_units
from rocketmq_formats.store.segment_names import SegmentNameError, segment_offset
from rocketmq_verify.domain import rows
from rocketmq_verify.domain.model import Extent, ReplicaName
from rocketmq_verify.domain.queues import QueueCheck, Unit, check_queue, checkable
from rocketmq_verify.sources import FILES
from rocketmq_verify.work import Place

FOLDER: Final = "consumequeue"
LOOKS: Final = 4
"""At a queue that is not as it should be, before it is told."""
PAUSE: Final = 0.25
"""Seconds between such looks."""
MOST_UNITS: Final = 1 << 22
"""Between a queue's first and last record of one extent; numbers that are farther apart are damage."""


class QueueResult(msgspec.Struct, frozen=True):
    """One queue of one replica, as far as the extent's records are in it."""

    replica: ReplicaName
    topic: str
    queue_id: int
    check: QueueCheck


def check_queues(
    columns: Iterable[rows.Columns],
    extent: Extent,
    places: Sequence[Place],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[QueueResult]:
    """Every queue that records of the extent are in, in every place.

    Args:
        columns: all records of the extent.
    """
    queues = _by_queue(columns)
    found = []
    for place in places:
        root = LogPaths.of(Path(place.spec.removeprefix(f"{FILES}:")).expanduser()).commit_log.parent / FOLDER
        for (topic, queue_id), records in sorted(queues.items()):
            check = _check(root / topic / str(queue_id), records, extent, sleep)
            if check is not None:
                found.append(QueueResult(place.name, topic, queue_id, check))
    return found


def _by_queue(columns: Iterable[rows.Columns]) -> dict[tuple[str, int], list[Unit]]:
    queues: dict[tuple[str, int], list[Unit]] = {}
    for part in columns:
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
    return queues


def _check(folder: Path, records: list[Unit], extent: Extent, sleep: Callable[[float], None]) -> QueueCheck | None:
    """None: the queue is not there, or was deleted meanwhile."""
    records = sorted(records)
    first, last = records[0].queue_offset, records[-1].queue_offset
    if last - first > MOST_UNITS:
        first = last - MOST_UNITS
        records = [record for record in records if record.queue_offset >= first]
    begin = max(first - 1, 0)
    check: QueueCheck | None = None
    for look in range(LOOKS):
        if look:
            sleep(PAUSE)
        try:
            data = _Queue(folder).read(begin, last + 2)
        except OSError:
            return None
        if data is None:
            return None
        start, units = data
        if _plain(units, start, records, extent):
            return QueueCheck(units=len(records), lag=0)
        check = check_queue(_units(units, start), records, extent)
        if not check.fault_count:
            break
    return check


def _plain(units: bytes, start: int, records: list[Unit], extent: Extent) -> bool:
    """Whether exactly the units of these records are there, and the neighbours lead elsewhere."""
    first = records[0].queue_offset
    if records[-1].queue_offset - first + 1 != len(records) or first < start:
        return False
    codes = [record.tags_code for record in records]
    if None in codes:
        return False
    wanted = pack_units([(one.physical_offset, one.size, one.tags_code or 0) for one in records])
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
        """Units `[first, end)` as far as they are there in one run, and the number of the first; None without files."""
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
