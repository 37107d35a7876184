"""Records are found and named among damaged bytes, and nothing is said that the bytes do not bear out."""

import struct
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import RecordName
from rocketmq_formats.soundness.records import (
    LARGEST_RECORD,
    Piece,
    RecordKind,
    body_ok,
    name_record,
    next_record_start,
    record_start,
    seal_ok,
    walk,
)
from rocketmq_formats.store.message import Buffer
from rocketmq_formats.store.record_crc import reserve_record_crc, seal_record
from tests.records import make_record
from tests.verify.record_kit import (
    BASES,
    LOGS,
    NOW,
    SEGMENT,
    V4,
    V6,
    Made,
    Sent,
    damage,
    damages,
    encode,
    golden_log,
    make_log,
)

SIZES = st.sampled_from([SEGMENT, None])
KINDS: list[Callable[[bytearray], Buffer]] = [bytes, bytearray, memoryview]


def pieces(made: list[Made]) -> list[Piece]:
    return [(m.offset, m.size, RecordKind.RECORD if m.sent else RecordKind.BLANK) for m in made]


def name_of(made: Made, number: int) -> RecordName | None:
    if made.sent is None:
        return None
    return RecordName(
        physical_offset=made.offset,
        size=made.size,
        topic=made.sent.topic,
        queue_id=made.sent.queue_id,
        queue_offset=number,
        store_timestamp=NOW,
        keys=made.sent.properties.get("KEYS"),
        unique_key=made.sent.properties.get("UNIQ_KEY"),
    )


@given(LOGS, BASES, st.sampled_from(KINDS), SIZES)
def test_a_clean_log(messages: list[Sent], base: int, kind: Callable[[bytearray], Buffer], size: int | None) -> None:
    data, made = make_log(messages, base=base)
    buffer, end = kind(data), base + len(data)
    assert list(walk(buffer, base, base, end, segment_size=size)) == pieces(made)
    number = 0
    for m in made:
        assert name_record(buffer, base, m.offset, segment_size=size) == name_of(m, number)
        assert body_ok(buffer, base, m.offset) is (True if m.sent and m.sent.body else None)
        number += m.sent is not None


@given(LOGS, BASES, st.data())
def test_every_byte_belongs_to_a_record(messages: list[Sent], base: int, draw: st.DataObject) -> None:
    data, made = make_log(messages, base=base)
    offset = draw.draw(st.integers(base, base + len(data) - 1))
    covering = next(m for m in made if m.offset <= offset < m.end)
    following = next((m.offset for m in made if m.offset >= offset), None)
    assert record_start(data, base, offset, segment_size=SEGMENT) == covering.offset
    assert next_record_start(data, base, offset, segment_size=SEGMENT) == following
    assert record_start(data, base, offset) == covering.offset
    following = next((m.offset for m in made if m.offset >= offset and m.sent), None)
    assert next_record_start(data, base, offset) == following


@given(LOGS, BASES, damages(), SIZES)
def test_what_is_not_damaged_is_found(
    messages: list[Sent], base: int, where: list[tuple[float, bytes]], size: int | None
) -> None:
    data, made = make_log(messages, base=base)
    names = [name_of(m, sum(o.sent is not None for o in made[:i])) for i, m in enumerate(made)]
    before = bytes(data)
    whole = damage(data, made, base, where)
    found = list(walk(data, base, base, base + len(data), segment_size=size))
    assert [piece[0] for piece in found] == [base, *(piece[0] + piece[1] for piece in found[:-1])]
    assert sum(piece[1] for piece in found) == len(data)
    for m, name in zip(made, names, strict=True):
        if m not in whole or m.sent is None:
            assert body_ok(data, base, m.offset) is not True or same_body(before, data, m, base)
            name_record(data, base, m.offset, segment_size=size)
            continue
        assert (m.offset, m.size, RecordKind.RECORD) in found
        assert name_record(data, base, m.offset, segment_size=size) == name
        assert {record_start(data, base, o, segment_size=size) for o in range(m.offset, m.end)} == {m.offset}


def same_body(before: bytes, data: bytearray, made: Made, base: int) -> bool:
    """A body that has its checksum is the one that was sent (unless its length was damaged into another record)."""
    at = made.offset - base + (88 if made.sent is None or made.sent.host == V4 else 112)
    length = len(made.sent.body) if made.sent else 0
    return before[at : at + length] == data[at : at + length]


