"""Records which of the log's files equal a native master's, in `.log.compared`, so that a restart does not compare a
large log again. One line for each full file: `start mtime`, mtime in ns. Every write to a file, also by a recovery
after an unclean stop, has it compared again. If the record is lost, all files are compared again. Used by `log_audit`.
"""

import re
from pathlib import Path
from typing import Final

import structlog

from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, FileSystem, StorageError, read_file
from rocketmq_store.log.segment import Segment

log = structlog.get_logger()

FILE_NAME: Final = ".log.compared"
_TEXT: Final = re.compile(rb"(?:[0-9]{1,19} [0-9]{1,19}\n){0,1048576}")


class ComparedFiles:
    """Call `load` first. Reads and writes a small file, so call it in a thread."""

    def __init__(self, path: Path, *, filesystem: FileSystem = OS) -> None:
        self.path = path
        self._filesystem = filesystem
        self._full: dict[int, int] = {}
        self._parts: dict[int, int] = {}
        """Files that are not full: how far this process has compared them."""

    def load(self) -> None:
        """Raises `StorageError`."""
        data = read_file(self.path, filesystem=self._filesystem) or b""
        if _TEXT.fullmatch(data) is None:
            log.warning("the list of compared files is damaged: all files are compared again", path=str(self.path))
            return
        self._full = {int(start): int(mtime) for start, mtime in (line.split() for line in data.splitlines())}

    def reached(self, segment: Segment) -> int:
        """The log is equal from the file's beginning up to here. Raises `OSError`."""
        if segment.start in self._full and self._full[segment.start] == segment.modified_ns():
            return segment.end
        return self._parts.get(segment.start, segment.start)

    def mark_equal(self, segment: Segment, end: int, modified_ns: int, min_offset: int) -> None:
        """The file is equal up to `end`; `modified_ns`: its last change before the comparison. Entries of files before
        `min_offset` are dropped."""
        if end < segment.end:
            self._parts[segment.start] = end
            return
        self._parts.pop(segment.start, None)
        self._full = {start: mtime for start, mtime in self._full.items() if start >= min_offset}
        self._full[segment.start] = modified_ns
        text = b"".join(b"%d %d\n" % entry for entry in sorted(self._full.items()))
        try:
            write_atomically(self.path, text, filesystem=self._filesystem)
        except StorageError as error:
            log.warning("cannot write the list of compared files", reason=str(error))

    def forget(self, offset: int) -> None:
        """The log is cut or changed at `offset`. Full files need nothing here: their mtime changes."""
        self._parts = {start: end for start, end in self._parts.items() if end <= offset}
