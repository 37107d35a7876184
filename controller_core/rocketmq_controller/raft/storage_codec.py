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
        raise CodecError(12, "the segment's header does not match its checksum")
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


HARD_STATE_MAGIC = b"RMQRVOTE"
HARD_STATE_HEADER = struct.Struct(
    "<"
    "8s"  #  0 magic
    "I"  #   8 version
    "I"  #  12 CRC of the bytes from 16 on, to the end of the file
    "16s"  # 16 store id
    "Q"  #  32 term
    "I"  #  40 flags: 1 there is a vote, 2 the journal was begun
    "I"  #  44 count of strings
)  #        48 strings: self id, the id voted for or "", ids of all members in order; each u32 length, UTF-8
STRING_LENGTH = struct.Struct("<I")
FLAG_VOTED, FLAG_JOURNAL_BEGUN = 1, 2


@dataclass(frozen=True, slots=True)
class HardStateRecord:
    """What the file of term and vote says."""

    store_id: bytes
    self_id: str
    members: tuple[str, ...]
    term: int
    voted_for: str | None
    journal_begun: bool


def encode_hard_state(record: HardStateRecord) -> bytes:
    flags = FLAG_VOTED * (record.voted_for is not None) | FLAG_JOURNAL_BEGUN * record.journal_begun
    strings = [text.encode() for text in (record.self_id, record.voted_for or "", *record.members)]
    tail = b"".join(STRING_LENGTH.pack(len(string)) + string for string in strings)
    fields = (record.store_id, record.term, flags, len(strings))
    body = HARD_STATE_HEADER.pack(HARD_STATE_MAGIC, VERSION, 0, *fields)[16:] + tail
    return HARD_STATE_HEADER.pack(HARD_STATE_MAGIC, VERSION, zlib.crc32(body), *fields) + tail


def decode_hard_state(data: bytes) -> HardStateRecord:
    """Raises `CodecError`."""
    if len(data) < HARD_STATE_HEADER.size:
        raise CodecError(len(data), "the file ends within its header")
    magic, version, crc, store_id, term, flags, count = HARD_STATE_HEADER.unpack_from(data)
    _check_prefix(magic, HARD_STATE_MAGIC, version, "file of term and vote")
    if zlib.crc32(data[16:]) != crc:
        raise CodecError(12, "the file does not match its checksum")
    strings: list[str] = []
    offset = HARD_STATE_HEADER.size
    for _ in range(count):
        start = offset + STRING_LENGTH.size
        offset = start + STRING_LENGTH.unpack_from(data, offset)[0]
        strings.append(data[start:offset].decode())
    self_id, voted_for, *members = strings
    voted = voted_for if flags & FLAG_VOTED else None
    return HardStateRecord(store_id, self_id, tuple(members), term, voted, bool(flags & FLAG_JOURNAL_BEGUN))


SNAPSHOT_MAGIC = b"RMQRSNAP"
SNAPSHOT_HEADER = struct.Struct(
    "<"
    "8s"  #  0 magic
    "I"  #   8 version
    "I"  #  12 CRC of the bytes from 16 to 40
    "Q"  #  16 index of the last entry applied
    "Q"  #  24 its term
    "Q"  #  32 length of the state in bytes
)  #        40 state in blocks: u32 CRC of the header's CRC field and all of the state up to the block's end, block
SNAPSHOT_BLOCK_SIZE = 64 * 1024
BLOCK_CRC = struct.Struct("<I")


def encode_snapshot(index: int, term: int, state: bytes) -> bytes:
    fields = SNAPSHOT_HEADER.pack(SNAPSHOT_MAGIC, VERSION, 0, index, term, len(state))[16:]
    crc = zlib.crc32(fields)
    parts: list[bytes | memoryview] = [SNAPSHOT_HEADER.pack(SNAPSHOT_MAGIC, VERSION, crc, index, term, len(state))]
    view = memoryview(state)
    for start in range(0, len(state), SNAPSHOT_BLOCK_SIZE):
        block = view[start : start + SNAPSHOT_BLOCK_SIZE]
        crc = zlib.crc32(block, crc)
        parts += [BLOCK_CRC.pack(crc), block]
    return b"".join(parts)


def decode_snapshot(data: bytes) -> tuple[int, int, bytes]:
    """Index, term and state; raises `CodecError`, with the offset of the block that is wrong."""
    if len(data) < SNAPSHOT_HEADER.size:
        raise CodecError(len(data), "the snapshot ends within its header")
    magic, version, crc, index, term, length = SNAPSHOT_HEADER.unpack_from(data)
    _check_prefix(magic, SNAPSHOT_MAGIC, version, "snapshot")
    if zlib.crc32(data[16 : SNAPSHOT_HEADER.size]) != crc:
        raise CodecError(12, "the snapshot's header does not match its checksum")
    blocks: list[memoryview] = []
    view = memoryview(data)
    offset, missing = SNAPSHOT_HEADER.size, length
    while missing:
        size = min(missing, SNAPSHOT_BLOCK_SIZE)
        start = offset + BLOCK_CRC.size
        if start + size > len(data):
            raise CodecError(offset, f"the snapshot ends {missing} bytes early")
        block = view[start : start + size]
        crc = zlib.crc32(block, crc)
        if BLOCK_CRC.unpack_from(data, offset)[0] != crc:
            raise CodecError(offset, "a block of the snapshot does not match its checksum")
        blocks.append(block)
        offset, missing = start + size, missing - size
    if offset != len(data):
        raise CodecError(offset, "bytes after the snapshot's end")
    return index, term, b"".join(blocks)