@given(st.binary(max_size=300), st.integers(-10, 310), SIZES)
def test_any_bytes_do(data: bytes, offset: int, size: int | None) -> None:
    assert body_ok(data, 0, offset) is None
    assert seal_ok(data, 0, offset) is None
    assert name_record(data, 0, offset, segment_size=size) is None
    assert sum(piece[1] for piece in walk(data, 0, max(offset, 0), 400, segment_size=size)) == max(
        len(data) - max(offset, 0), 0
    )
    start = record_start(data, 0, offset, segment_size=size)
    assert start is None or start <= offset


MIDDLE = 1
FULL = RecordName(
    physical_offset=0,
    size=0,
    topic="TopicTest",
    queue_id=3,
    queue_offset=MIDDLE,
    store_timestamp=NOW,
    keys="order-7",
    unique_key="7F00000100002A9F0000",
)


@pytest.mark.parametrize("host", [V4, V6])
@pytest.mark.parametrize(
    ("field", "at", "value", "kept"),
    [
        ("size, less", 0, struct.pack(">i", 100), "all"),
        ("size, more", 0, struct.pack(">i", 0x01000000), "all"),
        ("size, negative", 0, struct.pack(">i", -5), "all"),
        ("magic", 4, b"\x00", "all"),
        ("magic, the other one", 7, b"\xab", "head"),
        ("place", 28, b"\x01", "all"),
        ("bodyCRC", 8, b"\xff\xff", "all"),
        ("size and magic", 0, bytes(8), None),
        ("magic and place", 4, bytes(32), None),
        ("head", 0, bytes(80), None),
        ("queueId", 12, b"\x80", "queue_id"),
        ("queueOffset", 20, b"\x80", "queue_offset"),
        ("storeTimestamp", -1, b"\x7f", "store_timestamp"),
        ("body length", -2, struct.pack(">i", 9), "head"),
        ("topic", -3, b"\x00", "topic"),
        ("topic length", -4, b"\x0a", "head"),
    ],
)
def test_a_damaged_head_keeps_what_can_be_trusted(
    field: str, at: int, value: bytes, kept: str | None, host: bytes
) -> None:
    data, made = make_log([Sent(host=host), Sent(host=host, body=b"x" * 50), Sent(host=host)])
    m = made[MIDDLE]
    head = 88 if host == V4 else 112
    named = {-1: 56 if host == V4 else 68, -2: head - 4, -3: head + 52, -4: head + 50}
    place = m.offset + named.get(at, at)
    assert data[place : place + len(value)] != value
    data[place : place + len(value)] = value
    gone = {"all": (), "head": ("topic", "store_timestamp", "keys", "unique_key")}.get(str(kept), (str(kept),))
    full = msgspec.structs.replace(FULL, physical_offset=m.offset, size=m.size)
    wanted = None if kept is None else msgspec.structs.replace(full, **dict.fromkeys(gone))
    assert name_record(data, 0, m.offset, segment_size=SEGMENT) == wanted
    assert record_start(data, 0, m.offset + 60, segment_size=SEGMENT) == m.offset
    assert next_record_start(data, 0, m.offset + 1, segment_size=SEGMENT) == m.end
    assert {piece[0] for piece in walk(data, 0, 0, len(data), segment_size=SEGMENT)} == {o.offset for o in made}


@pytest.mark.parametrize(
    ("at", "value", "verdict"),
    [
        (88, b"?", False),
        (8, b"?", False),
        (0, struct.pack(">i", 95), False),
        (0, struct.pack(">i", -1), False),
        (84, struct.pack(">i", 1), False),
        (4, b"?", None),
        (28, b"?", None),
        (56, b"?", True),  # nothing protects the head
    ],
)
def test_bodies(at: int, value: bytes, verdict: bool | None) -> None:
    data, made = make_log([Sent(), Sent(), Sent()])
    data[made[1].offset + at : made[1].offset + at + len(value)] = value
    assert body_ok(data, 0, made[1].offset) is verdict
    assert [body_ok(data, 0, made[n].offset) for n in (0, 2)] == [True, True]
    assert body_ok(data[:-1], 0, made[2].offset) is None
    assert body_ok(data, 0, made[1].offset + 1) is None


def test_seals() -> None:
    sealed = seal_record(make_record(100, properties=reserve_record_crc(b"")))
    assert seal_ok(sealed, 100, 100) is True
    assert seal_ok(sealed[:60] + b"?" + sealed[61:], 100, 100) is False
    assert seal_ok(encode(Sent(), 0), 0, 0) is None
    assert seal_ok(sealed[:-1], 100, 100) is None


