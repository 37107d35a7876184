"""From the commit log into the consume queues, in log order, up to the confirm offset. Used by message_store.py.

Units are written queue by queue for `DISPATCH_SPAN` of the log at a time: whoever reads the files of a broker that died
in between finds them out of order by no more than that.

What this process appended waits in memory and needs no reading; everything else (a slave's log, what recovery found) is
read from the log. Doing it twice changes nothing: units that are there are skipped.
"""

from collections import deque
from typing import Final, NamedTuple

import structlog

from rocketmq_formats.store.consume_queue import DISPATCH_SPAN
from rocketmq_formats.store.delay_levels import DelayLevelError, unit_tags_code
from rocketmq_formats.store.message import Record, SysFlag
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_store.commit_log import CommitLog, Walker
from rocketmq_store.consume_queue import ConsumeQueue
from rocketmq_store.consume_queues import ConsumeQueues
from rocketmq_store.errors import MessageIllegalError

log = structlog.get_logger()

MAX_WAITING: Final = 65_536
"""Appended messages kept in memory for dispatching; beyond that they are read from the log when their time comes."""
MAX_SCAN: Final = 4_096
"""Messages read from the log in one call, of `DISPATCH_SPAN` at the most: some 20 ms."""
TRANSACTION_MASK: Final = 0xC
TRANSACTION_COMMIT: Final = 0x8
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_TAGS: Final = b"TAGS\x01"


class Waiting(NamedTuple):
    """An appended message on its way into its queue."""

    end: int
    queue: ConsumeQueue | None
    """None: it goes into no queue (a prepared or rolled back transaction)."""
    queue_offset: int
    offset: int
    size: int
    tags_code: int
    store_timestamp: int


class Dispatcher:
    """`position`: the messages before it are in the queues and visible."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues, delay_levels: tuple[int, ...]) -> None:
        self._log = commit_log
        self._queues = queues
        self._delay_levels = delay_levels
        self._waiting: deque[Waiting] = deque()
        self._waiting_end = 0  # where the next message of `_waiting` has to start
        self.position = 0
        self.store_timestamp = 0
        """Of the last message dispatched, ms."""
        self.unfinished = False
        """The last `run` stopped to let others work."""
        self._stuck_at = -1

    def restart(self, position: int) -> None:
        """Go on from here (a record's start): after recovery or a cut."""
        self._waiting.clear()
        self.position = self._waiting_end = position
        self._stuck_at = -1

    def appended(self, waiting: Waiting) -> None:
        """This process has put a message into the log."""
        if waiting.offset == self._waiting_end and len(self._waiting) < MAX_WAITING:
            self._waiting.append(waiting)
            self._waiting_end = waiting.end

    def found(self, record: Record) -> None:
        """A record of another writer, which the next master has to continue; in log order from `position`."""
        queue = self.queue_of(record)
        if queue is not None:
            queue.next_offset = max(queue.next_offset, record.queue_offset + 1)
        end = record.physical_offset + record.size
        if record.physical_offset > self._waiting_end:  # behind a blank
            self.rolled(self._waiting_end, record.physical_offset)
        self.appended(
            Waiting(
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
        """The log goes on in the next file."""
        if self._waiting_end == blank_at:
            self._waiting_end = following
            if not self._waiting and self.position == blank_at:
                self.position = following

    def tags_code(self, topic: bytes, properties: bytes, store_timestamp: int) -> int:
        """What the unit of a message carries: its tag's hash code or, for a delayed one, when it is due (ms).
        Raises `DelayLevelError`."""
        return unit_tags_code(topic, properties, store_timestamp, self._delay_levels)

    def _code_of(self, topic: bytes, properties: bytes, offset: int, store_timestamp: int) -> int:
        try:
            return self.tags_code(topic, properties, store_timestamp)
        except DelayLevelError as error:  # the log has it, so it must not stop those behind it
            log.warning("delayed message without a level, due at once", offset=offset, error=str(error))
            return store_timestamp

    def run(self, confirm_offset: int) -> set[tuple[str, int]]:
        """Dispatch messages that end at or before `confirm_offset`, or some of them (then `unfinished`: call again);
        returns the queues that have new ones. Raises `StoreFullError`, `OSError`: call again later."""
        if confirm_offset <= self.position:
            self.unfinished = False
            return set()
        touched: set[ConsumeQueue] = set()
        position, timestamp = self.position, self.store_timestamp
        waiting = self._waiting
        span_end = position + DISPATCH_SPAN
        limit = min(confirm_offset, max(span_end, waiting[0].end)) if waiting else confirm_offset
        while waiting and waiting[0][0] <= limit:
            position, queue, queue_offset, offset, size, code, timestamp = waiting.popleft()
            if queue is not None:
                queue.put(queue_offset, offset, size, code)
                touched.add(queue)
        self.unfinished = limit < confirm_offset
        if not waiting and position < min(confirm_offset, span_end):
            position, timestamp = self._scan(position, confirm_offset, span_end, timestamp, touched)
            self._waiting_end = position
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
        for _ in range(MAX_SCAN):
            if walker.offset >= span_end:
                break
            plain = walker.next_plain()
            if plain is not None:
                size, queue_id, queue_offset, offset, timestamp, topic, tail = plain
                if (queue := known.get((topic, queue_id))) is None:
                    queue = self._queue_of(topic, queue_id, offset)
                if queue is not None:
                    special = _TAGS in tail or topic == _SCHEDULE_TOPIC
                    code = self._code_of(topic, tail[len(topic) + 3 :], offset, timestamp) if special else 0
                    queue.put(queue_offset, offset, size, code)
                    touched.add(queue)
                continue
            record = walker.next()
            if record is None:
                self._report_stop(walker, limit)
                return walker.offset, timestamp
            queue = self.queue_of(record)
            timestamp = record.store_timestamp
            if queue is not None:
                offset = record.physical_offset
                code = self._code_of(record.topic, record.properties, offset, timestamp)
                queue.put(record.queue_offset, offset, record.size, code)
                touched.add(queue)
        self.unfinished = True
        return walker.offset, timestamp

    def queue_of(self, record: Record) -> ConsumeQueue | None:
        """Where a record belongs, None if nowhere: half a transaction, a topic that cannot be one, or several messages
        in one record, which only Java's queues of type BatchCQ can hold."""
        sys_flag = record.sys_flag
        if sys_flag & TRANSACTION_MASK not in {0, TRANSACTION_COMMIT} or sys_flag & SysFlag.INNER_BATCH:
            return None
        return self._queue_of(record.topic, record.queue_id, record.physical_offset)

    def _queue_of(self, topic: bytes, queue_id: int, offset: int) -> ConsumeQueue | None:
        try:
            return self._queues.get_or_make(topic, queue_id)
        except MessageIllegalError as error:
            log.warning("message in the log goes into no queue", offset=offset, error=str(error))
            return None

    def _report_stop(self, walker: Walker, limit: int) -> None:
        """A slave's log may end within a record for a moment; anything else is damage, said once for each place."""
        if not walker.ended and walker.offset != self._stuck_at:
            self._stuck_at = walker.offset
            log.error(
                "dispatching stops: no record of the log here; rebuild this replica if it stays",
                offset=walker.offset,
                confirmed=limit,
                reason=walker.reason,
            )
