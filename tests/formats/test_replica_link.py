"""Frames between broker and sidecar that no broker or sidecar wrote."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replica_link import Hello, NoRole, decode_from_broker, decode_from_sidecar, encode

NOT_UTF8 = b"\x92\xa6Fenced\xa2\xff\xfe"
"""A `NoRole` whose reason is two bytes that are no text."""
HELLO = encode(Hello(1, "C", "broker-a", "10.0.0.1:10911", 0, 7, 7, 4096))[4:]


def test_text_that_is_no_text() -> None:
    assert decode_from_sidecar(encode(NoRole("ok"))[4:]) == NoRole("ok")
    with pytest.raises(FrameError, match="not understood from the sidecar"):
        decode_from_sidecar(NOT_UTF8)
    hello = HELLO.replace(b"10.0.0.1", b"10.0.\xff\xfe1")
    with pytest.raises(FrameError, match="not understood from the broker"):
        decode_from_broker(hello)


@given(st.binary(max_size=200) | st.builds(msgspec.msgpack.encode, st.lists(st.text() | st.binary())))
def test_whatever_comes_is_a_message_or_a_frame_error(payload: bytes) -> None:
    for decode in (decode_from_broker, decode_from_sidecar):
        with contextlib.suppress(FrameError):
            decode(payload)


@given(st.integers(0, 60), st.binary(min_size=1, max_size=3))
def test_damaged_frames(at: int, damage: bytes) -> None:
    whole = HELLO
    payload = whole[:at] + damage + whole[at + len(damage) :]
    with contextlib.suppress(FrameError):
        decode_from_broker(payload)


def test_nested_too_deep() -> None:
    for decode in (decode_from_broker, decode_from_sidecar):
        with pytest.raises(FrameError):
            decode(b"\x92\xa6Fenced" + b"\x91" * 100_000)
