"""The byte layouts of a member's store: journal segments and mark, hard state. Pure; those of snapshots are in
snapshot_codec.py.

All integers are little-endian. Every CRC is zlib's CRC-32. A change of a layout raises its version and keeps
reading the old one.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from rocketmq_controller.raft.ports import MAX_REPORTS
from rocketmq_runtime.files.filesystem import IDENTITY_BYTES

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

REPORTS_SLOT_SIZE = 4096  # two slots, as of the mark
REPORTS_SLOT = struct.Struct(
    "<"
    "I"  #  0 magic
    "I"  #  4 CRC of: store id, the bytes from 8 to the end of the reports
    "Q"  #  8 counter: the higher one is the newer one
    "I"  # 16 length of the reports in bytes; they follow
)
REPORTS_MAGIC = 0x5052_4B52


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
    check_prefix(magic, SEGMENT_MAGIC, version, "journal segment")
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
    """The newest valid mark of the two slots, None without one."""
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


def encode_reports(counter: int, reports: bytes, store_id: bytes) -> bytes:
    """One slot, without what is behind the reports."""
    if len(reports) > MAX_REPORTS:
        raise ValueError(f"reports of {len(reports)} bytes, {MAX_REPORTS} are allowed")
    body = REPORTS_SLOT.pack(0, 0, counter, len(reports))[8:] + reports
    return struct.pack("<II", REPORTS_MAGIC, zlib.crc32(body, zlib.crc32(store_id))) + body


def decode_reports(data: bytes, store_id: bytes) -> tuple[int, bytes]:
    """Counter and bytes of the newest valid slot; (0, empty) without one."""
    best = (0, b"")
    for offset in range(0, len(data) - REPORTS_SLOT.size + 1, REPORTS_SLOT_SIZE):
        magic, crc, counter, length = REPORTS_SLOT.unpack_from(data, offset)
        body = data[offset + 8 : offset + REPORTS_SLOT.size + min(length, MAX_REPORTS)]
        if magic == REPORTS_MAGIC and crc == zlib.crc32(body, zlib.crc32(store_id)):
            best = max(best, (counter, body[REPORTS_SLOT.size - 8 :]))
    return best


def check_prefix(magic: bytes, expected: bytes, version: int, what: str, reads: int = VERSION) -> None:
    if magic != expected:
        raise CodecError(0, f"this is not a {what}")
    if version != reads:
        raise CodecError(8, f"{what} of version {version}, this program reads version {reads}")


HARD_STATE_MAGIC = b"RMQRVOTE"
HARD_STATE_VERSION = 2
HARD_STATE_SECTOR = 512
HARD_STATE_HEADER = struct.Struct(
    "<"
    "8s"  #  0 magic
    "I"  #   8 version
    "I"  #  12 CRC of the bytes from 16 on, to the end of the header with its padding
    "16s"  # 16 store id
    "I"  #  32 count of strings
)  #        36 strings: self id, ids of all members in order; each u32 length, UTF-8; zeros up to a whole sector
STRING_LENGTH = struct.Struct("<I")
# Then four slots of a sector each, in two pairs. A state is written twice, to the pair whose turn it is: a write that
# is torn leaves the other pair, which was the state before; a sector that is damaged later leaves its twin.
VOTE_SLOT = struct.Struct(
    "<"
    "I"  #  0 magic
    "I"  #  4 CRC of: store id, the bytes from 8 on to the end of the sector
    "Q"  #  8 counter: the highest one is the newest
    "Q"  # 16 term
    "d"  # 24 promise in seconds
    "16s"  # 32 lineage
    "I"  # 48 flags: 1 there is a vote, 2 the journal was begun, 4 has a lineage, 8 voter, 16 sole voter
    "I"  # 52 length of the id voted for
)  #        56 the id voted for, zeros; the last 12 bytes of the sector are the identity of the file, or zeros
VOTE_MAGIC = 0x4D52_5654
VOTE_SLOTS = 4
LINEAGE_BYTES = 16
LEGACY_LINEAGE = bytes(LINEAGE_BYTES)
"""Of stores made before there were lineages."""
FLAG_VOTED, FLAG_JOURNAL_BEGUN, FLAG_LINEAGE, FLAG_VOTER, FLAG_SOLE = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class HardStateRecord:
    """What a member must never forget."""

    term: int = 0
    voted_for: str | None = None
    journal_begun: bool = False
    promise: float = 0.0
    """Seconds for which the member may have promised a leader to elect no other."""
    lineage: bytes | None = None
    """Which quorum's log this is; None in a store that belongs to none yet."""
    voter: bool = False
    """Whether it may vote and count."""
    sole: bool = False
    """Whether it makes up the majority alone, by an operator's order."""
    identity: bytes = b""
    """Of the file that holds this (IDENTITY_BYTES); empty: unknown."""


@dataclass(frozen=True, slots=True)
class HardStateOwner:
    """Whose store it is."""

    store_id: bytes
    self_id: str
    members: tuple[str, ...]


