"""`.queue.ends`: what is written is read, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.store.queue_ends import QueueEnds, QueueEndsError, decode_queue_ends, encode_queue_ends

offsets = st.integers(0, 2**63 - 1)
queues = st.dictionaries(
    st.tuples(st.binary(min_size=1, max_size=255), st.integers(0, 65_535)), st.tuples(offsets, offsets), max_size=5
)
ends = st.builds(QueueEnds, offsets, queues)


@given(ends)
def test_read_as_written(made: QueueEnds) -> None:
    assert decode_queue_ends(encode_queue_ends(made)) == made


@given(ends, st.data())
def test_damage_is_noticed(made: QueueEnds, data: st.DataObject) -> None:
    content = bytearray(encode_queue_ends(made))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(QueueEndsError):
        decode_queue_ends(bytes(content))
    with pytest.raises(QueueEndsError):
        decode_queue_ends(encode_queue_ends(made)[:at])


def test_the_bytes() -> None:
    assert encode_queue_ends(QueueEnds(5, {(b"T", 1): (2, 3)})).hex() == (
        b"rocketmq-ha ends".hex() + "0000000000000005" + "00000001" + "0001" + "54"
        "00000001" + "0000000000000002" + "0000000000000003" + "9873a6b4"
    )


@given(st.binary(max_size=200))
def test_anything(content: bytes) -> None:
    with pytest.raises(QueueEndsError):
        decode_queue_ends(content)


def test_what_does_not_fit() -> None:
    with pytest.raises(QueueEndsError):
        encode_queue_ends(QueueEnds(-(2**63) - 1, {}))
