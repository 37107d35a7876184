"""Questions about the log and their answers, byte by byte; what cannot be is refused."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.audit import (
    HEAD_SIZE,
    MAX_DIGEST,
    MAX_READ,
    REQUEST_SIZE,
    AuditRequest,
    Kind,
    begins,
    decode_head,
    decode_request,
    encode_answer,
    encode_request,
)
from rocketmq_formats.replication.frames import SlaveHandshake, encode_slave_handshake

READ = AuditRequest(Kind.READ, 0x0102030405060708, 3)


def test_the_bytes() -> None:
    assert encode_request(READ) == bytes.fromhex("00000010 00000002 0102030405060708 0000000000000003")
    assert encode_answer(READ, b"abc") == bytes.fromhex("00000010 00000002 0102030405060708 00000003") + b"abc"
    assert decode_request(encode_request(READ)) == READ
    assert decode_head(encode_answer(READ, b"abc")[:HEAD_SIZE], READ) == 3
    assert decode_head(encode_answer(READ, b"")[:HEAD_SIZE], READ) == 0


def test_it_differs_from_replication_in_its_first_bytes() -> None:
    assert begins(encode_request(READ)) is True
    assert begins(encode_slave_handshake(SlaveHandshake(2))) is False
    assert begins(b"\0\0\0") is None


@pytest.mark.parametrize(
    ("state", "kind", "offset", "length"),
    [
        (1, 1, 0, 1),
        (16, 0, 0, 1),
        (16, 4, 0, 1),
        (16, 1, -1, 1),
        (16, 1, 0, -1),
        (16, 1, 0, MAX_DIGEST + 1),
        (16, 2, 0, MAX_READ + 1),
        (16, 3, 0, 1),
        (16, 1, 2**63 - 1, 1),
    ],
)
def test_questions_that_cannot_be(state: int, kind: int, offset: int, length: int) -> None:
    with pytest.raises(FrameError):
        decode_request(struct.pack(">iiqq", state, kind, offset, length))


@pytest.mark.parametrize(
    "head", [(1, 2, READ.offset, 3), (16, 1, READ.offset, 3), (16, 2, 0, 3), (16, 2, READ.offset, 2), (16, 2, 1, -1)]
)
def test_answers_to_nothing_that_was_asked(head: tuple[int, int, int, int]) -> None:
    with pytest.raises(FrameError):
        decode_head(struct.pack(">iiqi", *head), READ)


@given(st.binary(min_size=REQUEST_SIZE, max_size=REQUEST_SIZE))
def test_whatever_comes_is_a_question_or_refused(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert encode_request(decode_request(data)) == data
    with contextlib.suppress(FrameError):
        assert 0 <= decode_head(data[:HEAD_SIZE], READ) <= MAX_READ
