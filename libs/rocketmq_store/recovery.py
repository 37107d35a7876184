"""Recovers a store: finds the log's end, cuts a torn tail, rebuilds the consume queues where they differ from the log.

As in Java, with these differences. The checkpoint's `recover_from`, where valid, is the start: a large store recovers
in the time that its last second takes. A record must carry its own physical offset. The log ends before the first
record that is not whole. Whole records behind it may be the only copies, so they are copied to a file before everything
behind the end is zeroed. If that part must have been durable, this is recorded as well (`log_cut.py`): the replica has
lost data, and is not elected before it has it again. Units behind the start are dropped and rebuilt, so they need not
be trusted. After an unclean stop the tail is written again: the page cache may have marked it clean although its sync
failed, and then it would never reach the disk (`fsync(2)`, PostgreSQL's "fsyncgate"). Called once by message_store.py,
with the writer lock held.
Source: rocketmq-all-5.3.3: CommitLog.java, DefaultMessageStore.java.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from rocketmq_formats.store.consume_queue import is_unit
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
from rocketmq_formats.store.queue_ends import QueueEnds
from rocketmq_store.checkpoint import CheckpointFile
from rocketmq_store.errors import full_disk_errors
from rocketmq_store.log.commit_log import CommitLog, Walker
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.log.torn_records import Crash
from rocketmq_store.log.whole_records import first_whole
from rocketmq_store.log_cut import LogCut
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.queue_ends import check as check_ends

log = structlog.get_logger()


PUT_ASIDE: Final = "commitlog.aside-"
"""Beside the log's folder, with the offsets of the first byte and of the end behind it."""
WITHOUT_ENDS: Final = 64 * 1024 * 1024
"""Bytes at the log's end whose messages are checked in the queues, if the queues' ends were never recorded: another
engine used the store."""


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
    ends: QueueEnds | None,
    cut_note: LogCut,
    clean: bool,
    check: Callable[[], None] = lambda: None,
) -> Recovery:
    """`commit_log` and `queues` are loaded, `ends`: the recorded ends of the queues. Sets the log's max offset. `check`
    is called now and then and may raise: nothing is cut before the end is known, and what is done is done again next
    time. Raises `StoreDamagedError`, `StoreFullError`, `OSError`."""
    files = commit_log.files
    if not files.file_starts:
        queues.clear()
        commit_log.set_max_offset(0)
        return Recovery(0, 0, checkpoint.java.physic_msg_timestamp, -1)
    trusted = checkpoint.recover_from
    start, remake = _start(commit_log, queues, checkpoint, clean=clean)
    crash = Crash.KILLED if checkpoint.same_boot or clean else Crash.POWER
    walker = Walker(files, start, files.end, check_crc=True, crash=crash)
    timestamp = checkpoint.java.physic_msg_timestamp
    for record in walker.records(check):
        timestamp = record.store_timestamp
    end = walker.offset
    cut = -1
    if not (clean and end == start == trusted):  # then there was nothing to walk over, and nothing follows
        if files.has_data(end, files.end - end):
            cut = end
            following = _spare(files, end, walker.reason or "end of a file", check)
            if following is not None and start != trusted and _was_durable(following, checkpoint, clean=clean):
                cut_note.write(f"the log was damaged at offset {end} and is cut there: {walker.reason}")
        _lower(checkpoint, end)
        files.truncate(end)
    commit_log.set_max_offset(end)
    commit_log.flushed_offset = start if start == trusted else commit_log.min_offset
    if not clean:
        files.rewrite(start, end, check)
    ends_lost = ends is None and trusted > 0  # this engine records them, and was the last one that used the store
    if ends is not None and not commit_log.min_offset <= ends.position <= end:
        ends = None  # it belongs to another log, or its part has expired
    # units up to `ends.position` were durable before `ends` was written
    queues.recover(min(start if ends is None else max(start, ends.position), end) if remake else end)
    queues.raise_min(commit_log.min_offset)
    dispatch_from = min(start, end)
    if (ends is None or ends.queues) and not any(queue.max_offset for queue in queues.table.values()):
        if ends is not None:
            count = len(ends.queues)
            log.error("all consume queues have lost units; they are made again from the commit log", count=count)
        dispatch_from = commit_log.min_offset
    elif ends is None:
        dispatch_from = min(dispatch_from, _complete_without_ends(commit_log, queues, end, lost=ends_lost))
    else:
        complete_to = check_ends(queues, ends, commit_log.min_offset)
        if start == trusted or complete_to < ends.position:
            dispatch_from = min(dispatch_from, complete_to)
    return Recovery(end, dispatch_from, timestamp, cut)


