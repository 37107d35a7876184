"""What two official 5.3.3 brokers said to each other, replayed against both machines (tests/golden/ha)."""

from __future__ import annotations

import json

import pytest

from rocketmq_formats.replication.frames import (
    MasterHandshake,
    SlaveHandshake,
    SlaveStream,
    decode_master_packet,
    encode_ack,
    encode_master_handshake,
    encode_slave_handshake,
    encode_transfer_header,
)
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.message import Record as StoredRecord
from rocketmq_formats.store.message import read_record
from rocketmq_sidecar.domain.replication.ha_slave import Record, SlaveSession
from tests.paths import GOLDEN_FILES

FOLDER = GOLDEN_FILES / "ha"
NAMES = [entry["name"] for entry in json.loads((FOLDER / "index.json").read_text())]


def said(name: str, who: str) -> bytes:
    return (FOLDER / f"{name}-{who}.bin").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_messages_of_a_java_slave_are_decoded_and_encoded_again(name: str) -> None:
    data = said(name, "slave")
    first, *acks = SlaveStream().receive(data)
    assert isinstance(first, SlaveHandshake)
    assert all(isinstance(ack, int) for ack in acks)
    assert encode_slave_handshake(first) + b"".join(encode_ack(a) for a in acks if isinstance(a, int)) == data


@pytest.mark.parametrize("name", NAMES)
def test_messages_of_a_java_master_are_decoded_and_encoded_again(name: str) -> None:
    data = said(name, "master")
    position, again = 0, b""
    while position < len(data):
        found = decode_master_packet(data, position, len(data))
        assert found is not None
        packet, position = found
        if isinstance(packet, MasterHandshake):
            again += encode_master_handshake(packet.max_offset, packet.epochs)
        else:
            again += encode_transfer_header(
                packet.size, packet.offset, packet.epoch, packet.epoch_start, packet.confirm_offset
            )
            again += data[position : position + packet.size]
            position += packet.size
    assert again == data


def replay(name: str, start: int, epochs: EpochList, followed: int) -> tuple[SlaveSession, bytes]:
    """Our slave, with a log that ends at `start`, in the place of Java's; returns what it then has from there on."""
    data, log, position = said(name, "master"), b"", 0
    session = SlaveSession(
        SlaveHandshake(9),
        followed_epoch=followed,
        epochs=epochs,
        min_offset=0,
        max_offset=start,
        confirm_offset=0,
        file_size=1024 * 1024,
    )
    session.on_connected()
    while position < len(data):
        found = decode_master_packet(data, position, len(data))
        assert found is not None
        packet, after = found
        if isinstance(packet, MasterHandshake):
            action = session.on_handshake(packet)
            assert action is not None
            assert action.offset == start
            session.on_aligned(action)
        else:
            if isinstance(action := session.on_header(packet), Record):
                session.on_recorded(action, packet.offset)
                continue
            assert action is None
            log += data[after : after + packet.size]
            session.on_body(packet.size)
            after += packet.size
        position = after
    return session, log


@pytest.mark.parametrize(
    ("name", "start", "epochs", "followed", "after"),
    [
        ("master-1-connection-1", 0, [], 1, [(1, 0)]),
        ("master-2-connection-1", 0x4EC, [(1, 0)], 2, [(1, 0), (2, 0x4EC)]),
    ],
)
def test_our_slave_behind_a_java_master(
    name: str, start: int, epochs: list[tuple[int, int]], followed: int, after: list[tuple[int, int]]
) -> None:
    session, log = replay(name, start, EpochList.of(epochs), followed)
    assert session.epochs.starts() == after
    assert session.max_offset == start + len(log)
    assert start < session.confirm_offset <= session.max_offset
    position = 0
    while position < len(log):
        record = read_record(log, position, len(log), check_crc=True)
        assert isinstance(record, StoredRecord)
        assert record.physical_offset == start + position
        position += record.size
