"""Records of the commit log: layout, what is refused, what damage is found."""

import contextlib
import struct
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rocketmq_formats.store import message
from rocketmq_formats.store.message import (
    MAX_PROPERTIES,
    Blank,
    Record,
    RecordError,
    RecordFault,
    SysFlag,
    encode_blank,
    encode_record,
    read_plain,
    read_record,
    read_records,
    record_size,
)
from tests.formats.store.record_fields import FIELDS, INT32, SIMPLE

V6 = bytes(range(16)) + b"\0\0\0\x50"
HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


def read(data: bytes) -> Record:
    record = read_record(data, 0, len(data), check_crc=True)
    assert isinstance(record, Record)
    return record


def fault_of(data: bytes, limit: int | None = None) -> RecordFault:
    with pytest.raises(RecordError) as caught:
        read_record(data, 0, len(data) if limit is None else limit, check_crc=True)
    return caught.value.fault


def test_every_field_is_where_the_layout_has_it() -> None:
    data = encode_record(**SIMPLE)
    assert data == b"".join(
        (
            struct.pack(">iIIiiqqiq", 91 + 2 + 4 + 4, 0xDAA320A7, zlib.crc32(b"body") & 0x7FFFFFFF, 3, 4, 5, 6, 0, 7),
            bytes((127, 0, 0, 1, 0, 0, 0, 80)),
            struct.pack(">q", 8),
            bytes((127, 0, 0, 2, 0, 0, 0, 90)),
            struct.pack(">iqi", 9, 10, 4),
            b"body\x02T1\x00\x04a\x01b\x02",
        )
    )
    assert struct.unpack_from(">q", data, message.QUEUE_OFFSET_AT) == (5,)
    assert struct.unpack_from(">q", data, message.PHYSICAL_OFFSET_AT) == (6,)


@pytest.mark.parametrize("length", [0, 1, 127])
def test_a_topic_of_at_most_127_bytes_makes_a_v1_record(length: int) -> None:
    data = encode_record(**{**SIMPLE, "topic": b"t" * length})
    assert data[4:8] == b"\xda\xa3\x20\xa7"
    assert len(data) == 91 + 4 + 4 + length == record_size(length, 4, 4)


@pytest.mark.parametrize("length", [128, 255, 256, 32767])
def test_a_longer_topic_makes_a_v2_record(length: int) -> None:
    data = encode_record(**{**SIMPLE, "topic": b"t" * length})
    assert data[4:8] == b"\xda\xa3\x20\xab"
    assert len(data) == 92 + 4 + 4 + length == record_size(length, 4, 4)
    assert read(data).topic == b"t" * length


@pytest.mark.parametrize(
    ("born", "store", "bits"),
    [
        (SIMPLE["born_host"], SIMPLE["store_host"], 0),
        (V6, SIMPLE["store_host"], 0x10),
        (SIMPLE["born_host"], V6, 0x20),
        (V6, V6, 0x30),
    ],
)
@pytest.mark.parametrize("claimed", [0, 0x30])
def test_the_bits_of_hosts_follow_the_hosts(born: bytes, store: bytes, bits: int, claimed: int) -> None:
    data = encode_record(**{**SIMPLE, "born_host": born, "store_host": store, "sys_flag": claimed | 0x201})
    record = read(data)
    assert record.sys_flag == bits | 0x201
    assert (record.born_host, record.store_host) == (born, store)
    assert len(data) == record_size(2, 4, 4, born_host_length=len(born), store_host_length=len(store))


@given(FIELDS, st.binary(max_size=20), st.binary(max_size=20), st.booleans())
def test_a_record_is_read_as_it_was_written(
    fields: dict[str, Any], before: bytes, after: bytes, as_memoryview: bool
) -> None:
    data = encode_record(**fields)
    whole = before + data + after
    buffer = memoryview(whole) if as_memoryview else whole
    record = read_record(buffer, len(before), len(before) + len(data), check_crc=True)
    assert isinstance(record, Record)
    read_back = msgspec.structs.asdict(record)
    wanted = {**fields, "sys_flag": (fields["sys_flag"] & ~HOST_BITS) | (record.sys_flag & HOST_BITS)}
    assert {name: read_back[name] for name in fields if name != "body"} == {
        name: value for name, value in wanted.items() if name != "body"
    }
    assert record.body(buffer) == fields["body"]
    assert (record.position, record.size) == (len(before), len(data))
    assert type(record.topic) is type(record.properties) is bytes


