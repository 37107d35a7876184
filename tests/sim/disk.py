"""A disk in memory that keeps its promises and no others: what was not synced may be lost or torn at a crash.

Implements `rocketmq_runtime.files.filesystem.FileSystem` for storage tests and for simulations of a whole quorum. Each
file has a volatile image (what the running process reads) and a durable one (what a crash leaves); each folder likewise
for names. All calls are counted, so that a test can crash at, or fail, the n-th one.
"""

import errno
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from rocketmq_runtime.files.filesystem import IDENTITY_BYTES

_numbers = itertools.count(1)


class SimCrash(BaseException):
    """The machine lost its power inside this call. A BaseException: no handler of ordinary errors may swallow it."""


@dataclass(slots=True)
class Write:
    offset: int
    data: bytes


@dataclass(slots=True)
class Truncate:
    size: int


@dataclass(slots=True, eq=False)
class Inode:
    image: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write | Truncate] = field(default_factory=list)
    locked_by: int | None = None
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(slots=True)
class Rename:
    """A change of names: `target` now means `inode` (None: nothing), `source`, if given, means nothing any more."""

    target: Path
    inode: Inode | None
    source: Path | None = None


class SimDisk:
    """One machine's disk. `capacity` bounds the sum of file sizes in bytes; None for no bound."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.copies_on_write = False  # overwriting takes space too
        self.calls = 0
        self.log: list[str] | None = None  # set to [] to record the calls' names
        self.crash_at: int | None = None  # the number of the call inside which the power goes
        self.on_sync: Callable[[], None] = lambda: None  # called by every sync of a file
        self._failures: dict[int, int] = {}
        self._down = False
        self._names: dict[Path, Inode] = {}
        self._durable_names: dict[Path, Inode] = {}
        self._unsynced_names: dict[Path, list[Rename]] = {}
        self._handles: dict[int, Inode] = {}
        self._next_handle = 3

    # What a test does to the disk

    def fail_call(self, number: int, error: int) -> None:
        """Let the call with this number (the first is 1) raise `OSError(error)`.

        A failed sync loses the un-synced writes for good, though they can still be read: as Linux does.
        """
        self._failures[number] = error

    def kill(self) -> None:
        """End the process that uses the disk: handles and locks are gone, the page cache stays."""
        for inode in self._handles.values():
            inode.locked_by = None
        self._handles.clear()
        self._failures.clear()
        self.crash_at = None
        self._down = False

    def crash(self, rng: Random) -> None:
        """Cut the power: of everything un-synced an arbitrary part survives, torn at any byte. Then power is back."""
        self.kill()
        for renames in self._unsynced_names.values():
            for rename in renames:
                if rng.random() < 0.5:
                    _apply_rename(self._durable_names, rename)
        self._unsynced_names.clear()
        self._names = dict(self._durable_names)
        for inode in {id(inode): inode for inode in self._names.values()}.values():
            for change in inode.unsynced:
                _apply_torn(inode.durable, change, rng)
            inode.unsynced.clear()
            inode.image = bytearray(inode.durable)

    def flip_bit(self, path: Path, offset: int, bit: int = 0) -> None:
        """Flip one bit of a file, in both images."""
        inode = self._names[path]
        inode.image[offset] ^= 1 << bit
        if offset < len(inode.durable):
            inode.durable[offset] ^= 1 << bit

    def remove(self, path: Path) -> None:
        """The file was removed by hand, durably."""
        for names in (self._names, self._durable_names):
            names.pop(path, None)
        for renames in self._unsynced_names.values():
            renames[:] = [one for one in renames if path not in {one.target, one.source}]

    def files(self) -> dict[Path, bytes]:
        """What the running process would read."""
        return {path: bytes(inode.image) for path, inode in sorted(self._names.items())}

    def snapshot(self) -> "SimDisk":
        """The same blocks on another disk, all of them synced: each file has its identity there too."""
        twin = self.copy()
        for path, inode in twin._names.items():
            inode.number = self._names[path].number
        return twin

    def copy(self) -> "SimDisk":
        """Another disk with copies of the files of this one, all of them synced."""
        twin = SimDisk(self.capacity)
        for path, inode in self._names.items():
            twin._names[path] = twin._durable_names[path] = Inode(bytearray(inode.image), bytearray(inode.image))
        return twin

    # FileSystem

    def open(self, path: Path, *, create: bool = False, truncate: bool = False, mode: int = 0o644) -> int:
        self._call("open")
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise _os_error(errno.ENOENT)
            inode = Inode()
            self._rename(Rename(path, inode))
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = inode
        if truncate and inode.image:
            self._truncate(inode, 0)
        return handle

    def close(self, handle: int) -> None:
        self._call("close")
        inode = self._inode(handle)
        del self._handles[handle]
        if inode.locked_by == handle:
            inode.locked_by = None

    def identity(self, handle: int) -> bytes:
        self._call("identity")
        return self._inode(handle).number.to_bytes(IDENTITY_BYTES, "little")

    def size(self, handle: int) -> int:
        self._call("size")
        return len(self._inode(handle).image)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self._call("pread")
        return bytes(self._inode(handle).image[offset : offset + size])

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        crash = self._call("pwrite", torn=True)
        inode = self._inode(handle)
        if self.capacity is not None:
            free = self.capacity - sum(len(other.image) for other in set(self._names.values()))
            room = free if self.copies_on_write else max(len(inode.image) - offset, 0) + free
            if data and room <= 0:
                raise _os_error(errno.ENOSPC)
            data = data[:room]
        _apply(inode.image, change := Write(offset, bytes(data)))
        inode.unsynced.append(change)
        if crash:
            raise SimCrash
        return len(data)

    def truncate(self, handle: int, size: int) -> None:
        crash = self._call("truncate", torn=True)
        self._truncate(self._inode(handle), size)
        if crash:
            raise SimCrash

    def fsync(self, handle: int) -> None:
        self._sync(handle, "fsync")

    def fdatasync(self, handle: int) -> None:
        self._sync(handle, "fdatasync")

    def lock(self, handle: int) -> None:
        self._call("lock")
        inode = self._inode(handle)
        if inode.locked_by not in {None, handle}:
            raise _os_error(errno.EWOULDBLOCK)
        inode.locked_by = handle

    def rename(self, source: Path, target: Path) -> None:
        crash = self._call("rename", torn=True)
        assert source.parent == target.parent, "across folders there is no order to rely on"
        if source not in self._names:
            raise _os_error(errno.ENOENT)
        self._rename(Rename(target, self._names[source], source))
        if crash:
            raise SimCrash

    def unlink(self, path: Path) -> None:
        crash = self._call("unlink", torn=True)
        if path not in self._names:
            raise _os_error(errno.ENOENT)
        self._rename(Rename(path, None))
        if crash:
            raise SimCrash

    def listdir(self, path: Path) -> list[str]:
        self._call("listdir")
        return sorted(name.name for name in self._names if name.parent == path)

    def mkdir(self, path: Path) -> None:
        self._call("mkdir")  # folders themselves are not modelled: they are there

    def fsync_directory(self, path: Path) -> None:
        self._call("fsync_directory")
        for rename in self._unsynced_names.pop(path, []):
            _apply_rename(self._durable_names, rename)

    # Inside

    def _call(self, name: str, *, torn: bool = False) -> bool:
        """Count a call and fail it if asked to; True: the call takes effect, un-synced, and then the power goes."""
        if self._down:
            raise SimCrash
        self.calls += 1
        if self.log is not None:
            self.log.append(name)
        if self.calls == self.crash_at:
            self._down = True
            if not torn:
                raise SimCrash
            return True
        if (error := self._failures.pop(self.calls, None)) is not None:
            raise _os_error(error)
        return False

    def _inode(self, handle: int) -> Inode:
        try:
            return self._handles[handle]
        except KeyError:
            raise _os_error(errno.EBADF) from None

    def _sync(self, handle: int, name: Literal["fsync", "fdatasync"]) -> None:
        self.on_sync()
        try:
            self._call(name)
        except OSError:
            self._inode(handle).unsynced.clear()
            raise
        inode = self._inode(handle)
        for change in inode.unsynced:
            _apply(inode.durable, change)
        inode.unsynced.clear()

    def _truncate(self, inode: Inode, size: int) -> None:
        _apply(inode.image, change := Truncate(size))
        inode.unsynced.append(change)

    def _rename(self, rename: Rename) -> None:
        _apply_rename(self._names, rename)
        self._unsynced_names.setdefault(rename.target.parent, []).append(rename)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _apply_rename(names: dict[Path, Inode], rename: Rename) -> None:
    if rename.source is not None:
        names.pop(rename.source, None)
    if rename.inode is None:
        names.pop(rename.target, None)
    else:
        names[rename.target] = rename.inode


def _apply(image: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        if change.size > len(image):
            image.extend(bytes(change.size - len(image)))
        del image[change.size :]
        return
    if change.offset > len(image):
        image.extend(bytes(change.offset - len(image)))
    image[change.offset : change.offset + len(change.data)] = change.data


def _apply_torn(image: bytearray, change: Write | Truncate, rng: Random) -> None:
    """Nothing, all, or for a write some ranges of it, in any order; now and then bytes that were never written."""
    fate = rng.random()
    if fate < 0.3:
        return
    if fate < 0.5 or isinstance(change, Truncate):
        _apply(image, change)
        return
    cuts = sorted(rng.randrange(len(change.data) + 1) for _ in range(rng.randint(1, 4)))
    for start, end in zip([0, *cuts], [*cuts, len(change.data)], strict=True):
        kind = rng.random()
        if kind < 0.5:
            _apply(image, Write(change.offset + start, change.data[start:end]))
        elif kind < 0.6:
            _apply(image, Write(change.offset + start, rng.randbytes(end - start)))
