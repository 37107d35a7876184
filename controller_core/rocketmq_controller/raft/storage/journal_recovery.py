"""Reading the journal back at the start: what was durable is all there, or the start is refused; what was not is cut.

Used by journal_files.py only. How a torn tail differs from damage: segments.py.
"""

from pathlib import Path

import structlog

from rocketmq_controller.raft.storage.log_image import LogImage
from rocketmq_controller.raft.storage.mark import MarkFile
from rocketmq_controller.raft.storage.segments import (
    Segment,
    Tail,
    create_segment,
    read_header,
    replay_segment,
    segment_name,
    segment_sequence,
)
from rocketmq_controller.raft.storage.storage_codec import SegmentHeader
from rocketmq_controller.raft.storage.storage_errors import JournalCorruptError
from rocketmq_runtime.files import atomic_file
from rocketmq_runtime.files.filesystem import FileSystem, read_file, storage_errors

log = structlog.get_logger(__name__)


def recover(
    folder: Path, store_id: bytes, mark: MarkFile, *, must_exist: bool, filesystem: FileSystem
) -> tuple[LogImage, list[Segment]]:
    """The log and its segments, the last one ready for appending; everything returned is durable.

    Makes the first segment if it is missing, unless it `must_exist` or a mark exists.
    Raises `JournalCorruptError`, `ForeignStoreError`, `DiskFullError`, `StorageError`.
    """
    with storage_errors(folder, "list"):
        present = [seq for name in filesystem.listdir(folder) if (seq := segment_sequence(name)) is not None]
    newest = max(present, default=0)
    expected = mark.last.sequence if mark.last else int(must_exist)
    if newest < expected:
        raise JournalCorruptError(folder / segment_name(expected), 0, "the segment is missing")
    # A name may be visible without being durable, if the process died between a rename and its sync.
    atomic_file.fsync_directory(folder, filesystem=filesystem)
    if not present:
        return LogImage(), [create_segment(folder, SegmentHeader(store_id, 1), filesystem)]
    # Segments are removed from the oldest on; after a crash any of those may be back, so only the unbroken run counts.
    oldest = newest
    while oldest - 1 in present:
        oldest -= 1
    image, segments = _replay(folder, store_id, range(oldest, newest + 1), mark, filesystem)
    _check_whole(image, segments, mark)
    remove_segments(folder, [seq for seq in present if seq < oldest], filesystem)
    return image, segments


def remove_segments(folder: Path, sequences: list[int], filesystem: FileSystem) -> None:
    """Remove segments that hold nothing of the log any more; raises `StorageError`."""
    with storage_errors(folder, "remove obsolete journal segments"):
        for sequence in sequences:
            filesystem.unlink(folder / segment_name(sequence))
        if sequences:
            filesystem.fsync_directory(folder)


def _replay(
    folder: Path, store_id: bytes, sequences: range, mark: MarkFile, filesystem: FileSystem
) -> tuple[LogImage, list[Segment]]:
    data, header = _read(folder, store_id, sequences[0], filesystem)
    image = LogImage(header.next_index, header.last_term, header.first_index)
    segments: list[Segment] = []
    for sequence in sequences:
        path = folder / segment_name(sequence)
        if sequence == sequences[-1]:
            proven = mark.last.offset if mark.last and mark.last.sequence == sequence else 0
            tail = replay_segment(path, data, header, image, proven, last=True)
            _make_durable(path, data, tail, proven, filesystem)
            segments.append(Segment(path, sequence, tail.end, image.next_index - 1))
            break
        next_data, next_header = _read(folder, store_id, sequence + 1, filesystem)
        tail = replay_segment(path, data, header, image, next_header.previous_end, last=False)
        state = (tail.end, image.next_index, image.first_index)
        if state != (next_header.previous_end, next_header.next_index, next_header.first_index):
            raise JournalCorruptError(path, tail.end, "the next segment's header does not fit this segment's end")
        segments.append(Segment(path, sequence, tail.end, image.next_index - 1))
        data, header = next_data, next_header
    return image, segments


def _read(folder: Path, store_id: bytes, sequence: int, filesystem: FileSystem) -> tuple[bytes, SegmentHeader]:
    path = folder / segment_name(sequence)
    data = read_file(path, filesystem=filesystem) or b""
    return data, read_header(path, data, sequence, store_id)


def _make_durable(path: Path, data: bytes, tail: Tail, proven: int, filesystem: FileSystem) -> None:
    """Remove what a crash left after the last frame, and sync the last frame if nothing proves that it was.

    As a new file in place of the old one: after a failed sync in an earlier process the kernel may consider pages
    clean that never reached the disk, and writing over acknowledged bytes would put them at risk.
    """
    if tail.clean and (tail.end == tail.last_frame or tail.end <= proven):
        return
    if not tail.clean:
        log.warning("torn tail of the journal cut", file=str(path), offset=tail.end, bytes=len(data) - tail.end)
    atomic_file.write_atomically(path, data[: tail.end], mode=0o600, filesystem=filesystem)


def _check_whole(image: LogImage, segments: list[Segment], mark: MarkFile) -> None:
    held_from = image.entries[0][1] if image.entries else image.next_index
    if held_from != image.first_index and image.next_index:
        raise JournalCorruptError(
            segments[0].path, 0, f"entries {image.first_index} to {held_from - 1}, of earlier segments, are missing"
        )
    if mark.last and mark.last.commit_index > max(image.next_index - 1, 0):
        message = f"the log ends below the commit index {mark.last.commit_index}"
        raise JournalCorruptError(segments[-1].path, segments[-1].end, message)
