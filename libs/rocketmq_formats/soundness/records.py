"""Records among bytes from disk that may be damaged anywhere: where they start, which message they are.

Used to turn differing ranges into messages, and to find the first record in a range that begins anywhere. No length is
trusted before something else confirms it; nothing here raises because of the bytes.

A buffer holds the log's bytes from physical offset `base_offset` on; all other offsets are physical too. With
`segment_size` (nearly always known) a record starts at each file's start, whatever the bytes there are, a record ends
within its file, and a blank reaches its file's end exactly. A record's start is recognized by its magic and by its
physicalOffset, which has to be its own place.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, TypeAlias

from rocketmq_formats.soundness.places import RecordName
from rocketmq_formats.store import walk as heads
from rocketmq_formats.store.message import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    Blank,
    Buffer,
    Record,
    RecordError,
    RecordFault,
    read_record,
)
from rocketmq_formats.store.message_properties import KEYS, UNIQ_KEY, find_property
from rocketmq_formats.store.record_crc import check_record_crc

LARGEST_RECORD: Final = (4 << 20) + (64 << 10) + 512
"""Bytes of the largest record that a broker with Java's defaults writes: how far back a start is searched."""
LATEST_TIMESTAMP: Final = 253_402_300_800_000
"""The year 10000, ms. A clock may be wrong, but a later time is damage."""
MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))
_BORN_AT: Final = 40
_STORED_END: Final = 72
"""In a record: bornTimestamp, bornHost, storeTimestamp and some of storeHost, or all of it."""
_HIGHEST_QUEUE_ID: Final = 65_535
_FIRST_WINDOW: Final = 4 << 10
_LARGEST_WINDOW: Final = 256 << 10
_TOPIC: Final = re.compile(rb"[%|a-zA-Z0-9_-]{1,255}")
"""Names that brokers accept for topics (rocketmq-all-5.3.3: TopicValidator.java)."""


class RecordKind(StrEnum):
    """The kinds of pieces that `walk` finds."""

    RECORD = "record"
    """A whole record whose lengths add up; its body was not checked."""
    BLANK = "blank"
    CUT = "cut"
    """Perhaps the beginning of a record or blank that ends beyond the range."""
    GAP = "gap"
    """Bytes that are not a record, up to where the next one starts."""


Piece: TypeAlias = tuple[int, int, RecordKind]
"""Physical offset, size in bytes, kind."""


def walk(buffer: Buffer, base_offset: int, start: int, end: int, *, segment_size: int | None = None) -> Iterator[Piece]:
    """The pieces of `[start, end)`, without holes and overlaps; nothing beyond the buffer.

    `start` is where a record starts (see `next_record_start`); elsewhere the first piece is a GAP.
    """
    at = max(start, base_offset)
    end = min(end, base_offset + len(buffer))
    while at < end:
        size, kind = _piece(buffer, base_offset, at, end, segment_size)
        yield at, size, kind
        at += size


def next_record_start(buffer: Buffer, base_offset: int, offset: int, *, segment_size: int | None = None) -> int | None:
    """The first place at or after `offset` where a record starts; with `segment_size` a blank or a file as well.

    None if the buffer has none. A record is recognized from 36 bytes on.
    """
    at = max(offset - base_offset, 0)
    last = len(buffer)
    border = None
    if segment_size is not None:
        border = base_offset + at + -(base_offset + at) % segment_size
        if border == base_offset + at:
            return border if at < len(buffer) else None
        last = min(last, border - base_offset)
    for found in heads.ANY_START.finditer(buffer, min(at + heads.MAGIC_AT, last), last):
        index = found.start() - heads.MAGIC_AT
        if _is_head(buffer, index, base_offset + index) or _is_blank(buffer, index, base_offset + index, border):
            return base_offset + index
    return border if border is not None and border < base_offset + len(buffer) else None


def record_start(buffer: Buffer, base_offset: int, offset: int, *, segment_size: int | None = None) -> int | None:
    """Where the record (or blank) starts that covers `offset`; None if this buffer does not show it.

    If the record's own head is damaged: the end of the record before it, or the file's start.
    """
    if not base_offset <= offset < base_offset + len(buffer):
        return None
    low = max(base_offset, offset - LARGEST_RECORD)
    border = None
    if segment_size is not None:
        border = offset - offset % segment_size
    start = _last_head(buffer, base_offset, low if border is None else max(low, border), offset)
    if start is None:
        return border if border is not None and border >= low else None
    record = _read(buffer, base_offset, start)
    end = start + heads.unpack_place(buffer, start - base_offset)[0]
    if offset < end or record is None:
        return start  # if nothing after it starts there, its size is damaged
    if border is None and (size := _blank_size(buffer, end - base_offset)) and end + size <= offset:
        return end + size
    return end


