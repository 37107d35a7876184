"""What other members have reported (consensus/reports.py), kept beside the journal: a store whose whole disk was set
back is found by what the others remember of it, also after they have restarted.

Written in place into two slots, as the mark is: it outlives the process at once, and the machine when it is synced,
once a second and by each new leader. Losing it loses proof, never data. Used by journal_files.py.
"""

from pathlib import Path

from rocketmq_controller.raft.storage.storage_codec import REPORTS_SLOT_SIZE, decode_reports, encode_reports
from rocketmq_runtime.files.filesystem import (
    DISK_FULL_ERRNOS,
    FileSystem,
    close_quietly,
    read_all,
    read_file,
    write_all,
)

FILE_NAME = "reports"


class ReportsFile:
    """Made by the first report. All methods raise `OSError`."""

    def __init__(self, folder: Path, store_id: bytes, filesystem: FileSystem) -> None:
        self._folder = folder
        self._filesystem = filesystem
        self._store_id = store_id
        self._handle: int | None = None
        self._counter, self.last = 0, b""
        """The newest reports that were written or found; empty: none."""
        self._synced = True
        if not read_file(folder / FILE_NAME, filesystem=filesystem):
            return
        try:
            self._open()
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:  # without them there is less proof, and a start
                raise

    def write(self, reports: bytes) -> None:
        """`reports`: at most `MAX_REPORTS` bytes."""
        handle = self._open() if self._handle is None else self._handle
        counter = self._counter + 1
        slot = counter % 2 * REPORTS_SLOT_SIZE
        write_all(self._filesystem, handle, encode_reports(counter, reports, self._store_id), slot)
        self._counter, self.last, self._synced = counter, reports, False

    def sync(self) -> None:
        if self._handle is not None and not self._synced:
            self._filesystem.fdatasync(self._handle)
            self._synced = True

    def close(self) -> None:
        if self._handle is not None:
            self._filesystem.close(self._handle)

    def _open(self) -> int:
        handle = self._filesystem.open(self._folder / FILE_NAME, create=True, mode=0o600)
        try:
            self._filesystem.fsync_directory(self._folder)
            data = read_all(self._filesystem, handle)
            self._counter, self.last = decode_reports(data, self._store_id)
            write_all(self._filesystem, handle, data.ljust(2 * REPORTS_SLOT_SIZE, b"\0"), 0)  # in full: see MarkFile
        except OSError:
            close_quietly(self._filesystem, handle)
            raise
        self._handle, self._synced = handle, False
        return handle
