"""Records of an extent as columns, for the data source: one row per record, as fast as struct allows.

Rows have the fields of the records; bytes that are not a record have no row (`structure` reports them). The data source
makes Arrow batches of the columns as they are.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.records import RecordKind, next_record_start, walk
from rocketmq_formats.store import walk as heads
from rocketmq_formats.store.delay_levels import DelayLevelError, unit_tags_code
from rocketmq_formats.store.message import MAGIC_V1, NOT_PLAIN, Blank, Buffer, has_unit, read_record
from rocketmq_formats.store.message_properties import KEYS, TAGS, find_property
from rocketmq_formats.tags import tags_code
from rocketmq_formats.topics import SCHEDULE_TOPIC

BATCH: Final = 8_192
"""Records in a batch by default: about 1 MiB of columns."""
HEAD: Final = 64
BLOCK: Final = 512 << 10
"""Bytes that are parsed at once."""
_KEYS: Final = f"{KEYS}\x01".encode()
_TAGS: Final = f"{TAGS}\x01".encode()
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_MAX_CACHED_TOPICS: Final = 4_096
_crc32 = zlib.crc32


class Columns(NamedTuple):
    """Equally long lists, a row at an index."""

    topic: Sequence[str]
    """Bytes that are not UTF-8 become U+FFFD."""
    queue_id: Sequence[int]
    queue_offset: Sequence[int]
    physical_offset: Sequence[int]
    store_timestamp: Sequence[int]
    """Milliseconds since 1970."""
    size: Sequence[int]
    """Of the record, in bytes, as `body_size`."""
    body_size: Sequence[int]
    crc_ok: Sequence[bool]
    """Of the body; True for an empty one."""
    keys: Sequence[str | None]
    """Separated by spaces."""
    tags_code: Sequence[int | None]
    """What the record's unit in its consume queue must have; None: unknown (a delayed message, no levels)."""
    queued: Sequence[bool]
    """Whether there must be a unit: not for transactions that are prepared or rolled back, nor for inner batches."""
    properties: Sequence[bytes]
    """As they are stored."""


class Batch(NamedTuple):
    """Some rows, and where to continue."""

    columns: Columns
    next_offset: int
    """Physical offset of the first byte that was not processed: an incomplete record, or the end."""


Row: TypeAlias = tuple[str, int, int, int, int, int, int, bool, str | None, int | None, bool, bytes]


def batches(
    buffer: Buffer,
    base_offset: int,
    start: int,
    end: int,
    *,
    segment_size: int,
    levels: Sequence[int] | None = None,
    batch: int = BATCH,
) -> Iterator[Batch]:
    """Rows of the records that start in `[start, end)` and are whole in the buffer, which begins at `base_offset`.

    `start` is a record's start; `levels` are the brokers' delays in ms (`parse_levels`). There is always a last batch,
    perhaps an empty one, whose `next_offset` is how far the bytes sufficed.
    """
    reader = _Reader(buffer, base_offset, segment_size, levels)
    rows: list[Row] = []
    at = start
    while at < end:
        at = reader.plain(at, end, rows, batch)
        if len(rows) < batch and at < end:
            following = reader.other(at, rows)
            if following == at:
                break
            at = following
        if len(rows) >= batch:
            yield Batch(_columns(rows), at)
            rows = []
    yield Batch(_columns(rows), at)


def pieces_batches(pieces: Iterable[Buffer], extent: Extent, until: int, segment_size: int) -> Iterator[Batch]:
    """The records that start in `extent`, of pieces that follow each other from its start on. The log is read up to
    `until`, perhaps within a record."""
    buffer, base = bytearray(), extent.start
    at: int | None = extent.start if extent.start % segment_size == 0 else None
    for piece in pieces:
        buffer += piece
        if len(buffer) < BLOCK and base + len(buffer) < until:
            continue
        if at is None:
            at = next_record_start(buffer, base, base, segment_size=segment_size)
        if at is None:
            base += max(len(buffer) - HEAD, 0)  # the last bytes may be the beginning of a record's head
            del buffer[:-HEAD]
        else:
            for batch in batches(buffer, base, at, extent.end, segment_size=segment_size):
                at = batch.next_offset
                yield batch
            del buffer[: min(at - base, len(buffer))]
            base = at
        if (base + len(buffer) if at is None else at) >= extent.end:
            return


