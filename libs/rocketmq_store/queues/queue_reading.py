"""Reads of consumers and tools by topic and queue: the read-only part of `MessageStore`."""

from collections.abc import Collection

from rocketmq_formats.store.consume_queue import Unit
from rocketmq_store.model import GetResult
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.reading import Reader


class QueueReading:
    """Not thread-safe."""

    def __init__(self, queues: ConsumeQueues, reader: Reader) -> None:
        self._queues = queues
        self._reader = reader

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 262_144,
        tag_codes: Collection[int] = (),
    ) -> GetResult:
        """Messages of a queue from the queue offset `offset`. `tag_codes`: Java hash codes of the tags wanted, empty
        for all. At least one message if there is one, however large."""
        queue = self._queues.find(topic, queue_id)
        return self._reader.get(queue, offset, max_messages, max_bytes, tag_codes)

    def record_of(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        """The record at a queue offset; None if the queue does not have it."""
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else self._reader.record_of(queue, offset)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets; max is one behind the last visible message. (0, 0) for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """What the next message appended to the queue gets; at least the max of `queue_bounds` (GET_MAX_OFFSET with
        committed=false)."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.next_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first queue offset stored at or after `timestamp` (ms), the max offset
        without one; `upper`: the last one stored at or before it, 0 without one."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else self._reader.offset_by_time(queue, timestamp, upper=upper)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """storeTimestamp (ms) of the message at a queue offset, -1 without one (GET_EARLIEST_MSG_STORETIME with the
        min offset)."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._reader.store_time(queue, offset)

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[Unit] | None:
        """At most `count` units of the queue from `offset` on; None: no such queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        if not queue.min_offset <= offset < queue.max_offset:
            return []
        return list(queue.units(offset, min(count, queue.max_offset - offset)))

    def queues(self) -> dict[str, list[int]]:
        """Topics with the ids of their queues that have messages."""
        return self._queues.by_topic()
