"""Compares units of consume queues with the records that they are made from: nothing else would show a changed bit in
one. In any thread, so that no consumer waits for these reads. Used by unit_repair.py.

What differs here is only suspected: the broker's thread looks again, since queues may have changed since.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from rocketmq_formats.store.consume_queue import UNIT_SIZE, Unit, iter_units, pack_units
from rocketmq_formats.store.delay_levels import may_be_due_at
from rocketmq_formats.store.message import Record, has_unit
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_store.queues.consume_queue import ConsumeQueue
from rocketmq_store.queues.consume_queues import ConsumeQueues

_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()

_Run: TypeAlias = list[tuple[Record, Unit]]
"""Messages of one queue with consecutive offsets, and what their units have to be."""


def is_right(found: Unit | None, wanted: Unit, record: Record) -> bool:
    """Whether a queue's unit says of `record` what it has to. Units of delayed messages that were written under other
    delay levels are right, too."""
    if found is None or found[:2] != wanted[:2]:
        return False
    return found[2] == wanted[2] or (
        record.topic == _SCHEDULE_TOPIC and may_be_due_at(found[2], record.store_timestamp)
    )


def differing(queues: ConsumeQueues, records: Iterable[Record], unit_of: Callable[[Record], Unit]) -> list[Record]:
    """The records whose units seem to differ, in the log's order. Messages that no queue has (no longer, not yet, or
    never) are not among them."""
    runs: dict[ConsumeQueue, list[_Run]] = {}
    for record in records:
        queue = queues.table.get((record.topic, record.queue_id)) if has_unit(record.sys_flag) else None
        if queue is None or not queue.min_offset <= record.queue_offset < queue.max_offset:
            continue
        of_queue = runs.setdefault(queue, [])
        if not of_queue or of_queue[-1][-1][0].queue_offset + 1 != record.queue_offset:
            of_queue.append([])
        of_queue[-1].append((record, unit_of(record)))
    found = [record for queue, of_queue in runs.items() for run in of_queue for record in _differing(queue, run)]
    return sorted(found, key=lambda record: record.physical_offset)


def _differing(queue: ConsumeQueue, run: _Run) -> Iterator[Record]:
    while run:
        try:
            stored = queue.peek(run[0][0].queue_offset, len(run))
        except OSError:
            return  # deleted since; other errors show at the next pull
        count = len(stored) // UNIT_SIZE
        part, run = run[:count], run[count:]
        if not part:
            return
        if stored != pack_units([wanted for _, wanted in part]):
            units = iter_units(stored)
            for (record, wanted), unit in zip(part, units, strict=True):
                if not is_right(unit, wanted, record):
                    yield record
