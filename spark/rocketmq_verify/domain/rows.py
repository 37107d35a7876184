"""Records of an extent as columns, for the data source: one row a record, made at the speed of struct.

Rows say what the records say; bytes that are no record have no row (`structure` reports them). The data source makes
Arrow batches of the columns as they are.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from rocketmq_formats.store import walk as heads
from rocketmq_formats.store.delay_levels import DelayLevelError, unit_tags_code
from rocketmq_formats.store.message import MAGIC_V1, Blank, Buffer, SysFlag, read_record
from rocketmq_formats.store.message_properties import KEYS, TAGS, find_property
from rocketmq_formats.tags import tags_code
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_verify.domain.records import RecordKind, walk

BATCH: Final = 8_192
"""Records in a batch, if nobody says otherwise: some 1 MiB of columns."""
_KEYS: Final = f"{KEYS}\x01".encode()
_TAGS: Final = f"{TAGS}\x01".encode()
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_MAX_CACHED_TOPICS: Final = 4_096
_crc32 = zlib.crc32


class Columns(NamedTuple):
    """Equally long lists, a row at an index."""

    topic: Sequence[str]
    """Bytes that are no UTF-8 become U+FFFD."""
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
    """What the record's unit in its consume queue has to say; None: not known (a delayed message, no levels)."""
    queued: Sequence[bool]
    """Whether there is to be a unit: not for transactions that are prepared or rolled back, nor for inner batches."""


class Batch(NamedTuple):
    """Some rows, and where to go on."""

    columns: Columns
    next_offset: int
    """Physical offset of the first byte that was not dealt with: a record that is not all there, or the end."""


Row: TypeAlias = tuple[str, int, int, int, int, int, int, bool, str | None, int | None, bool]


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
    an empty one perhaps, whose `next_offset` says how far the bytes sufficed.
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


class _Reader:
    def __init__(self, buffer: Buffer, base_offset: int, segment_size: int, levels: Sequence[int] | None) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._base = base_offset
        self._segment_size = segment_size
        self._levels = levels
        self._topics: dict[bytes, str] = {}

    def plain(self, start: int, end: int, rows: list[Row], batch: int) -> int:
        """Rows of records of the commonest kind, until there is another, or `batch` rows; returns where that is."""
        unpack, crc32, view, base, topics = heads.unpack_row, _crc32, self._view, self._base, self._topics
        head, special, magic_v1 = heads.V4_HEAD_SIZE, heads.NOT_V4 | heads.TRANSACTION_TYPE | heads.NO_UNIT, MAGIC_V1
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
            keys = find_property(tail[topic_end + 2 :], KEYS) if _KEYS in tail else None
            code = tags_code(find_property(tail[topic_end + 2 :], TAGS)) if _TAGS in tail else 0
            crc_ok = not body_length or crc32(view[at + head : body_end]) & 0x7FFFFFFF == body_crc
            append((topic, queue_id, queue_offset, place, timestamp, size, body_length, crc_ok, keys, code, True))
            left -= 1
            at = stop
        return base + at

    def other(self, at: int, rows: list[Row]) -> int:
        """Whatever starts at `at`; returns where the next one does, `at` itself if it is not all there."""
        end = self._base + len(self._view)
        piece = next(walk(self._buffer, self._base, at, end, segment_size=self._segment_size), None)
        if piece is None or piece[2] is RecordKind.CUT:
            return at
        if piece[2] is RecordKind.RECORD:
            rows.append(self._row(at))
        if piece[2] is RecordKind.GAP and at + piece[1] == end:  # its last bytes may be the beginning of a head
            return max(at, end - heads.PLACE_SIZE + 1)
        return at + piece[1]

    def _row(self, at: int) -> Row:
        record = read_record(self._buffer, at - self._base, len(self._view), check_crc=False)
        assert not isinstance(record, Blank)
        crc = _crc32(record.body(self._buffer)) & 0x7FFFFFFF
        transaction = record.sys_flag & SysFlag.TRANSACTION_ROLLBACK
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
            transaction in {0, SysFlag.TRANSACTION_COMMIT} and not record.sys_flag & SysFlag.INNER_BATCH,
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
