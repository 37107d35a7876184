"""Segment files of the journal: names, appending, and reading back with the line drawn between torn and damaged.

A torn tail and flipped bits look the same; the difference is proof that the bytes had been durable:
- a valid frame proves all before it: it was begun only after the frame before it had been synced;
- a further segment proves the one before it, up to the end that its header states;
- the mark (mark.py) is written after each sync and records "durable up to here". It is not synced each time itself, but
  it survives the process, and after a power cut it is about a second old at most. It is never ahead of the truth.
Damage below the proven offset is refused, with file and offset; so is a file that ends below it. Damage above it is
taken for what a crash left of a frame that was never acknowledged: cut, durably, before anything is written there
again. What remains undetected needs two faults: the last frame before a power cut damaged after its sync, and the mark
lost.
"""

from dataclasses import dataclass
from pathlib import Path

from rocketmq_controller.raft.storage.log_image import LogImage
from rocketmq_controller.raft.storage.storage_codec import (
    FRAME_MAGIC_BYTES,
    SEGMENT_HEADER,
    CodecError,
    SegmentHeader,
    decode_frame,
    decode_segment_header,
    encode_segment_header,
)
from rocketmq_controller.raft.storage.storage_errors import ForeignStoreError, JournalCorruptError
from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import DISK_FULL_ERRNOS, FileSystem, write_all

PREFIX, SUFFIX = "journal-", ".log"


def segment_name(sequence: int) -> str:
    return f"{PREFIX}{sequence:012d}{SUFFIX}"


def segment_sequence(name: str) -> int | None:
    """The number in a segment's file name, None for other files."""
    digits = name[len(PREFIX) : -len(SUFFIX)]
    if name.startswith(PREFIX) and name.endswith(SUFFIX) and digits.isdecimal() and segment_name(int(digits)) == name:
        return int(digits)
    return None


@dataclass(slots=True)
class Segment:
    """One file, as far as the journal has to remember it."""

    path: Path
    sequence: int
    end: int  # where the next frame goes
    last_live: int = 0  # no entry that is still part of the log and above this index lives here


class SegmentWriter:
    """Appends frames to the last segment.

    The file is kept filled with zeros some way ahead of the frames, so that most syncs need not write metadata of the
    file: that is half the time of a sync on ext4.
    """

    def __init__(self, filesystem: FileSystem, segment: Segment, zero_ahead: int) -> None:
        self.filesystem = filesystem
        self.segment = segment
        self.zero_ahead = zero_ahead
        self.handle = filesystem.open(segment.path)
        self.size = filesystem.size(self.handle)

    def append(self, frame: bytes) -> None:
        """Write a frame at the end, not synced. Raises `OSError`; then another frame may be written in its place."""
        offset = self.segment.end
        end = offset + len(frame)
        if end > self.size and self.zero_ahead:
            try:
                filled = end - end % -self.zero_ahead
                write_all(self.filesystem, self.handle, frame + bytes(filled - end), offset)
            except OSError as error:
                if error.errno not in DISK_FULL_ERRNOS:
                    raise
            else:
                self.size = filled
                return
        write_all(self.filesystem, self.handle, frame, offset)  # without zeros it may still fit
        self.size = max(self.size, end)

    def sync(self, frame: bytes) -> None:
        """Sync what `append` wrote. Raises `OSError`: then nothing is known of the file any more."""
        self.filesystem.fdatasync(self.handle)
        self.segment.end += len(frame)

    def close(self) -> None:
        self.filesystem.close(self.handle)


def create_segment(folder: Path, header: SegmentHeader, filesystem: FileSystem) -> Segment:
    """Make a segment, durable with its name; raises `DiskFullError` or `StorageError`."""
    path = folder / segment_name(header.sequence)
    write_atomically(path, encode_segment_header(header), mode=0o600, filesystem=filesystem)
    return Segment(path, header.sequence, SEGMENT_HEADER.size)


def read_header(path: Path, data: bytes, sequence: int, store_id: bytes) -> SegmentHeader:
    """The checked header of a segment. Raises `JournalCorruptError`, `ForeignStoreError`."""
    try:
        header = decode_segment_header(data)
    except CodecError as error:
        raise JournalCorruptError(path, error.offset, str(error)) from error
    if header.store_id != store_id:
        raise ForeignStoreError(path, "this journal segment belongs to another store")
    if header.sequence != sequence:
        raise JournalCorruptError(path, 32, f"the header is of segment {header.sequence}")
    return header


@dataclass(frozen=True, slots=True)
class Tail:
    """How the frames of a segment end."""

    end: int
    last_frame: int  # where the last frame begins; `end` without one
    clean: bool  # nothing but zeros follows


def replay_segment(path: Path, data: bytes, header: SegmentHeader, image: LogImage, proven: int, *, last: bool) -> Tail:
    """Apply the frames to `image`; the file is known to have been durable up to `proven`.

    The last segment's frames may continue beyond that; those of the others end there, whatever follows: what a full
    disk kept from being written whole may be still there. Raises `JournalCorruptError` if they end earlier.
    """
    view = memoryview(data)
    offset = last_frame = SEGMENT_HEADER.size
    while last or offset < proven:
        frame = decode_frame(view, header.store_id, header.sequence, offset)
        if frame is None:
            break
        try:
            image.replay(frame.records, frame.record_count)
        except CodecError as error:
            place = frame.end - len(frame.records) + error.offset
            raise JournalCorruptError(path, place, str(error)) from error
        last_frame, offset = offset, frame.end
    clean = not last or data.count(0, offset) == len(data) - offset
    if not clean:
        proven = max(proven, _later_frame(view, data, header, offset))
    if offset < proven:
        raise JournalCorruptError(path, offset, f"no valid frame here, though the file was durable up to {proven}")
    return Tail(offset, last_frame, clean)


def _later_frame(view: memoryview, data: bytes, header: SegmentHeader, start: int) -> int:
    """Where the last valid frame after `start` begins, 0 without one."""
    candidate = data.rfind(FRAME_MAGIC_BYTES, start)
    while candidate >= 0:
        if decode_frame(view, header.store_id, header.sequence, candidate):
            return candidate
        candidate = data.rfind(FRAME_MAGIC_BYTES, start, candidate + len(FRAME_MAGIC_BYTES) - 1)
    return 0