class _Reader:
    def __init__(self, buffer: Buffer, base_offset: int, segment_size: int, levels: Sequence[int] | None) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._base = base_offset
        self._segment_size = segment_size
        self._levels = levels
        self._topics: dict[bytes, str] = {}

    def plain(self, start: int, end: int, rows: list[Row], batch: int) -> int:
        """Rows of records of the commonest kind, up to another kind or `batch` rows; returns where that is.

        This is the hot path: one unpack for each record; everything unusual is left to `other`.
        """
        unpack, crc32, view, base, topics = heads.unpack_row, _crc32, self._view, self._base, self._topics
        head, special, magic_v1 = heads.V4_HEAD_SIZE, NOT_PLAIN, MAGIC_V1
        border = start - start % self._segment_size + self._segment_size
        at, limit = start - base, min(len(view), border - base)
        last = min(limit - head, end - base - 1)
        append, left = rows.append, batch - len(rows)
        while at <= last and left > 0:
            size, magic, body_crc, queue_id, queue_offset, place, sys_flag, timestamp, body_length = unpack(view, at)
            body_end = at + head + body_length
            stop = at + size
            if magic != magic_v1 or place != base + at or sys_flag & special or body_length < 0 or stop > limit:
                break
            if body_end + 3 > stop or stop - body_end > heads.LONGEST_V1_TAIL:
                break
            tail = bytes(view[body_end:stop])
            topic_end = tail[0] + 1
            if topic_end > 128 or topic_end + 2 > len(tail):
                break
            if topic_end + 2 + (tail[topic_end] << 8 | tail[topic_end + 1]) != len(tail) or tail[topic_end] > 127:
                break
            name = tail[1:topic_end]
            if name == _SCHEDULE:
                break
            topic = topics.get(name) or self._topic(name)
            properties = tail[topic_end + 2 :]
            keys = find_property(properties, KEYS) if _KEYS in tail else None
            code = tags_code(find_property(properties, TAGS)) if _TAGS in tail else 0
            crc_ok = not body_length or crc32(view[at + head : body_end]) & 0x7FFFFFFF == body_crc
            row = (
                topic,
                queue_id,
                queue_offset,
                place,
                timestamp,
                size,
                body_length,
                crc_ok,
                keys,
                code,
                True,
                properties,
            )
            append(row)
            left -= 1
            at = stop
        return base + at

    def other(self, at: int, rows: list[Row]) -> int:
        """Any piece at `at`; returns where the next one starts, `at` itself if the piece is incomplete."""
        end = self._base + len(self._view)
        piece = next(walk(self._buffer, self._base, at, end, segment_size=self._segment_size), None)
        if piece is None or piece[2] is RecordKind.CUT:
            return at
        if piece[2] is RecordKind.RECORD:
            rows.append(self._row(at))
        if (
            piece[2] is RecordKind.GAP and at + piece[1] == end
        ):  # its last bytes may be the beginning of a record's head
            return max(at, end - heads.PLACE_SIZE + 1)
        return at + piece[1]

    def _row(self, at: int) -> Row:
        record = read_record(self._buffer, at - self._base, len(self._view), check_crc=False)
        assert not isinstance(record, Blank)
        crc = _crc32(record.body(self._buffer)) & 0x7FFFFFFF
        return (
            self._topic(record.topic),
            record.queue_id,
            record.queue_offset,
            at,
            record.store_timestamp,
            record.size,
            record.body_length,
            not record.body_length or crc == record.body_crc,
            find_property(record.properties, KEYS),
            self._code(record.topic, record.properties, record.store_timestamp),
            has_unit(record.sys_flag),
            bytes(record.properties),
        )

    def _code(self, topic: bytes, properties: bytes, store_timestamp: int) -> int | None:
        if topic == _SCHEDULE and self._levels is None:
            return None
        try:
            return unit_tags_code(topic, properties, store_timestamp, self._levels or ())
        except DelayLevelError:
            return None

    def _topic(self, name: bytes) -> str:
        text = name.decode("utf-8", "replace")
        if len(self._topics) < _MAX_CACHED_TOPICS:
            self._topics[name] = text
        return text


def _columns(rows: list[Row]) -> Columns:
    return Columns(*map(list, zip(*rows, strict=True))) if rows else Columns(*([] for _ in Columns._fields))
