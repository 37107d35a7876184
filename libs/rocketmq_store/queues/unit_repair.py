"""Corrects units of consume queues that do not say what the log says. Used by message_store.py, reading.py, and by the
broker while it reads the log again.

The log may have several messages for one unit: of a deleted topic that was made again, or of a master that had lost
units. As at dispatching, the unit is of the first one behind the message of the unit before it. Where no unit is before
it, it is of the last one before the message of a unit behind it. So a repair never brings back an older message.
"""

import enum
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
import structlog

from rocketmq_formats.store.consume_queue import Unit, is_pre_blank, is_unit
from rocketmq_formats.store.message import Record
from rocketmq_store.errors import StoreFullError
from rocketmq_store.log.commit_log import CommitLog, Walker
from rocketmq_store.queues.consume_queue import ConsumeQueue
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.dispatch import Dispatcher
from rocketmq_store.queues.unit_check import differing, is_right

log = structlog.get_logger()

NEARBY: Final = 512
NEARBY_BYTES: Final = 1 << 20
"""Records, and bytes of them, that a read examines for a message itself: some milliseconds, even from a disk."""
NEIGHBOURS: Final = 256
"""Units examined for one that is right."""
MAX_LOST: Final = 1024
"""Messages remembered as not in the log; another one that is read would be searched again."""

_Place: TypeAlias = tuple[str, int, int]
"""Topic, queue id, queue offset."""


class Repaired(msgspec.Struct, frozen=True):
    """A unit that was corrected."""

    topic: str
    queue_id: int
    queue_offset: int
    was: Unit
    unit: Unit


class Sought(msgspec.Struct, frozen=True):
    """A message whose unit is damaged, and the part of the log that has it, if the log does."""

    topic: str
    queue_id: int
    queue_offset: int
    start: int
    end: int


class Missing(enum.Enum):
    """Why nothing can be read at a queue offset."""

    SOUGHT = "it is searched in the log"
    LOST = "the log does not have it"


