"""HA frames: layouts byte by byte, cutting of streams anywhere, refusals."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.frames import (
    MAX_BODY,
    MasterHandshake,
    OldHandshakeError,
    SlaveHandshake,
    SlaveStream,
    TransferHeader,
    decode_master_packet,
    encode_ack,
    encode_master_handshake,
    encode_slave_handshake,
    encode_transfer_header,
)
from rocketmq_formats.store.epoch_file import EpochList

EPOCHS = EpochList.of([(1, 0), (4, 900)])


def test_layouts() -> None:
    assert encode_slave_handshake(SlaveHandshake(7, True, False)) == struct.pack(">ihhq", 1, 1, 0, 7)
    assert encode_slave_handshake(SlaveHandshake(7, False, True)) == struct.pack(">ihhq", 1, 0, 1, 7)
    assert encode_slave_handshake(SlaveHandshake(7, native=True)) == struct.pack(">ihhq", 1, 0, 2, 7)
    assert encode_ack(2**40) == struct.pack(">iq", 2, 2**40)
    assert encode_master_handshake(1200, EPOCHS) == struct.pack(">iiqiiqiq", 1, 24, 1200, 4, 1, 0, 4, 900)
    assert encode_master_handshake(0, EpochList()) == struct.pack(">iiqi", 1, 0, 0, -1)
    assert encode_transfer_header(5, 1200, 4, 900, 1100) == struct.pack(">iiqiqq", 2, 5, 1200, 4, 900, 1100)


@given(
    st.lists(
        st.one_of(
            st.integers(-1, 2**62),
            st.builds(SlaveHandshake, st.integers(1, 2**31), st.booleans(), st.booleans()),
            st.builds(SlaveHandshake, st.integers(1, 2**31), st.booleans(), native=st.booleans()),
        ),
        max_size=20,
    ),
    st.lists(st.integers(1, 40)),
)
def test_slave_stream_survives_any_cut(packets: list[SlaveHandshake | int], cuts: list[int]) -> None:
    data = b"".join(encode_ack(p) if isinstance(p, int) else encode_slave_handshake(p) for p in packets)
    stream, seen = SlaveStream(), []
    for cut in cuts:
        seen += stream.receive(data[:cut])
        data = data[cut:]
    seen += stream.receive(data)
    assert seen == packets


@given(st.binary(max_size=200))
def test_nonsense_from_a_slave_is_refused_or_waited_for(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        SlaveStream().receive(data)


@given(st.binary(max_size=200))
def test_nonsense_from_a_master_is_refused_or_waited_for(data: bytes) -> None:
    try:
        found = decode_master_packet(data, 0, len(data))
    except FrameError:
        return
    assert found is None or found[1] <= len(data)


def test_master_packets_at_any_length() -> None:
    handshake = encode_master_handshake(1200, EPOCHS)
    transfer = encode_transfer_header(5, 1200, 4, 900, 1100)
    stream = handshake + transfer
    for limit in range(len(handshake)):
        assert decode_master_packet(stream, 0, limit) is None
    assert decode_master_packet(stream, 0, len(stream)) == (MasterHandshake(1200, 4, EPOCHS), len(handshake))
    for limit in range(len(handshake), len(stream)):
        assert decode_master_packet(stream, len(handshake), limit) is None
    expected = TransferHeader(5, 1200, 4, 900, 1100)
    assert decode_master_packet(stream, len(handshake), len(stream)) == (expected, len(stream))


def test_the_older_handshake_is_refused_with_the_way_out() -> None:
    address = b"127.0.0.1:10911"
    data = struct.pack(">ihhi", 1, 0, 0, len(address)) + address.ljust(50, b"\0")
    for size in (12, 16, len(data)):
        with pytest.raises(OldHandshakeError, match=r"5\.1\.1 or later"):
            SlaveStream().receive(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iq", 0, 0),
        struct.pack(">iq", 3, 0),
        struct.pack(">ihhq", 1, 2, 0, 1),
        struct.pack(">ihhq", 1, 0, -1, 1),
        struct.pack(">ihhq", 1, 0, 0, 0),
        struct.pack(">ihhq", 1, 0, 0, -1),
    ],
)
def test_refused_from_a_slave(data: bytes) -> None:
    with pytest.raises(FrameError):
        SlaveStream().receive(data)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iiqi", 3, 0, 0, 0),
        struct.pack(">iiqi", 1, 13, 0, 0),
        struct.pack(">iiqi", 1, -12, 0, 0),
        struct.pack(">iiqi", 1, 12 * 1001, 0, 0),
        struct.pack(">iiqi", 1, 0, -1, -1),
        struct.pack(">iiqiiqiq", 1, 24, 1200, 4, 4, 900, 1, 0),
        struct.pack(">iiqiiq", 1, 12, 1200, 4, 4, -900),
        struct.pack(">iiqiqq", 2, -1, 0, 1, 0, 0),
        struct.pack(">iiqiqq", 2, MAX_BODY + 1, 0, 1, 0, 0),
    ],
)
def test_refused_from_a_master(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_master_packet(data, 0, len(data))
