"""The commit log: where the next record goes, and which records there are. Used by message_store.py and recovery.py.

Records lie one behind the other, none across two files; what is left of a file, at least 8 bytes, is a blank record.
Behind `max_offset` the files hold zeros only: cutting zeroes, so nothing that was cut off can come back as a record
when a recovery walks over it (in Java it can).
"""

from collections.abc import Callable, Iterator
from typing import Final

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
from rocketmq_store.errors import MessageIllegalError, NotWriterError, OutOfRangeError
from rocketmq_store.segment import Segment
from rocketmq_store.segments import MappedFiles
from rocketmq_store.writer_lock import WriterLock

PREALLOCATE_AT: Final = 0.75
"""Fullness of the last file at which its successor is made."""
CHECK_EVERY: Final = 256
"""Records between two looks at whether to go on: some milliseconds, a second for the largest."""
_BLOCK: Final = 512
_LOST_BLOCK: Final = bytes(_BLOCK)


class CommitLog:
    """`max_offset` is settled by recovery, by appending, and on a slave by what the sidecar says."""

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
        """Where a record, or a batch's records, of `size` bytes will be: all in one file, a full one is closed with a
        blank. `put` must follow before anything else.

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
        """Soon there will have to be another file: call `files.preallocate_next` in a thread."""
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
        """The bytes of the record at `offset`, checked; None if there is none."""
        if not self.min_offset <= offset < self._max_offset:
            return None
        walker = Walker(self.files, offset, self._max_offset, check_crc=True)
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
    the limit was reached, perhaps within a record; else there is no record, and `reason` says why."""

    def __init__(self, files: MappedFiles, start: int, limit: int, *, check_crc: bool) -> None:
        self._files = files
        self._limit = limit
        self._check_crc = check_crc
        self._segment: Segment | None = None
        self.offset = start
        self.reason = ""
        self.ended = False

    def next_plain(self) -> PlainRecord | None:
        """`next` for a record of the commonest kind, without a look at its checksum; None, and nothing has moved: ask
        `next`."""
        segment = self._segment
        if segment is None or self.offset >= segment.end:
            return None
        start = segment.start
        found = read_plain(segment.view, self.offset - start, min(segment.size, self._limit - start))
        if found is None or found[3] != self.offset:
            return None
        self.offset += found[0]
        return found

    def next(self) -> Record | None:
        """The record at `offset`, which moves behind it; None at the limit or at what is no record."""
        while True:
            segment = self._segment
            if segment is None or self.offset >= segment.end:
                if self.offset >= self._limit:
                    self.ended = True
                    return None
                try:
                    segment = self._segment = self._files.segment_at(self.offset)
                except OutOfRangeError as error:
                    self.reason = str(error)
                    return None
            position = self.offset - segment.start
            try:
                record = read_record(
                    segment.view, position, min(segment.size, self._limit - segment.start), check_crc=self._check_crc
                )
            except RecordError as error:
                self.reason = str(error)
                self.ended = error.fault is RecordFault.INCOMPLETE and self._limit <= segment.end
                return None
            if record.__class__ is Blank:
                if position + record.size != segment.size:
                    self.reason = f"blank of {record.size} bytes at {self.offset}, which is not the rest of the file"
                    return None
                self.offset = segment.end
                continue
            assert isinstance(record, Record)
            if record.physical_offset != self.offset or (self._check_crc and _is_torn(record)):
                self.reason = (
                    f"record at {self.offset} says it is at {record.physical_offset}"
                    if record.physical_offset != self.offset
                    else f"record at {self.offset} has lost a part of its topic or properties"
                )
                return None
            self.offset += record.size
            return record

    def records(self, check: Callable[[], None]) -> Iterator[Record]:
        """All that follow, calling `check` now and then; it may raise."""
        count = 0
        while (record := self.next()) is not None:
            yield record
            count += 1
            if not count % CHECK_EVERY:
                check()


def _is_torn(record: Record) -> bool:
    """Whether a power cut took blocks behind the body, which no checksum covers: where they were, zeros are. Neither
    topics nor ends of properties hold any, but a value may: a single one does not condemn what was acknowledged."""
    properties = record.properties
    return 0 in record.topic or properties[-1:] == b"\0" or (len(properties) >= _BLOCK and _LOST_BLOCK in properties)
