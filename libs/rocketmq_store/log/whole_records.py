"""Looks for whole records behind a place where none is, and for the end of a log that another process writes. A part of
a record at the end still arrives, or its writer has died; with whole records behind it, it is damage.

The size in a damaged record is not believed alone: a wrong one would hide the whole records in what it claims. The
search begins behind the claimed size only if all lengths of the record agree, else behind its body, if those in its
head do: a body may hold what looks like a record of this place, texts cannot. Used by message_store.py and recovery.py.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from rocketmq_formats.store.message import BLANK_SIZE, Record, RecordError
from rocketmq_formats.store.record_chain import HEAD, first_start, starts_at
from rocketmq_formats.store.walk import body_end, can_add_up, unpack_start
from rocketmq_store.errors import OutOfRangeError
from rocketmq_store.log.commit_log import Walker, read_at
from rocketmq_store.log.segment import Segment
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.log.torn_records import Crash
from rocketmq_store.model import Stop

MAX_UNANNOUNCED: Final = 32 * 1024 * 1024
"""The sidecar writes at most this many bytes behind the last offset that it announced."""
PORTION: Final = 512 * 1024
"""Bytes of records that `find_end` reads at once: some milliseconds, 25 for the smallest ones."""
_WINDOW: Final = 64 * 1024
_WINDOWS: Final = 64
"""Searched at once by `find_end`: some milliseconds."""


class LogEnd(NamedTuple):
    """`find_end`."""

    offset: int
    damage: Stop | None
    """The first place before it where no whole record is."""


def find_end(files: MappedFiles, start: int, announced: int) -> Iterator[LogEnd]:
    """Where the last whole record behind `start`, where one begins, ends, if another process has written: in order, and
    at most `MAX_UNANNOUNCED` bytes behind `announced`. In portions, between which others may run: how far it has come.
    The last one counts. Raises `OSError`."""
    damage = None
    while True:
        walker = _walker(files, start)
        pause = start + PORTION
        while walker.next() is not None:
            if walker.offset > pause:
                pause = walker.offset + PORTION
                yield LogEnd(walker.offset, damage)
        end = walker.offset
        yield LogEnd(end, damage)
        following = None
        for number, found in enumerate(_search(files, end, reach(end, announced)), 1):
            following = found
            if not number % _WINDOWS:
                yield LogEnd(end, damage)
        if following is None:
            return
        if _walker(files, end).next() is not None:  # it has arrived since
            start = end
        else:  # what is written in order and continues behind this place is no tail, but copies of records
            damage = damage or Stop(end, walker.reason)
            start = following.physical_offset


def reach(end: int, announced: int) -> int:
    """Behind which the sidecar has written nothing."""
    return max(end, announced) + MAX_UNANNOUNCED


def first_whole(files: MappedFiles, behind: int, limit: int, check: Callable[[], None] = lambda: None) -> Record | None:
    """The first whole record between `behind`, where a `Walker` found none, and `limit`; None without one. Reads
    what has data. `check` is called now and then and may raise. Raises `OSError`."""
    for found in _search(files, behind, limit):
        if found is not None:
            return found
        check()
    return None


def _walker(files: MappedFiles, start: int) -> Walker:
    return Walker(files, start, files.end, check_crc=True, crash=Crash.KILLED)


def _search(files: MappedFiles, behind: int, limit: int) -> Iterator[Record | None]:
    """None for each window without the beginning of a whole record, at last the first one found."""
    begin = _behind(files, behind)
    for segment in files.segments:
        position = max(begin - segment.start, 0)
        stop = min(segment.size, limit - segment.start)
        while position < stop:
            found = _first_in(segment, position, min(_WINDOW, stop - position))
            yield found
            if found is not None:
                return
            position += _WINDOW


def _behind(files: MappedFiles, offset: int) -> int:
    """Where other records can begin behind the one at `offset`, which is not whole."""
    try:
        segment = files.segment_at(offset)
    except OutOfRangeError:
        return offset + 1
    view, position = segment.view, offset - segment.start
    if not starts_at(view, position, offset):
        return offset + 1
    size, _ = unpack_start(view, position)
    if position + size + BLANK_SIZE <= segment.size and can_add_up(view, position):
        return offset + size
    end = body_end(view, position)
    return offset + 1 if end is None or end > segment.size else segment.start + end


def _first_in(segment: Segment, position: int, size: int) -> Record | None:
    """The first of the whole records that begin in `size` bytes from `position`."""
    if not segment.has_data(position, position + size):
        return None
    window = bytes(segment.view[position : position + size + HEAD - 1])
    at = 0
    while (start := first_start(window, at, size, base=segment.start + position)) is not None:
        with suppress(RecordError):
            record = read_at(segment, position + start, segment.end, check_crc=True)
            if isinstance(record, Record):
                return record
        at = start + 1
    return None