def encode_hard_state(owner: HardStateOwner, counter: int, record: HardStateRecord) -> bytes:
    """The whole file, with the same state in all slots."""
    strings = [text.encode() for text in (owner.self_id, *owner.members)]
    tail = b"".join(STRING_LENGTH.pack(len(string)) + string for string in strings)
    tail += bytes(-(HARD_STATE_HEADER.size + len(tail)) % HARD_STATE_SECTOR)
    fields = (owner.store_id, len(strings))
    body = HARD_STATE_HEADER.pack(HARD_STATE_MAGIC, HARD_STATE_VERSION, 0, *fields)[16:] + tail
    header = HARD_STATE_HEADER.pack(HARD_STATE_MAGIC, HARD_STATE_VERSION, zlib.crc32(body), *fields) + tail
    return header + VOTE_SLOTS * encode_vote_slot(owner.store_id, counter, record)


def encode_vote_slot(store_id: bytes, counter: int, record: HardStateRecord) -> bytes:
    flags = (
        FLAG_VOTED * (record.voted_for is not None)
        | FLAG_JOURNAL_BEGUN * record.journal_begun
        | FLAG_LINEAGE * (record.lineage is not None)
        | FLAG_VOTER * record.voter
        | FLAG_SOLE * record.sole
    )
    voted = (record.voted_for or "").encode()
    lineage = record.lineage or bytes(LINEAGE_BYTES)
    fields = (counter, record.term, record.promise, lineage, flags, len(voted))
    body = (VOTE_SLOT.pack(0, 0, *fields)[8:] + voted).ljust(HARD_STATE_SECTOR - 8 - IDENTITY_BYTES, b"\0")
    body += record.identity or bytes(IDENTITY_BYTES)
    return struct.pack("<II", VOTE_MAGIC, zlib.crc32(body, zlib.crc32(store_id))) + body


def decode_hard_state(data: bytes) -> tuple[HardStateOwner, int, int, HardStateRecord]:
    """Owner, where the slots begin, counter and state; version 1 has no slots: 0. Raises `CodecError`."""
    if len(data) < 16:
        raise CodecError(len(data), "the file ends within its header")
    magic, version, crc = struct.unpack_from("<8sII", data)
    if magic == HARD_STATE_MAGIC and version == 1:
        return (*_decode_hard_state_1(data, crc),)
    check_prefix(magic, HARD_STATE_MAGIC, version, "file of term and vote", HARD_STATE_VERSION)
    start = len(data) - VOTE_SLOTS * HARD_STATE_SECTOR
    if start < HARD_STATE_HEADER.size or start % HARD_STATE_SECTOR:
        raise CodecError(len(data), "the file is cut short")
    if zlib.crc32(data[16:start]) != crc:
        raise CodecError(12, "the header does not match its checksum")
    _, _, _, store_id, count = HARD_STATE_HEADER.unpack_from(data)
    self_id, *members = _take_strings(data, HARD_STATE_HEADER.size, count)
    best: tuple[int, HardStateRecord] | None = None
    for offset in range(start, len(data), HARD_STATE_SECTOR):
        found = _decode_vote_slot(data[offset : offset + HARD_STATE_SECTOR], store_id)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    if best is None:
        raise CodecError(start, "no slot with a valid term and vote")
    return HardStateOwner(store_id, self_id, tuple(members)), start, *best


def _decode_vote_slot(data: bytes, store_id: bytes) -> tuple[int, HardStateRecord] | None:
    magic, crc, counter, term, promise, lineage, flags, length = VOTE_SLOT.unpack_from(data)
    if magic != VOTE_MAGIC or crc != zlib.crc32(data[8:], zlib.crc32(store_id)):
        return None
    voted = data[VOTE_SLOT.size : VOTE_SLOT.size + length].decode()
    return counter, HardStateRecord(
        term,
        voted if flags & FLAG_VOTED else None,
        bool(flags & FLAG_JOURNAL_BEGUN),
        promise,
        lineage if flags & FLAG_LINEAGE else None,
        bool(flags & FLAG_VOTER),
        bool(flags & FLAG_SOLE),
        data[-IDENTITY_BYTES:] if any(data[-IDENTITY_BYTES:]) else b"",
    )


def _take_strings(data: bytes, offset: int, count: int) -> list[str]:
    strings: list[str] = []
    for _ in range(count):
        start = offset + STRING_LENGTH.size
        offset = start + STRING_LENGTH.unpack_from(data, offset)[0]
        strings.append(data[start:offset].decode())
    return strings


HARD_STATE_1_HEADER = struct.Struct("<8sII16sQII")
"""Version 1: magic, version, CRC, store id, term, flags (1, 2), count of strings; strings: self id, vote, members."""


def _decode_hard_state_1(data: bytes, crc: int) -> tuple[HardStateOwner, int, int, HardStateRecord]:
    if len(data) < HARD_STATE_1_HEADER.size:
        raise CodecError(len(data), "the file ends within its header")
    if zlib.crc32(data[16:]) != crc:
        raise CodecError(12, "the file does not match its checksum")
    _, _, _, store_id, term, flags, count = HARD_STATE_1_HEADER.unpack_from(data)
    self_id, voted_for, *members = _take_strings(data, HARD_STATE_1_HEADER.size, count)
    voted = voted_for if flags & FLAG_VOTED else None
    record = HardStateRecord(term, voted, bool(flags & FLAG_JOURNAL_BEGUN), lineage=LEGACY_LINEAGE, voter=True)
    return HardStateOwner(store_id, self_id, tuple(members)), 0, 0, record
