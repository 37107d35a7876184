"""Consume queue units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.store.consume_queue import (
    PRE_BLANK,
    UNIT_SIZE,
    Unit,
    UnitsError,
    is_unit,
    iter_units,
    pack_unit,
    pack_units,
    unpack_unit,
)

UNITS = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
WRITTEN = st.tuples(st.integers(0, 2**63 - 1), st.integers(1, 2**31 - 1), st.integers(-(2**31), 2**31 - 1))


def test_a_unit_is_20_bytes() -> None:
    assert pack_unit(1, 2, -1) == b"\0\0\0\0\0\0\0\x01" + b"\0\0\0\x02" + b"\xff" * 8
    assert bytes(8) + b"\x7f\xff\xff\xff" + bytes(8) == PRE_BLANK
    assert len(PRE_BLANK) == UNIT_SIZE


@given(st.lists(UNITS, max_size=6))
def test_units_survive_their_bytes(units: list[Unit]) -> None:
    data = pack_units(units)
    assert data == b"".join(pack_unit(*unit) for unit in units)
    assert list(iter_units(data)) == list(iter_units(memoryview(data))) == units
    assert [unpack_unit(data, UNIT_SIZE * n) for n in range(len(units))] == units


def test_many_units_are_packed_in_parts() -> None:
    units = [(n, 1, -n) for n in range(2500)]
    assert list(iter_units(pack_units(units))) == units


@given(st.binary(max_size=100), st.integers(-5, 100))
def test_arbitrary_bytes_are_units_or_units_errors(data: bytes, position: int) -> None:
    if len(data) % UNIT_SIZE:
        with pytest.raises(UnitsError):
            iter_units(data)
    else:
        assert len(list(iter_units(data))) * UNIT_SIZE == len(data)
    if 0 <= position <= len(data) - UNIT_SIZE:
        assert pack_unit(*unpack_unit(data, position)) == data[position : position + UNIT_SIZE]
    else:
        with pytest.raises(UnitsError):
            unpack_unit(data, position)


@given(st.lists(WRITTEN, max_size=40), st.integers(0, 40))
def test_the_zeros_at_the_end_are_no_units(units: list[Unit], zeros: int) -> None:
    assert [unit for unit in iter_units(pack_units(units) + bytes(zeros * UNIT_SIZE)) if is_unit(unit)] == units


def test_what_stands_for_a_message() -> None:
    assert is_unit((0, 0x7FFFFFFF, 0))
    assert not is_unit((0, 0, 0))
    assert not is_unit((-1, 100, 0))