@pytest.mark.parametrize(
    "change",
    [
        {"queue_id": 2**31},
        {"physical_offset": 2**63},
        {"queue_offset": -(2**63) - 1},
        {"topic": b"t" * 32768},
        {"properties": b"p" * (MAX_PROPERTIES + 1)},
        {"born_host": b"1234567"},
        {"store_host": b"1" * 21},
        {"sys_flag": 2**31},
    ],
)
def test_values_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RecordError) as caught:
        encode_record(**{**SIMPLE, **change})
    assert caught.value.fault is RecordFault.UNENCODABLE


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_are_records_or_record_errors(data: bytes, check_crc: bool) -> None:
    with contextlib.suppress(RecordError):
        read_record(data, 0, len(data), check_crc=check_crc)
    with contextlib.suppress(RecordError):
        read_records(data, check_crc=check_crc)


@given(FIELDS, st.data())
def test_a_damaged_record_is_a_record_of_its_bytes_or_an_error(fields: dict[str, Any], data: st.DataObject) -> None:
    damaged = bytearray(encode_record(**fields))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(damaged) - 1) | st.sampled_from([0, 1, 2, 3, 39, 84, 85, 86, 87, 88]))
        damaged[min(at, len(damaged) - 1)] = data.draw(st.integers(0, 255))
    try:
        record = read_record(damaged, 0, len(damaged), check_crc=True)
    except RecordError:
        return
    assert 8 <= record.size <= len(damaged)
    if isinstance(record, Record):
        assert len(record.topic) + record.body_length + len(record.properties) < record.size


