"""The newest snapshot on disk. One that does not verify refuses the start: to continue with empty state would
lose what the journal no longer holds. Made by store.py; snapshots.py keeps the state in it and sends it to others.
"""

from pathlib import Path

from rocketmq_controller.raft.ports import Snapshot
from rocketmq_controller.raft.storage.snapshot_codec import decode_snapshot, encode_snapshot
from rocketmq_controller.raft.storage.storage_codec import CodecError
from rocketmq_controller.raft.storage.storage_errors import SnapshotCorruptError, replace_file
from rocketmq_runtime.files.filesystem import OS, FileSystem, read_file

FILE_NAME = "snapshot"


class SnapshotFile:
    """Implements `stores.SnapshotStore`."""

    def __init__(self, folder: Path, filesystem: FileSystem = OS) -> None:
        self._path = folder / FILE_NAME
        self._filesystem = filesystem

    def load(self) -> Snapshot | None:
        """The newest snapshot, every byte of it checked; None if there never was one.

        Raises `SnapshotCorruptError` with file and offset, `StorageError`.
        """
        data = read_file(self._path, filesystem=self._filesystem)
        if data is None:
            return None
        try:
            return decode_snapshot(data)
        except CodecError as error:
            raise SnapshotCorruptError(self._path, error.offset, str(error)) from error

    def save(self, snapshot: Snapshot) -> None:
        """Replace the older snapshot; durable when this returns.

        Raises `DiskFullError`: the older one is untouched; `StorageFailedError`: the process has to end.
        """
        replace_file(self._path, encode_snapshot(snapshot), self._filesystem)
