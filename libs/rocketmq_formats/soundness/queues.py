"""Does a consume queue point to all messages of its queue, and to nothing else?

Both sides are sorted by queue offset: the units of one queue of one topic, and the units that the log's records of that
topic and queue require. A pure merge, so that Spark may feed it from a join or from files.

Not checked, because the truth is unknown: units of records outside the extent that was read (expired, or not confirmed
yet), records beyond the queue's last unit (dispatching lags), the tagsCode of delayed messages whose delay is unknown,
and a tagsCode that is an address in a consume queue's extension file (enableConsumeQueueExt). When a topic is deleted
and created again its numbers start at 0 again: a record whose number a later one has taken is `superseded`. Queues
`%LMQ%...` have units of other topics' records by design and are left out (`checkable`).
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from rocketmq_formats.soundness.places import Extent

MAX_FAULTS: Final = 100
"""Faults that are reported one by one; the others are counted."""
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""The size in units before a queue's first message (`consume_queue.PRE_BLANK`)."""
_LMQ: Final = "%LMQ%"
_LAST_ADDRESS: Final = -(2**31) - 1


class Unit(NamedTuple):
    """A unit of a consume queue with its place, or the unit that a record of the log requires there."""

    queue_offset: int
    physical_offset: int
    size: int
    """Of the record, in bytes."""
    tags_code: int | None
    """None, of a record: unknown."""


class QueueReason(StrEnum):
    """The fault; the value is its name in JSON."""

    NO_RECORD = "noRecord"
    """A unit that does not point to a record of this queue with this queue offset."""
    SIZE = "size"
    TAGS_CODE = "tagsCode"
    NO_UNIT = "noUnit"
    """A record before the queue's last unit to which no unit points: it cannot be consumed."""
    GAP = "gap"
    """Queue offsets without a unit and without a record."""


class QueueFault(msgspec.Struct, frozen=True):
    """One message number where queue and log disagree."""

    queue_offset: int
    physical_offset: int | None
    """Of the record: from the log, else from the unit; None for a gap."""
    reason: QueueReason
    detail: str


class QueueCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one queue."""

    units: int
    """Compared with their records."""
    lag: int
    """Records beyond the last unit."""
    superseded: int = 0
    """Records whose unit points to a later record with the same number."""
    faults: tuple[QueueFault, ...] = ()
    """The first ones, in order of queue offsets."""
    fault_count: int = 0


def checkable(topic: str) -> bool:
    """Whether a topic's units point to records of that topic."""
    return not topic.startswith(_LMQ)


def check_queue(
    units: Iterable[Unit],
    records: Iterable[Unit],
    extent: Extent,
    *,
    nowhere: AbstractSet[int] = frozenset(),
    max_faults: int = MAX_FAULTS,
) -> QueueCheck:
    """Compare one queue with the log's records in `extent`, from whose whole length `records` were taken.

    `units` are real ones (`consume_queue.is_unit`), pre-blanks among them or not; all of those that point into
    `extent`. `nowhere`: physical offsets beyond `extent` to which units point, and where the log has no record.

    Raises:
        ValueError: units or records are not sorted by queue offset, or two units have one number.
    """
    compared = lag = superseded = fault_count = 0
    faults: list[QueueFault] = []
    for unit, before, found in _merge(units, records):
        if unit is None:
            lag += len(found)
            continue
        compared += _inside(unit, extent)
        superseded += sum(_is_superseded(record, unit) for record in found)
        for fault in _judge(unit, before, found, extent, nowhere):
            fault_count += 1
            if len(faults) < max_faults:
                faults.append(fault)
    return QueueCheck(units=compared, lag=lag, superseded=superseded, faults=tuple(faults), fault_count=fault_count)


def _merge(units: Iterable[Unit], records: Iterable[Unit]) -> Iterator[tuple[Unit | None, Unit | None, list[Unit]]]:
    """Each unit with the one before it, and the records between both and at its number; then those beyond all units."""
    log = _ascending(records, "records")
    record = next(log, None)
    before = None
    for unit in _ascending(units, "units"):
        if before is not None and unit.queue_offset == before.queue_offset:
            raise ValueError(f"two units with number {unit.queue_offset}")
        found = []
        while record is not None and record.queue_offset <= unit.queue_offset:
            found.append(record)
            record = next(log, None)
        yield unit, before, found
        before = unit
    while record is not None:
        yield None, before, [record]
        record = next(log, None)