def name_record(buffer: Buffer, base_offset: int, offset: int, *, segment_size: int | None = None) -> RecordName | None:
    """Which message the record at `offset` is; None if no record starts there by any sign, or a blank does.

    A record with one of magic, physicalOffset and size damaged still has its name if the other two and the lengths in
    it agree. Otherwise it has no topic, keys and times, and `size` reaches to the next record, or as far as known.
    """
    index = offset - base_offset
    if not 0 <= index <= len(buffer) - SMALLEST_RECORD:
        return None
    _, magic, place = heads.unpack_place(buffer, index)
    following = next_record_start(buffer, base_offset, offset + 1, segment_size=segment_size)
    record = _whole(buffer, index)
    if record is None and place == offset:
        record = _mended(buffer, index, None if following is None else following - offset)
    if record is not None and (place == offset or magic in MAGICS):
        return _name(record, offset)
    if magic not in MAGICS or place != offset:
        return None
    _, _, _, queue_id, queue_offset, *_ = heads.unpack_row(buffer, index)
    return RecordName(
        physical_offset=offset,
        size=(following or base_offset + len(buffer)) - offset,
        queue_id=_queue_id(queue_id),
        queue_offset=_at_least_0(queue_offset),
    )


def same_put(one: Buffer, other: Buffer) -> bool:
    """Whether two copies of a record, from its start on, come from one send and one append: born and stored in the same
    milliseconds, by the same hosts. Records of different histories do not, whatever else they have in common."""
    stamps = [bytes(copy[_BORN_AT:_STORED_END]) for copy in (one, other)]
    return len(stamps[0]) == _STORED_END - _BORN_AT and stamps[0] == stamps[1] and any(stamps[0])


def body_ok(buffer: Buffer, base_offset: int, offset: int) -> bool | None:
    """Whether the record that starts at `offset` is whole and its body fits its checksum.

    False for lengths that do not add up, too. None if unknown: no record starts here (magic and physicalOffset), not
    all of it is in the buffer, or its body is empty, so that nothing protects it."""
    index = offset - base_offset
    if not _is_head(buffer, index, offset):
        return None
    try:
        record = read_record(buffer, index, len(buffer), check_crc=True)
    except RecordError as error:
        if error.fault is not RecordFault.INCOMPLETE:
            return False
        return None if heads.can_add_up(buffer, index) is not False else False
    return True if isinstance(record, Record) and record.body_length else None


def seal_ok(buffer: Buffer, base_offset: int, offset: int) -> bool | None:
    """Whether the checksum over the whole record at `offset` is right; None if it has none (Java's default).

    Compare the result between copies: a client may have sent a property that looks like a checksum.
    """
    record = _read(buffer, base_offset, offset)
    if record is None:
        return None
    try:
        return True if check_record_crc(buffer, record) else None
    except RecordError:
        return False


def _piece(buffer: Buffer, base_offset: int, at: int, end: int, segment_size: int | None) -> tuple[int, RecordKind]:
    border = None if segment_size is None else at - at % segment_size + segment_size
    limit = end if border is None else min(border, end)
    index = at - base_offset
    try:
        found = read_record(buffer, index, limit - base_offset, check_crc=False)
    except RecordError:
        found = None
    if isinstance(found, Record) and found.physical_offset == at:
        return found.size, RecordKind.RECORD
    if isinstance(found, Blank) and border in {None, at + found.size}:
        return found.size, RecordKind.BLANK
    if limit == end and _may_be_cut(buffer, index, at, end, border):
        return end - at, RecordKind.CUT
    following = next_record_start(buffer, base_offset, at + 1, segment_size=segment_size)
    return (end if following is None else min(following, end)) - at, RecordKind.GAP


