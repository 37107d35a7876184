"""The small files in a store's root that lock it and distinguish an orderly stop from a crash. Owned by the broker.

`lock`: locked as Java's FileChannel locks it, so that Java's broker and ours never open one store together.
`abort`: exists while a broker runs; if it exists at a start, the last stop was not orderly.
"""

import fcntl
import os
from pathlib import Path

from rocketmq_formats.store.segment_names import ABORT, LOCK
from rocketmq_runtime.files.filesystem import OS
from rocketmq_store.errors import StoreInUseError


class RootFiles:
    """`root` is made if it is missing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = -1

    def lock(self) -> None:
        """Raises `StoreInUseError` if another process has the store open; `OSError`."""
        self._root.mkdir(parents=True, exist_ok=True)
        path = self._root / LOCK
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, b"lock", 0)
        except (BlockingIOError, PermissionError) as error:
            os.close(fd)
            raise StoreInUseError(
                f"{path} is locked: another broker uses this folder; stop it, or set another storePathRootDir"
            ) from error
        except OSError:
            os.close(fd)
            raise
        self._lock = fd

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def mark_running(self) -> bool:
        """Make the abort file; True if there was none: the last stop was orderly, or this is the first start."""
        path = self._root / ABORT
        clean = not path.exists()
        path.write_text(str(os.getpid()))
        OS.fsync_directory(self._root)
        return clean

    def mark_stopped(self) -> None:
        """Everything is durable."""
        (self._root / ABORT).unlink(missing_ok=True)
        OS.fsync_directory(self._root)
