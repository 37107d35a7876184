"""Checks at a start whether consume queues are as long as `{root}/.queue.ends` recorded, and rebuilds them from the log
if not. Used by recovery.py, durability.py and message_store.py.

A queue that lost units would assign their offsets twice, and no consumer would see those acknowledged messages.
"""

from pathlib import Path
from typing import Final

import structlog

from rocketmq_formats.store.queue_ends import QueueEnds, QueueEndsError, decode_queue_ends, encode_queue_ends
from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, DiskFullError, StorageError
from rocketmq_store.queues.consume_queue import ConsumeQueue
from rocketmq_store.queues.consume_queues import ConsumeQueues

log = structlog.get_logger()

SAVE_EVERY: Final = 5
"""Checkpoints between two writes of the file,"""
SAVE_BYTES: Final = 64 * 1024 * 1024
"""unless this many bytes were dispatched since: a start reads them again."""


class QueueEndsFile:
    """`saved`: the file's content, None if it is not readable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.saved: QueueEnds | None = None
        self._rounds = 0

    def load(self) -> None:
        """Raises `OSError`."""
        try:
            self.saved = decode_queue_ends(self._path.read_bytes())
        except FileNotFoundError:
            self.saved = None
        except QueueEndsError as error:
            self.saved = None
            log.warning("file of the consume queues' ends not usable", path=str(self._path), error=str(error))

    def due(self, position: int) -> bool:
        """Call it once for each checkpoint."""
        self._rounds += 1
        saved = self.saved
        return saved is None or self._rounds >= SAVE_EVERY or abs(position - saved.position) >= SAVE_BYTES

    def save(self, ends: QueueEnds) -> bool:
        """Durable when it returns; in any thread, one at a time. False on a full disk: the old file stays, which is
        valid while the log was not cut. Raises `OSError`."""
        try:
            write_atomically(self._path, encode_queue_ends(ends))
        except DiskFullError:
            return False
        except StorageError as error:
            raise OSError(error.errno, str(error)) from error
        self.saved = ends
        self._rounds = 0
        return True

    def replace(self, ends: QueueEnds) -> None:
        """`save` where the file must not stay as it is: without room for another one it is removed.
        Raises `OSError`."""
        if not self.save(ends):
            self.saved = None
            self._path.unlink(missing_ok=True)
            OS.fsync_directory(self._path.parent)


def ends_of(queues: ConsumeQueues, position: int) -> QueueEnds:
    """As they are now, when everything before `position` of the log was dispatched. Exact: units of messages behind it,
    which a disk that was full or a queue that is made again may have left, do not count."""
    table = {key: (queue.min_offset, queue.end_at(position)) for key, queue in queues.table.items() if queue.max_offset}
    return QueueEnds(position, table)


def check(queues: ConsumeQueues, ends: QueueEnds, min_offset: int) -> int:
    """Compare the queues, which were loaded, recovered and begin with the log, with what they were. Drops the units
    that cannot be trusted. `min_offset`: of the log. Returns the offset from which the log has to be dispatched (units
    that are there are skipped then), `ends.position` if nothing is missing. Raises `OSError`."""
    start = ends.position
    for (topic, queue_id), (first, end) in ends.queues.items():
        queue = queues.get_or_make(topic, queue_id)
        problem = _problem(queue, ends.position, first, end)
        if problem is None:
            continue
        again = max(queue.last_end(), min_offset)
        log.error(
            "a consume queue has lost units; it is made again from the commit log",
            topic=queue.topic,
            queue_id=queue_id,
            problem=problem,
            from_offset=again,
        )
        start = min(start, again)
    return start


def complete(queues: ConsumeQueues, ends: QueueEnds) -> None:
    """After dispatching what `check` said: offsets of messages that the log does not hold any more are not given out
    again. Raises `StoreFullError`, `OSError`."""
    for (topic, queue_id), (_, end) in ends.queues.items():
        queue = queues.get_or_make(topic, queue_id)
        if queue.max_offset < end:
            log.warning("messages of a consume queue are not in the log", queue=f"{queue.topic}:{queue_id}", end=end)
            queue.skip_to(end)


def _problem(queue: ConsumeQueue, position: int, first: int, end: int) -> str | None:
    """What is wrong with the queue, in words; what cannot be trusted of it is dropped."""
    if (hole := queue.first_hole(queue.min_offset, queue.max_offset)) is not None:
        queue.drop_from(hole)
        return f"no units from {hole}"
    if queue.min_offset > first and queue.begins_with_file:  # not by what expired, as far as can be seen
        queue.delete()
        return f"begins at {queue.min_offset} instead of {first}"
    found = queue.end_at(position)
    if found > end:
        queue.drop_from(queue.min_offset)
        return f"{found} units instead of {end}"
    return None if found == end else f"{found} units instead of {end}"
