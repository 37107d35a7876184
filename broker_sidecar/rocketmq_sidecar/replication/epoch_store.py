"""Reads and writes the epoch file, `epochFileCheckpoint`, and its `.bak`. Used by `replication` alone.

A change is durable when `save` returns. One thread writes, in the order of the calls, so that a cancelled caller leaves
nothing half done.
Source: rocketmq-all-5.3.3: EpochFileCache.java, CheckpointFile.java.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from rocketmq_formats.store.epoch_file import EpochFileError, EpochList, decode_epochs, encode_epochs
from rocketmq_runtime import background
from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, FileSystem, StorageError, read_file

log = structlog.get_logger()

BACKUP_SUFFIX: Final = ".bak"


class EpochStore:
    """One replica's epochs: `epochs` is what is on disk (after a failed `save`, what was there before)."""

    def __init__(self, path: Path, *, filesystem: FileSystem = OS) -> None:
        self.path = path
        self.epochs = EpochList()
        self._backup = path.with_name(path.name + BACKUP_SUFFIX)
        self._filesystem = filesystem
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="epoch-file")
        self._writing = threading.RLock()
        """For writes in the caller's thread, while the other thread may be writing."""

    def load(self) -> None:
        """Read the file, or the backup if it is missing or damaged; neither: no epochs.

        Raises:
            EpochFileError: the file is damaged, and its backup is damaged or missing.
            StorageError: it cannot be read.
        """
        found = [(path, read_file(path, filesystem=self._filesystem)) for path in (self.path, self._backup)]
        problem: EpochFileError | None = None
        for path, data in found:
            if data is None:
                continue
            try:
                self.epochs = decode_epochs(data)
            except EpochFileError as error:
                problem = problem or error
                continue
            if path != self.path:
                log.warning("epoch file unreadable or missing, its backup is used", path=str(path), problem=problem)
            return
        if problem is not None:
            raise EpochFileError(
                f"{self.path} and its backup are damaged ({problem}): restore one of them, or move this replica's "
                "store away and start it again, it is then rebuilt from the master"
            ) from problem

    async def save(self, epochs: EpochList) -> None:
        """Make `epochs` durable. An empty list is not written: the file keeps the entries of a deleted log, which have
        no effect because they start after the log's end.

        Raises:
            StorageError: not written; what was there before still is.
        """
        await self._in_turn(lambda: self.save_now(epochs))

    async def truncate_prefix(self, offset: int) -> None:
        """Drop the entries that end at or before `offset`, from the list that earlier saves will have written: an epoch
        that is being written must not be lost. Raises as `save`."""
        await self._in_turn(lambda: self.change_now(lambda epochs: epochs.truncate_prefix(offset)))

    async def _in_turn(self, write: Callable[[], None]) -> None:
        await background.shielded(asyncio.get_running_loop().run_in_executor(self._thread, write), "epoch file")

    def change_now(self, change: Callable[[EpochList], EpochList]) -> None:
        """In the caller's thread: save the result of `change`, applied to the list once the lock is held."""
        with self._writing:
            self.save_now(change(self.epochs))

    def save_now(self, epochs: EpochList) -> None:
        """`save` in the caller's thread; waits until the other thread has written."""
        with self._writing:
            if epochs == self.epochs:
                return
            if epochs.entries:
                self._write(epochs)
            self.epochs = epochs

    def _write(self, epochs: EpochList) -> None:
        try:
            if self.epochs.entries:
                write_atomically(self._backup, encode_epochs(self.epochs), filesystem=self._filesystem)
            write_atomically(self.path, encode_epochs(epochs), filesystem=self._filesystem)
        except StorageError as error:
            log.error("epoch file not written", path=str(self.path), reason=str(error))
            raise

    def close(self) -> None:
        """Wait for what is being written, then end the thread."""
        self._thread.shutdown()
