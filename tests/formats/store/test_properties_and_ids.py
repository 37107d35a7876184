"""Properties, tags, ids and hosts."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.store.message_id import (
    MessageIdError,
    decode_host,
    decode_message_id,
    encode_host,
    encode_message_id,
    encode_unique_id,
)
from rocketmq_formats.store.message_properties import (
    MAX_PROPERTIES,
    PropertiesError,
    find_property,
    format_properties,
    join_properties,
    parse_properties,
    remove_property,
)
from rocketmq_formats.tags import java_hash_code, tags_code

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
TABLES = st.dictionaries(NAMES, NAMES, max_size=5)
SHREDS = st.lists(st.sampled_from([b"\x01", b"\x02", b"A", b"AB", b"TAGS", b"\xff", "é".encode()]), max_size=14).map(
    b"".join
)


@given(TABLES)
def test_properties_survive_their_bytes(table: dict[str, str]) -> None:
    data = format_properties(table)
    assert parse_properties(data) == table
    assert parse_properties(data[:-1]) == table
    assert {name: find_property(data, name) for name in table} == table


def test_the_text_is_javas() -> None:
    assert format_properties({"KEYS": "a b", "TAGS": "t"}) == b"KEYS\x01a b\x02TAGS\x01t\x02"


@pytest.mark.parametrize(
    ("data", "table"),
    [
        (b"", {}),
        (b"A\x01b", {"A": "b"}),
        (b"A\x01\x02", {}),
        (b"\x01b\x02", {}),
        (b"A\x02B\x01c\x02", {"B": "c"}),
        (b"A\x01b\x02A\x01c\x02", {"A": "c"}),
        (b"A\x01b\x02A\x01\x02", {"A": "b"}),
        (b"A\x01b\x01c\x02", {"A": "b\x01c"}),
        (b"AA\x01b\x02", {"AA": "b"}),
        (b"\x02\x02A\x01b\x02\x02", {"A": "b"}),
    ],
)
def test_what_counts_as_a_property(data: bytes, table: dict[str, str]) -> None:
    assert parse_properties(data) == table


@given(SHREDS | st.binary(max_size=40), st.sampled_from(["A", "AB", "TAGS", "é", "B"]))
def test_looking_up_one_agrees_with_reading_all(data: bytes, name: str) -> None:
    assert find_property(data, name) == parse_properties(data).get(name)


@given(SHREDS, st.sampled_from(["A", "AB", "TAGS", "é"]))
def test_removing_agrees_with_the_table(data: bytes, name: str) -> None:
    table = parse_properties(data)
    table.pop(name, None)
    assert parse_properties(remove_property(data, name)) == table


def test_what_could_not_be_read_back_is_refused() -> None:
    for table in ({"": "a"}, {"a\x01": "b"}, {"a": "b\x02"}, {"a": "\x01"}, {"a": "\ud800"}):
        with pytest.raises(PropertiesError):
            format_properties(table)
    with pytest.raises(PropertiesError):
        format_properties({"a": "b" * MAX_PROPERTIES})
    with pytest.raises(PropertiesError):
        join_properties(b"a" * 20_000, b"b" * 20_000)


def test_joining_ends_the_first_ones_last_pair() -> None:
    assert join_properties(b"a\x01b", b"c\x01d\x02") == b"a\x01b\x02c\x01d\x02"
    assert join_properties(b"a\x01b\x02", b"c\x01d\x02") == b"a\x01b\x02c\x01d\x02"
    assert join_properties(b"", b"c\x01d") == b"c\x01d"
    assert join_properties(b"a\x01b", b"") == b"a\x01b"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello world", 1794106052),
        ("a" * 256, -559411200),
        ("a" * 257, -161877919),
        ("polygenelubricants", -(2**31)),
        ("😀", 1772899),
        ("\ud800", 55296),
    ],
)
def test_hash_codes_are_javas(text: str, code: int) -> None:
    assert java_hash_code(text) == code


def test_tags_codes() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == tags_code("TagA") == 2598919
    assert tags_code("a" * 1000) == java_hash_code("a" * 1000)


def test_an_offset_id_is_where_the_message_is() -> None:
    host = encode_host("127.0.0.1", 10911)
    assert encode_message_id(host, 0x1234) == "7F00000100002A9F0000000000001234"
    assert decode_message_id("7F00000100002A9F0000000000001234") == (host, 0x1234)
    assert decode_host(host) == ("127.0.0.1", 10911)


@given(st.ip_addresses(), st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_ids_and_hosts_survive(ip: object, port: int, offset: int) -> None:
    host = encode_host(str(ip), port)
    assert encode_host(*decode_host(host)) == host
    text = encode_message_id(host, offset)
    assert len(text) in (32, 56)
    assert decode_message_id(text) == decode_message_id(text.lower()) == (host, offset)


@given(
    st.text(max_size=60) | st.text("0123456789ABCDEFgx ", min_size=32, max_size=32) | st.text(min_size=56, max_size=56)
)
def test_arbitrary_text_is_an_id_or_an_error(text: str) -> None:
    with contextlib.suppress(MessageIdError):
        assert len(decode_message_id(text)[0]) in (8, 20)


def test_what_is_no_host_and_no_id() -> None:
    for ip, port in (("localhost", 1), ("127.0.0.1", 65536), ("127.0.0.1", -1), ("", 1), ("1.2.3", 1)):
        with pytest.raises(MessageIdError):
            encode_host(ip, port)
    with pytest.raises(MessageIdError):
        decode_host(b"1234567")
    with pytest.raises(MessageIdError):
        decode_message_id("7F00000100002A9FFFFFFFFFFFFFFFFF")
    with pytest.raises(MessageIdError):
        encode_message_id(bytes(8), 2**63)
    assert encode_host("fe80::1%eth0", 1) == encode_host("fe80::1", 1)


def test_a_unique_id_has_javas_lengths() -> None:
    text = encode_unique_id(ip=bytes((127, 0, 0, 1)), pid=70_000, loader=-1, since_month_ms=2**40 + 5, counter=65_537)
    assert text == "7F000001" + "1170" + "FFFFFFFF" + "00000005" + "0001"
    six = encode_unique_id(ip=bytes(16), pid=1, loader=2, since_month_ms=3, counter=4)
    assert re.fullmatch(r"[0-9A-F]{56}", six)