def _judge(
    unit: Unit, before: Unit | None, found: list[Unit], extent: Extent, nowhere: AbstractSet[int]
) -> Iterator[QueueFault]:
    here = [record for record in found if record.queue_offset == unit.queue_offset]
    inside = _inside(unit, extent)
    if before is not None and inside and before.physical_offset >= extent.end and before.physical_offset not in nowhere:
        # units are in the log's order
        detail = f"the unit points to {before.physical_offset}, the next one to {unit.physical_offset}"
        yield QueueFault(before.queue_offset, before.physical_offset, QueueReason.NO_RECORD, detail)
    for record in found[: len(found) - len(here)]:
        yield _no_unit(record, "no unit has its number")
    if before is not None and len(found) == len(here) and unit.queue_offset > before.queue_offset + 1:
        missing = unit.queue_offset - before.queue_offset - 1
        if inside and (_inside(before, extent) or _is_pre_blank(before)):
            yield QueueFault(before.queue_offset + 1, None, QueueReason.GAP, f"{missing} units are missing")
    if unit.physical_offset in nowhere:
        detail = f"the unit points to {unit.physical_offset}, where its log has no record"
        yield QueueFault(unit.queue_offset, unit.physical_offset, QueueReason.NO_RECORD, detail)
    twin = next((record for record in here if record.physical_offset == unit.physical_offset), None)
    others = [record for record in here if record is not twin and not _is_superseded(record, unit)]
    if twin is not None:
        yield from _compare(unit, twin)
    elif inside:
        known = (others or here[-1:] or (None,))[0]  # no later record has superseded it
        log = "the log has no record with this number" if known is None else f"the record is at {known.physical_offset}"
        physical_offset = unit.physical_offset if known is None else known.physical_offset
        detail = f"the unit points to {unit.physical_offset}, {log}"
        yield QueueFault(unit.queue_offset, physical_offset, QueueReason.NO_RECORD, detail)
        others = others[1:]
    points = "stands for no message" if _is_pre_blank(unit) else f"points to {unit.physical_offset}"
    for record in others:
        yield _no_unit(record, f"the unit with its number {points}")


def _is_superseded(record: Unit, unit: Unit) -> bool:
    return record.queue_offset == unit.queue_offset and record.physical_offset < unit.physical_offset


def _compare(unit: Unit, record: Unit) -> Iterator[QueueFault]:
    place = unit.queue_offset, unit.physical_offset
    if unit.size != record.size:
        yield QueueFault(*place, QueueReason.SIZE, f"the unit has {unit.size} bytes, the record {record.size}")
    if record.tags_code is not None and unit.tags_code != record.tags_code and not _is_address(unit):
        detail = f"the unit has {unit.tags_code}, the record requires {record.tags_code}"
        yield QueueFault(*place, QueueReason.TAGS_CODE, detail)


def _no_unit(record: Unit, detail: str) -> QueueFault:
    return QueueFault(record.queue_offset, record.physical_offset, QueueReason.NO_UNIT, detail)


def _inside(unit: Unit, extent: Extent) -> bool:
    return extent.start <= unit.physical_offset < extent.end and not _is_pre_blank(unit)


def _is_pre_blank(unit: Unit) -> bool:
    return unit.physical_offset == 0 and unit.size == PRE_BLANK_SIZE


def _is_address(unit: Unit) -> bool:
    return unit.tags_code is not None and unit.tags_code <= _LAST_ADDRESS


def _ascending(units: Iterable[Unit], what: str) -> Iterator[Unit]:
    last = None
    for unit in units:
        if last is not None and unit.queue_offset < last:
            raise ValueError(f"{what} are not sorted: {unit.queue_offset} after {last}")
        last = unit.queue_offset
        yield unit
