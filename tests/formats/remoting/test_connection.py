"""Streams of frames: however they are cut, the same commands come out, and a broken stream stays broken."""

import struct

import pytest

from rocketmq_formats.codes import SerializeType
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import MAX_FRAME, RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection

COMMANDS = [
    RemotingCommand(904, opaque=1, ext_fields={"brokerName": "a"}),
    RemotingCommand(0, flag=1, opaque=2, remark="ok", body=b"x" * 70, serialize_type=SerializeType.ROCKETMQ),
    RemotingCommand(1003, opaque=3, body=b"{}"),
]
STREAM = b"".join(map(encode_frame, COMMANDS))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 11, 64, 150, len(STREAM)])
def test_pieces_of_any_size_give_the_same_commands(size: int) -> None:
    connection = RemotingConnection()
    received = []
    for at in range(0, len(STREAM), size):
        received += connection.receive_data(STREAM[at : at + size])
    assert received == COMMANDS
    assert connection.buffered == 0


def test_an_empty_read_is_harmless() -> None:
    connection = RemotingConnection()
    assert connection.receive_data(b"") == []
    assert connection.receive_data(STREAM[:5]) == []
    assert connection.receive_data(b"") == []
    assert connection.receive_data(STREAM[5:]) == COMMANDS


def test_buffered_counts_the_unfinished_frame_only() -> None:
    connection = RemotingConnection()
    first = len(encode_frame(COMMANDS[0]))
    assert connection.receive_data(STREAM[: first + 9]) == COMMANDS[:1]
    assert connection.buffered == 9
    assert connection.receive_data(STREAM[first + 9 :]) == COMMANDS[1:]
    assert connection.buffered == 0


def test_a_big_frame_in_small_pieces_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    big = RemotingCommand(10, body=bytes(4 * 1024 * 1024))
    frame = encode_frame(big)
    connection = RemotingConnection()
    looks = []
    cut = connection._cut
    monkeypatch.setattr(connection, "_cut", lambda data: looks.append(len(data)) or cut(data))
    received = []
    for at in range(0, len(frame), 1024):
        received += connection.receive_data(frame[at : at + 1024])
    assert received == [big]
    assert looks == [1024, len(frame)]


def test_the_largest_frame_is_taken_and_one_byte_more_is_not() -> None:
    empty = len(encode_frame(RemotingCommand(10))) - 4
    largest = RemotingCommand(10, body=bytes(MAX_FRAME - empty))
    assert RemotingConnection().receive_data(encode_frame(largest)) == [largest]
    with pytest.raises(FrameError, match="16777217"):
        RemotingConnection().receive_data(struct.pack(">i", MAX_FRAME + 1))


def test_a_smaller_bound_can_be_set() -> None:
    frame = encode_frame(RemotingCommand(10, body=bytes(100)))
    with pytest.raises(FrameError, match="outside"):
        RemotingConnection(max_frame=100).receive_data(frame)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, MAX_FRAME + 1, 2**31 - 1])
def test_impossible_lengths_are_refused_before_their_frame_arrives(length: int) -> None:
    with pytest.raises(FrameError, match=f"frame length {length} is outside"):
        RemotingConnection().receive_data(struct.pack(">i", length))


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "PROXY"),
        (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", "PROXY"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"POST / HTTP/1.1\r\n\r\n", "HTTP"),
    ],
)
def test_other_protocols_are_named_in_the_refusal(start: bytes, named: str) -> None:
    with pytest.raises(FrameError, match=named):
        RemotingConnection().receive_data(start)


def test_a_broken_stream_stays_broken_and_holds_nothing() -> None:
    connection = RemotingConnection()
    with pytest.raises(FrameError):
        connection.receive_data(encode_frame(COMMANDS[0]) + b"\xff\xff\xff\xff" + STREAM)
    assert connection.buffered == 0
    with pytest.raises(FrameError):
        connection.receive_data(STREAM)


def test_a_bad_header_is_found_when_its_frame_is_complete() -> None:
    frame = struct.pack(">ii", 8, 4) + b"nope"
    connection = RemotingConnection()
    assert connection.receive_data(frame[:-1]) == []
    with pytest.raises(FrameError, match="header is not a command in JSON"):
        connection.receive_data(frame[-1:])
