"""Consume queues on disk against the records of an extent of the log. Called by `batches` on the executors.

Most queues are as they should be, so what the records ask for is packed and compared with the file's bytes; only where
that is not equal is every unit looked at (`domain.queues`). The broker may be at work: what looks wrong is read again
before it counts.

Only queues of which the extent has records are looked at. Brokers make units in the log's order. So where a record has
its unit, units of records in front of it that a queue lacks at its end do not come any more: the queue was cut or
emptied. Two things look the same and are none: a topic that was deleted (its queues go, the records stay), and one that
was made anew, whose numbers start at 0 again. So a queue counts as cut where its last unit belongs to what was lost,
and as emptied where another replica has its units and the topic is there.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rocketmq_commitlog.state import LogPaths
from rocketmq_formats.store.consume_queue import UNIT_SIZE, is_unit, iter_units, pack_units
from rocketmq_formats.store.segment_names import SegmentNameError, segment_offset
from rocketmq_verify.domain import rows
from rocketmq_verify.domain.model import Extent, ReplicaName
from rocketmq_verify.domain.queues import (
    MAX_FAULTS,
    PRE_BLANK_SIZE,
    QueueCheck,
    QueueFault,
    QueueReason,
    Unit,
    check_queue,
    checkable,
)
from rocketmq_verify.sources import FILES
from rocketmq_verify.work import Place

FOLDER: Final = "consumequeue"
TOPICS: Final = "config/topics.json"
LONGEST_TABLE: Final = 64 << 20
"""Bytes of it."""
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
    roots = {
        place.name: LogPaths.of(Path(place.spec.removeprefix(f"{FILES}:")).expanduser()).commit_log.parent
        for place in places
    }
    looks = {
        (name, topic, queue_id): _check(root / FOLDER / topic / str(queue_id), records, extent, sleep)
        for name, root in roots.items()
        for (topic, queue_id), records in sorted(queues.items())
    }
    dispatched = {
        name: max((one.dispatched for (who, *_), one in looks.items() if who == name), default=-1) for name in roots
    }
    found = []
    for (name, topic, queue_id), first in looks.items():
        look, lost = first, _lost(first, dispatched[name])
        for _ in range(LOOKS - 1):
            if not lost:
                break
            # what was dispatched while queue after queue was looked at is there now
            sleep(PAUSE)
            look = _check(roots[name] / FOLDER / topic / str(queue_id), queues[topic, queue_id], extent, sleep)
            lost = _lost(look, dispatched[name])
        check = look.check
        if lost:
            elsewhere = max(looks[other, topic, queue_id].dispatched for other in roots)
            emptied = look.last is None and elsewhere >= lost[0].physical_offset and _has_topic(roots[name], topic)
            if emptied or _was_cut(look.last, lost[0]):
                check = _with_lost(check, lost)
        if check is not None:
            found.append(QueueResult(name, topic, queue_id, check))
    return found


class _Look(NamedTuple):
    """What was seen of a queue."""

    check: QueueCheck | None
    """None: the queue is not there, or was deleted meanwhile."""
    late: Sequence[Unit]
    """Records behind the queue's last unit, ascending."""
    last: Unit | None
    """The last unit, of those that were looked at."""
    dispatched: int
    """The physical offset of the last record that has its unit; -1: none has."""


def _lost(look: _Look, dispatched: int) -> list[Unit]:
    """Records whose unit has to be there, as that of a later record is."""
    return [record for record in look.late if record.physical_offset < dispatched]


def _was_cut(last: Unit | None, lost: Unit) -> bool:
    return last is not None and last.size != PRE_BLANK_SIZE and last.physical_offset < lost.physical_offset


def _has_topic(root: Path, topic: str) -> bool:
    """Whether the broker has it: it is in its table of topics."""
    try:
        text = (root / TOPICS).read_bytes()[:LONGEST_TABLE]
        return topic in msgspec.json.decode(text, type=_Topics).table
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False


class _Topics(msgspec.Struct, frozen=True):
    table: dict[str, msgspec.Raw] = msgspec.field(name="topicConfigTable", default_factory=dict)


def _with_lost(check: QueueCheck | None, lost: Sequence[Unit]) -> QueueCheck:
    known = check or QueueCheck(units=0, lag=len(lost))
    faults = [
        QueueFault(
            record.queue_offset,
            record.physical_offset,
            QueueReason.NO_UNIT,
            "the queue ends before it, though messages behind it have their units",
        )
        for record in lost[: MAX_FAULTS - len(known.faults)]
    ]
    return msgspec.structs.replace(
        known,
        lag=max(known.lag - len(lost), 0),
        faults=(*known.faults, *faults),
        fault_count=known.fault_count + len(lost),
    )


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


def _check(folder: Path, records: list[Unit], extent: Extent, sleep: Callable[[float], None]) -> _Look:
    records = sorted(records)
    first, last = records[0].queue_offset, records[-1].queue_offset
    if last - first > MOST_UNITS:
        first = last - MOST_UNITS
        records = [record for record in records if record.queue_offset >= first]
    begin = max(first - 1, 0)
    check: QueueCheck | None = None
    units: list[Unit] = []
    for look in range(LOOKS):
        if look:
            sleep(PAUSE)
        try:
            data = _Queue(folder).read(begin, last + 2)
        except OSError:
            data = None
        if data is None:
            return _Look(None, records, None, -1)
        start, packed = data
        if _plain(packed, start, records, extent):
            check = QueueCheck(units=len(records), lag=0)
            return _Look(check, (), records[-1], records[-1].physical_offset)
        units = list(_units(packed, start))
        check = check_queue(units, records, extent)
        if not check.fault_count:
            break
    end = units[-1].queue_offset if units else -1
    there = {unit[:2] for unit in units}
    return _Look(
        check,
        [record for record in records if record.queue_offset > end],
        units[-1] if units else None,
        max((one.physical_offset for one in records if one[:2] in there), default=-1),
    )


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
