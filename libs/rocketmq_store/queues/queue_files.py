"""Bytes of consume queue files: sparse, of fixed length, read and written by system calls, not mapped.

A broker may have thousands of queues, with 6 MB per file: mapped and allocated ahead they would take gigabytes. With
`pwrite`, a full disk is an error and not a signal. Open descriptors are kept only for recently used files.
Used by consume_queue.py.
"""

import errno
import os
import stat
from collections import OrderedDict
from pathlib import Path
from typing import Final

from rocketmq_store.errors import full_disk_errors, raise_full

MAX_OPEN: Final = 256
_PAGE: Final = 4096


class QueueFiles:
    """Reads and writes files by path; raises `OSError`, and `StoreFullError` where there is no room."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self._open: OrderedDict[Path, int] = OrderedDict()

    def read(self, path: Path, position: int, size: int) -> bytes:
        return os.pread(self._handle(path), size, position)

    def write(self, path: Path, position: int, data: bytes | bytearray) -> None:
        """All of `data`, or an error after an unknown part of it."""
        handle = self._handle(path)
        try:  # no context manager: nearly every message comes here, on every replica
            written = os.pwrite(handle, data, position)
            while written < len(data):
                written += os.pwrite(handle, data[written:], position + written)
        except OSError as error:
            raise_full(path, error)
            raise

    def create(self, path: Path) -> None:
        """Make a file of zeros of the full length, and its folder, or set an existing file to this length."""
        with full_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(handle, self.file_size)
            except OSError:
                os.close(handle)
                raise
        self._keep(path, handle)

    def zero_from(self, path: Path, position: int) -> bool:
        """Zeros from `position` to the end, not yet durable; False if there were only zeros. These files are never
        mapped, so they may be shortened for a moment; loading the queue repairs a crash in between."""
        handle = self._handle(path)
        if not self._has_data(handle, position):
            return False
        os.ftruncate(handle, position)
        os.ftruncate(handle, self.file_size)
        return True

    def _has_data(self, handle: int, position: int) -> bool:
        page_end = position - position % _PAGE + _PAGE
        if any(os.pread(handle, page_end - position, position)):
            return True
        try:
            os.lseek(handle, page_end, os.SEEK_DATA)
        except OSError as error:
            return error.errno != errno.ENXIO  # ENXIO: nothing but a hole to the end
        return True

    def first_hole(self, path: Path, position: int) -> int:
        """Where from `position` on the file has no blocks, its length if it has all."""
        return os.lseek(self._handle(path), position, os.SEEK_HOLE)

    def delete(self, path: Path) -> None:
        handle = self._open.pop(path, None)
        if handle is not None:
            os.close(handle)
        path.unlink(missing_ok=True)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _handle(self, path: Path) -> int:
        handle = self._open.get(path)
        if handle is None:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            self._keep(path, handle)
        else:
            self._open.move_to_end(path)
        return handle

    def _keep(self, path: Path, handle: int) -> None:
        previous = self._open.pop(path, None)
        if previous is not None:
            os.close(previous)
        self._open[path] = handle
        if len(self._open) > MAX_OPEN:
            os.close(self._open.popitem(last=False)[1])


def read_file_part(path: Path, position: int, size: int) -> bytes:
    """In any thread, with a descriptor of its own; fewer bytes where the file ends. Raises `OSError`."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(handle, size, position)
    finally:
        os.close(handle)


def sync_files(paths: list[Path]) -> None:
    """Make each durable, a folder's names too, in any thread; what was deleted since is skipped. Raises
    `OSError`."""
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if stat.S_ISDIR(os.fstat(handle).st_mode):
                os.fsync(handle)
            else:
                os.fdatasync(handle)
        finally:
            os.close(handle)
