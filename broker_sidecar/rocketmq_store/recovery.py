"""From files to a store: finds the log's end, cuts what a crash tore, brings the consume queues in line with the log.

Reference: recovery of the commit log, with these differences. The checkpoint's `recover_from`, where it counts, is the
start: a large store recovers in the time its last second takes. A record must say the physical offset that it is at.
What lies behind the end is zeroed. Units behind the start are dropped and made again, which needs no trust in them.
Called once by message_store.py, with the writer lock held.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from rocketmq_formats.store.message import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    Blank,
    Record,
    RecordError,
    read_record,
)
from rocketmq_store.checkpoint import CheckpointFile
from rocketmq_store.commit_log import CommitLog, Walker
from rocketmq_store.consume_queues import ConsumeQueues

log = structlog.get_logger()


_LOOK_AHEAD: Final = 1 << 20
"""How far to look for a torn tail, only in order to report it: everything behind the end is zeroed in any case."""


class Recovery(msgspec.Struct, frozen=True):
    end: int
    """The log's max offset."""
    dispatch_from: int
    """The consume queues are complete up to here: a record's start, or the end."""
    store_timestamp: int
    """Of the last record, as far as known; ms."""
    cut: int
    """Where a torn tail was cut off; -1: there was none."""


def recover(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: CheckpointFile,
    *,
    clean: bool,
    check: Callable[[], None] = lambda: None,
) -> Recovery:
    """`commit_log` and `queues` are loaded. Sets the log's max offset. `check` is called now and then and may raise:
    nothing is cut before the end is known, and what is done is done again next time. Raises `OSError`."""
    files = commit_log.files
    if not files.file_starts:
        queues.clear()
        commit_log.set_max_offset(0)
        return Recovery(0, 0, checkpoint.java.physic_msg_timestamp, -1)
    trusted = checkpoint.recover_from
    start, remake = _start(commit_log, queues, checkpoint, clean=clean)
    walker = Walker(files, start, files.end, check_crc=True)
    timestamp = checkpoint.java.physic_msg_timestamp
    for record in walker.records(check):
        timestamp = record.store_timestamp
    end = walker.offset
    cut = -1
    if not (clean and end == start == trusted):  # then there was nothing to walk over, and nothing behind it
        if files.has_data(end, _LOOK_AHEAD):
            cut = end
            log.warning("torn tail of the log cut off", offset=end, reason=walker.reason or "end of a file")
        files.truncate(end)
    commit_log.set_max_offset(end)
    commit_log.flushed_offset = start if start == trusted else commit_log.min_offset
    queues.recover(min(start, end) if remake else end)
    queues.raise_min(commit_log.min_offset)
    if not any(queue.max_offset for queue in queues.table.values()):
        start = commit_log.min_offset
    return Recovery(end, min(start, end), timestamp, cut)


def _start(
    commit_log: CommitLog, queues: ConsumeQueues, checkpoint: CheckpointFile, *, clean: bool
) -> tuple[int, bool]:
    """Where to begin walking, and whether units of messages behind it have to be made again."""
    files = commit_log.files
    known = checkpoint.recover_from
    if files.min_offset <= known <= files.end and _may_start_at(commit_log, known):
        return known, True
    starts = files.file_starts
    if clean:
        queues.recover(files.end)
        reached = max((queue.max_physical for queue in queues.table.values()), default=0)
        return next((start for start in reversed(starts) if start <= reached), starts[0]), False
    for start in reversed(starts):
        record = _read(commit_log, start)
        if isinstance(record, Record) and 0 < record.store_timestamp <= checkpoint.java.min_timestamp:
            return start, True
    return starts[0], True


def _read(commit_log: CommitLog, offset: int) -> Record | Blank | None:
    segment = commit_log.files.segment_at(offset)
    try:
        return read_record(segment.view, offset - segment.start, segment.size, check_crc=False)
    except RecordError:
        return None


def _may_start_at(commit_log: CommitLog, offset: int) -> bool:
    """Whether a record or blank starts here, even a torn one, or nothing: what else is here, when the checkpoint is of
    this log?"""
    if offset + BLANK_SIZE > commit_log.files.end:
        return offset == commit_log.files.end
    return int.from_bytes(commit_log.files.read(offset + 4, 4), "big") in {0, MAGIC_V1, MAGIC_V2, MAGIC_BLANK}
