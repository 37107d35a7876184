"""The byte layouts of a member's store: journal segments and mark, hard state, snapshots. Pure; struct lives here only.

All integers are little-endian. Every CRC is zlib's CRC-32. Whoever changes a layout raises its version and keeps
reading the old one.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

VERSION = 1

SEGMENT_MAGIC = b"RMQRJRNL"
SEGMENT_HEADER = struct.Struct(
    "<"
    "8s"  #  0 magic
    "I"  #   8 version
    "I"  #  12 CRC of the bytes from 16 on
    "16s"  # 16 store id
    "Q"  #  32 sequence: number of this segment, the first is 1
    "Q"  #  40 next index: the log's state when the segment was begun; 0: any index may come
    "Q"  #  48 last term: term of the entry before it; 0: unknown
    "Q"  #  56 first index: lowest index retained; 0: that of the next entry
    "Q"  #  64 previous end: where the frames of the segment before end, all of them durable
)

# A frame is one group commit. It is written only after the frame before it was synced, so a valid frame proves that
# all bytes before it were durable. After the last frame there are zeros, or the file ends.
FRAME_MAGIC = 0x4D52_4652
FRAME_MAGIC_BYTES = FRAME_MAGIC.to_bytes(4, "little")
FRAME_HEADER = struct.Struct(
    "<"
    "I"  #  0 magic
    "I"  #  4 CRC of: store id, sequence, offset of this frame, length, count, records
    "I"  #  8 length of the records in bytes
    "I"  # 12 count of records
)
FRAME_SEED = struct.Struct("<16sQQII")

RECORD_HEADER = struct.Struct(
    "<"
    "I"  #  0 length of the command in bytes
    "B"  #  4 kind
    "Q"  #  5 term
    "Q"  # 13 index
)  #       21 command


class RecordKind(IntEnum):
    ENTRY = 1  # append
    CUT = 2  # drop the entries from `index` on; term 0, no command
    FORGET = 3  # drop the entries below `index`, a snapshot holds them; term 0, no command
    RESET = 4  # drop all entries, any index may come next; term and index 0, no command


MARK_SLOT_SIZE = 64  # two slots, written in turn: one survives a torn write of the other
MARK_SLOT = struct.Struct(
    "<"
    "I"  #  0 magic
    "I"  #  4 CRC of: store id, the bytes from 8 on
    "Q"  #  8 counter: the higher one is the newer one
    "Q"  # 16 sequence: segment that is durable ...
    "Q"  # 24 offset: ... up to here
    "Q"  # 32 commit index, covered by that position
)
MARK_MAGIC = 0x4D52_4B52


class CodecError(Exception):
    """Bytes that do not have the layout; `offset` is relative to the bytes given."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    store_id: bytes
    sequence: int
    next_index: int = 0
    last_term: int = 0
    first_index: int = 0
    previous_end: int = 0


def encode_segment_header(header: SegmentHeader) -> bytes:
    fields = (
        header.store_id,
        header.sequence,
        header.next_index,
        header.last_term,
        header.first_index,
        header.previous_end,
    )
    body = SEGMENT_HEADER.pack(SEGMENT_MAGIC, VERSION, 0, *fields)[16:]
    return SEGMENT_HEADER.pack(SEGMENT_MAGIC, VERSION, zlib.crc32(body), *fields)


def decode_segment_header(data: bytes) -> SegmentHeader:
    """Raises `CodecError`."""
    if len(data) < SEGMENT_HEADER.size:
        raise CodecError(len(data), "the segment ends within its header")
    magic, version, crc, *fields = SEGMENT_HEADER.unpack_from(data)
    _check_prefix(magic, SEGMENT_MAGIC, version, "journal segment")
    if zlib.crc32(data[16 : SEGMENT_HEADER.size]) != crc:
        raise CodecError(16, "the segment's header does not match its checksum")
    return SegmentHeader(*fields)


def encode_record(kind: RecordKind, index: int, term: int = 0, command: bytes = b"") -> bytes:
    return RECORD_HEADER.pack(len(command), kind, term, index) + command


def encode_frame(store_id: bytes, sequence: int, offset: int, records: bytes, count: int) -> bytes:
    """A frame for exactly this place: moved elsewhere it would not be valid."""
    crc = _frame_crc(store_id, sequence, offset, records, count)
    return FRAME_HEADER.pack(FRAME_MAGIC, crc, len(records), count) + records


class Frame(NamedTuple):
    record_count: int
    records: memoryview
    end: int  # offset of the first byte after the frame


def decode_frame(data: memoryview, store_id: bytes, sequence: int, offset: int) -> Frame | None:
    """The frame that begins at `offset` of a segment, None if no valid one does."""
    start = offset + FRAME_HEADER.size
    if start > len(data):
        return None
    magic, crc, length, count = FRAME_HEADER.unpack_from(data, offset)
    end = start + length
    if magic != FRAME_MAGIC or end > len(data):
        return None
    records = data[start:end]
    if _frame_crc(store_id, sequence, offset, records, count) != crc:
        return None
    return Frame(count, records, end)


def _frame_crc(store_id: bytes, sequence: int, offset: int, records: bytes | memoryview, count: int) -> int:
    return zlib.crc32(records, zlib.crc32(FRAME_SEED.pack(store_id, sequence, offset, len(records), count)))


@dataclass(frozen=True, slots=True)
class Mark:
    """Segment `sequence` is durable up to `offset`, and those before it altogether."""

    counter: int
    sequence: int
    offset: int
    commit_index: int


def encode_mark(mark: Mark, store_id: bytes) -> bytes:
    fields = (mark.counter, mark.sequence, mark.offset, mark.commit_index)
    body = MARK_SLOT.pack(0, 0, *fields)[8:]
    return MARK_SLOT.pack(MARK_MAGIC, zlib.crc32(body, zlib.crc32(store_id)), *fields)


def decode_marks(data: bytes, store_id: bytes) -> Mark | None:
    """The newest valid mark of the two slots, None if there is none."""
    best: Mark | None = None
    for offset in (0, MARK_SLOT_SIZE):
        slot = data[offset : offset + MARK_SLOT.size]
        if len(slot) < MARK_SLOT.size:
            continue
        magic, crc, *fields = MARK_SLOT.unpack(slot)
        if magic == MARK_MAGIC and crc == zlib.crc32(slot[8:], zlib.crc32(store_id)):
            mark = Mark(*fields)
            if best is None or mark.counter > best.counter:
                best = mark
    return best


def _check_prefix(magic: bytes, expected: bytes, version: int, what: str) -> None:
    if magic != expected:
        raise CodecError(0, f"this is no {what}")
    if version != VERSION:
        raise CodecError(8, f"{what} of version {version}, this program reads version {VERSION}")
