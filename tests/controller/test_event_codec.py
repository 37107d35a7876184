"""Bytes of commands and snapshots: stable, canonical, and refused when they are not exactly ours."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_controller.domain import events, invariants
from rocketmq_controller.domain.model import BrokerId, MasterEpoch, SyncStateSetEpoch
from rocketmq_controller.log import event_codec
from tests.controller.domain.domain_kit import fresh_group, make_group, tombstone

ids = st.integers(1, 2**63 - 1).map(BrokerId)
epochs = st.integers(0, 2**31 - 1)
names = st.text(st.characters(codec="utf-8"), max_size=20)
any_event = st.one_of(
    st.builds(events.AlterSyncStateSet, names, st.frozensets(ids), epochs.map(SyncStateSetEpoch)),
    st.builds(events.ApplyBrokerId, names, names, names, ids, names),
    st.builds(
        events.ElectMaster,
        names,
        ids,
        epochs.map(MasterEpoch),
        epochs.map(SyncStateSetEpoch),
        st.frozensets(ids),
        st.booleans(),
    ),
    st.builds(events.CleanBrokerData, names, st.none() | st.frozensets(ids), epochs.map(SyncStateSetEpoch)),
    st.builds(events.UpdateBrokerAddress, names, ids, names),
    st.builds(events.MasterRestarted, names, ids, epochs.map(MasterEpoch)),
)

# What version 1 looks like in journals out there: these bytes must decode forever.
GOLDEN_EVENTS = (
    events.ApplyBrokerId("b", "C", "h:1", BrokerId(1), "h:1;2"),
    events.ElectMaster("b", BrokerId(1), MasterEpoch(1), SyncStateSetEpoch(1), frozenset({BrokerId(1)}), strict=True),
    events.AlterSyncStateSet("b", frozenset({BrokerId(2), BrokerId(1)}), SyncStateSetEpoch(2)),
    events.UpdateBrokerAddress("b", BrokerId(1), "h:2"),
    events.MasterRestarted("b", BrokerId(1), MasterEpoch(1)),
    events.CleanBrokerData("b", None, SyncStateSetEpoch(2)),
    events.CleanBrokerData("b", frozenset({BrokerId(300)}), SyncStateSetEpoch(2)),
)
GOLDEN_COMMAND = bytes.fromhex(
    "0197"
    "9602a162a143a3683a3101a5683a313b32"
    "9703a1620101019101c3"
    "9401a16292010202"
    "9406a16201a3683a32"
    "9440a1620101"
    "9405a162c002"
    "9405a16291cd012c02"
)


def test_golden_command() -> None:
    assert event_codec.encode_events(GOLDEN_EVENTS).hex() == GOLDEN_COMMAND.hex()
    assert event_codec.decode_events(GOLDEN_COMMAND) == GOLDEN_EVENTS


@given(st.lists(any_event, max_size=20))
def test_events_come_back(batch: list[events.Event]) -> None:
    assert event_codec.decode_events(event_codec.encode_events(batch)) == tuple(batch)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x90",
        b"\x02\x90",
        b"\x01",
        b"\x01\x80",
        b"\x01\x90\x00",  # something follows
        GOLDEN_COMMAND[:-1],
        b"\x01\x91\x94\x07\xa1b\x01\x01",  # unknown event
        b"\x01\x91\x93\x06\xa1b\x01",  # a field is missing
        b"\x01\x91\x95\x06\xa1b\x01\xa1x\x01",  # one too many
        b"\x01\x91\x94\x06\xa1b\xa11\xa1x",  # id as text
        b"\x01\x91\x94\x06\xa1\xff\x01\xa1x",  # not UTF-8
    ],
)
def test_commands_that_are_not_ours_are_refused(data: bytes) -> None:
    with pytest.raises(event_codec.EventCodecError, match=f"command of {len(data)} bytes"):
        event_codec.decode_events(data)


@given(st.binary(max_size=60))
def test_garbage_is_a_typed_error(garbage: bytes) -> None:
    for decode in (event_codec.decode_events, event_codec.decode_snapshot):
        with contextlib.suppress(event_codec.EventCodecError):
            decode(b"\x01" + garbage)


def test_snapshot_is_canonical() -> None:
    state = {"broker-a": make_group()}
    same = {"broker-a": make_group(ids=(3, 1, 2), in_sync=(2, 3, 1))}
    assert event_codec.encode_snapshot(state) == event_codec.encode_snapshot(same)
    assert invariants.state_digest(state) == invariants.state_digest(same)
    assert invariants.state_digest(state) != invariants.state_digest({"broker-a": make_group(set_epoch=8)})
    assert event_codec.decode_snapshot(event_codec.encode_snapshot(state)) == state


@pytest.mark.parametrize("group", [make_group(), make_group(master=None), fresh_group(), tombstone()])
def test_snapshot_comes_back(group: object) -> None:
    state = {"broker-a": group}
    assert event_codec.decode_snapshot(event_codec.encode_snapshot(state)) == state  # type: ignore[arg-type]


def test_empty_state_is_a_snapshot() -> None:
    assert event_codec.encode_snapshot({}) == b"\x01\x90"
    assert event_codec.decode_snapshot(b"\x01\x90") == {}


def test_snapshots_that_are_not_ours_are_refused() -> None:
    good = event_codec.encode_snapshot({"broker-a": make_group()})
    twice = b"\x01\x92" + good[2:] * 2
    impossible = good.replace(b"\x01\x04\x93\x01\x02\x03\x07", b"\x01\x04\x93\x01\x02\x04\x07")
    assert impossible != good, "the syncStateSet now holds an id that is not registered"
    for data in (b"", b"\x02" + good[1:], good[:-1], good + b"\x00", twice, impossible):
        with pytest.raises(event_codec.EventCodecError, match=f"snapshot of {len(data)} bytes"):
            event_codec.decode_snapshot(data)
