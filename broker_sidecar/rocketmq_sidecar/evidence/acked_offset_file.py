"""The offset up to which messages were acknowledged to producers, as far as this replica has recorded it: the file
`.broker.acked`. For `log_proof`, with strict durability.

The checkpoint's confirm offset belongs to the broker, lags behind, and is lowered with the log. This one has two uses:
a log that ends before it has lost acknowledged messages, even within its last file, which `.broker.mark` does not see;
and a log is not cut below it for a master that lacks acknowledged messages.

64 bytes, mapped: a new offset costs no system call and survives the death of the process; synced about once a second.
Two slots, written in turns, so that a kill during a write leaves the other one:

     0  8s  "RMQACKED"      8  u64  number of the write      16  i64  offset      24  u32  CRC-32 of these 24 bytes
    32  the same
"""

import mmap
import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Final

from rocketmq_runtime.files.filesystem import OS, storage_errors
from rocketmq_runtime.files.page_cache import is_cached

FILE_NAME: Final = ".broker.acked"
SIZE: Final = 64
_SLOT: Final = struct.Struct(">8sQqI")
_SLOT_AT: Final = (0, 32)
_FIELDS: Final = struct.Struct(">8sQq")
_MAGIC: Final = b"RMQACKED"


class AckedOffsetFile:
    """One replica's. Thread-safe; `open` first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        """0: not known."""
        self.cached = True
        """When it was opened, the kernel still had what the previous process wrote, as far as it can tell."""
        self._number = 0
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Read or create the file; once. Raises `StorageError`."""
        if self._map is not None:
            return
        with storage_errors(self.path, "open it"):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                new = os.fstat(self._fd).st_size < SIZE
                self.cached = is_cached(self._fd)
                os.posix_fallocate(self._fd, 0, SIZE)
                if new:
                    OS.fsync_directory(self.path.parent)
                self._map = mmap.mmap(self._fd, SIZE)
            except OSError:
                os.close(self._fd)
                raise
        for at in _SLOT_AT:
            magic, number, offset, crc = _SLOT.unpack_from(self._map, at)
            whole = magic == _MAGIC and crc == zlib.crc32(self._map[at : at + _FIELDS.size]) and offset >= 0
            if whole and number > self._number:
                self._number, self.offset = number, offset

    def raise_to(self, offset: int) -> None:
        """Messages that end there or before are acknowledged."""
        if offset > self.offset:
            with self._lock:
                if offset > self.offset:
                    self._write(offset)

    def lower(self, offset: int) -> None:
        """The log will be cut there, or what it lacks is given up; durable when this returns, in any thread.
        Raises `StorageError`."""
        with self._lock:
            if offset < self.offset:
                self._write(offset)
                self._write(offset)  # both slots: an older one must not come back
                with storage_errors(self.path, "sync it"):
                    os.fdatasync(self._fd)

    def sync(self) -> None:
        """To the disk, in any thread. Raises `StorageError`."""
        with self._lock, storage_errors(self.path, "sync it"):
            if self._map is not None:
                os.fdatasync(self._fd)

    def close(self) -> None:
        with self._lock:
            if self._map is not None:
                self._map.close()
                os.close(self._fd)
                self._map = None

    def _write(self, offset: int) -> None:
        if self._map is None:
            return
        self._number += 1
        fields = _FIELDS.pack(_MAGIC, self._number, offset)
        _SLOT.pack_into(self._map, _SLOT_AT[self._number % 2], _MAGIC, self._number, offset, zlib.crc32(fields))
        self.offset = offset
