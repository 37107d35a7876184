"""The master's appends: drafts become records at the end of the log. Used by message_store.py.

Each message takes the next offset of its queue and waits in memory to be dispatched. storeTimestamp never decreases, so
that offsets can be searched by time.
"""

from collections.abc import Sequence
from typing import Final

from rocketmq_formats.store.delay_levels import DelayLevelError
from rocketmq_formats.store.message import (
    MAX_PROPERTIES,
    NOT_PLAIN,
    RecordError,
    encode_record,
    has_unit,
    record_size,
)
from rocketmq_formats.store.message_id import encode_message_id
from rocketmq_store.errors import MessageIllegalError, PropertiesSizeExceededError, QueueIllegalError
from rocketmq_store.log.commit_log import CommitLog
from rocketmq_store.model import Appended, Draft
from rocketmq_store.queues.consume_queues import MAX_TOPIC, ConsumeQueues
from rocketmq_store.queues.dispatch import Dispatcher, Waiting

BATCH_ALLOWANCE: Final = 64 * 1024
"""Bytes that the records of a batch may have beyond maxMessageSize, as in Java. It also bounds their number, and so the
answer and the time of one request. Source: rocketmq-all-5.3.3: MessageExtEncoder.java."""


class Appender:
    """`store_timestamp`: minimum for the next message, ms."""

    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueues, dispatcher: Dispatcher, max_message_size: int
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._max_message_size = max_message_size
        self.store_timestamp = 0

    def append(self, draft: Draft, now_ms: int, *, again: bool) -> Appended:
        size = self._size(draft, again=again)
        offset = self._reserve(size)  # first: a record holds its own offset
        timestamp = max(now_ms, self.store_timestamp)
        record, waiting = self._make(draft, offset, timestamp, 0)
        self._log.put(record)
        self._settle(waiting)
        return Appended(offset, waiting[0], waiting[2], encode_message_id(draft.store_host, offset), timestamp)

    def append_batch(self, drafts: Sequence[Draft], now_ms: int) -> Appended:
        first = drafts[0]
        if any(draft.topic != first.topic or draft.queue_id != first.queue_id for draft in drafts):
            raise MessageIllegalError("a batch is for one queue")
        size = sum(map(self._size, drafts))
        if size > self._max_message_size + BATCH_ALLOWANCE:
            raise MessageIllegalError(
                f"{size} bytes of records in a batch, {self._max_message_size + BATCH_ALLOWANCE} allowed"
                " (maxMessageSize): make smaller batches"
            )
        start = offset = self._reserve(size)
        timestamp = max(now_ms, self.store_timestamp)
        # All records are made before the first is written: if one is refused, none is stored.
        records: list[bytes] = []
        made: list[Waiting] = []
        ids: list[str] = []
        for index, draft in enumerate(drafts):
            record, waiting = self._make(draft, offset, timestamp, index)
            records.append(record)
            made.append(waiting)
            ids.append(encode_message_id(draft.store_host, offset))
            offset = waiting[0]
        self._log.put(b"".join(records))
        for waiting in made:
            self._settle(waiting)
        return Appended(start, offset, made[0][2], ",".join(ids), timestamp, len(drafts))

    def _size(self, draft: Draft, *, again: bool = False) -> int:
        topic_length, properties_length, body_length = len(draft.topic), len(draft.properties), len(draft.body)
        if 0 in draft.properties:
            raise MessageIllegalError(
                "zero bytes in its properties: in the log they would look like the trace of a power cut"
            )
        if topic_length > MAX_TOPIC:
            raise QueueIllegalError(f"topic of {topic_length} bytes, {MAX_TOPIC} allowed")
        if properties_length > MAX_PROPERTIES:
            raise PropertiesSizeExceededError(f"{properties_length} bytes of properties, {MAX_PROPERTIES} allowed")
        if body_length > self._max_message_size and not again:
            raise MessageIllegalError(f"body of {body_length} bytes, {self._max_message_size} allowed (maxMessageSize)")
        return record_size(topic_length, body_length, properties_length, len(draft.born_host), len(draft.store_host))

    def _reserve(self, size: int) -> int:
        before = self._log.max_offset
        offset = self._log.reserve(size)
        if offset != before:
            self._dispatcher.rolled(before, offset)
        return offset

    def _make(self, draft: Draft, offset: int, timestamp: int, index: int) -> tuple[bytes, Waiting]:
        """The record at `offset`, the `index`-th of its batch; changes nothing."""
        queue = self._queues.get_or_make(draft.topic, draft.queue_id)
        sys_flag = draft.sys_flag
        counts = not sys_flag & NOT_PLAIN or has_unit(sys_flag)  # without the call for most
        queue_offset = queue.next_offset + index if counts else 0
        try:
            code = self._dispatcher.tags_code(draft.topic, draft.properties, timestamp)
            record = encode_record(
                topic=draft.topic,
                queue_id=draft.queue_id,
                flag=draft.flag,
                sys_flag=sys_flag,
                queue_offset=queue_offset,
                physical_offset=offset,
                born_timestamp=draft.born_timestamp,
                born_host=draft.born_host,
                store_timestamp=timestamp,
                store_host=draft.store_host,
                reconsume_times=draft.reconsume_times,
                prepared_transaction_offset=draft.prepared_transaction_offset,
                body=draft.body,
                properties=draft.properties,
            )
        except (RecordError, DelayLevelError) as error:
            raise MessageIllegalError(str(error)) from error
        size = len(record)
        return record, (offset + size, queue if counts else None, queue_offset, offset, size, code, timestamp)

    def _settle(self, waiting: Waiting) -> None:
        """The record is in the log."""
        _, queue, queue_offset, _, _, _, self.store_timestamp = waiting
        # Only now: a draft that is refused must not leave a gap in the offsets of its queue.
        if queue is not None:
            queue.next_offset = queue_offset + 1
        self._dispatcher.appended(waiting)
