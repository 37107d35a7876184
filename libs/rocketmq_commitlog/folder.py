"""The files of one commit log, opened for reading only, while their owner appends, rolls, expires and cuts.

For `digests` and `state`, here and in the sidecar. Nothing is mapped: a file that becomes shorter, or a sector that
cannot be read, would kill the process. Nothing is cached that could be outdated: a file is opened by its name when
it is read; the listing (`segments`) is as of the last `refresh`.
Source: rocketmq-all-5.3.3: MappedFileQueue.java.
"""

import os
import stat
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from math import gcd
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rocketmq_commitlog.errors import (
    NoFolderError,
    NotALogError,
    SegmentGoneError,
    SegmentShortError,
    UnreadableError,
)
from rocketmq_formats.store.segment_names import SegmentNameError, segment_name, segment_offset

MAX_SEGMENTS: Final = 1 << 20
"""Files of one log: a petabyte in files of 1 GiB."""
MOST_LENGTHS: Final = 4
"""Different lengths of files that are tried as the size of all."""
MAX_OPEN: Final = 4
"""Files held open at once."""


class LogFolder:
    """One replica's commit log. Not thread-safe, but `close` may come from any thread at any time: a file closes when
    its last reader has finished."""

    def __init__(self, path: Path, *, segment_size: int | None = None) -> None:
        """
        Args:
            path: the folder with the files.
            segment_size: mappedFileSizeCommitLog if known; None: derived from names and lengths.

        Raises:
            NotALogError, UnreadableError: as `refresh`.
        """
        self.path = path
        self.segment_size = segment_size or 0
        """Bytes of each file; 0 until the first file is found."""
        self.segments: Sequence[int] = ()
        """Start of every file, ascending. Some at the end may have nothing written into them yet."""
        self.lengths: Sequence[int] = ()
        """Of every file, as found: `segment_size` except for damaged files."""
        self._known = segment_size
        self._open: dict[int, _File] = {}
        self.refresh()

    def refresh(self) -> None:
        """See what is there now.

        Raises:
            NotALogError: it is no folder, or its files cannot be those of one log.
            UnreadableError: rights, a broken disk.
        """
        self.close()
        found = sorted(self._list())
        while found and found[-1][1] == 0:
            found.pop()  # being created, or left by a crash during that
        self.segments, self.lengths = [start for start, _ in found], [length for _, length in found]
        self.segment_size = self._known or self._size_seen()
        size = self.segment_size
        for start, length in found:
            if start % size or length > size:
                raise NotALogError(
                    self.path / segment_name(start),
                    f"{length} bytes from {start} do not fit a log of files of {size}: two logs, a stray file,"
                    " or another mappedFileSizeCommitLog",
                )

    @property
    def min_offset(self) -> int:
        """Offset of the first byte; 0 without files."""
        return self.segments[0] if self.segments else 0

    @property
    def capacity(self) -> int:
        """Where the last file ends, or should (not: what is written); 0 without files."""
        return self.segments[-1] + self.segment_size if self.segments else 0

    @property
    def short(self) -> tuple[tuple[int, int], ...]:
        """Files that end early: start, length."""
        found = zip(self.segments, self.lengths, strict=True)
        return tuple((start, length) for start, length in found if length < self.segment_size)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes from `offset` on, from as many files as it takes.

        Raises:
            SegmentGoneError, SegmentShortError: they are not there; `target` is changed or not.
            UnreadableError: rights, a broken disk.
        """
        while len(target):
            if not self.segment_size or offset < 0:
                raise SegmentGoneError(self.path, f"no file has offset {offset}")
            position = offset % self.segment_size
            part = target[: self.segment_size - position]
            self._file(offset - position).read_into(part, position)
            offset += len(part)
            target = target[len(part) :]

    def read(self, offset: int, length: int) -> bytes:
        """Those bytes; raises as `read_into`. The caller bounds `length`."""
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def close(self) -> None:
        """Close the files; reading opens them again."""
        self._open = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _file(self, start: int) -> "_File":
        files = self._open
        file = files.get(start)
        if file is None:
            if len(files) >= MAX_OPEN:
                files.pop(next(iter(files)), None)
            file = files[start] = _File(self.path / segment_name(start))
        return file

    def _list(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    try:
                        start = segment_offset(entry.name)
                        status = entry.stat()
                    except (SegmentNameError, FileNotFoundError):  # not a file of the log; expired at this moment
                        continue
                    if stat.S_ISREG(status.st_mode):
                        found.append((start, status.st_size))
                    if len(found) > MAX_SEGMENTS:
                        raise NotALogError(self.path, f"more than {MAX_SEGMENTS} files")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoFolderError(self.path, "there is no such folder") from error
        except OSError as error:
            raise UnreadableError(self.path, f"cannot be read: {error.strerror or error}") from error
        return found

    def _size_seen(self) -> int:
        """What most files fit: the length of some, or, if all were cut, what the names allow. A stray file does not
        decide."""
        if not self.segments:
            return 0
        files = list(zip(self.segments, self.lengths, strict=True))
        lengths = {max(self.lengths), *(length for length, _ in Counter(self.lengths).most_common(MOST_LENGTHS))}

        def fitting(size: int) -> int:
            return sum(start % size == 0 and length <= size for start, length in files)

        return max(sorted({*lengths, gcd(*self.segments)} - {0}), key=lambda size: (fitting(size), size in lengths))


class _File:
    """One open file; it closes with the last reference, never while another thread reads from it."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self._fd = -1
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise SegmentGoneError(path, "is not there (any more)") from error
        except OSError as error:
            raise UnreadableError(path, f"cannot be opened: {error.strerror or error}") from error
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):  # `refresh` leaves it out, too
            raise SegmentGoneError(path, "is not a file")
        _spare_cache(self._fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read_into(self, target: memoryview, position: int) -> None:
        try:
            while len(target):
                count = os.preadv(self._fd, (target,), position)
                if count == 0:
                    raise SegmentShortError(self.path, f"ends at {position}, {len(target)} bytes are missing")
                position += count
                target = target[count:]
        except OSError as error:
            raise UnreadableError(self.path, f"cannot be read at {position}: {error.strerror or error}") from error


def _spare_cache(fd: int) -> None:
    """What is read here is read once: it should not push out what the broker's consumers read (Linux 6.3 and later)."""
    with suppress(OSError):  # a hint
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NOREUSE)
