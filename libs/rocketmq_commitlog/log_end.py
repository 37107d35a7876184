"""Finds the end of a log that another process writes: files are preallocated with zeros, so their length says nothing.

For `state`. From a valid start, whole records are walked until none follows. Each carries its own offset, so the
remains behind a cut do not count as records, unless they continue the chain without a gap."""

from typing import Final

from rocketmq_commitlog.errors import AbsentError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_formats.store.record_chain import HEAD, Chain, first_start, last_start, starts_at

WINDOW: Final = 1 << 20
"""Bytes read at once."""
MAX_RECORD: Final = 64 << 20
"""Longest record walked over; RocketMQ's default limit is 4 MiB."""
REACH: Final = 8 << 20
"""How far behind damage a record's start is searched."""
_ZEROS: Final = bytes(WINDOW)


def find_end(log: LogFolder, confirmed: int) -> int:
    """End of the last whole record of `log`, at least `confirmed` (0: not known) as far as the log has it.

    Raises:
        UnreadableError: rights, a broken disk.
    """
    if not log.segments:
        return 0
    if confirmed == 0 or not log.min_offset <= confirmed <= log.capacity:
        return _end_of_last_file(log)
    if _starts_at(log, confirmed):
        return _walk(log, confirmed)
    begin = _start_before(log, confirmed)
    end = log.min_offset if begin is None else _walk(log, begin)
    if end >= confirmed or not _has_data(log, end, confirmed):
        return end
    # Damaged records, or a part of one that a slave has not got whole: confirmed is confirmed.
    behind = _start_behind(log, confirmed)
    return confirmed if behind is None else _walk(log, behind)


def _end_of_last_file(log: LogFolder) -> int:
    """By the last file that anything was written into."""
    for start in reversed(log.segments):
        begin = start if _starts_at(log, start) else None
        if begin is None and _has_data(log, start, start + min(WINDOW, log.segment_size)):
            begin = _start_behind(log, start)
        if begin is not None:
            return _walk(log, begin)
    return log.min_offset


def _walk(log: LogFolder, begin: int) -> int:
    """Where the chain of whole records from `begin` ends."""
    chain = Chain(begin)
    while True:
        file_end = _file_end(log, chain.offset)
        if chain.wants > MAX_RECORD:
            break
        base = chain.offset
        window = _window(log, base, min(max(chain.wants, WINDOW), file_end - base))
        if len(window) < min(chain.wants, file_end - base):
            break  # no file, or one that was cut
        if not chain.walk(window, base=base, limit=len(window), file_end=file_end):
            break
        if chain.offset == base and chain.wants <= len(window):
            break
    return chain.whole


def _starts_at(log: LogFolder, offset: int) -> bool:
    return starts_at(_window(log, offset, HEAD), 0, offset)


def _start_before(log: LogFolder, offset: int) -> int | None:
    """The last record start before `offset`, in its file or the one before."""
    first = max(log.min_offset, _file_end(log, offset) - 2 * log.segment_size)
    while offset > first:
        base = max(first, offset - WINDOW)
        window = _window(log, base, offset - base + HEAD - 1)
        found = last_start(window, 0, offset - base, base=base)
        if found is not None:
            return base + found
        offset = base
    return None


def _start_behind(log: LogFolder, offset: int) -> int | None:
    """The first record start at or behind `offset`, in the same file."""
    until = min(offset + REACH, _file_end(log, offset))
    while offset < until:
        size = min(WINDOW, until - offset)
        found = first_start(_window(log, offset, size + HEAD - 1), 0, size, base=offset)
        if found is not None:
            return offset + found
        offset += size
    return None


def _has_data(log: LogFolder, begin: int, end: int) -> bool:
    """Whether there is anything but zeros; what is not there, but has files around it, counts as data."""
    while begin < end:
        size = min(WINDOW, end - begin, _file_end(log, begin) - begin)
        window = _window(log, begin, size)
        if window != _ZEROS[: len(window)]:
            return True
        if len(window) < size:
            return log.min_offset <= begin < log.capacity
        begin += size
    return False


def _window(log: LogFolder, offset: int, size: int) -> bytearray:
    """Up to `size` bytes from `offset`, fewer where the file ends or is not there."""
    window = bytearray(max(min(size, _file_end(log, offset) - offset), 0))
    try:
        log.read_into(offset, memoryview(window))
    except AbsentError:
        return _what_there_is(log, offset, len(window))
    return window


def _what_there_is(log: LogFolder, offset: int, size: int) -> bytearray:
    """As `_window`, of a file that was cut."""
    start = offset - offset % log.segment_size
    lengths = dict(zip(log.segments, log.lengths, strict=True))
    window = bytearray(max(min(size, start + lengths.get(start, 0) - offset), 0))
    try:
        log.read_into(offset, memoryview(window))
    except AbsentError:
        return bytearray()
    return window


def _file_end(log: LogFolder, offset: int) -> int:
    return offset - offset % log.segment_size + log.segment_size
