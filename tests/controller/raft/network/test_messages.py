"""The wire codec of Raft messages: what goes in comes out, and garbage is a typed error."""

import contextlib
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.network import messages

numbers = st.integers(0, 2**63 - 1)
stamps = st.floats(allow_nan=False, allow_infinity=False)
entries = st.lists(st.tuples(numbers, st.binary(max_size=200)), max_size=20).map(tuple)
any_message = st.one_of(
    st.builds(messages.PreVote, numbers, numbers, numbers),
    st.builds(messages.PreVoteReply, numbers, numbers, st.booleans()),
    st.builds(messages.Vote, numbers, numbers, numbers, st.none() | stamps),
    st.builds(messages.VoteReply, numbers, st.booleans()),
    st.builds(messages.Append, numbers, numbers, numbers, numbers, stamps, entries, st.floats(0, 3600)),
    st.builds(messages.Goodbye, numbers, stamps),
    st.builds(
        messages.Introduction,
        numbers,
        st.none() | st.binary(min_size=16, max_size=16),
        st.booleans(),
        st.booleans(),
        st.none() | st.text(max_size=20),
        numbers,
    ),
    st.builds(messages.Found, numbers, st.binary(min_size=16, max_size=16)),
    st.builds(messages.Admit, numbers, numbers),
    st.builds(messages.SetBack, numbers),
    st.builds(messages.Ack, numbers, st.booleans(), numbers, numbers, stamps),
    st.builds(
        messages.SnapshotChunk, numbers, stamps, numbers, numbers, numbers, numbers, st.binary(max_size=16), st.binary()
    ),
    st.builds(messages.SnapshotAck, numbers, stamps, numbers, numbers),
    st.builds(messages.TimeoutNow, numbers, stamps),
)


@given(any_message)
def test_what_goes_in_comes_out(message: messages.AnyMessage) -> None:
    assert messages.decode(messages.encode(message)) == message


@given(st.binary())
def test_garbage_is_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        messages.decode(data)


@given(any_message, st.data())
def test_changed_bytes_are_a_message_or_a_wire_error(message: messages.AnyMessage, data: st.DataObject) -> None:
    changed = bytearray(messages.encode(message))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        messages.decode(bytes(changed))


@pytest.mark.parametrize(
    "value",
    [
        ["t", -1, 1.0],
        ["t", 2**63, 1.0],
        ["t", 1, float("nan")],
        ["t", 1, float("inf")],
        ["v", 1, 1, 1, float("nan")],
        ["t", 1],
        ["status"],
        ["a", 1, 1, 1, 1, 1.0, [[1, b""]] * (messages.MAX_ENTRIES + 1)],
        {"type": "append_entries", "term": 1},
    ],
    ids=lambda value: str(value)[:30],
)
def test_values_out_of_bounds_are_wire_errors(value: object) -> None:
    with pytest.raises(WireError):
        messages.decode(msgspec.msgpack.encode(value))


def test_a_pickle_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        messages.decode(pickle.dumps({"type": "append_entries", "term": 1}))


def test_a_message_beyond_the_frame_bound_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="allowed"):
        messages.decode(bytes(messages.MAX_FRAME + 1))
