"""From the commit log into the consume queues, in log order, up to the confirm offset. Used by message_store.py.

Units are written queue by queue for `DISPATCH_SPAN` of the log at a time: so the files of a broker that died in between
are out of order by at most that much.

Messages that this process appended wait in memory and need no reading; everything else (a slave's log, recovered
messages) is read from the log. Dispatching twice changes nothing: existing units are skipped.

Where units are missing in front of a message, or the one at its offset points to no such message, the queue has been
damaged: the log is dispatched again from the last unit that is good.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import structlog

from rocketmq_formats.store.consume_queue import DISPATCH_SPAN, Unit
from rocketmq_formats.store.delay_levels import DelayLevelError, unit_tags_code
from rocketmq_formats.store.message import Record, has_unit
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_store.errors import MessageIllegalError
from rocketmq_store.log.commit_log import CommitLog, Walker
from rocketmq_store.model import Stop
from rocketmq_store.queues.consume_queue import ConsumeQueue, Misfit
from rocketmq_store.queues.consume_queues import ConsumeQueues

log = structlog.get_logger()

MAX_WAITING: Final = 65_536
"""Appended messages kept in memory for dispatching; beyond that they are read from the log when they are due."""
MAX_SCAN: Final = 4_096
"""Messages read from the log in one call, of at most `DISPATCH_SPAN`: about 20 ms."""
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_TAGS: Final = b"TAGS\x01"


Waiting: TypeAlias = tuple[int, ConsumeQueue | None, int, int, int, int, int]
"""An appended message on its way into its queue: where it ends, its queue (None: it goes into none, see `has_unit`),
queueOffset, where it begins, size, tagsCode, storeTimestamp. A plain tuple, because every send makes one."""


class _QueueDamagedError(Exception):
    """Its units have to be rebuilt before this message can be put."""

    def __init__(self, queue: ConsumeQueue, reason: str) -> None:
        super().__init__(reason)
        self.queue = queue


class Dispatcher:
    """`position`: the messages before it are in the queues and visible."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues, delay_levels: tuple[int, ...]) -> None:
        self._log = commit_log
        self._queues = queues
        self.tags_code: Callable[[bytes, bytes, int], int] = partial(unit_tags_code, levels=delay_levels)
        """What the unit of a message carries, by its topic, properties and storeTimestamp: its tag's hash code or, for
        a delayed one, when it is due (ms). Raises `DelayLevelError`."""
        self._waiting: deque[Waiting] = deque()
        self._waiting_end = 0  # where the next message of `_waiting` has to start
        self.position = 0
        self.store_timestamp = 0
        """Of the last message dispatched, ms."""
        self.unfinished = False
        """The last `run` stopped to let others work."""
        self.stopped: Stop | None = None
        """Where the last `run` found no record, although the log continues there; None if it found all."""
        self._logged_at = -1
        """A stop at this offset has been logged."""
        self._known_from = 0
        """All messages from here to `position` were dispatched by this process: before them, units may be missing."""
        self._doubled: set[ConsumeQueue] = set()
        """Logged for these."""

    def restart(self, position: int) -> None:
        """Continue from here (a record's start): after recovery or a cut."""
        self._known_from = position if position > self.position else min(self._known_from, position)
        self._waiting.clear()
        self.position = self._waiting_end = position
        self.stopped = None
        self._logged_at = -1

    def appended(self, waiting: Waiting) -> None:
        """This process has put a message into the log."""
        if waiting[3] == self._waiting_end and len(self._waiting) < MAX_WAITING:
            self._waiting.append(waiting)
            self._waiting_end = waiting[0]

    def found(self, record: Record) -> None:
        """A record of another writer, which the next master has to continue; in log order from `position`."""
        queue = self.queue_of(record)
        if queue is not None:
            queue.next_offset = max(queue.next_offset, record.queue_offset + 1)
        end = record.physical_offset + record.size
        if record.physical_offset > self._waiting_end:  # behind a blank
            self.rolled(self._waiting_end, record.physical_offset)
        self.appended(
            (
                end,
                queue,
                record.queue_offset,
                record.physical_offset,
                record.size,
                self._code_of(record.topic, record.properties, record.physical_offset, record.store_timestamp),
                record.store_timestamp,
            )
        )

    def rolled(self, blank_at: int, following: int) -> None:
        """The log continues in the next file."""
        if self._waiting_end == blank_at:
            self._waiting_end = following
            if not self._waiting and self.position == blank_at:
                self.position = following

    def unit_of(self, record: Record) -> Unit:
        """What the unit of a message has to be; in any thread."""
        try:
            code = self.tags_code(record.topic, record.properties, record.store_timestamp)
        except DelayLevelError:
            code = record.store_timestamp  # as `_code_of`, which has warned
        return record.physical_offset, record.size, code

    def _code_of(self, topic: bytes, properties: bytes, offset: int, store_timestamp: int) -> int:
        try:
            return self.tags_code(topic, properties, store_timestamp)
        except DelayLevelError as error:  # it is in the log, so it must not stop the messages behind it
            log.warning("delayed message without a level, due at once", offset=offset, error=str(error))
            return store_timestamp

    def run(self, confirm_offset: int) -> set[tuple[str, int]]:
        """Dispatch messages that end at or before `confirm_offset`, or some of them (then `unfinished`: call again);
        returns the queues that have new ones. Raises `StoreFullError`, `OSError`: call again later."""
        self.stopped = None
        if confirm_offset <= self.position:
            self.unfinished = False
            return set()
        touched: set[ConsumeQueue] = set()
        position, timestamp = self.position, self.store_timestamp
        waiting = self._waiting
        span_end = position + DISPATCH_SPAN
        # At least one message, also one that is longer than the span.
        limit = min(confirm_offset, max(span_end, waiting[0][0])) if waiting else confirm_offset
        try:
            while waiting and waiting[0][0] <= limit:
                position, queue, queue_offset, offset, size, code, timestamp = waiting.popleft()
                if queue is not None:
                    touched.add(queue)
                    if (misfit := queue.put(queue_offset, offset, size, code)) is not None:
                        self._mend(misfit, queue, (queue_offset, offset, size, code))
            self.unfinished = limit < confirm_offset
            if not waiting and position < min(confirm_offset, span_end):
                position, timestamp = self._scan(position, confirm_offset, span_end, timestamp, touched)
                self._waiting_end = position
        except _QueueDamagedError as error:
            for queue in touched:
                queue.forget_pending()
            self._make_again(error.queue, str(error))
            return set()
        try:
            visible = {(queue.topic, queue.queue_id) for queue in touched if queue.write_pending()}
        except BaseException:
            for queue in touched:
                queue.forget_pending()
            self.restart(self.position)  # what was taken from memory will be read from the log
            raise
        self.position, self.store_timestamp = position, timestamp
        return visible

    def _scan(
        self, start: int, limit: int, span_end: int, timestamp: int, touched: set[ConsumeQueue]
    ) -> tuple[int, int]:
        """Collect the units of whole messages from `start` that begin before `span_end`; returns where the next one
        starts and the last one's store timestamp."""
        walker = Walker(self._log.files, start, min(limit, self._log.max_offset), check_crc=False)
        known = self._queues.table
        left = MAX_SCAN
        while left and walker.offset < span_end:
            for plain in walker.plain_records(span_end):
                size, queue_id, queue_offset, offset, timestamp, topic, tail = plain
                left -= 1
                if (queue := known.get((topic, queue_id))) is None:
                    queue = self._queue_of(topic, queue_id, offset)
                if queue is not None:
                    special = _TAGS in tail or topic == _SCHEDULE_TOPIC
                    code = self._code_of(topic, tail[len(topic) + 3 :], offset, timestamp) if special else 0
                    touched.add(queue)
                    if (misfit := queue.put(queue_offset, offset, size, code)) is not None:
                        self._mend(misfit, queue, (queue_offset, offset, size, code))
                if not left:
                    break
            if not left or walker.offset >= span_end:
                break
            left -= 1
            record = walker.next()
            if record is None:
                self._report_stop(walker, limit)
                return walker.offset, timestamp
            queue = self.queue_of(record)
            timestamp = record.store_timestamp
            if queue is not None:
                offset = record.physical_offset
                code = self._code_of(record.topic, record.properties, offset, timestamp)
                touched.add(queue)
                if (misfit := queue.put(record.queue_offset, offset, record.size, code)) is not None:
                    self._mend(misfit, queue, (record.queue_offset, offset, record.size, code))
        self.unfinished = True
        return walker.offset, timestamp

    def _mend(self, misfit: Misfit, queue: ConsumeQueue, message: tuple[int, int, int, int]) -> None:
        """Handle a message that `put` refused: put it if nothing was lost. Raises `_QueueDamagedError`."""
        queue_offset, offset, *_ = message
        if misfit is Misfit.GAP:
            if self._known_from > max(queue.last_end(), self._log.min_offset):
                raise _QueueDamagedError(queue, f"no units from {queue.pending_offset} to {queue_offset}")
            queue.fill(queue_offset)  # the log does not have these messages
            queue.put(*message)
            return
        if misfit is Misfit.HIDDEN:
            if queue not in self._doubled:
                self._doubled.add(queue)
                log.error(
                    "a message of the log has a queue offset that was given out before, to a message that has expired:"
                    " consumers do not see this one and perhaps more; a master did not know where this queue ended",
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    queue_offset=queue_offset,
                    min_offset=queue.min_offset,
                    offset=offset,
                )
            return
        first = queue.unit_at(queue_offset)[0]
        if self.message_at(first, queue, queue_offset) is None:
            queue.drop_from(queue_offset)
            raise _QueueDamagedError(queue, f"unit {queue_offset} points to no message of the queue")
        if queue not in self._doubled:
            self._doubled.add(queue)
            log.error(
                "two messages of the log have one queue offset: consumers do not see the second one and perhaps more;"
                " a master has lost a part of this queue",
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                first=first,
                second=offset,
            )

    def message_at(self, offset: int, queue: ConsumeQueue, queue_offset: int) -> Record | None:
        """The queue's message `queue_offset`, if that is what begins at `offset` of the log."""
        walker = Walker(self._log.files, offset, self._log.max_offset, check_crc=False)
        record = walker.next() if offset >= self._log.min_offset else None
        if record is None or (record.physical_offset, record.queue_offset) != (offset, queue_offset):
            return None
        return record if (record.topic, record.queue_id) == (queue.topic.encode(), queue.queue_id) else None

    def _make_again(self, queue: ConsumeQueue, reason: str) -> None:
        start = max(queue.last_end(), self._log.min_offset)
        log.error(
            "a consume queue has lost units; it is made again from the commit log",
            topic=queue.topic,
            queue_id=queue.queue_id,
            problem=reason,
            from_offset=start,
        )
        self.restart(min(start, self.position))
        self.unfinished = True

    def queue_of(self, record: Record) -> ConsumeQueue | None:
        """Where a record belongs, None if nowhere: see `has_unit`; or a topic that cannot be one."""
        if not has_unit(record.sys_flag):
            return None
        return self._queue_of(record.topic, record.queue_id, record.physical_offset)

    def _queue_of(self, topic: bytes, queue_id: int, offset: int) -> ConsumeQueue | None:
        try:
            return self._queues.get_or_make(topic, queue_id)
        except MessageIllegalError as error:
            log.warning("message in the log goes into no queue", offset=offset, error=str(error))
            return None

    def _report_stop(self, walker: Walker, limit: int) -> None:
        """A slave's log may end within a record for a moment; anything else is damage, logged once for each place."""
        if walker.ended:
            return
        self.stopped = Stop(walker.offset, walker.reason)
        if walker.offset != self._logged_at:
            self._logged_at = walker.offset
            log.error(
                "dispatching stops: no record of the log here; rebuild this replica if it stays",
                offset=walker.offset,
                confirmed=limit,
                reason=walker.reason,
            )
