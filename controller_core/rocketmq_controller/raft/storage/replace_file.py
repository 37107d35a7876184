"""Replaces a store's small files: atomically, private to the user; a failure that is not a full disk is fatal. Used by
hard_state.py and snapshot_file.py."""

from pathlib import Path

from rocketmq_controller.raft.storage.storage_errors import DiskFullError, StorageError, StorageFailedError
from rocketmq_runtime.files import atomic_file
from rocketmq_runtime.files.filesystem import FileSystem


def replace_file(path: Path, data: bytes, filesystem: FileSystem) -> None:
    """Durable when it returns. Raises `DiskFullError`: the old file counts; `StorageFailedError`: stop the process."""
    try:
        atomic_file.write_atomically(path, data, mode=0o600, filesystem=filesystem)
    except DiskFullError:
        raise
    except StorageError as error:
        raise StorageFailedError(path, "the file may have been replaced or not") from error
