"""Which topics were deleted, and where in the log: their messages before that place are hidden.

A deletion is a record of the log (`rocketmq_formats.topics.DELETED_TOPICS`), so every native replica hides the same
messages: after a failover, after a restart, and if it is built again from the log. Offsets of queues continue, because
none may be assigned twice. A deletion leaves with the log's file that holds it; what it hides has left before.
Used by message_store.py.
"""

from collections.abc import Collection

import structlog

from rocketmq_formats.store.message import Record, RecordError, read_record
from rocketmq_formats.topics import DELETED_TOPICS
from rocketmq_store.queues.consume_queue import ConsumeQueue
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.reading import Reader

log = structlog.get_logger()


class Deletions:
    """Not thread-safe."""

    def __init__(self, queues: ConsumeQueues, reader: Reader) -> None:
        self._queues = queues
        self._reader = reader
        self._places: dict[str, int] = {}
        """Topic -> where in the log its last deletion is."""
        self._newest = -1
        self._next = 0
        """Queue offset of the next deletion."""
        self._shown = set[str]()
        """Topics some of whose hidden messages may be visible."""

    def place_of(self, topic: str) -> int:
        """Where in the log the topic was last deleted, -1 if it was not, or if nothing of that part is left."""
        return self._places.get(topic, -1)

    def load(self) -> None:
        """The queues were recovered. Raises `OSError`."""
        self._places.clear()
        self._newest, self._next = -1, 0
        self._read()
        self._hide()

    def dispatched(self, visible: Collection[tuple[str, int]], start: int) -> None:
        """The log was dispatched from `start`; `visible` are the queues that have new messages. Raises `OSError`."""
        if start < self._newest:  # queues are being made again
            self._shown.update(topic for topic, _ in visible)
        self._read()
        self._hide()

    def dispatch_failed(self) -> None:
        """Some queues may have new messages that `dispatched` never names."""
        self._shown.update(self._places)

    def read_again(self) -> None:
        """The log was repaired, perhaps where a deletion is: the next `dispatched` reads all of them."""
        self._next = 0

    def cut(self, offset: int, min_offset: int) -> None:
        """The log, which begins at `min_offset`, is cut at `offset`, and so are the queues: a deletion that was cut off
        hides nothing. Raises `OSError`."""
        deletions = self._queues.find(DELETED_TOPICS, 0)
        if offset > self._newest and (deletions is None or self._next <= deletions.max_offset):
            return
        for queue in self._of({topic for topic, place in self._places.items() if place >= offset}):
            queue.lower_min(min_offset)
        self.load()

    def forget_before(self, min_offset: int) -> None:
        """The log begins at `min_offset` now."""
        self._places = {topic: place for topic, place in self._places.items() if place >= min_offset}

    def _read(self) -> None:
        """Take in the deletions that are new."""
        queue = self._queues.find(DELETED_TOPICS, 0)
        if queue is None:
            return
        for offset in range(max(self._next, queue.min_offset), queue.max_offset):
            view = self._reader.record_of(queue, offset)
            deletion = None if view is None else _deletion(view)
            if deletion is None:
                log.error("a deletion of a topic is not readable: its messages are still shown", queue_offset=offset)
            else:
                topic, place = deletion
                self._places[topic] = place
                self._newest = max(self._newest, place)
                self._shown.add(topic)
            self._next = offset + 1

    def _hide(self) -> None:
        for queue in self._of(self._shown & self._places.keys()):
            queue.hide_before(self._places[queue.topic])
        self._shown.clear()

    def _of(self, topics: Collection[str]) -> list[ConsumeQueue]:
        return [queue for queue in self._queues.table.values() if queue.topic in topics] if topics else []


def _deletion(view: memoryview) -> tuple[str, int] | None:
    """The topic and the place of a record; None if it is no deletion. Only what a broker stores by itself names the
    broker as the one that sent it."""
    try:
        record = read_record(view, 0, len(view), check_crc=True)
        if isinstance(record, Record) and record.born_host == record.store_host:
            return bytes(record.body(view)).decode(), record.physical_offset
    except (RecordError, UnicodeDecodeError):
        pass
    return None
