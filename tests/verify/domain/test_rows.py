"""Rows say what the records say, in batches, however the log is cut into buffers."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.records import RecordKind, walk
from rocketmq_formats.soundness.rows import batches
from rocketmq_formats.store.delay_levels import DEFAULT_LEVELS, parse_levels, unit_tags_code
from rocketmq_formats.store.message import Record, read_record
from rocketmq_formats.store.message_properties import find_property
from tests.verify.record_kit import BASES, LOGS, SEGMENT, V6, Sent, damage, damages, golden_log, make_log

LEVELS = parse_levels(DEFAULT_LEVELS)
Row = tuple[object, ...]


def read(data: bytes | bytearray, base: int = 0, *, batch: int = 5, size: int = SEGMENT) -> list[Row]:
    found = list(batches(data, base, base, base + len(data), segment_size=size, levels=LEVELS, batch=batch))
    assert all(len(b.columns.topic) == batch for b in found[:-1])
    return [row for b in found for row in zip(*b.columns, strict=True)]


def expected(data: bytes | bytearray, base: int = 0, *, size: int = SEGMENT) -> list[Row]:
    """The slow way."""
    found: list[Row] = []
    for offset, _, kind in walk(data, base, base, base + len(data), segment_size=size):
        if kind is RecordKind.RECORD:
            r = read_record(data, offset - base, len(data), check_crc=False)
            assert isinstance(r, Record)
            crc = zlib.crc32(r.body(data)) & 0x7FFFFFFF if r.body_length else r.body_crc
            topic, keys = r.topic.decode("utf-8", "replace"), find_property(r.properties, "KEYS")
            code = unit_tags_code(r.topic, r.properties, r.store_timestamp, LEVELS)
            queued = r.sys_flag & 0xC in {0, 8} and not r.sys_flag & 0x80
            place = r.queue_id, r.queue_offset, offset, r.store_timestamp, r.size, r.body_length
            found.append((topic, *place, crc == r.body_crc, keys, code, queued, bytes(r.properties)))
    return found


@given(LOGS, BASES, st.integers(1, 20))
def test_a_row_for_each_record(messages: list[Sent], base: int, batch: int) -> None:
    data, _ = make_log(messages, base=base)
    found = read(data, base, batch=batch)
    assert found == expected(data, base)
    assert len(found) == len(messages)


@given(LOGS, BASES, damages())
def test_damaged_records_have_no_row_or_a_wrong_crc(
    messages: list[Sent], base: int, where: list[tuple[float, bytes]]
) -> None:
    data, made = make_log(messages, base=base)
    whole = damage(data, made, base, where)
    found = read(data, base)
    assert found == expected(data, base)
    assert {m.offset for m in whole if m.sent} <= {row[3] for row in found}


@given(LOGS, damages() | st.just([]), st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_a_log_read_through_small_buffers(
    messages: list[Sent], where: list[tuple[float, bytes]], steps: list[int]
) -> None:
    data, made = make_log(messages)
    damage(data, made, 0, where)
    found: list[Row] = []
    at = fed = n = 0
    while fed < len(data):
        fed = min(len(data), fed + steps[n % len(steps)])
        n += 1
        for b in batches(memoryview(data)[at:fed], at, at, len(data), segment_size=SEGMENT, levels=LEVELS):
            found += zip(*b.columns, strict=True)
            at = b.next_offset
    assert found == expected(data)


@pytest.mark.parametrize(
    ("sent", "column", "value"),
    [
        (Sent(sys_flag=0), "queued", True),
        (Sent(sys_flag=4), "queued", False),
        (Sent(sys_flag=8), "queued", True),
        (Sent(sys_flag=12), "queued", False),
        (Sent(sys_flag=0x80), "queued", False),
        (Sent(properties={"TAGS": "a"}), "tags_code", 97),
        (Sent(properties={"TAGS": "a"}, host=V6), "tags_code", 97),
        (Sent(properties={"XTAGS": "a", "XKEYS": "b"}), "tags_code", 0),
        (Sent(properties={"XTAGS": "a", "XKEYS": "b"}), "keys", None),
        (Sent(properties={"KEYS": "a b"}), "keys", "a b"),
        (Sent(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "3"}, timestamp=5), "tags_code", 10_005),
        (Sent(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "x"}), "tags_code", None),
        (Sent(topic="SCHEDULE_TOPIC_XXXX", properties={"TAGS": "a"}), "tags_code", 97),
        (Sent(body=b""), "crc_ok", True),
    ],
)
def test_columns(sent: Sent, column: str, value: object) -> None:
    data, _ = make_log([sent])
    (batch,) = batches(data, 0, 0, len(data), segment_size=SEGMENT, levels=LEVELS)
    assert getattr(batch.columns, column) == [value]


def test_delays_that_are_not_known() -> None:
    data, _ = make_log([Sent(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "3"})])
    (batch,) = batches(data, 0, 0, len(data), segment_size=SEGMENT)
    assert batch.columns.tags_code == [None]


def test_a_part_of_a_log() -> None:
    data, made = make_log([Sent()] * 6)
    (batch,) = batches(data, 0, made[1].offset, made[3].offset + 1, segment_size=SEGMENT)
    assert list(batch.columns.physical_offset) == [made[n].offset for n in (1, 2, 3)]
    assert batch.next_offset == made[4].offset


def test_topics_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MAX_CACHED_TOPICS", 2)
    data, _ = make_log([Sent(topic=f"T{n}") for n in range(5)])
    assert [row[0] for row in read(data)] == [f"T{n}" for n in range(5)]


@pytest.mark.parametrize("broker", ["controlled", "alone"])
def test_logs_of_official_brokers(broker: str) -> None:
    data, end, size = golden_log(broker)
    found = read(data[:end], size=size)
    assert found == expected(data[:end], size=size)
    assert all(row[7] for row in found)
