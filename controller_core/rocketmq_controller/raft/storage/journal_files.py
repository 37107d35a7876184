"""The journal's files as a whole: one frame per group commit, a successor when a segment is full, the mark, what other
members have reported, removal of what is no longer needed. Used by journal.py only, which makes the records.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rocketmq_controller.raft.storage.journal_recovery import recover, remove_segments
from rocketmq_controller.raft.storage.log_image import LogImage
from rocketmq_controller.raft.storage.mark import MarkFile
from rocketmq_controller.raft.storage.reports_file import ReportsFile
from rocketmq_controller.raft.storage.segments import Segment, SegmentWriter, create_segment
from rocketmq_controller.raft.storage.storage_codec import SEGMENT_HEADER, SegmentHeader, encode_frame
from rocketmq_controller.raft.storage.storage_errors import StorageError, StorageFailedError
from rocketmq_runtime.files import atomic_file
from rocketmq_runtime.files.filesystem import DISK_FULL_ERRNOS, FileSystem, storage_errors


class LogState(NamedTuple):
    """The log's state after some record, as the header of the next segment has it; see LogImage."""

    next_index: int
    last_term: int
    first_index: int


def state_of(image: LogImage) -> LogState:
    return LogState(image.next_index, image.last_term, image.first_index)


class JournalFiles:
    """The open files of one journal; `image` is the log that was found in them.

    Opening raises what `recover` does.
    """

    def __init__(
        self,
        folder: Path,
        store_id: bytes,
        *,
        must_exist: bool,
        segment_bytes: int,
        zero_ahead_bytes: int,
        filesystem: FileSystem,
    ) -> None:
        self._folder = folder
        self._store_id = store_id
        self._segment_bytes = segment_bytes
        self._zero_ahead_bytes = zero_ahead_bytes
        self._filesystem = filesystem
        with storage_errors(folder, "open the journal's mark"):
            self._mark = MarkFile(folder, store_id, filesystem)
        try:
            with storage_errors(folder, "open what other members have reported"):
                self._reports = ReportsFile(folder, store_id, filesystem)
        except StorageError:
            with suppress(OSError):
                self._mark.close()
            raise
        self.commit_index = self._mark.last.commit_index if self._mark.last else 0
        """The commit index found; 0 if none was."""
        try:
            self.image, self._segments = recover(
                folder, store_id, self._mark, must_exist=must_exist, filesystem=filesystem
            )
            self._state = state_of(self.image)
            self._writer = self._open_writer(self._segments[-1])
            self._write_mark(self.commit_index)
            self.sync_mark(self.commit_index)
            atomic_file.fsync_directory(
                folder, filesystem=filesystem
            )  # before the store records that a journal was begun
        except StorageError:
            for file in (self._mark, self._reports):
                with suppress(OSError):
                    file.close()
            raise

    @property
    def position(self) -> tuple[int, int]:
        """Number of the segment written to and its durable length in bytes."""
        return self._segments[-1].sequence, self._segments[-1].end

    def write(self, records: bytes, count: int, after: LogState, commit_index: int) -> None:
        """Write and sync one frame; `after` is the log's state after it, `commit_index` at most its last index.

        In any thread, but alone. Raises `DiskFullError`: the files hold what they held; another `StorageError`: it
        is unknown what they hold.
        """
        segment = self._segments[-1]
        if segment.end > SEGMENT_HEADER.size and segment.end + len(records) > self._segment_bytes:
            segment = self._roll(segment)
        frame = encode_frame(self._store_id, segment.sequence, segment.end, records, count)
        with storage_errors(segment.path, "append"):
            self._writer.append(frame)
        try:
            self._writer.sync(frame)
        except OSError as error:  # a full disk too: the kernel may have dropped the pages
            raise StorageFailedError(segment.path, f"cannot sync: {error.strerror}") from error
        self._state = after
        self._write_mark(commit_index)

    def settle(self, last_index: int, lowest_cut: int | None) -> None:
        """Account for the frame just written (its last index, the lowest index it cut) and remove what is obsolete.

        Raises `StorageError`; what is in the log does not depend on it.
        """
        if lowest_cut is not None:
            for segment in self._segments:
                segment.last_live = min(segment.last_live, max(lowest_cut - 1, 0))
        self._segments[-1].last_live = last_index
        obsolete = 0
        while obsolete < len(self._segments) - 1 and self._segments[obsolete].last_live < self._state.first_index:
            obsolete += 1
        remove_segments(self._folder, [segment.sequence for segment in self._segments[:obsolete]], self._filesystem)
        del self._segments[:obsolete]

    def sync_mark(self, commit_index: int) -> None:
        """Make the mark durable, with a commit index that what is written covers, and the reports; raises
        `StorageError`."""
        self._write_mark(commit_index)
        with storage_errors(self._folder, "sync the journal's mark"):
            self._mark.sync()
        self.sync_reports()

    @property
    def reports(self) -> bytes:
        """What was written or found last; empty: nothing."""
        return self._reports.last

    def write_reports(self, reports: bytes) -> None:
        """They outlive the process, and the machine once they are synced. Raises `StorageError`."""
        with storage_errors(self._folder, "write what other members have reported"):
            self._reports.write(reports)

    def sync_reports(self) -> None:
        """Raises `StorageError`."""
        with storage_errors(self._folder, "sync what other members have reported"):
            self._reports.sync()

    def close(self) -> None:
        """Raises nothing: what had to be durable is."""
        for sync in (self._mark.sync, self._reports.sync):
            with suppress(OSError):
                sync()
        for file in (self._mark, self._reports, self._writer):
            with suppress(OSError):
                file.close()

    def _open_writer(self, segment: Segment) -> SegmentWriter:
        with storage_errors(segment.path, "open"):
            return SegmentWriter(self._filesystem, segment, self._zero_ahead_bytes)

    def _roll(self, full: Segment) -> Segment:
        """Begin the next segment. Its header vouches for the whole of the one before."""
        header = SegmentHeader(self._store_id, full.sequence + 1, *self._state, full.end)
        segment = create_segment(self._folder, header, self._filesystem)
        old, self._writer = self._writer, self._open_writer(segment)
        self._segments.append(segment)  # from here on nothing can fail: until now the call can be repeated
        with suppress(OSError):
            old.close()
        return segment

    def _write_mark(self, commit_index: int) -> None:
        segment = self._segments[-1]
        try:
            self._mark.write(segment.sequence, segment.end, commit_index)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:  # on a full disk the proof comes later
                raise StorageFailedError(self._folder, f"cannot write the journal's mark: {error.strerror}") from error
