"""Shows whether a replica's log may lack what was acknowledged: its machine was reset or its file system mounted again
(`boot_file`), or the log ends before that (`acked_offset_file`). For `replica_log`, and for `observer.store_proof`
beside an official broker.

It matters for replicas that acknowledge only what all members have (`strict` here); for others `unproven` is always
None. All methods that write raise `StorageError`, and may run in any thread, one at a time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.given_up import GivenUp, Missing
from rocketmq_sidecar.evidence.acked_offset_file import FILE_NAME as ACKED_NAME
from rocketmq_sidecar.evidence.acked_offset_file import AckedOffsetFile
from rocketmq_sidecar.evidence.boot_file import FILE_NAME as BOOT_NAME
from rocketmq_sidecar.evidence.boot_file import BootFile, kernel_boot_id
from rocketmq_sidecar.evidence.given_up_file import GivenUpFile

ACKED_SYNC_SECONDS: Final = 1.0
"""Shortest time between two syncs of `.broker.acked`."""
_SHORT: Final = (
    "this replica's log ends at {end}, but messages up to {acked} were acknowledged: it waits until a member of the"
    " SyncStateSet that kept everything, or every member, has come back. To give up what the missing ones have:"
    " kubectl rocketmq elect-master GROUP POD --force-unclean"
)


class LogProof:
    """One replica's, in one run of its sidecar. Call `begin` first."""

    def __init__(
        self, folder: Path, *, strict: bool, sync_flush: bool, boot_id: Callable[[], str] = kernel_boot_id
    ) -> None:
        """`folder`: storePathRootDir. `sync_flush`: what is acknowledged is on disk."""
        self._strict = strict
        self._boot = BootFile(folder / BOOT_NAME, sync_flush=sync_flush, boot_id=boot_id)
        self._acked = AckedOffsetFile(folder / ACKED_NAME)
        self.given_up = GivenUpFile(folder)
        self._sync_due = float("-inf")

    @property
    def unproven(self) -> str | None:
        """Why the log may lack what was acknowledged."""
        return self._boot.unproven if self._strict else None

    @property
    def acked(self) -> int:
        """Messages up to this offset are acknowledged, as far as known."""
        return self._acked.offset if self._strict else 0

    def begin(self, *, orderly: bool | None = None) -> None:
        self._acked.open()
        self._boot.begin(orderly=orderly, cached=self._acked.cached)

    def ends_at(self, end: int, epochs: EpochList) -> None:
        """The log ends there; unproven if that is before `acked`. `epochs`: with those of the lost part, if known."""
        if self.acked > end:
            self.lacks(end, epochs)
            self._boot.mark_unproven(_SHORT.format(end=end, acked=self.acked))

    def lacks(self, end: int, epochs: EpochList) -> None:
        """The log ends there: note what it lacks of what was acknowledged. For a log that is known to have lost
        something: whether it is proven is no question then."""
        if self.acked > end:
            since = epochs.entries[-1].start_offset if epochs.entries else -1
            self.given_up.miss(Missing(end=self.acked, epoch=epochs.last_epoch, since=since))

    def acknowledged(self, offset: int, now: float) -> bool:
        """Messages up to `offset` are acknowledged to producers; returns whether `sync` is due at `now`."""
        if not self._strict or offset <= self._acked.offset:
            return False
        self._acked.raise_to(offset)
        if now < self._sync_due:
            return False
        self._sync_due = now + ACKED_SYNC_SECONDS
        return True

    def sync(self) -> None:
        """Sync `.broker.acked`."""
        self._acked.sync()

    def lower(self, offset: int) -> None:
        """The log will be cut there, or what it lacks is given up."""
        self._acked.lower(offset)

    def give_up(self, end: int, epochs: EpochList, epoch: int, now_millis: int) -> GivenUp | None:
        """The log, which ends at `end`, has all that the master of `epoch` has, or is the master's: note what it lacks
        of what was acknowledged, and return it. Before `lower`, which forgets that."""
        missing = self.given_up.missing()
        if missing is None:
            return None
        given_up = missing.given_up(epochs, end, epoch, now_millis)
        self.given_up.settle(given_up)
        return given_up

    def mark_proven(self) -> None:
        """The log has all that was acknowledged; after `lower`, where it is shorter."""
        self._boot.mark_proven()

    def end(self) -> None:
        self._boot.end()

    def close(self) -> None:
        self._acked.close()
