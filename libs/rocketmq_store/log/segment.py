"""One file of a fixed length that two processes map: a part of the commit log. Used by segments.py, and by
disk_space.py for its blocks.

The mapping and the descriptor close with their last user (a `memoryview` handed out, a `FileSlice` being sent), never
while in use: a file that retention deletes stays readable for its present readers.
Files are never shortened, because touching a mapping behind the end of its file kills the process (SIGBUS). For the
same reason nothing is written into a file before all its blocks are allocated.
"""

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocketmq_store.errors import StoreFullError, full_disk_errors

_KEEP_SIZE: Final = 0x01
_ZERO_RANGE: Final = 0x10
_POPULATE_WRITE: Final = 23
_CHUNK: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK)

_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_fallocate.restype = ctypes.c_int
_madvise = _libc.madvise
"""Unlike `mmap.madvise` it lets other threads run during the call."""
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_madvise.restype = ctypes.c_int


class Segment:
    """An existing file of `size` bytes whose first byte has the offset `start`. Raises `OSError` at opening."""

    __slots__ = ("_allocated", "_fd", "_map", "_unsynced", "_view", "end", "identity", "path", "size", "start")

    def __init__(self, path: Path, start: int, size: int) -> None:
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._allocated = False
        self._unsynced = -1
        """From here on a sync has failed and none has succeeded since; -1: not so."""
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        status = os.fstat(self._fd)
        self.identity = (status.st_dev, status.st_ino)
        """Distinguishes a file from a later one of the same name."""

    @classmethod
    def create(cls, path: Path, start: int, size: int) -> "Segment":
        """Make the file with all its blocks; it has no length, so that the other process does not count it in, until it
        has them (where the file system can do so). No crash leaves another length than 0 or `size`; one without length
        is taken over. Raises `StoreFullError` (the file is gone again) or `OSError`."""
        with full_disk_errors(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if os.fstat(fd).st_size:
                os.close(fd)
                raise FileExistsError(errno.EEXIST, "a file of the log is in the way", str(path))
            try:
                reserve_blocks(fd, size)
                os.ftruncate(fd, size)
                segment = cls(path, start, size)
                segment.allocate()
            except (OSError, StoreFullError):
                path.unlink(missing_ok=True)
                raise
            finally:
                os.close(fd)
        return segment

    def __del__(self) -> None:
        if self._view is not None:
            self._view.release()
        if self._map is not None:
            with suppress(BufferError):  # parts of it that were handed out keep it
                self._map.close()  # unlike its end by itself, lets other threads run
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def fd(self) -> int:
        """Valid while this object lives."""
        return self._fd

    @property
    def view(self) -> memoryview:
        """All of it, mapped when first asked for. Write only after `allocate`."""
        if self._view is None:
            self._map = mmap.mmap(self._fd, self.size)
            self._view = memoryview(self._map)
        return self._view

    def allocate(self) -> None:
        """Give the file all its blocks, so that a full disk is found here and not inside the mapping. Fast if they
        exist. Raises `StoreFullError` or `OSError`."""
        if self._allocated:
            return
        with full_disk_errors(self.path):
            os.posix_fallocate(self._fd, 0, self.size)
        self._allocated = True

    def populate(self, position: int, size: int) -> bool:
        """Have the pages of a part that will be written soon, in any thread: the first access to a new file's page
        costs several times as much as writing it, most on a virtual machine. Changes no byte; after `allocate`.
        `position` is a multiple of the page size. False if the kernel cannot (before Linux 5.14)."""
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.view, position))
        failed: int = _madvise(start, min(size, self.size - position), _POPULATE_WRITE)
        return not failed

    def has_data(self, position: int, limit: int) -> bool:
        """Whether there is anything but zeros from `position` to `limit`; skips holes that the file system reports.
        Raises `OSError`."""
        while position < limit:
            try:
                position = os.lseek(self._fd, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return False
                raise
            hole = min(limit, os.lseek(self._fd, position, os.SEEK_HOLE))
            while position < hole:
                size = min(_CHUNK, hole - position)
                if os.pread(self._fd, size, position) != _ZEROS[:size]:
                    return True
                position += size
        return False

    def modified_ns(self) -> int:
        """When the file was changed last, ns. Raises `OSError`."""
        return os.fstat(self._fd).st_mtime_ns

    def rewrite(self, position: int, limit: int, check: Callable[[], None]) -> None:
        """See `MappedFiles.rewrite`. Raises `OSError`."""
        while position < limit:
            check()
            position += os.pwrite(self._fd, os.pread(self._fd, min(_CHUNK, limit - position), position), position)

    def sync(self, position: int, limit: int) -> None:
        """Make the bytes from `position` to `limit`, which do not change any more, durable. Raises `OSError`.

        After a failure the kernel reports success for bytes that are not on the disk, because it counts them as
        written. So the next call writes again what the failed one should have.
        """
        if self._unsynced >= 0:
            self.rewrite(self._unsynced, limit, lambda: None)
        try:
            os.fdatasync(self._fd)
        except OSError:
            self._unsynced = position if self._unsynced < 0 else min(self._unsynced, position)
            raise
        self._unsynced = -1

    def zero_from(self, position: int) -> None:
        """Zeros from `position` to the end of the file, durable when it returns. Raises `OSError`."""
        length = self.size - position
        if length > 0:
            # where the call is missing (tmpfs, NFS) a hole is not an option: the other process relies on the blocks
            if not self._fallocate(_ZERO_RANGE | _KEEP_SIZE, position, length):
                self._write_zeros(position)
            os.fdatasync(self._fd)

    def _fallocate(self, mode: int, position: int, length: int) -> bool:
        return _allocated(self._fd, mode, position, length)

    def _write_zeros(self, position: int) -> None:
        while position < self.size:
            size = min(_CHUNK, self.size - position)
            if os.pread(self._fd, size, position) != _ZEROS[:size]:  # what is zero stays sparse
                os.pwrite(self._fd, _ZEROS[:size], position)
            position += size


def close_behind(segments: list[Segment]) -> None:
    """Release deleted files in a thread of their own; the caller keeps no other reference. The last release waits for
    the kernel: 80 ms for a file of 1 GiB that is in memory."""

    def close() -> None:
        while segments:
            segments.pop()

    threading.Thread(target=close, name="log-files-closing", daemon=True).start()


def reserve_blocks(fd: int, size: int) -> bool:
    """Give an empty file `size` bytes of blocks but no length; False if the file system cannot do so (the C library
    would write zeros then). Raises `OSError`."""
    return _allocated(fd, _KEEP_SIZE, 0, size)


def _allocated(fd: int, mode: int, position: int, length: int) -> bool:
    """fallocate(2); False if the file system does not support it."""
    while _fallocate(fd, mode, position, length) != 0:
        number = ctypes.get_errno()
        if number in {errno.EOPNOTSUPP, errno.ENOSYS}:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True
