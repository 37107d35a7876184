"""The right to append to a replica's log: an flock of `{storePathRootDir}/writer.lock` (invariant OneWriter).

Broker and sidecar each have one `WriterLock` and hand the lock over as in replica_link.py; when a process dies, the
kernel releases it. Everything that changes the log calls `require()`, so that a mistake raises instead of corrupting.
"""

import fcntl
import os
import threading
from pathlib import Path

from rocketmq_store.errors import NotWriterError, WriterLockHeldError

FILE_NAME = "writer.lock"


class WriterLock:
    """`path`: usually `{storePathRootDir}/writer.lock`; the folder must exist when `acquire` is called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self.guard = threading.RLock()
        """Held by background threads while their work needs the lock; `release` waits for them."""

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> None:
        """Take the lock, without waiting; nothing if this object has it already.

        Raises:
            WriterLockHeldError: another process (or another `WriterLock` of this one) has it.
            OSError: the file cannot be opened.
        """
        if self._fd is not None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise WriterLockHeldError(
                f"{self._path} is locked: the other half of this replica (broker or sidecar) still writes to the log,"
                " or another broker runs with this storePathRootDir"
            ) from error
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        """Give it back; nothing if it is not held. Waits for work that holds `guard`."""
        with self.guard:
            if self._fd is not None:
                fd, self._fd = self._fd, None
                os.close(fd)

    def require(self) -> None:
        """Raises `NotWriterError` unless the lock is held."""
        if self._fd is None:
            raise NotWriterError(f"the log is changed only by the holder of {self._path}")
