"""Reads the log again, record by record with their checksums, in bounded slices, in any thread: bytes may change on a
disk after they were written, and reads of messages do not check checksums.

By `pread`, not through the mapping: then an unreadable sector is an error, not a signal that ends the
process. Used by the broker after an unclean start, and slowly all the time.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from rocketmq_formats.store.message import BLANK_SIZE, MAGIC_BLANK, Record, RecordError, RecordFault, read_record
from rocketmq_formats.store.walk import unpack_start
from rocketmq_store.log.segment import Segment
from rocketmq_store.log.segments import MappedFiles

SLICE: Final = 256 * 1024
"""Bytes of a step, unless one record is longer: some milliseconds."""
MAX_RECORD: Final = 64 << 20
"""Longer records count as damage, so that a damaged length costs no memory."""


class Damage(msgspec.Struct, frozen=True):
    offset: int
    """Where a record that was whole no longer is."""
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: no whole record at offset {self.offset} of the log: {self.reason}"


class LogCheck:
    """`offset`: whole records up to here. `damage`: the first damage found; the check ends there.

    It reads the files that exist now: make another check for later records, and after a cut of the log."""

    def __init__(self, files: MappedFiles, start: int, end: int, *, cuts: int = 0) -> None:
        """From `start`, which begins a record, to `end`, where a record or a file ends; all of it is dispatched.
        `cuts`: how often the log was cut before."""
        self.cuts = cuts
        self.offset = start
        self.end = end
        self.damage: Damage | None = None
        self.records: list[Record] = []
        """Those of the last `step`, whole; their bodies are gone."""
        self._segments = [segment for segment in files.segments if segment.end > start and segment.start < end]

    def step(self) -> int:
        """Check about `SLICE` bytes more; how many there were, 0 at the end, at damage, and where files have
        expired since."""
        self.records = []
        while self._segments and self._segments[0].end <= self.offset:
            self._segments.pop(0)
        if self.damage is not None or not self._segments or self.offset >= self.end:
            return 0
        segment = self._segments[0]
        self.offset = max(self.offset, segment.start)
        begin = self.offset
        try:
            self._walk(segment, min(SLICE, segment.end - begin))
        except RecordError as error:
            self.damage = Damage(self.offset, segment.path, str(error))
        except OSError as error:
            self.damage = Damage(self.offset, segment.path, f"cannot be read: {error}")
        return self.offset - begin

    def _walk(self, segment: Segment, size: int) -> None:
        """The whole records of the next `size` bytes, one at least. Raises `RecordError`, `OSError`."""
        base = self.offset
        buffer = _pread(segment, base, size)
        position = 0
        while base + position < self.end:
            left = segment.end - base - position
            if len(buffer) - position >= BLANK_SIZE:
                needed, magic = unpack_start(buffer, position)
                if magic == MAGIC_BLANK and needed == left:
                    self.offset = segment.end
                    return
                if len(buffer) - position < needed <= min(left, MAX_RECORD):
                    if position:
                        return
                    buffer = _pread(segment, base, needed)
            elif position:
                return
            record = read_record(buffer, position, len(buffer), check_crc=True)
            if not isinstance(record, Record) or record.physical_offset != base + position:
                raise RecordError(RecordFault.MAGIC, f"what is at {base + position} says it is elsewhere")
            self.records.append(record)
            position += record.size
            self.offset = base + position


def _pread(segment: Segment, offset: int, size: int) -> bytes:
    return os.pread(segment.fd, min(size, segment.end - offset), offset - segment.start)
