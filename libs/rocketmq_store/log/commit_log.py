"""The commit log: appends and reads records. Used by message_store.py and recovery.py.

Records follow one another, none across two files; the rest of a file, at least 8 bytes, is a blank record. Behind
`max_offset` the files hold only zeros: a cut writes zeros, so a later recovery cannot find records that were cut off
(in Java it can).
"""

from collections.abc import Callable, Iterator
from typing import Final

import structlog

from rocketmq_formats.store.message import (
    BLANK_SIZE,
    Blank,
    PlainRecord,
    Record,
    RecordError,
    RecordFault,
    encode_blank,
    read_plain,
    read_record,
)
from rocketmq_formats.store.record_chain import may_arrive
from rocketmq_store.errors import MessageIllegalError, NotWriterError, OutOfRangeError
from rocketmq_store.log.segment import Segment
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.log.torn_records import Crash, Doubt, doubt_of, is_torn
from rocketmq_store.writer_lock import WriterLock

log = structlog.get_logger()

PREALLOCATE_AT: Final = 0.75
"""Fullness of the last file at which its successor is made."""
CHECK_EVERY: Final = 256
"""Records between two checks whether to continue: some milliseconds, a second for the largest."""


class CommitLog:
    """`max_offset` is set by recovery, by appends, and on a slave by the sidecar's messages."""

    def __init__(self, files: MappedFiles, writer: WriterLock) -> None:
        self.files = files
        self._writer = writer
        self._segment: Segment | None = None  # the one being written by us, its blocks allocated
        self._view = memoryview(b"")
        self._position = 0  # in it; together with its start always `max_offset`
        self._max_offset = 0
        self.flushed_offset = 0
        """Durable up to here."""

    @property
    def min_offset(self) -> int:
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        return self._max_offset

    def set_max_offset(self, offset: int) -> None:
        """By recovery and on a slave, where another process wrote; also after a cut. Files may have changed."""
        self._segment = None
        self._view = memoryview(b"")
        self._max_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    # Appending

    def reserve(self, size: int) -> int:
        """The offset for a record, or a batch's records, of `size` bytes: all in one file; a full file is closed with a
        blank. Call `put` next.

        Raises:
            StoreFullError: nothing was changed. MessageIllegalError: longer than a file. NotWriterError, OSError.
        """
        if not self._writer.held:
            raise NotWriterError("this process does not hold the writer lock of the log")
        if self._segment is None:
            self._open_segment()
        if self._position + size + BLANK_SIZE > self.files.file_size:
            self._roll(size)
        return self._max_offset

    def put(self, data: bytes) -> None:
        """Write at what `reserve` returned."""
        position = self._position
        end = position + len(data)
        self._view[position:end] = data
        self._position = end
        self._max_offset += len(data)

    def _open_segment(self) -> None:
        self._segment = self.files.writable_segment(self._max_offset)
        self._view = self._segment.view
        self._position = self._max_offset - self._segment.start

    def _roll(self, size: int) -> None:
        segment = self._segment
        assert segment is not None
        if size + BLANK_SIZE > segment.size:
            raise MessageIllegalError(
                f"{size} bytes of records do not fit into a file of {segment.size}: raise mappedFileSizeCommitLog"
            )
        following = self.files.writable_segment(segment.end)  # before the blank, so that a full disk changes nothing
        left = segment.size - self._position
        if left:
            self._view[self._position : self._position + BLANK_SIZE] = encode_blank(left)
        self._max_offset = following.start
        self._segment, self._view, self._position = following, following.view, 0

    @property
    def wants_preallocation(self) -> bool:
        """Another file will be needed soon: call `files.preallocate_next` in a thread."""
        files = self.files
        return self._segment is not None and files.end - self._max_offset < (1 - PREALLOCATE_AT) * files.file_size

    # Reading

    def read(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes of one record; None if the log does not hold them."""
        if offset + size > self._max_offset:
            return None
        try:
            view = self.files.read(offset, size)
        except OutOfRangeError:
            return None
        return view if len(view) == size else None

    def record_at(self, offset: int) -> memoryview | None:
        """The bytes of the record at `offset`, checked; None without one."""
        if not self.min_offset <= offset < self._max_offset:
            return None
        walker = Walker(self.files, offset, self._max_offset, check_crc=True)  # whatever its properties are
        record = walker.next()
        if record is None or record.physical_offset != offset:  # a blank was skipped
            return None
        return self.files.read(offset, record.size)

    # Cutting

    def cut(self, offset: int) -> None:
        """Zeros at and behind `offset`, durably. Raises `NotWriterError`, `OSError`."""
        self.files.truncate(offset)
        self.set_max_offset(offset)


class Walker:
    """A cursor over records. `offset`: start of the next record, behind blanks. After `next` returned None: `ended` if
    the limit was reached, perhaps within a record, if all before the limit is written; else no record begins there, for
    the `reason`.

    `check_crc`: of bodies. `crash`: what may have left records in part (torn_records.py)."""

    def __init__(
        self, files: MappedFiles, start: int, limit: int, *, check_crc: bool, crash: Crash = Crash.NONE
    ) -> None:
        self._files = files
        self._limit = limit
        self._check_crc = check_crc
        self._crash = crash
        self._segment: Segment | None = None
        self.offset = start
        self.reason = ""
        self.ended = False

    def plain_records(self, until: int) -> Iterator[PlainRecord]:
        """The next records that begin before `until`, without checking their checksums, as long as they are of the most
        common kind. `offset` is behind each one that was taken; call `next` for the one that follows the last."""
        offset, segment = self.offset, self._segment
        if offset >= self._limit:
            return
        if segment is None or offset >= segment.end:
            try:
                segment = self._segment = self._files.segment_at(offset)
            except OutOfRangeError:
                return
        start, view = segment.start, segment.view
        limit, until = min(segment.size, self._limit - start), min(until, segment.end)
        while offset < until:
            found = read_plain(view, offset - start, limit)
            if found is None or found[3] != offset:
                return
            self.offset = offset = offset + found[0]
            yield found

    def next(self) -> Record | None:
        """The record at `offset`, which moves behind it; None at the limit or where no record begins."""
        while True:
            if self.offset >= self._limit:
                self.ended = True
                return None
            segment = self._segment
            if segment is None or self.offset >= segment.end:
                try:
                    segment = self._segment = self._files.segment_at(self.offset)
                except OutOfRangeError as error:
                    self.reason = str(error)
                    return None
            position = self.offset - segment.start
            try:
                record = read_at(segment, position, self._limit, check_crc=self._check_crc)
            except RecordError as error:
                self.reason = str(error)
                self.ended = self._limit <= segment.end and self._may_arrive(segment)
                return None
            if record.__class__ is Blank:
                self.offset = segment.end
                continue
            assert isinstance(record, Record)
            if self._crash is not Crash.NONE and self._is_torn(segment, record):
                self.reason = f"record at {self.offset} has lost a part of its topic or properties"
                return None
            self.offset += record.size
            return record

    def _may_arrive(self, segment: Segment) -> bool:
        position = self.offset - segment.start
        return may_arrive(segment.view[position : self._limit - segment.start], self.offset, segment.size - position)

    def _is_torn(self, segment: Segment, record: Record) -> bool:
        end = record.position + record.size
        doubt = doubt_of(record, end)
        if doubt is Doubt.NONE:
            return False
        try:
            read_at(segment, end, self._limit, check_crc=True)
        except RecordError:
            followed = False
        else:
            followed = True
        torn = is_torn(doubt, self._crash, end, followed=followed)
        if not torn and self._crash is Crash.POWER:
            log.warning("a record has zeros in its properties, as a power cut leaves them; kept", offset=self.offset)
        return torn

    def records(self, check: Callable[[], None]) -> Iterator[Record]:
        """All that follow, calling `check` now and then; it may raise."""
        count = 0
        while (record := self.next()) is not None:
            yield record
            count += 1
            if not count % CHECK_EVERY:
                check()


def read_at(segment: Segment, position: int, limit: int, *, check_crc: bool) -> Record | Blank:
    """As `read_record`, up to the offset `limit`; a record must carry its own offset, a blank must fill the rest of its
    file. Raises `RecordError`."""
    start = segment.start
    record = read_record(segment.view, position, min(segment.size, limit - start), check_crc=check_crc)
    if isinstance(record, Blank):
        if position + record.size != segment.size:
            text = f"blank of {record.size} bytes at {start + position}, which is not the rest of the file"
            raise RecordError(RecordFault.LENGTHS, text)
    elif record.physical_offset != start + position:
        raise RecordError(RecordFault.MAGIC, f"record at {start + position} says it is at {record.physical_offset}")
    return record