def _may_be_cut(buffer: Buffer, index: int, at: int, end: int, border: int | None) -> bool:
    """Whether something that starts here could continue at `end`, and stop at or before `border`."""
    if len(buffer) - index < BLANK_SIZE or end - at < BLANK_SIZE:
        return border is None or border > end
    size, magic = heads.unpack_start(buffer, index)
    stop = at + size
    if stop <= end or (border is not None and stop > border):
        return False
    if magic == MAGIC_BLANK:
        return border in {None, stop}
    if magic not in MAGICS:
        return False
    if len(buffer) - index < heads.PLACE_SIZE:
        return True
    return heads.unpack_place(buffer, index)[2] == at and heads.can_add_up(buffer, index) is not False


def _is_head(buffer: Buffer, index: int, place: int) -> bool:
    """A record's head that belongs here; its size is not checked."""
    if not 0 <= index <= len(buffer) - heads.PLACE_SIZE:
        return False
    _, magic, physical_offset = heads.unpack_place(buffer, index)
    return magic in MAGICS and physical_offset == place


def _is_blank(buffer: Buffer, index: int, place: int, border: int | None) -> bool:
    return border is not None and _blank_size(buffer, index) == border - place


def _blank_size(buffer: Buffer, index: int) -> int:
    """Of a blank's head; 0 for anything else."""
    if not 0 <= index <= len(buffer) - BLANK_SIZE:
        return 0
    size, magic = heads.unpack_start(buffer, index)
    return max(size, 0) if magic == MAGIC_BLANK else 0


def _last_head(buffer: Buffer, base_offset: int, low: int, offset: int) -> int | None:
    """The last record's head that starts in `[low, offset]`, searched backwards in windows that grow."""
    first = low - base_offset + heads.MAGIC_AT
    stop = min(offset - base_offset + heads.MAGIC_AT + len(heads.MAGIC_START), len(buffer))
    window = _FIRST_WINDOW
    while stop > first:
        start = max(first, stop - window)
        data = bytes(buffer[start:stop])
        at = len(data)
        while (at := data.rfind(heads.MAGIC_START, 0, at + len(heads.MAGIC_START) - 1)) >= 0:
            index = start + at - heads.MAGIC_AT
            if _is_head(buffer, index, base_offset + index):
                return base_offset + index
        if start == first:
            return None
        stop = start + len(heads.MAGIC_START) - 1  # a magic may lie across the border of windows
        window = min(window * 4, _LARGEST_WINDOW)
    return None


def _read(buffer: Buffer, base_offset: int, offset: int) -> Record | None:
    """The whole record at `offset` if it has this offset in it."""
    if not _is_head(buffer, offset - base_offset, offset):
        return None
    return _whole(buffer, offset - base_offset)


def _whole(buffer: Buffer, index: int) -> Record | None:
    try:
        found = read_record(buffer, index, len(buffer), check_crc=False)
    except RecordError:
        return None
    return found if isinstance(found, Record) else None


def _mended(buffer: Buffer, index: int, size: int | None) -> Record | None:
    """The record with its magic or its size corrected, if everything in it adds up then."""
    stated, magic, _ = heads.unpack_place(buffer, index)
    if magic in MAGICS:
        candidates = [(size, magic)] if size is not None else []
    else:
        candidates = [(stated, MAGIC_V1), (stated, MAGIC_V2)]
    for length, kind in candidates:
        if SMALLEST_RECORD <= length <= len(buffer) - index:
            copy = heads.pack_start(length, kind) + bytes(buffer[index + BLANK_SIZE : index + length])
            if (record := _whole(copy, 0)) is not None:
                return record
    return None


def _name(record: Record, offset: int) -> RecordName:
    return RecordName(
        physical_offset=offset,
        size=record.size,
        topic=record.topic.decode() if _TOPIC.fullmatch(record.topic) else None,
        queue_id=_queue_id(record.queue_id),
        queue_offset=_at_least_0(record.queue_offset),
        store_timestamp=record.store_timestamp if 0 < record.store_timestamp < LATEST_TIMESTAMP else None,
        keys=_text(record.properties, KEYS),
        unique_key=_text(record.properties, UNIQ_KEY),
    )


def _queue_id(value: int) -> int | None:
    return value if 0 <= value <= _HIGHEST_QUEUE_ID else None


def _at_least_0(value: int) -> int | None:
    return value if value >= 0 else None


def _text(properties: bytes, name: str) -> str | None:
    value = find_property(properties, name)
    return None if value is None or "\ufffd" in value else value