class UnitRepair:
    """In the broker's thread, except for `differing`. Everything else raises `StoreFullError`, `OSError`."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues, dispatcher: Dispatcher) -> None:
        self._log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self.on_repaired: Callable[[Repaired], None] = lambda _: None
        self.on_sought: Callable[[Sought], bool] | None = None
        """Asks for a visit of that part of the log, see `visited`; False: not now. None: no visits, so what is not
        found at once is lost."""
        self._sought: set[_Place] = set()
        self._lost: dict[_Place, None] = {}

    def differing(self, records: Iterable[Record]) -> list[Record]:
        """Whole records whose units are to be given to a `Visit`; in any thread."""
        return differing(self._queues, records, self._dispatcher.unit_of)

    def visit(self) -> "Visit":
        return Visit(self._queues, self._dispatcher, self)

    def visited(self, sought: Sought, *, corrected: int) -> None:
        """That part of the log was read, and this number of units corrected. If it is 0, a message that is still
        missing is lost: consumers do not wait for it any longer, or they would wait forever."""
        place = sought.topic, sought.queue_id, sought.queue_offset
        self._sought.discard(place)
        queue = self._queues.find(sought.topic, sought.queue_id)
        if corrected or queue is None or not queue.min_offset <= sought.queue_offset < queue.max_offset:
            return
        if self.is_right(queue, sought.queue_offset):
            return
        if len(self._lost) >= MAX_LOST:
            del self._lost[next(iter(self._lost))]
        self._lost[place] = None
        log.error(
            "a unit of a consume queue is damaged, and the log does not have its message: consumers skip it",
            topic=sought.topic,
            queue_id=sought.queue_id,
            queue_offset=sought.queue_offset,
        )

    def forget_lost(self) -> None:
        """The log has got records back."""
        self._lost.clear()

    def is_sought(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message that `find` did not find may still come."""
        return (topic, queue_id, queue_offset) in self._sought

    def is_right(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether the unit points to its message."""
        return self._message_of(queue, queue_offset) is not None

    def find(self, queue: ConsumeQueue, queue_offset: int) -> Unit | Missing:
        """What the unit of a visible message has to be, if the log has the message nearby: the unit is corrected.
        Otherwise the message is sought."""
        place = queue.topic, queue.queue_id, queue_offset
        if place in self._lost:
            return Missing.LOST
        if place in self._sought:
            return Missing.SOUGHT
        record = self._nearby(queue, queue_offset)
        if record is not None:
            unit = self._dispatcher.unit_of(record)
            with suppress(StoreFullError):  # a later read tries again
                self.correct(queue, queue_offset, unit)
            return unit
        if self.on_sought is None:
            return Missing.LOST
        start = self.end_before(queue, queue_offset, NEIGHBOURS)
        start = self._log.min_offset if start is None else start
        if self.on_sought(Sought(*place, start, self.start_behind(queue, queue_offset))):
            self._sought.add(place)
        return Missing.SOUGHT

    def has_expired(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether a unit that points before the log may do so: its neighbours point there, too."""
        if queue_offset > queue.min_offset:
            return not self.is_right(queue, queue_offset - 1)
        following = queue.unit(queue_offset + 1) if queue_offset + 1 < queue.max_offset else None
        return following is None or following[0] < self._log.min_offset

    def correct(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> None:
        was = queue.unit_at(queue_offset)
        queue.replace(queue_offset, unit)
        self._queues.corrected = True
        self.on_repaired(Repaired(queue.topic, queue.queue_id, queue_offset, was, unit))

    def end_before(self, queue: ConsumeQueue, queue_offset: int, count: int) -> int | None:
        """Where the message of the nearest right unit before this one ends, at most `count` units away. None without
        one; then the message is anywhere in the log."""
        first = queue.min_offset
        for offset in range(queue_offset - 1, max(queue_offset - 1 - count, first - 1), -1):
            if (record := self._message_of(queue, offset)) is not None:
                return record.physical_offset + record.size
        if queue_offset - first < count:
            unit = queue.unit(first - 1)  # of a message that has expired
            if unit is not None and is_unit(unit) and not is_pre_blank(unit) and unit[0] < self._log.min_offset:
                return self._log.min_offset
        return None

    def start_behind(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Where the message of the next right unit begins, or dispatching ends."""
        for offset in range(queue_offset + 1, min(queue_offset + 1 + NEIGHBOURS, queue.max_offset)):
            if (record := self._message_of(queue, offset)) is not None:
                return record.physical_offset
        return self._dispatcher.position

    def _message_of(self, queue: ConsumeQueue, queue_offset: int) -> Record | None:
        unit = queue.unit(queue_offset)
        return None if unit is None else self._dispatcher.message_at(unit[0], queue, queue_offset)

    def _nearby(self, queue: ConsumeQueue, queue_offset: int) -> Record | None:
        """The message, if the unit points to it, or if it is soon behind that of the unit before."""
        record = self._message_of(queue, queue_offset)
        start = self.end_before(queue, queue_offset, 1)
        if record is not None or start is None:
            return record
        limit = min(start + NEARBY_BYTES, self._dispatcher.position, self._log.max_offset)
        walker = Walker(self._log.files, start, limit, check_crc=False)
        wanted = queue.topic.encode(), queue.queue_id, queue_offset
        for _ in range(NEARBY):
            record = walker.next()
            if record is None or (record.topic, record.queue_id, record.queue_offset) == wanted:
                return record
        return None


class Visit:
    """One reading of a part of the log, in its order."""

    def __init__(self, queues: ConsumeQueues, dispatcher: Dispatcher, repair: UnitRepair) -> None:
        self._queues = queues
        self._dispatcher = dispatcher
        self._repair = repair
        self._begun = {queue for queue in queues.table.values() if queue.max_offset}
        """These have their first unit from the part of the log that is read."""
        self._firsts: dict[tuple[ConsumeQueue, int], Record] = {}
        """The last message found for a unit with none before it; an earlier one may be a deleted topic's."""
        self.corrected = 0

    def mend(self, record: Record) -> None:
        """Correct the unit of a whole record, if it is wrong and of this record. Raises `StoreFullError`, `OSError`."""
        queue = self._queues.table.get((record.topic, record.queue_id))
        offset = record.queue_offset
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return
        if record.physical_offset + record.size > self._dispatcher.position:
            return
        found, wanted = queue.unit_at(offset), self._dispatcher.unit_of(record)
        if is_right(found, wanted, record):
            return
        if found[0] != wanted[0]:
            if self._dispatcher.message_at(found[0], queue, offset) is not None:
                return  # of another message, which has the same offset
            behind = self._repair.end_before(queue, offset, NEIGHBOURS)
            if behind is None:
                self._note_first(queue, record)
                return
            if behind > record.physical_offset:
                return
        self._correct(queue, record)

    def finish(self) -> None:
        """All of the part was read. Raises `StoreFullError`, `OSError`."""
        for (queue, offset), record in self._firsts.items():
            known = self._queues.table.get((record.topic, record.queue_id)) is queue
            if known and self._is_first(queue, offset) and not self._repair.is_right(queue, offset):
                self._correct(queue, record)
        self._firsts.clear()

    def _note_first(self, queue: ConsumeQueue, record: Record) -> None:
        offset = record.queue_offset
        known = queue in self._begun and self._is_first(queue, offset)
        if known and record.physical_offset < self._repair.start_behind(queue, offset):
            self._firsts[queue, offset] = record

    def _is_first(self, queue: ConsumeQueue, offset: int) -> bool:
        return offset < queue.max_offset and (
            offset == queue.min_offset or (offset > queue.min_offset and is_pre_blank(queue.unit_at(offset - 1)))
        )

    def _correct(self, queue: ConsumeQueue, record: Record) -> None:
        self._repair.correct(queue, record.queue_offset, self._dispatcher.unit_of(record))
        self.corrected += 1
