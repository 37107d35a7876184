"""All consume queues of a store: found on disk, made when a topic's first message comes.

Keyed by (topic bytes, queue id), as records and drafts have them. Used by message_store.py, dispatch.py, reading.py.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from rocketmq_formats.store.segment_names import SegmentNameError, queue_id_of
from rocketmq_store.errors import QueueIllegalError
from rocketmq_store.queues.consume_queue import ConsumeQueue
from rocketmq_store.queues.queue_files import QueueFiles

log = structlog.get_logger()

MAX_TOPIC: Final = 255
MAX_QUEUE_ID: Final = 65_535
PORTION: Final = 64
"""Queues whose begin is searched in one portion: some milliseconds."""
_UNUSABLE: Final = frozenset((b"", b".", b".."))

Key: TypeAlias = tuple[bytes, int]


class ConsumeQueues:
    """`folder`: `{root}/consumequeue`."""

    def __init__(self, folder: Path, file_size: int) -> None:
        self.folder = folder
        self._files = QueueFiles(file_size)
        self.table: dict[Key, ConsumeQueue] = {}
        """For lookups of queues that may not exist; changed only here."""
        self.corrected = False
        """Units that were visible were written again, and are not durable."""

    def load(self, check: Callable[[], None] = lambda: None) -> None:
        """Find the queues; `check` is called now and then and may raise. Raises `StoreDamagedError`, `OSError`.

        All files are looked at before one is changed: a start that is refused, as with another file size, leaves the
        store as it is.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        found: list[tuple[Key, ConsumeQueue, list[tuple[int, int]]]] = []
        for topic in sorted(self.folder.iterdir()):
            check()
            # lost+found may be read by root alone; .snapshot holds copies
            if topic.name.startswith(".") or topic.name == "lost+found" or not topic.is_dir():
                log.warning("not a topic of a store, left alone", path=str(topic))
                continue
            for folder in sorted(topic.iterdir()):
                queue = self._queue_in(topic.name, folder)
                if queue is not None:
                    found.append(((os.fsencode(topic.name), queue.queue_id), queue, queue.found()))
        for key, queue, files in found:
            check()
            queue.load(files)
            self.table[key] = queue

    def _queue_in(self, topic: str, folder: Path) -> ConsumeQueue | None:
        try:
            queue = ConsumeQueue(topic, queue_id_of(folder.name), folder, self._files)
        except SegmentNameError:
            queue = None
        if queue is None or not folder.is_dir():
            log.warning("not a queue of a store, left alone", path=str(folder))
            return None
        return queue

    def recover(self, limit: int) -> None:
        """Only the units of messages that end at or before `limit` stay."""
        for queue in self.table.values():
            queue.recover(limit)

    def get_or_make(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        """Raises `QueueIllegalError` for what cannot be a topic's folder or a queue's id."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            queue = self.table[topic, queue_id] = self._make(topic, queue_id)
        return queue

    def _make(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            name = ""
        if topic in _UNUSABLE or not name or len(topic) > MAX_TOPIC or "/" in name or "\0" in name:
            raise QueueIllegalError(f"not a name for a topic: {topic[:80]!r}")
        if not 0 <= queue_id <= MAX_QUEUE_ID:
            raise QueueIllegalError(f"not a queue id: {queue_id}")
        return ConsumeQueue(name, queue_id, self.folder / name / str(queue_id), self._files)

    def truncate(self, physical_offset: int) -> None:
        """Drop the units of messages that end behind `physical_offset`; durable when `take_dirty` was synced."""
        for queue in self.table.values():
            queue.truncate(physical_offset)

    def raise_min(self, physical_offset: int) -> None:
        """The log begins at `physical_offset` now."""
        for queue in self.table.values():
            queue.raise_min(physical_offset)

    def raise_min_slowly(self, physical_offset: int) -> Iterator[None]:
        """`raise_min` in portions; queues may come and go between them."""
        for count, (key, queue) in enumerate(list(self.table.items()), 1):
            if self.table.get(key) is queue:
                queue.raise_min(physical_offset)
            if not count % PORTION:
                yield

    def ended_before(self, physical_offset: int) -> Iterator[list[tuple[str, int, int]]]:
        """(topic, queue id, end) of the queues whose messages all lie before `physical_offset` of the log, in portions,
        which may be empty; queues may come and go between them."""
        queues = [queue for (topic, _), queue in self.table.items() if queue.topic.encode("utf-8", "replace") == topic]
        for first in range(0, len(queues), PORTION):
            yield [
                (queue.topic, queue.queue_id, queue.max_offset)
                for queue in queues[first : first + PORTION]
                if queue.ends_before(physical_offset)
            ]

    def delete_topic(self, topic: str) -> None:
        """The topic's queues and their files. Raises `OSError`."""
        for key, queue in [item for item in self.table.items() if item[1].topic == topic]:
            queue.delete()
            del self.table[key]
        folder = self.folder / topic
        if topic and "/" not in topic and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def clear(self) -> None:
        """Delete all queues: without a log they point nowhere. Raises `OSError`."""
        for topic in {queue.topic for queue in self.table.values()}:
            self.delete_topic(topic)

    def take_dirty(self) -> list[Path]:
        """Files that were written since the last call, and folders with new names, to be synced."""
        self.corrected = False
        paths: dict[Path, None] = {}
        for queue in self.table.values():
            if queue.dirty:
                paths.update(dict.fromkeys(queue.dirty))
                queue.dirty = set()
        return list(paths)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.table.get((topic.encode("utf-8", "replace"), queue_id))

    def forget_next_offsets(self) -> None:
        """Another process may have appended: take the next offsets from the queues' ends again."""
        for queue in self.table.values():
            queue.next_offset = queue.max_offset

    def by_topic(self) -> dict[str, list[int]]:
        """Ids of the queues that have messages."""
        found: dict[str, list[int]] = {}
        for queue in self.table.values():
            if queue.max_offset > queue.min_offset:
                found.setdefault(queue.topic, []).append(queue.queue_id)
        return found

    def close(self) -> None:
        self._files.close()
