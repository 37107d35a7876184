"""Checks names in the commit log's folder, and repairs what a crash during the creation of a file left there. Used by
segments.py."""

import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import structlog

from rocketmq_formats.store.segment_names import segment_offset
from rocketmq_store.errors import StoreDamagedError

log = structlog.get_logger()


_HIDDEN: Final = "."
"""Begins the names of file systems and desktops: .nfs0001 and .fuse_hidden01, files that were deleted while they were
open, .snapshot, .DS_Store. No copy of a log's file has one by mistake."""


def continued(starts: Sequence[int], known: Collection[int], file_size: int) -> Sequence[int]:
    """What a running process takes for files of its log, of all that `starts` (ascending) names: the one run without a
    gap that has files it knows. All, if there is no such run, or more than one."""
    runs: list[list[int]] = []
    for start in starts:
        if runs and runs[-1][-1] + file_size == start:
            runs[-1].append(start)
        else:
            runs.append([start])
    ours = [run for run in runs if any(start in known for start in run)]
    return ours[0] if len(ours) == 1 else starts


def refuse_stranger(path: Path, mode: int) -> None:
    """At a start, for a name that is not one of the log's: raise `StoreDamagedError` if it may be a mistake."""
    if not stat.S_ISDIR(mode) and not path.name.startswith(_HIDDEN):  # lost+found
        raise StoreDamagedError(path, "is not a file of the log", "move it out of this folder")


def file_start(
    path: Path, status: os.stat_result, file_size: int, *, last: bool, repair: bool, writer: bool
) -> int | None:
    """Offset of the first byte of a file whose name is one of the log's; None if it does not count yet.

    `last`: of the log's names in the folder. `repair`: this is the start of a process. `writer`: it holds the writer
    lock, so that it may repair what a crash left.

    Raises:
        StoreDamagedError: not a possible file of the log; `OSError`.
    """
    start = segment_offset(path.name)
    if not stat.S_ISREG(status.st_mode):
        raise StoreDamagedError(path, "is not a file", "move it out of this folder")
    if status.st_size == 0 and last:  # made and not yet given its length, or a crash came between
        if repair and writer:
            path.unlink(missing_ok=True)
            log.info("removed an empty file of the log that a crash left behind", path=str(path))
        return None
    if start % file_size != 0 or status.st_size > file_size:
        raise StoreDamagedError(
            path,
            f"does not fit a file size of {file_size} ({status.st_size} bytes long)",
            "set mappedFileSizeCommitLog to what the store was made with",
        )
    if status.st_size < file_size:
        _complete(path, status.st_size, file_size, may=last and writer)
    return start


def _complete(path: Path, length: int, file_size: int, *, may: bool) -> None:
    """A last file that was being given its length may hold no data yet; anything else has lost some."""
    if may and not any(path.read_bytes()):
        os.truncate(path, file_size)
        log.info("completed a file of the log that a crash left short", path=str(path), length=length)
        return
    raise StoreDamagedError(
        path,
        f"is {length} bytes long instead of {file_size} and has data",
        "restore it, or move the folder away and let a replica rebuild it (check mappedFileSizeCommitLog first)",
    )


def is_file(path: Path, identity: tuple[int, int]) -> bool:
    """Whether the file of this name still has this (device, inode)."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return (status.st_dev, status.st_ino) == identity
