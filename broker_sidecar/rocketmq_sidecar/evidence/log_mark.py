"""A lower bound of how far this replica's log has reached: the file `.broker.mark`, which outlives the log. For
`replication`.

The controllers elect a member of the SyncStateSet by its id. If its disk was emptied, by an operator or by a file
system that came back without its last files, it would be elected with less than was acknowledged. So a replica whose
log ends before its mark does not stand for election until the group continues without it
(`domain.controllers.session`).

The mark is the end of a whole record on disk, the first one of a log file. It is written after the first message and
then once for each file, so it costs almost nothing; it does not show a loss within the last file. It is beside
`.broker.meta`, also under a name that `rm *` keeps. A replica with an id, an empty log and no mark counts as emptied
too: the mark is written, with 0, before the id is applied for.
"""

import re
import threading
from pathlib import Path
from typing import Final

import structlog

from rocketmq_formats.errors import FormatError
from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, FileSystem, StorageError, read_file
from rocketmq_sidecar.domain.replication.truncate import HEAD_OF_RECORD
from rocketmq_store.log.segments import MappedFiles

log = structlog.get_logger()

FILE_NAME: Final = ".broker.mark"
_TEXT: Final = re.compile(rb"([0-9]{1,19})\n?")
_SIZE: Final = 4


class LogMarkError(FormatError):
    """The file is damaged; the text says what to do."""


class LogMark:
    """One replica's mark: `offset` is on disk, None without a file."""

    def __init__(self, path: Path, *, filesystem: FileSystem = OS) -> None:
        self.path = path
        self.offset: int | None = None
        self._filesystem = filesystem
        self._lock = threading.Lock()
        self._turn = 0
        self._due = 1

    def load(self) -> None:
        """Read the file.

        Raises:
            LogMarkError: it contains no number.
            StorageError: it cannot be read.
        """
        data = read_file(self.path, filesystem=self._filesystem)
        match = None if data is None else _TEXT.fullmatch(data)
        if data is not None and match is None:
            raise LogMarkError(
                f"{self.path} is damaged ({data[:40]!r}): if this replica's log is whole, delete it; if it was emptied,"
                " write 1 into it"
            )
        self.offset = None if match is None else int(match[1])

    def missing(self, end: int, *, identified: bool) -> str | None:
        """None, or what a log that ends at `end` has lost; `identified`: the replica had an id before it was opened."""
        if self.offset is None:
            if end > 0 or not identified:
                return None
            lost = f"this replica has an id, but its log is empty and {self.path} is not there: its disk was emptied"
        elif end < self.offset:
            lost = f"this replica's log ends at {end}, but it reached {self.offset}: its disk lost files or was emptied"
        else:
            return None
        return (
            f"{lost}. While the controllers count it as in sync it must not be elected: it waits until the group"
            " continues without it, and is then rebuilt from the master. Start another member of the SyncStateSet; if"
            f" none has its log, stop the sidecar, write 0 into {self.path}, start it: what is missing is given up"
        )

    def save(self, offset: int) -> None:
        """Set the mark, lower or higher, durably when this returns. Writes that were measured before (`turn`) are
        dropped. Raises `StorageError`."""
        with self._lock:
            self._turn += 1
            if offset != self.offset:
                self._write(offset)
            self._due = 1 if offset == 0 else self._due

    def lower(self, offset: int) -> None:
        """The log will be cut at `offset`. Raises `StorageError`."""
        with self._lock:
            self._turn += 1
            if self.offset is not None and offset < self.offset:
                self._write(offset)
                self._due = offset + 1

    # Growing

    def is_due(self, end: int) -> bool:
        """Whether a log that has grown to `end` may need another mark. Called for every batch."""
        return end >= self._due

    def next(self, files: MappedFiles, end: int) -> tuple[int, int] | None:
        """(start, end) of the record for the mark of a log that ends at `end`; None if not due yet."""
        start = max(files.min_offset, end - end % files.file_size)
        if start + HEAD_OF_RECORD > min(end, files.end):
            self._due = max(start + HEAD_OF_RECORD, end + 1)
            return None
        file_end = start - start % files.file_size + files.file_size
        record_end = start + int.from_bytes(files.read(start, _SIZE))
        if end < record_end <= file_end:
            self._due = record_end
            return None
        self._due = file_end + 1
        known = self.offset is not None and record_end <= self.offset
        return None if known or not start + HEAD_OF_RECORD < record_end <= end else (start, record_end)

    @property
    def turn(self) -> int:
        """Pass it to `write`: what was measured before the mark was set or lowered does not count."""
        return self._turn

    def write(self, offset: int, turn: int) -> None:
        """Raise the mark to `offset`, in any thread. A failure is logged; the old mark stays."""
        with self._lock:
            if turn != self._turn or (self.offset is not None and offset <= self.offset):
                return
            try:
                self._write(offset)
            except StorageError as error:
                log.warning("cannot write how far the log reached", path=str(self.path), reason=str(error))

    def _write(self, offset: int) -> None:
        write_atomically(self.path, b"%d\n" % offset, filesystem=self._filesystem)
        self.offset = offset
