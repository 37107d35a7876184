"""Which topics were deleted, and where in the log: their messages before that place are hidden.

A deletion is a record of the log (`rocketmq_formats.topics.DELETED_TOPICS`), so every native replica hides the same
messages: after a failover, after a restart, and if it is built again from the log. Offsets of queues continue, because
none may be assigned twice. A deletion leaves with the log's file that holds it; what it hides has left before.
Used by message_store.py.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import structlog

from rocketmq_formats.store.message import Record, RecordError, read_record
from rocketmq_formats.topics import DELETED_TOPICS
from rocketmq_store.queues.consume_queue import ConsumeQueue
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.reading import Reader

log = structlog.get_logger()


class Deletion(NamedTuple):
    place: int
    """Where in the log it is."""
    properties: bytes
    """Of its record."""


class Deletions:
    """Not thread-safe."""

    def __init__(self, queues: ConsumeQueues, reader: Reader) -> None:
        self._queues = queues
        self._reader = reader
        self._last: dict[str, Deletion] = {}
        """By topic."""
        self._newest = -1
        self._next = 0
        """Queue offset of the next deletion."""
        self._shown = set[str]()
        """Topics some of whose hidden messages may be visible."""

    @property
    def last(self) -> Mapping[str, Deletion]:
        """The last deletion of each topic, unless nothing of that part of the log is left."""
        return self._last

    def place_of(self, topic: str) -> int:
        """Where in the log the topic was last deleted, -1 if it was not, or if nothing of that part is left."""
        deletion = self._last.get(topic)
        return -1 if deletion is None else deletion.place

    def load(self) -> None:
        """The queues were recovered. Raises `OSError`."""
        self._last.clear()
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
        self._shown.update(self._last)

    def read_again(self) -> None:
        """The log was repaired, perhaps where a deletion is: the next `dispatched` reads all of them."""
        self._next = 0

    def cut(self, offset: int, min_offset: int) -> None:
        """The log, which begins at `min_offset`, is cut at `offset`, and so are the queues: a deletion that was cut off
        hides nothing. Raises `OSError`."""
        deletions = self._queues.find(DELETED_TOPICS, 0)
        if offset > self._newest and (deletions is None or self._next <= deletions.max_offset):
            return
        for queue in self._of({topic for topic, last in self._last.items() if last.place >= offset}):
            queue.lower_min(min_offset)
        self.load()

    def forget_before(self, min_offset: int) -> None:
        """The log begins at `min_offset` now."""
        self._last = {topic: last for topic, last in self._last.items() if last.place >= min_offset}

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
                topic, last = deletion
                self._last[topic] = last
                self._newest = max(self._newest, last.place)
                self._shown.add(topic)
            self._next = offset + 1

    def _hide(self) -> None:
        for queue in self._of(self._shown & self._last.keys()):
            queue.hide_before(self._last[queue.topic].place)
        self._shown.clear()

    def _of(self, topics: Collection[str]) -> list[ConsumeQueue]:
        return [queue for queue in self._queues.table.values() if queue.topic in topics] if topics else []


def _deletion(view: memoryview) -> tuple[str, Deletion] | None:
    """The topic and the deletion of a record; None if it is no deletion. Only what a broker stores by itself names the
    broker as the one that sent it."""
    try:
        record = read_record(view, 0, len(view), check_crc=True)
        if isinstance(record, Record) and record.born_host == record.store_host:
            return bytes(record.body(view)).decode(), Deletion(record.physical_offset, bytes(record.properties))
    except (RecordError, UnicodeDecodeError):
        pass
    return None
