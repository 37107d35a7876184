"""How a store replaces its small files: atomically, private to the user, and never going on after a failure that is not
a full disk. Used by hard_state.py and snapshot_file.py.
"""

from pathlib import Path

from rocketmq_controller.raft.storage_errors import DiskFullError, StorageError, StorageFailedError
from rocketmq_runtime import atomic_file
from rocketmq_runtime.filesystem import FileSystem


def replace_file(path: Path, data: bytes, filesystem: FileSystem) -> None:
    """Durable when it returns. Raises `DiskFullError`: the old file counts; `StorageFailedError`: stop the process."""
    try:
        atomic_file.write_atomically(path, data, mode=0o600, filesystem=filesystem)
    except DiskFullError:
        raise
    except StorageError as error:
        raise StorageFailedError(path, "the file may have been replaced or not") from error