def test_a_start_is_found_far_back_across_what_looks_like_heads() -> None:
    fake = encode(Sent(), 12345)  # says that it belongs elsewhere
    body = (fake * 20_000)[: 3 << 20]
    size = 8 << 20
    data, made = make_log([Sent(), Sent(body=body), Sent()], base=size, segment_size=size)
    large = made[1]
    assert record_start(data, size, large.end - 1, segment_size=size) == large.offset
    assert next_record_start(data, size, large.offset + 1, segment_size=size) == large.end
    assert large.size < LARGEST_RECORD
    lost = bytes(LARGEST_RECORD + 10)  # nothing anywhere near
    assert record_start(lost, size, size + LARGEST_RECORD + 5, segment_size=size) is None
    assert record_start(lost, size, size + 5, segment_size=size) == size


@pytest.mark.parametrize("window", [4096, 4096 * 5, 4096 * 5 + (1 << 18)])
@pytest.mark.parametrize("shift", range(-9, 9))
def test_a_head_across_windows_is_found(window: int, shift: int) -> None:
    data = bytearray(700_000)
    at = len(data) - 100 - window + shift
    data[at : at + 36] = encode(Sent(), at)[:36]
    data[at : at + 4] = struct.pack(">i", 600_000)
    assert record_start(data, 0, len(data) - 100) == at


@given(LOGS, st.data(), SIZES)
def test_a_record_at_the_end_of_a_range_is_cut(messages: list[Sent], draw: st.DataObject, size: int | None) -> None:
    data, made = make_log(messages)
    end = draw.draw(st.integers(0, len(data)))
    for buffer, stop in ((data, end), (data[:end], end), (data[:end], end + 1000)):
        wanted = [piece for piece in pieces(made) if piece[0] + piece[1] <= end]
        rest = [(m.offset, end - m.offset, RecordKind.CUT) for m in made if m.offset < end < m.end]
        assert list(walk(buffer, 0, 0, stop, segment_size=size)) == wanted + rest


def test_a_file_starts_with_a_record_whatever_is_there() -> None:
    data, made = make_log([Sent(body=b"x" * 3000), Sent(body=b"x" * 1000), Sent()])
    assert (made[1].sent, made[2].offset) == (None, SEGMENT)
    data[SEGMENT : SEGMENT + 80] = bytes(80)
    assert record_start(data, 0, SEGMENT + 90, segment_size=SEGMENT) == SEGMENT
    assert next_record_start(data, 0, made[1].offset + 1, segment_size=SEGMENT) == SEGMENT
    assert record_start(data[SEGMENT + 1 :], SEGMENT + 1, SEGMENT + 90, segment_size=SEGMENT) is None


def test_a_start_that_is_none_is_a_gap() -> None:
    data, made = make_log([Sent(), Sent()])
    assert list(walk(data, 0, 10, len(data), segment_size=SEGMENT)) == [
        (10, made[1].offset - 10, RecordKind.GAP),
        (made[1].offset, made[1].size, RecordKind.RECORD),
    ]


def test_zeros_are_a_gap_to_the_next_file() -> None:
    assert list(walk(bytes(9000), 0, 100, 9000, segment_size=SEGMENT)) == [
        (100, SEGMENT - 100, RecordKind.GAP),
        (SEGMENT, SEGMENT, RecordKind.GAP),
        (2 * SEGMENT, 9000 - 2 * SEGMENT, RecordKind.GAP),
    ]


@pytest.mark.parametrize("broker", ["controlled", "alone"])
def test_logs_of_official_brokers(broker: str) -> None:
    data, end, size = golden_log(broker)
    found = list(walk(data, 0, 0, end, segment_size=size))
    assert {kind for _, _, kind in found} <= {RecordKind.RECORD, RecordKind.BLANK}
    assert found[-1][0] + found[-1][1] == end
    for offset, length, kind in found:
        if kind is RecordKind.RECORD:
            name = name_record(data, 0, offset, segment_size=size)
            assert name is not None
            assert name.size == length
            assert None not in {name.topic, name.queue_id, name.queue_offset, name.store_timestamp}
            assert body_ok(data, 0, offset) is not False
        for at in (offset, offset + 1, offset + length - 1):
            assert record_start(data, 0, at, segment_size=size) == offset
