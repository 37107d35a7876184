"""The commit log as a sequence of mapped files, shared by broker and sidecar: both read, the writer lock's holder
writes.

`{directory}/%020d`, named by the offset of the first byte, each `file_size` long (`store/segment_names.py`
of the formats). Bytes written are visible to the other process at once (one page cache), files made or
deleted only after its `refresh`.
How far the log is written is not known here: see commit_log.py and the link's messages.
"""

import os
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from rocketmq_formats.store.segment_names import is_segment_name, segment_name, segment_offset
from rocketmq_runtime.files.filesystem import OS
from rocketmq_store.errors import OutOfRangeError, StoreDamagedError
from rocketmq_store.log.log_files import continued, file_start, is_file, refuse_stranger
from rocketmq_store.log.segment import Segment, close_behind
from rocketmq_store.writer_lock import WriterLock

log = structlog.get_logger()


_COPY: Final = 1 << 20


class FileSlice(NamedTuple):
    """Bytes of one file for `os.sendfile(socket, fd, position, size)`. Keep the value while `fd` is in use: `owner`
    holds the descriptor open, also if the file is deleted."""

    fd: int
    position: int
    size: int
    owner: Segment


class MappedFiles:
    """Not thread-safe except `preallocate_next`, `flush` and what `deleter` returns. `load` first.

    `directory` is made by `load` if it is missing. Callers of `write`, `view`, `truncate` or
    `preallocate_next` must hold `writer`; otherwise these raise `NotWriterError`.
    """

    def __init__(self, directory: Path, file_size: int, *, writer: WriterLock) -> None:
        self.directory = directory
        self.file_size = file_size
        self._writer = writer
        self._segments: list[Segment] = []
        self._changing = threading.Lock()
        """Held briefly, to add files that another thread makes."""
        self._making: Path | None = None
        """A file that does not belong to the log yet, and will not if there is no room for it."""
        self._deleting = threading.Lock()
        self._cuts = 0
        self._started = False
        self._strangers: set[str] = set()
        """Foreign files in the folder that were logged."""

    # What there is

    def load(self) -> None:
        """Open the files that exist; repairs what a crash while making the last one leaves.

        Raises:
            StoreDamagedError: names, lengths or gaps that the store cannot have; `OSError`.
        """
        if not self.directory.is_dir():
            self.directory.mkdir(parents=True, exist_ok=True)
            OS.fsync_directory(self.directory.parent)
        self._segments = self._scan(repair=True)

    def refresh(self) -> None:
        """See the files that the other process has made or deleted since. Raises as `load`."""
        with self._changing:
            segments = self._scan(repair=False)
            seen = set(map(id, segments))
            gone = [segment for segment in self._segments if id(segment) not in seen]
            self._segments = segments
        if gone:
            close_behind(gone)

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the first file; 0 without files."""
        return self._segments[0].start if self._segments else 0

    @property
    def end(self) -> int:
        """Where the last file ends (not: what is written); 0 without files."""
        return self._segments[-1].end if self._segments else 0

    @property
    def segments(self) -> Sequence[Segment]:
        """The files, oldest first."""
        return self._segments

    @property
    def file_starts(self) -> list[int]:
        return [segment.start for segment in self._segments]

    def segment_at(self, offset: int) -> Segment:
        """The file with the byte at `offset`; raises `OutOfRangeError`."""
        if self._segments:
            index = (offset - self._segments[0].start) // self.file_size
            if 0 <= index < len(self._segments):
                return self._segments[index]
        raise OutOfRangeError(f"offset {offset} is not in the log files {self.min_offset} to {self.end}")

    # Reading

    def read(self, offset: int, size: int) -> memoryview:
        """Up to `size` bytes from `offset`, to the end of the file at most, without a copy.
        Raises `OutOfRangeError`."""
        segment = self.segment_at(offset)
        position = offset - segment.start
        return segment.view[position : position + size]

    def readable(self, offset: int, limit: int) -> FileSlice:
        """At most `limit` bytes from `offset`, within one file; raises `OutOfRangeError`."""
        segment = self.segment_at(offset)
        position = offset - segment.start
        return FileSlice(segment.fd, position, min(limit, self.file_size - position), segment)

    def pread(self, offset: int, size: int) -> bytes:
        """A copy of up to `size` bytes from `offset`, to the end of the file at most, in any thread: an unreadable
        sector is an error, not a signal that ends the process. Raises `OutOfRangeError`, `OSError`."""
        segment = self.segment_at(offset)
        position = offset - segment.start
        return os.pread(segment.fd, min(size, self.file_size - position), position)

    # Writing

    def view(self, offset: int, size: int) -> memoryview:
        """Writable memory at `offset` for `recv_into`: `size` bytes, fewer if the file ends before. `offset` may be
        `end` (then the next file is made), or anything that begins a log without files (a slave's start).

        Raises:
            StoreFullError: no room for the file; nothing was changed.
            OutOfRangeError: `offset` would leave a gap. `NotWriterError`, `OSError`.
        """
        segment = self.writable_segment(offset)
        position = offset - segment.start
        return segment.view[position : position + size]

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Copy `data` to `offset` and following, across files if need be; raises as `view`. The files are secured
        before the first byte is copied."""
        source = memoryview(data)
        segment = self.writable_segment(offset)
        while segment.end < offset + len(source):
            segment = self.writable_segment(segment.end)
        while source:
            target = self.view(offset, len(source))
            target[:] = source[: len(target)]
            offset += len(target)
            source = source[len(target) :]

    def writable_segment(self, offset: int) -> Segment:
        """The file for `offset` with its blocks allocated, made if it is the next one; raises as `view`."""
        self._writer.require()
        if offset == self.end or not self._segments:
            with self._writer.guard:
                if offset >= self.end:  # preallocated already
                    self._create(offset - offset % self.file_size)
        segment = self.segment_at(offset)
        segment.allocate()
        return segment

    def preallocate_next(self) -> None:
        """Make the file after the last one, in any thread, so that `write` need not. Does nothing if this process is
        no longer the writer. Raises `StoreFullError`, `OSError`."""
        with self._writer.guard:
            if self._writer.held and self._segments:
                self._create(self.end)

    def truncate(self, offset: int) -> None:
        """Cut the log: only zeros at and behind `offset`, durably. Files that begin there or later are deleted,
        from the last one, so that a crash in between leaves a log without gaps. The first file stays, if `offset` is
        not before it; else all go. Raises `NotWriterError`, `OSError`."""
        self._writer.require()
        self.stop_deleting()
        with self._writer.guard:
            keep = [segment for segment in self._segments if segment.start < offset]
            if not keep and self._segments and self._segments[0].start == offset:
                keep = self._segments[:1]
            for segment in reversed(self._segments[len(keep) :]):
                segment.path.unlink(missing_ok=True)
                self._segments.remove(segment)
                OS.fsync_directory(self.directory)
            if keep:
                keep[-1].zero_from(max(0, offset - keep[-1].start))

    def has_data(self, offset: int, size: int) -> bool:
        """Whether there is anything but zeros in the `size` bytes from `offset`, as far as there are files.
        Raises `OSError`."""
        return any(
            segment.has_data(max(0, offset - segment.start), min(segment.size, offset + size - segment.start))
            for segment in self._segments
            if segment.end > offset and segment.start < offset + size
        )

    def delete_before(self, offset: int) -> int:
        """Delete the files that end at or before `offset`, from the first; the last file always stays. Returns the new
        `min_offset`. The broker's task also on a slave: it does not touch what is being written. Raises `OSError`."""
        self.deleter(offset)()
        self.refresh()
        return self.min_offset

    def deleter(self, offset: int) -> Callable[[], None]:
        """`delete_before` without the `refresh`, as a call for another thread; the files are chosen now. Each deletion
        is durable before the next one, so that a power cut leaves no gap."""
        # keep the segments themselves: while a file is open, no other one gets its inode
        doomed = [segment for segment in self._segments[:-1] if segment.end <= offset]
        cuts = self._cuts

        def delete() -> None:
            while doomed:
                segment = doomed.pop(0)
                with self._deleting:
                    if cuts != self._cuts or not is_file(segment.path, segment.identity):
                        doomed.clear()
                        return
                    segment.path.unlink()
                    OS.fsync_directory(self.directory)

        return delete

    def stop_deleting(self) -> None:
        """The log is going to be cut, perhaps completely, and may get new files with the names that `deleter` chose: it
        deletes none after this returns."""
        with self._deleting:
            self._cuts += 1

    def repair(self, offset: int, data: bytes) -> None:
        """Overwrite a part of one file, durably, in any thread; the caller knows that what is there is damaged.
        Raises `NotWriterError`, `OutOfRangeError`, `OSError`."""
        self._writer.require()
        segment = self.segment_at(offset)
        position = offset - segment.start
        while data:
            done = os.pwrite(segment.fd, data[: segment.size - position], position)
            position, data = position + done, data[done:]
        os.fdatasync(segment.fd)

    # Durability

    def flush(self, start: int, end: int) -> None:
        """Make the bytes from `start` to `end`, which do not change any more, durable. Raises `OSError`."""
        self.flusher(start, end)()

    def flusher(self, start: int, end: int) -> Callable[[], None]:
        """`flush` as a call for another thread; the files are chosen now."""
        segments = [segment for segment in self._segments if segment.end > start and segment.start < end]

        def flush() -> None:
            for segment in segments:
                segment.sync(max(start - segment.start, 0), min(end - segment.start, segment.size))

        return flush

    def rewrite(self, start: int, end: int, check: Callable[[], None] = lambda: None) -> None:
        """Write the bytes from `start` to `end` again as they are: the next sync writes them to the disk, whatever
        happened to an earlier one. `check` is called for each MiB and may raise. Raises `NotWriterError`, `OSError`."""
        self._writer.require()
        for segment in self._segments:
            if segment.end > start and segment.start < end:
                segment.rewrite(max(start - segment.start, 0), min(end - segment.start, segment.size), check)

    def copy(self, start: int, end: int, path: Path) -> None:
        """The bytes from `start` to `end` as a file at `path`, durable when it returns. Raises `OSError`."""
        with path.open("wb") as file:
            while start < end:
                data = self.read(start, min(_COPY, end - start))
                file.write(data)
                start += len(data)
            file.flush()
            os.fsync(file.fileno())
        OS.fsync_directory(path.parent)

    def close(self) -> None:
        """Forget the files; views and slices that are still in use stay valid."""
        self._segments = []

    # Inside

    def _create(self, start: int) -> None:
        path = self.directory / segment_name(start)
        with self._changing:
            self._making = path
        try:
            segment = Segment.create(path, start, self.file_size)
            OS.fsync_directory(self.directory)
            with self._changing:
                self._segments = [*self._segments, segment]
                self._making = None
        finally:
            self._making = None

    def _scan(self, *, repair: bool) -> list[Segment]:
        known = {segment.start: segment for segment in self._segments}
        paths = self._log_paths()
        segments: list[Segment] = []
        for path in paths:
            if path == self._making:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # deleted by the other process since the listing
            last = path == paths[-1]
            start = file_start(path, status, self.file_size, last=last, repair=repair, writer=self._writer.held)
            if start is None:
                continue
            if segments and segments[-1].end != start:
                raise StoreDamagedError(
                    path,
                    f"the log has no file from {segments[-1].end} to {start}",
                    "put the missing files back, or move the folder away and let a replica rebuild it",
                )
            segment = known.get(start)
            if segment is None or segment.identity != (status.st_dev, status.st_ino):
                segment = Segment(path, start, self.file_size)
            segments.append(segment)
        self._started = True
        return segments

    def _log_paths(self) -> list[Path]:
        """Files with names of the log, in order. Other names are refused at the start and ignored later, as are names
        that do not continue the log: neither a core dump nor a copy of a file must stop a running replica."""
        found = [self.directory / entry.name for entry in os.scandir(self.directory)]
        paths = sorted(path for path in found if is_segment_name(path.name))
        if self._started:
            starts = [start for path in paths if (start := segment_offset(path.name)) % self.file_size == 0]
            known = {segment.start for segment in self._segments}
            ours = set(map(segment_name, continued(starts, known, self.file_size)))
            paths = [path for path in paths if path.name in ours]
        for path in sorted(set(found).difference(paths)):
            if path.name not in self._strangers:
                with suppress(FileNotFoundError):
                    mode = path.lstat().st_mode
                    if not self._started:
                        refuse_stranger(path, mode)
                    elif not stat.S_ISDIR(mode):
                        log.warning("not a file of the log, left alone: move it out of this folder", path=str(path))
                self._strangers.add(path.name)
        return paths