def _lower(checkpoint: CheckpointFile, end: int) -> None:
    """The log will be cut at `end`: lower the checkpoint first, or the next start would begin behind it."""
    if checkpoint.recover_from > end:
        confirmed = min(checkpoint.java.confirm_offset, end)
        checkpoint.write(msgspec.structs.replace(checkpoint.java, confirm_offset=confirmed), end)
        checkpoint.sync()


def _spare(files: MappedFiles, offset: int, reason: str, check: Callable[[], None]) -> Record | None:
    """Before the log is cut at `offset`, where no record is whole: returns the first whole one behind it. Raises
    as `_put_aside`."""
    following = first_whole(files, offset, files.end, check)
    if following is None:
        log.warning("torn tail of the log cut off", offset=offset, reason=reason)
        return None
    log.error(
        "a part of the log is missing; what followed it was put aside, since other replicas may lack it",
        offset=offset,
        reason=reason,
        next_whole_record=following.physical_offset,
        path=str(_put_aside(files, offset, following, check)),
    )
    return following


def _put_aside(files: MappedFiles, start: int, following: Record, check: Callable[[], None]) -> Path:
    """Copy what is behind `start`, up to the last whole record, which `following` or one behind it is. Raises
    `StoreFullError`, `OSError`."""
    found: Record | None = following
    end = start
    while found is not None:
        walker = Walker(files, found.physical_offset, files.end, check_crc=True)
        for _ in walker.records(check):
            pass
        end = walker.offset
        found = first_whole(files, end, files.end, check) if files.has_data(end, files.end - end) else None
    path = files.directory.parent / f"{PUT_ASIDE}{start}-{end}"
    with full_disk_errors(path):
        files.copy(start, end, path)
    return path


def _was_durable(following: Record, checkpoint: CheckpointFile, *, clean: bool) -> bool:
    """Whether the damage before `following` lies in a part that was durable, so that a power cut cannot explain it.
    Java's time stamps in the checkpoint show what was durable; without them everything counts as durable."""
    safe_until = checkpoint.java.min_timestamp
    return clean or safe_until == 0 or following.store_timestamp <= safe_until


def _start(
    commit_log: CommitLog, queues: ConsumeQueues, checkpoint: CheckpointFile, *, clean: bool
) -> tuple[int, bool]:
    """Where to start walking, and whether units of messages behind it have to be rebuilt."""
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


def _complete_without_ends(commit_log: CommitLog, queues: ConsumeQueues, end: int, *, lost: bool) -> int:
    """Where the messages begin that reveal queues that have lost units: recently written ones; all, if the recorded
    ends were lost, and maybe queues with them."""
    if not lost:
        return _first_dispatched(commit_log, queues, end - WITHOUT_ENDS)
    log.error("the ends of the consume queues are lost: all queues are compared with the log", end=end)
    return commit_log.min_offset


def _first_dispatched(commit_log: CommitLog, queues: ConsumeQueues, offset: int) -> int:
    """Where the first message at or behind `offset` begins that a queue has; the start of the log without one."""
    units = (queue.unit(queue.first_at(offset, queue.min_offset, queue.max_offset)) for queue in queues.table.values())
    first = min((unit[0] for unit in units if unit is not None and is_unit(unit)), default=commit_log.min_offset)
    if not commit_log.min_offset <= first < commit_log.files.end:
        return commit_log.min_offset
    record = _read(commit_log, first)
    return first if isinstance(record, Record) and record.physical_offset == first else commit_log.min_offset


def _read(commit_log: CommitLog, offset: int) -> Record | Blank | None:
    segment = commit_log.files.segment_at(offset)
    try:
        return read_record(segment.view, offset - segment.start, segment.size, check_crc=False)
    except RecordError:
        return None


def _may_start_at(commit_log: CommitLog, offset: int) -> bool:
    """Whether a record or blank starts here, even a torn one, or only zeros: anything else means that the checkpoint
    belongs to another log."""
    if offset + BLANK_SIZE > commit_log.files.end:
        return offset == commit_log.files.end
    return int.from_bytes(commit_log.files.read(offset + 4, 4), "big") in {0, MAGIC_V1, MAGIC_V2, MAGIC_BLANK}
