"""The few file-system calls our durable files are made of, behind a seam.

Code that must survive a power cut takes a `FileSystem`, so that tests and the simulation can put a disk underneath
that forgets what was never synced (tests/sim/disk.py). Only storage code uses this; everything else reads and writes
files in the usual way.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
FS_IOC_GETVERSION = 0x8008_7601
"""ioctl of Linux, on 64-bit machines (include/uapi/linux/fs.h). ext4, XFS, Btrfs and F2FS answer with the generation of
the inode: it differs each time an inode is used again, and survives mounting."""
IDENTITY_BYTES = 12


class StorageError(Exception):
    """A file could not be read or written: the environment's fault. The `OSError`, if any, is the `__cause__`."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path

    @property
    def errno(self) -> int | None:
        """The operating system's error number, None if this is not about a system call."""
        return self.__cause__.errno if isinstance(self.__cause__, OSError) else None


class DiskFullError(StorageError):
    """No space (or quota) left. Nothing was changed that a reader could see; the same call may succeed later."""


class FileSystem(Protocol):
    """Calls as in POSIX: each raises `OSError`, `pwrite` may write less than asked, nothing is durable before its sync.

    A handle is what `open` returned; it reads and writes. Names become durable by `fsync_directory` of their folder.
    """

    def open(self, path: Path, *, create: bool = False, truncate: bool = False, mode: int = 0o644) -> int: ...
    def close(self, handle: int) -> None: ...
    def identity(self, handle: int) -> bytes:
        """IDENTITY_BYTES that no other file of this file system ever has, so no copy of this one; empty if the file
        system cannot tell."""

    def size(self, handle: int) -> int: ...
    def pread(self, handle: int, size: int, offset: int) -> bytes: ...
    def pwrite(self, handle: int, data: bytes, offset: int) -> int: ...
    def truncate(self, handle: int, size: int) -> None: ...
    def fsync(self, handle: int) -> None: ...
    def fdatasync(self, handle: int) -> None: ...
    def lock(self, handle: int) -> None:
        """Take the file's exclusive lock, held until `close`; `BlockingIOError` if another handle has it."""

    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def listdir(self, path: Path) -> list[str]: ...
    def mkdir(self, path: Path) -> None:
        """Make the folder and those above it; one that exists already is fine."""

    def fsync_directory(self, path: Path) -> None: ...


class OsFileSystem:
    """The real thing."""

    def open(self, path: Path, *, create: bool = False, truncate: bool = False, mode: int = 0o644) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0) | (os.O_TRUNC if truncate else 0)
        return os.open(path, flags, mode)

    def close(self, handle: int) -> None:
        os.close(handle)

    def identity(self, handle: int) -> bytes:
        try:
            generation = fcntl.ioctl(handle, FS_IOC_GETVERSION, bytes(8))[:4]
        except OSError:  # network file systems, overlays
            return b""
        return struct.pack("<Q", os.fstat(handle).st_ino) + generation

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return os.pread(handle, size, offset)

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        return os.pwrite(handle, data, offset)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def lock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def listdir(self, path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir())

    def mkdir(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def fsync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


OS = OsFileSystem()


@contextmanager
def storage_errors(path: Path, action: str) -> Generator[None]:
    """Turn `OSError` into `DiskFullError` or `StorageError` about `path`; `action` completes "cannot ..."."""
    try:
        yield
    except OSError as error:
        kind = DiskFullError if error.errno in DISK_FULL_ERRNOS else StorageError
        raise kind(path, f"cannot {action}: {error.strerror or error}") from error


def write_all(filesystem: FileSystem, handle: int, data: bytes, offset: int) -> None:
    """`pwrite` until all of `data` is written; raises `OSError` with an unknown part of it written."""
    written = filesystem.pwrite(handle, data, offset)
    while written < len(data):
        more = filesystem.pwrite(handle, data[written:], offset + written)
        if more == 0:
            raise OSError(errno.EIO, "the file accepts no further bytes")
        written += more


def read_all(filesystem: FileSystem, handle: int) -> bytes:
    """Everything in the open file; raises `OSError`."""
    size = filesystem.size(handle)
    parts: list[bytes] = []
    offset = 0
    while offset < size:
        part = filesystem.pread(handle, size - offset, offset)
        if not part:
            break  # cut shorter while we read: the caller's checks will say so
        parts.append(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_file(path: Path, *, filesystem: FileSystem = OS) -> bytes | None:
    """A small file's bytes, None if there is no such file; raises `StorageError`."""
    with storage_errors(path, "read"):
        try:
            handle = filesystem.open(path)
        except FileNotFoundError:
            return None
        try:
            return read_all(filesystem, handle)
        finally:
            filesystem.close(handle)


def close_quietly(filesystem: FileSystem, handle: int) -> None:
    """Close on a path where an error is already on its way, or where what had to be durable has been synced."""
    with suppress(OSError):
        filesystem.close(handle)


def used_ratio(path: Path) -> float:
    """How much of the disk that `path` is on is used, 0 to 1, as `df` counts it: what is kept for root is used.
    Raises `OSError`."""
    disk = os.statvfs(path)
    return 1 - disk.f_bavail / max(1, disk.f_blocks - disk.f_bfree + disk.f_bavail)
