"""Heads read in part say what whole records say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.store import walk
from rocketmq_formats.store.message import HOSTS, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Record, encode_record, read_record
from tests.formats.store.record_fields import FIELDS, SIMPLE


def both(fields: dict[str, Any]) -> tuple[bytes, Record]:
    data = encode_record(**fields)
    record = read_record(data, 0, len(data), check_crc=True)
    assert isinstance(record, Record)
    return data, record


@given(FIELDS)
def test_places(fields: dict[str, Any]) -> None:
    data, record = both(fields)
    magic = MAGIC_V1 if len(record.topic) <= 127 else MAGIC_V2
    assert walk.unpack_place(data, 0) == (record.size, magic, record.physical_offset)
    assert walk.unpack_start(data, 0) == (record.size, magic)
    assert walk.pack_start(record.size, magic) == data[:8]
    assert data[walk.MAGIC_AT :].startswith(walk.MAGIC_START)


@given(FIELDS)
def test_heads_without_long_hosts(fields: dict[str, Any]) -> None:
    data, r = both(fields)
    if r.sys_flag & HOSTS:
        return
    _, magic, _ = walk.unpack_place(data, 0)
    checked = r.size, magic, r.body_crc, r.physical_offset, r.sys_flag, r.store_timestamp, r.body_length
    assert walk.unpack_checked(data, 0) == checked
    assert walk.unpack_row(data, 0) == (*checked[:3], r.queue_id, r.queue_offset, *checked[3:])
    assert r.body_start == walk.V4_HEAD_SIZE


@given(FIELDS, st.integers(0, 400))
def test_where_a_body_ends(fields: dict[str, Any], cut: int) -> None:
    data, record = both(fields)
    end = 1 + record.body_start + record.body_length
    assert walk.body_end(b"x" + data[:cut], 1) == (None if cut < record.body_start else end)
    no_room = walk.pack_start(end + 1, MAGIC_V1) + data[8:]
    assert walk.body_end(b"x" + no_room, 1) is None


@given(FIELDS, st.integers(0, 400))
def test_a_record_can_add_up_however_little_of_it_is_there(fields: dict[str, Any], cut: int) -> None:
    data, record = both(fields)
    known = walk.can_add_up(b"x" + data[:cut], 1)
    assert known is (None if cut < record.body_start else True)
    assert record.body_start <= walk.LONGEST_HEAD


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 5000),  # more than the body and its topic ask for
        (0, 0x7FFFFFFF),
        (0, 91),
        (0, -1),
        (84, 5),  # the body's
        (84, 0x7FFFFFFF),
        (84, -1),
    ],
)
def test_a_wrong_length_is_seen_from_the_others(at: int, value: int) -> None:
    data = bytearray(encode_record(**SIMPLE))
    data[at : at + 4] = value.to_bytes(4, "big", signed=True)
    assert walk.can_add_up(data, 0) is False


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2, MAGIC_BLANK])
def test_any_magic_is_found(magic: int) -> None:
    found = walk.ANY_START.search(b"\xda\xa3\x20\xcb" + magic.to_bytes(4, "big") + b"\xda")
    assert found is not None
    assert found.start() == 4
