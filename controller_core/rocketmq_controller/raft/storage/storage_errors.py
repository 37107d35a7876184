"""What can go wrong with a member's store, and the replacement of its small files, which raises these errors. Only a
full disk is waited out; all else must stop the process."""

from pathlib import Path

from rocketmq_controller.raft.errors import FatalRaftError
from rocketmq_runtime.files import atomic_file
from rocketmq_runtime.files.filesystem import DiskFullError, FileSystem, StorageError

__all__ = [
    "DiskFullError",
    "ForeignStoreError",
    "HardStateCorruptError",
    "JournalCorruptError",
    "SnapshotCorruptError",
    "StorageError",
    "StorageFailedError",
    "StoreCorruptError",
    "StoreLockedError",
    "replace_file",
]


class StorageFailedError(StorageError, FatalRaftError):
    """A write or sync failed, so it is unknown what is on disk: the process has to end and read its files again.

    Never retried: after a failed fsync Linux may report success for pages that it has dropped.
    """


class StoreLockedError(StorageError, FatalRaftError):
    """Another process uses this store."""


class ForeignStoreError(StorageError, FatalRaftError):
    """The store belongs to another member or to another set of members than the configuration names."""


class StoreCorruptError(StorageError, FatalRaftError):
    """Bytes that were durable have changed or are gone. The member must not vote or acknowledge on what is left.

    `offset` is where in the file (bytes) reading stopped making sense.
    """

    def __init__(self, path: Path, offset: int, message: str) -> None:
        super().__init__(path, f"damaged at offset {offset}: {message}")
        self.offset = offset


class JournalCorruptError(StoreCorruptError):
    """A journal segment is damaged, cut short or missing."""


class HardStateCorruptError(StoreCorruptError):
    """The file of term and vote is damaged or missing."""


class SnapshotCorruptError(StoreCorruptError):
    """A snapshot is damaged, cut short or missing; or, while it is received, not a snapshot at all."""


def replace_file(path: Path, data: bytes, filesystem: FileSystem) -> None:
    """Atomic, private to the user, durable when it returns; of hard state and snapshot.
    Raises `DiskFullError`: the old file counts; `StorageFailedError`: stop the process."""
    try:
        atomic_file.write_atomically(path, data, mode=0o600, filesystem=filesystem)
    except DiskFullError:
        raise
    except StorageError as error:
        raise StorageFailedError(path, "the file may have been replaced or not") from error
