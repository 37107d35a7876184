"""Index files: numbers of a file that an official broker 5.3.3 wrote, and names."""

import pytest

from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.index_file import (
    Entry,
    Header,
    Layout,
    is_index_name,
    iter_entries,
    key_hash,
    key_hashes,
    unpack_header,
)
from rocketmq_formats.tags import java_hash_code

HEADER = bytes.fromhex("000001a22bda4302 000001a22bda4ec3 0000000000000000 0000000000005f4c 00000001 0000006f")
"""maxHashSlotNum=50000, maxIndexNum=200000; 110 messages with one key."""
ENTRIES = bytes.fromhex("31bd8d43 00000000000000df 00000000 00000001 31bd8d43 0000000000005f4c 00000003 0000006d")
"""Numbers 2 and 110."""


def test_the_file_of_an_official_broker() -> None:
    header = unpack_header(HEADER)
    assert header == Header(1796032054018, 1796032057027, 0, 24396, 1, 111)
    assert header.pack() == HEADER
    code = key_hash("read-on", "0123456789ABCDEF0123456789ABCDEF")
    assert [Entry(*fields) for fields in iter_entries(ENTRIES)] == [Entry(code, 223, 0, 1), Entry(code, 24396, 3, 109)]
    with pytest.raises(FormatError):
        unpack_header(HEADER[:-1])


@pytest.mark.parametrize(
    ("size", "layout"),
    [
        (4_200_040, Layout(50_000, 200_000)),
        (420_000_040, Layout(5_000_000, 20_000_000)),
        (40, None),
        (0, None),
        (60_000_040, None),
    ],
)
def test_slots_and_entries_by_the_length(size: int, layout: Layout | None) -> None:
    """5 million slots and 2 million entries are not Java's ratio: nobody knows where the entries begin."""
    assert Layout.of(size) == layout
    assert layout is None or (layout.size, layout.at(0)) == (size, 40 + 4 * layout.slots)


def test_the_hash_is_never_negative() -> None:
    """Java's least int has no absolute value."""
    left = (2**31 - java_hash_code("T#" + "A" * 7)) % 2**32
    digits = [left // 31**place % 31 for place in range(6, -1, -1)]
    key = "".join(chr(ord("A") + digit) for digit in digits)
    assert java_hash_code(f"T#{key}") == -(2**31)
    assert key_hash("T", key) == 0
    assert key_hash("T", "polygenelubricants") == abs(java_hash_code("T#polygenelubricants"))


def test_keys_of_a_record() -> None:
    assert key_hashes("T", b"UNIQ_KEY\x01u\x02KEYS\x01k1  k2\x02") == {key_hash("T", key) for key in ("u", "k1", "k2")}
    assert key_hashes("T", b"TAGS\x01a\x02") == frozenset()
    assert key_hashes("T", b"KEYS\x01\xff\x02") is None


def test_names_are_times() -> None:
    names = ["20261130094734151", "2026113009473415", "20261130094734151.tmp", "2026113009473415\u0661"]
    assert [is_index_name(name) for name in names] == [True, False, False, False]
