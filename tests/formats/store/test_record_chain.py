"""What may become a record, and what never will."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.store.message import BLANK_SIZE, encode_record
from rocketmq_formats.store.record_chain import HEAD, may_arrive
from tests.formats.store.record_fields import FIELDS, SIMPLE
from tests.records import make_blank


@given(FIELDS, st.data())
def test_any_part_of_a_record_may_arrive_where_it_has_room(fields: dict[str, Any], data: st.DataObject) -> None:
    record, offset = encode_record(**fields), fields["physical_offset"]
    part = record[: data.draw(st.integers(0, len(record) - 1))]
    room = len(record) + BLANK_SIZE
    assert may_arrive(part, offset, room)
    assert may_arrive(part, offset, room - 1) is (len(part) < BLANK_SIZE)
    assert may_arrive(part, offset + 1, room) is (len(part) < HEAD)
    assert not may_arrive(record, offset, room)


@pytest.mark.parametrize("part", [0, 7, BLANK_SIZE, 99])
def test_a_blank_may_arrive_where_it_fills_its_file(part: int) -> None:
    blank = make_blank(100)
    assert may_arrive(blank[:part], 0, 100)
    assert may_arrive(blank[:part], 0, 101) is (part < BLANK_SIZE)
    assert not may_arrive(blank, 0, 100)


@pytest.mark.parametrize("size", [-1, 0, 91, 5000])
def test_what_never_becomes_a_record(size: int) -> None:
    record = encode_record(**SIMPLE)
    wrong = size.to_bytes(4, "big", signed=True) + record[4:]
    assert not may_arrive(wrong, SIMPLE["physical_offset"], 1 << 30)
    assert not may_arrive(b"\0" * 8, 0, 1 << 30)
