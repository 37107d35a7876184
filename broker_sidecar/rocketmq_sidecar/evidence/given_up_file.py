"""What was acknowledged and is given up: the file `.log.given-up` (`formats.store.given_up`). For `log_proof`.

`.broker.acked` is lowered once a master begins without what it names, and then nothing would show that acknowledged
messages are lost. So this is noted first, on disk, and stays through restarts and changes of role until an operator
deletes the file, at any time: each call reads it.

A log that is short is noted too (`missing`), with the last epoch before the loss: the epoch file forgets epochs of the
lost part at the start, and then nothing distinguishes them from a new master's.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from rocketmq_formats.store.given_up import (
    FILE_NAME,
    GivenUp,
    GivenUpError,
    GivenUpNotes,
    Missing,
    decode_given_up,
    encode_given_up,
)
from rocketmq_runtime.files.atomic_file import keep_unread, write_atomically
from rocketmq_runtime.files.filesystem import OS, FileSystem, StorageError, read_file, storage_errors

log = structlog.get_logger()


class GivenUpFile:
    """One replica's. All methods raise `StorageError`; those that write are called one at a time."""

    def __init__(self, folder: Path, *, filesystem: FileSystem = OS) -> None:
        """`folder`: storePathRootDir."""
        self.path = folder / FILE_NAME
        self._filesystem = filesystem

    def read(self) -> GivenUpNotes:
        """What is noted. Raises `GivenUpError` for a damaged file."""
        data = read_file(self.path, filesystem=self._filesystem)
        return GivenUpNotes() if data is None else decode_given_up(data)

    def miss(self, missing: Missing) -> None:
        """The log is short; an earlier note of the same loss, made when more epochs were known, stays."""
        notes = self._readable()
        if notes.missing is None or notes.missing.end != missing.end:
            self._write(GivenUpNotes(given_up=notes.given_up, missing=missing))

    def missing(self) -> Missing | None:
        return self._readable().missing

    def settle(self, given_up: GivenUp | None) -> None:
        """What was missing is given up; None: it is there again."""
        self._write(self._readable().settled(given_up))

    def _readable(self) -> GivenUpNotes:
        try:
            return self.read()
        except GivenUpError as error:
            kept = keep_unread(self.path, read_file(self.path, filesystem=self._filesystem) or b"")
            log.error("losses noted earlier cannot be read", reason=str(error), kept=str(kept))
            return GivenUpNotes()

    def _write(self, notes: GivenUpNotes) -> None:
        if notes != GivenUpNotes():
            write_atomically(self.path, encode_given_up(notes), filesystem=self._filesystem)
            return
        with storage_errors(self.path, "remove it"):
            with suppress(FileNotFoundError):  # an operator may delete it at any time
                self._filesystem.unlink(self.path)
            self._filesystem.fsync_directory(self.path.parent)


def log_given_up(given_up: GivenUp | None, path: Path) -> None:
    """Report it once, when it is noted."""
    if given_up is not None:
        log.error("acknowledged messages are lost", reason=str(given_up), note=str(path))


def count_of(noted: Callable[[], tuple[GivenUp, ...]]) -> int:
    """How many losses are noted; a note that cannot be read counts as one. Raises nothing."""
    try:
        return len(noted())
    except (GivenUpError, StorageError):
        return 1


def remark_of(noted: Callable[[], tuple[GivenUp, ...]]) -> str | None:
    """What an operator should know of what is `noted`; None: nothing is lost. Raises nothing."""
    try:
        losses = noted()
    except (GivenUpError, StorageError) as error:
        return f"losses noted in {FILE_NAME} cannot be read: {error}"
    if not losses:
        return None
    last = "" if len(losses) == 1 else f" (the last of {len(losses)} losses)"
    return f"{losses[-1]}{last}; delete {FILE_NAME} in storePathRootDir when you have dealt with it"
