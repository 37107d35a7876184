"""Checks whether the disk has room for the store's writes: refuses sends without it, and accepts them again.

Sends are refused above diskSpaceWarningLevelRatio, and after a write that found no room (bytes, inodes or a quota).
Then the same kind of room is tried periodically, without leaving anything behind, and sends are accepted again once it
exists. So no send is accepted only to fail. Used by message_store.py.
"""

import os
from pathlib import Path
from typing import Final

import structlog

from rocketmq_runtime.files.filesystem import DISK_FULL_ERRNOS, used_ratio
from rocketmq_store.log.segment import reserve_blocks

log = structlog.get_logger()

_PAGE: Final = 4096


class DiskSpace:
    """Logs one line when refusing begins and one when it ends."""

    def __init__(self, commit_log: Path, queues: Path, refuse_ratio: float) -> None:
        """The folders that files are made in. `refuse_ratio`: diskSpaceWarningLevelRatio."""
        self._commit_log = commit_log
        self._queues = queues
        self._refuse_ratio = refuse_ratio
        self._full: str | None = None
        self._failed: str | None = None

    @property
    def refuses(self) -> str | None:
        """Why appends are refused at present (disk full, nearly so, or failing), None if they are not."""
        return self._failed or self._full

    def refuse(self, reason: str) -> None:
        """There was no room."""
        if self._full is None:
            log.error("sends are refused until there is room; checked every 10 s", reason=reason)
        self._full = reason

    def fail(self, reason: str) -> None:
        """The disk failed: refuse until a restart."""
        self._failed = reason

    def measure(self, log_bytes: int) -> float:
        """Check the disk; returns how much of it is used, 0 to 1. `log_bytes`: length of the next file of the log, 0 if
        none is due. Raises `OSError`."""
        used = used_ratio(self._commit_log)
        if used >= self._refuse_ratio:
            self.refuse(f"{self._commit_log}: {used:.0%} of the disk are used (diskSpaceWarningLevelRatio)")
        elif self._full is not None and _takes(self._commit_log, log_bytes) and _takes(self._queues, _PAGE):
            self._full = None
            log.info("the disk has room again: sends are accepted", used_ratio=round(used, 3))
        return used


def _takes(folder: Path, size: int) -> bool:
    """Whether a file of `size` bytes may be made in `folder`: tried with an unnamed file, or, where the file
    system has none, by its free space. Raises `OSError`."""
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            return False
        return _promised(folder, size)
    try:
        return size == 0 or reserve_blocks(handle, size) or _promised(folder, size)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            return False
        raise
    finally:
        os.close(handle)


def _promised(folder: Path, size: int) -> bool:
    """What `df` and `df -i` say."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= size and (disk.f_files == 0 or disk.f_favail > 0)
