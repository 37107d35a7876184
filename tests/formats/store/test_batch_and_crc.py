"""Batches in one request, and the checksum over a whole record."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.store.batch import (
    BatchError,
    BatchMessage,
    decode_batch,
    encode_batch,
)
from rocketmq_formats.store.message import Record, RecordError, RecordFault, read_record
from rocketmq_formats.store.message_properties import MAX_PROPERTIES, PropertiesError, parse_properties
from rocketmq_formats.store.record_crc import RECORD_CRC_SIZE, check_record_crc, reserve_record_crc, seal_record
from tests.records import make_record

MESSAGES = st.builds(BatchMessage, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20), st.binary(max_size=20))


def record(properties: bytes, body: bytes = b"body", topic: bytes = b"T") -> bytes:
    return make_record(4, body, topic=topic, queue_id=1, flag=2, queue_offset=3, timestamp=5, properties=properties)


def read(data: bytes) -> Record:
    found = read_record(data, 0, len(data), check_crc=False)
    assert isinstance(found, Record)
    return found


@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_a_batch_survives_its_body(messages: list[BatchMessage]) -> None:
    assert decode_batch(encode_batch(messages)) == messages


@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_batches_or_batch_errors(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        messages = decode_batch(data)
        assert sum(22 + len(m.body) + len(m.properties) for m in messages) == len(data)


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_a_cut_batch_is_no_batch(messages: list[BatchMessage], data: st.DataObject) -> None:
    body = encode_batch(messages)
    cut = data.draw(st.integers(0, len(body) - 1))
    try:
        assert decode_batch(body[:cut]) == messages[: len(decode_batch(body[:cut]))]
    except BatchError:
        return
    assert len(decode_batch(body[:cut])) < len(messages)


def test_a_batch_without_messages_is_refused() -> None:
    with pytest.raises(BatchError):
        decode_batch(b"")


@pytest.mark.parametrize(("body_length", "properties_length"), [(-1, 0), (2**31 - 1, 0), (0, -1), (0, 2)])
def test_lying_lengths_are_refused(body_length: int, properties_length: int) -> None:
    with pytest.raises(BatchError):
        decode_batch(struct.pack(">iiiiih", 22, 0, 0, 0, body_length, properties_length) + b"x")


def test_what_does_not_fit_is_refused() -> None:
    for message in (BatchMessage(2**31, b"", b""), BatchMessage(0, b"", b"p" * (MAX_PROPERTIES + 1))):
        with pytest.raises(BatchError):
            encode_batch([message])


@pytest.mark.parametrize("properties", [b"", b"A\x01b\x02", b"A\x01b"])
def test_the_checksum_is_one_more_property(properties: bytes) -> None:
    data = seal_record(record(reserve_record_crc(properties)))
    found = read(data)
    assert len(data) == len(record(properties)) + RECORD_CRC_SIZE + (properties[-1:] == b"b")
    assert check_record_crc(data, found)
    assert parse_properties(found.properties).items() > parse_properties(properties).items()
    assert not check_record_crc(record(properties), read(record(properties)))


@given(st.binary(max_size=30), st.data())
def test_any_flipped_bit_is_found(body: bytes, data: st.DataObject) -> None:
    damaged = bytearray(seal_record(record(reserve_record_crc(b"A\x01b\x02"), body)))
    # except the name of the checksum itself: without it there is no checksum
    at = data.draw(
        st.integers(0, len(damaged) - RECORD_CRC_SIZE - 1) | st.integers(len(damaged) - 11, len(damaged) - 1)
    )
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read(bytes(damaged))
        checked = check_record_crc(damaged, found)
    except RecordError as error:
        assert error.fault is not RecordFault.UNENCODABLE  # noqa: PT017 - only some flips are found this early
        return
    pytest.fail(f"{found} passed, checked: {checked}")


def test_the_checksum_needs_room() -> None:
    with pytest.raises(PropertiesError):
        reserve_record_crc(b"p" * (MAX_PROPERTIES - RECORD_CRC_SIZE + 1))
