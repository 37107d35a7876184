"""Whether the Java broker's log may lack what was acknowledged (`log_proof`), from the files in its store. Used by the
observer.

The broker's `abort` file exists while it runs. If it exists when this sidecar starts, the previous run did not end in
order, or the broker has started before the sidecar; then the log counts as unproven without need, and soon as proven
again. The files are the native replica's, with the same names: they apply to the engine that uses the store next,
native or Java.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from rocketmq_commitlog.errors import LogReadError, NotALogError
from rocketmq_commitlog.state import LogPaths, read_state
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_formats.store.segment_names import ABORT
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.evidence.boot_file import kernel_boot_id
from rocketmq_sidecar.evidence.given_up_file import log_given_up
from rocketmq_sidecar.evidence.log_proof import LogProof
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)


class StoreProof:
    """Of the store beside this sidecar; used in the event loop only."""

    def __init__(self, settings: SidecarSettings, *, boot_id: Callable[[], str] = kernel_boot_id) -> None:
        """Nothing is read yet. A Java slave acknowledges what it has not synced, whatever its flushDiskType."""
        root: Path = settings.root
        self.begun = False
        """Whether the store was read."""
        self._root = root
        self._paths = LogPaths.in_root(root, commit_log=settings.commit_log_path, epochs=settings.epoch_file)
        self._proof = LogProof(root, strict=settings.all_ack_in_sync_state_set, sync_flush=False, boot_id=boot_id)
        self._trouble: str | None = None
        self._epochs = EpochList()

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        """Acknowledged messages that are lost, as noted. Raises `GivenUpError`, `StorageError`."""
        return self._proof.given_up.read().given_up

    @property
    def unproven(self) -> str | None:
        """Why the log may lack what was acknowledged."""
        return self._trouble or self._proof.unproven

    async def begin(self) -> None:
        """Check how the previous run ended, as soon as there is a store."""
        if not self.begun and self._root.is_dir():
            await self._write(self._begin)
            self.begun = self._trouble is None

    async def saw(self, *, end: int, acked: int, epochs: EpochList) -> None:
        """The broker reports the end of its log; messages up to `acked` are acknowledged (0: not known)."""
        if epochs.last_epoch > self._epochs.last_epoch:  # it drops those of a part that it has lost
            self._epochs = epochs
        if end < self._proof.acked:
            await self._write(lambda: self._proof.ends_at(end, self._epochs))
        if self._proof.acknowledged(acked, asyncio.get_running_loop().time()):
            await self._write(self._proof.sync)

    async def mark_proven(self, end: int, epochs: EpochList, epoch: int) -> None:
        """The log, which ends at `end`, has all that the master of `epoch` has; a higher recorded offset is given up,
        and, if `epochs` prove it, what newer messages have replaced."""

        def write() -> None:
            given_up = self._proof.give_up(end, epochs, epoch, time.time_ns() // 1_000_000)
            if end < self._proof.acked:
                self._proof.lower(end)
            self._proof.mark_proven()
            log_given_up(given_up, self._proof.given_up.path)

        await self._write(write)
        if self.unproven is None:
            log.info("the log has all that was acknowledged", end=end)

    def close(self) -> None:
        self._proof.close()

    def _begin(self) -> None:
        self._proof.begin(orderly=not (self._root / ABORT).exists())
        if self._proof.acked:
            try:
                state = read_state(self._paths)
            except NotALogError:
                self._proof.ends_at(0, EpochList())
            except LogReadError as error:  # the broker reports it later
                log.warning("cannot read the end of the log", reason=str(error))
            else:
                self._epochs = state.epochs
                self._proof.ends_at(state.max_offset, state.epochs)

    async def _write(self, work: Callable[[], None]) -> None:
        before = self.unproven
        try:
            await asyncio.to_thread(work)
        except StorageError as error:
            self._trouble = f"cannot record what was acknowledged: {error}"
        else:
            self._trouble = None
        if self.unproven not in {None, before}:
            log.warning("log may have lost what it held", reason=self.unproven)