@given(FIELDS, st.data())
def test_a_flipped_bit_of_the_body_is_found(fields: dict[str, Any], data: st.DataObject) -> None:
    assume(fields["body"])
    damaged = bytearray(encode_record(**fields))
    at = read(bytes(damaged)).body_start + data.draw(st.integers(0, len(fields["body"]) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    assert fault_of(bytes(damaged)) is RecordFault.CRC
    assert isinstance(read_record(damaged, 0, len(damaged), check_crc=False), Record)


@given(FIELDS, st.sampled_from([0, 84]), INT32)
def test_a_lying_length_never_passes(fields: dict[str, Any], at: int, lie: int) -> None:
    fields = {**fields, "born_host": SIMPLE["born_host"], "store_host": SIMPLE["store_host"]}
    damaged = bytearray(encode_record(**fields))
    assume(struct.unpack_from(">i", damaged, at) != (lie,))
    struct.pack_into(">i", damaged, at, lie)
    with contextlib.suppress(RecordError):
        # a body that ends elsewhere can by chance be followed by lengths that fit, but not have the same checksum
        record = read_record(damaged, 0, len(damaged), check_crc=True)
        assert isinstance(record, Record)
        assert at == 84
        assert zlib.crc32(record.body(damaged)) & 0x7FFFFFFF == record.body_crc or not record.body_length


@given(FIELDS, st.booleans())
def test_plain_records_are_those_that_are_nothing_special(fields: dict[str, Any], view: bool) -> None:
    data: bytes | memoryview = b"pad" + encode_record(**fields) + b"behind"
    record = read_record(data, 3, len(data), check_crc=False)
    assert isinstance(record, Record)
    special = 0x8 | 0x4 | 0x10 | 0x20 | 0x80
    assert (read_plain(data, 3, len(data)) is None) is bool(record.sys_flag & special or len(record.topic) > 127)
    if view:
        data = memoryview(data)
    compare_plain(data, len(data))


@given(FIELDS, st.data())
def test_a_damaged_record_is_as_plain_as_it_is_a_record(fields: dict[str, Any], data: st.DataObject) -> None:
    damaged = bytearray(b"pad" + encode_record(**{**fields, "sys_flag": 0}))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(3, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    compare_plain(bytes(damaged), data.draw(st.integers(3, len(damaged))))


def compare_plain(data: bytes | memoryview, limit: int) -> None:
    """What `read_plain` finds at 3, `read_record` finds too."""
    plain = read_plain(data, 3, limit)
    if plain is None:
        return
    record = read_record(data, 3, limit, check_crc=False)
    assert isinstance(record, Record)
    size, queue_id, queue_offset, physical_offset, store_timestamp, topic, tail = plain
    assert (size, queue_id, queue_offset, physical_offset, store_timestamp, topic) == (
        record.size,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.store_timestamp,
        record.topic,
    )
    assert tail[len(topic) + 3 :] == record.properties


def test_what_is_wrong_has_a_name() -> None:
    data = encode_record(**SIMPLE)
    assert fault_of(b"") is RecordFault.INCOMPLETE
    assert fault_of(data[:7]) is RecordFault.INCOMPLETE
    assert fault_of(data[:50]) is RecordFault.INCOMPLETE
    assert fault_of(data[:-1]) is RecordFault.INCOMPLETE
    assert fault_of(data, limit=len(data) - 1) is RecordFault.INCOMPLETE
    assert fault_of(bytes(200)) is RecordFault.MAGIC
    assert fault_of(bytes(20)) is RecordFault.MAGIC
    assert fault_of(b"\0\0\0\x07" + encode_blank(100)[4:] + bytes(92)) is RecordFault.LENGTHS
    assert fault_of(encode_blank(100) + bytes(90)) is RecordFault.INCOMPLETE
    assert fault_of(b"\xff" + data[1:]) is RecordFault.LENGTHS
    wrong = bytearray(data)
    wrong[84:88] = struct.pack(">i", -1)
    assert fault_of(bytes(wrong)) is RecordFault.LENGTHS


def test_properties_longer_than_a_signed_short_are_not_believed() -> None:
    body = b"x"
    long = bytes(MAX_PROPERTIES + 1)
    head = bytearray(encode_record(**{**SIMPLE, "body": body, "properties": b""}))
    struct.pack_into(">i", head, 0, len(head) + len(long))
    head[-2:] = struct.pack(">H", len(long))
    assert fault_of(bytes(head) + long) is RecordFault.LENGTHS


def test_a_topic_length_above_127_is_not_believed_of_a_v1_record() -> None:
    data = bytearray(encode_record(**{**SIMPLE, "topic": b"t" * 127, "properties": b"\x01\x01"}))
    data[88 + len(SIMPLE["body"])] = 128
    assert fault_of(bytes(data)) is RecordFault.LENGTHS


def test_an_ipv6_bit_on_a_record_too_short_for_it() -> None:
    data = bytearray(encode_record(**{**SIMPLE, "topic": b"", "body": b"", "properties": b""}))
    data[39] = 0x30
    assert fault_of(bytes(data)) is RecordFault.LENGTHS


def test_a_blank_is_no_record_but_an_end() -> None:
    assert encode_blank(420) == b"\x00\x00\x01\xa4\xcb\xd4\x31\x94"
    data = b"??" + encode_blank(8)
    assert read_record(data, 2, 10, check_crc=True) == Blank(2, 8)
    rest = encode_blank(300).ljust(300, b"\xaa")
    assert read_record(rest, 0, 300, check_crc=True) == Blank(0, 300)
    for size in (7, -1, 2**31):
        with pytest.raises(RecordError):
            encode_blank(size)


def test_a_pull_body_is_nothing_but_records() -> None:
    one, two = encode_record(**SIMPLE), encode_record(**{**SIMPLE, "body": b""})
    assert [record.position for record in read_records(one + two, check_crc=True)] == [0, len(one)]
    assert read_records(b"", check_crc=True) == []
    for broken in (one + two[:-1], one + b"\0", one + encode_blank(8)):
        with pytest.raises(RecordError):
            read_records(broken, check_crc=True)
