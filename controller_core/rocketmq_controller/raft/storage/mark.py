"""The journal's mark: proof of how far the journal is durable, and the commit index as of then; segments.py uses it.

Written in place after each sync of the journal, itself synced only once a second: losing it loses proof, never data.
"""

from pathlib import Path

from rocketmq_controller.raft.storage.storage_codec import MARK_SLOT_SIZE, Mark, decode_marks, encode_mark
from rocketmq_runtime.files.filesystem import FileSystem, read_all, write_all

FILE_NAME = "journal.mark"


class MarkFile:
    """What was found is durable after the first `sync`. All methods raise `OSError`."""

    def __init__(self, folder: Path, store_id: bytes, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._store_id = store_id
        self._handle = filesystem.open(folder / FILE_NAME, create=True, mode=0o600)
        data = read_all(filesystem, self._handle)
        # In full, so that later writes need no space. What was found too: the process before may have ended before its
        # sync, or the sync failed, and then the kernel takes pages for clean that never reached the disk.
        write_all(filesystem, self._handle, data.ljust(2 * MARK_SLOT_SIZE, b"\0"), 0)
        self.last = decode_marks(data, store_id)
        """The newest mark written or found."""
        self._counter = self.last.counter if self.last else 0
        self._synced = False

    def write(self, sequence: int, offset: int, commit_index: int) -> None:
        """Say that segment `sequence` is durable up to `offset`; only ever call it when that is so."""
        last = self.last
        if last and (last.sequence, last.offset, last.commit_index) == (sequence, offset, commit_index):
            return
        self._counter += 1
        mark = Mark(self._counter, sequence, offset, commit_index)
        slot = self._counter % 2 * MARK_SLOT_SIZE
        write_all(self._filesystem, self._handle, encode_mark(mark, self._store_id), slot)
        self.last = mark
        self._synced = False

    def sync(self) -> None:
        if not self._synced:
            self._filesystem.fdatasync(self._handle)
            self._synced = True

    def close(self) -> None:
        self._filesystem.close(self._handle)
