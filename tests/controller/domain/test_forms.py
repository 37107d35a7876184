"""Two releases in one quorum: what says nothing new has the old bytes, and nothing new is said before all read it."""

import asyncio
from typing import cast

import msgspec
import pytest

from rocketmq_controller.domain import events, forms, model
from rocketmq_controller.domain.forms import APPENDED_LEVEL, FIRST_LEVEL, level_of, shortened
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, GroupRecord, MasterEpoch, SyncStateSetEpoch
from rocketmq_controller.log import event_codec, state_machine
from rocketmq_controller.log.features import Features
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader
from rocketmq_runtime.remoting.client import CallTimeoutError, RemotingClient
from tests.controller.domain.domain_kit import NAME, make_group


class NewerAlter(events.AlterSyncStateSet, frozen=True, array_like=True, tag=1):
    """The event of a later release."""

    reason: str = ""


class NewerRecord(GroupRecord, frozen=True, array_like=True):
    """The group of a later release's snapshot."""

    notes: tuple[str, ...] = ()


SET = frozenset((BrokerId(1), BrokerId(2)))
BEGIN = (
    events.ApplyBrokerId(NAME, "C", "h:1", BrokerId(1), "h:1;1"),
    events.ApplyBrokerId(NAME, "C", "h:2", BrokerId(2), "h:2;1"),
    events.ElectMaster(NAME, BrokerId(1), MasterEpoch(1), SyncStateSetEpoch(1), frozenset({BrokerId(1)}), strict=False),
)


def begun() -> ControllerStateMachine:
    machine = ControllerStateMachine()
    machine.apply(1, event_codec.encode_events(BEGIN))
    return machine


def newer_alter(reason: str = "") -> events.Event:
    return cast("events.Event", NewerAlter(NAME, SET, SyncStateSetEpoch(2), reason))


def test_old_members_live_on_under_an_upgraded_leader() -> None:
    command = event_codec.encode_events([newer_alter()])
    assert command == event_codec.encode_events([events.AlterSyncStateSet(NAME, SET, SyncStateSetEpoch(2))])
    old = begun()
    assert old.apply(2, command) == frozenset()
    assert old.groups[NAME].sync_state_set == SET
    assert old.feature_level == FIRST_LEVEL


def test_what_an_old_member_cannot_read_is_of_a_higher_level_and_stops_it() -> None:
    newer = newer_alter("slave 2 caught up")
    assert (level_of(newer_alter()), level_of(newer)) == (FIRST_LEVEL, APPENDED_LEVEL)
    with pytest.raises(event_codec.EventCodecError, match="newer release"):
        begun().apply(2, event_codec.encode_events([newer]))


def test_snapshots_of_two_releases_are_equal_without_new_fields() -> None:
    record = GroupRecord.of(make_group())
    fields = msgspec.structs.astuple(record)
    encode = msgspec.msgpack.encode
    assert encode(shortened(NewerRecord(*fields))) == encode(shortened(record))
    assert msgspec.msgpack.decode(encode(record), type=NewerRecord) == NewerRecord(*fields)
    assert level_of(NewerRecord(*fields)) == FIRST_LEVEL
    newer = msgspec.structs.replace(NewerRecord(*fields), notes=("x",))
    assert level_of(newer) == APPENDED_LEVEL
    assert len(msgspec.msgpack.decode(encode(shortened(newer)))) == len(fields) + 1


def test_a_level_that_was_committed_is_remembered_by_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = msgspec.msgpack.Decoder(tuple[NewerAlter | events.ApplyBrokerId | events.ElectMaster, ...])
    monkeypatch.setattr(event_codec, "_events_decoder", decoder)
    machine = begun()
    assert machine.feature_level == FIRST_LEVEL
    assert machine.apply(2, event_codec.encode_events([newer_alter("new")])) == frozenset()
    assert machine.feature_level == APPENDED_LEVEL


def test_records_of_groups_that_did_not_change_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = model.record_bytes

    def record_bytes(group: BrokerGroup) -> bytes:
        made.append(group.broker_name)
        return real(group)

    monkeypatch.setattr(state_machine, "record_bytes", record_bytes)
    machine = begun()
    machine.apply(2, event_codec.encode_events([events.ApplyBrokerId("other", "C", "h:3", BrokerId(1), "h:3;1")]))
    first = machine.capture()()
    assert sorted(made) == [NAME, "other"]
    assert machine.capture()() == first
    machine.apply(3, event_codec.encode_events([events.AlterSyncStateSet(NAME, SET, SyncStateSetEpoch(2))]))
    second = machine.capture()()
    assert made[2:] == [NAME]
    assert event_codec.decode_snapshot(second) == machine.groups
    again = ControllerStateMachine()
    again.load(second)()
    assert again.capture()() == second


class FakeMembers:
    """The other members, by address: what they say, None if they do not answer."""

    def __init__(self, **said: int | None) -> None:
        self.said = said
        self.asked = 0

    async def call(self, address: str, asked: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        del timeout
        self.asked += 1
        level = self.said[address]
        if level is None:
            raise CallTimeoutError(f"{address} did not answer")
        header = GetMetaDataResponseHeader(feature_level=None if level == FIRST_LEVEL else level)
        return response(asked, ResponseCode.SUCCESS, None, header)


@pytest.mark.looptime
async def test_the_level_is_what_all_members_read() -> None:
    committed = FIRST_LEVEL
    members, others = FakeMembers(a=3, b=None, c=2), {"n1": "a", "n2": "b"}
    features = Features(cast("RemotingClient", members), lambda: others, committed=lambda: committed, own=3, period=5.0)
    assert features.level == FIRST_LEVEL, "nobody has said anything"
    features.start()
    steps: list[tuple[int | None, int]] = [(None, 1), (1, 1), (2, 2), (3, 3), (4, 3), (None, 3), (1, 1)]
    for said, level in steps:
        members.said["b"] = said
        await asyncio.sleep(5)
        assert features.level == level
    committed = 2
    assert features.level == 2, "all could read it when it was committed"
    members.said["b"] = 3
    others["n3"] = "c"
    await asyncio.sleep(10)
    assert features.level == 2, "one that was added reads no more"
    del others["n3"]
    await asyncio.sleep(10)
    assert features.level == 3, "one that was removed is asked no more"
    await features.stop()
    asked = members.asked
    await asyncio.sleep(20)
    assert members.asked == asked


def test_a_controller_alone_has_its_own_level() -> None:
    alone = Features(cast("RemotingClient", FakeMembers()), dict, committed=lambda: FIRST_LEVEL)
    assert alone.level == forms.FEATURE_LEVEL


def test_groups_as_first_released_are_of_the_first_level() -> None:
    assert level_of(GroupRecord.of(BrokerGroup("C", NAME))) == FIRST_LEVEL
    assert len(msgspec.msgpack.decode(msgspec.msgpack.encode(shortened(GroupRecord.of(make_group()))))) == 9


def test_the_hosts_that_registered_are_in_the_state_of_every_member() -> None:
    event = events.ApplyBrokerId(NAME, "C", "h:1", BrokerId(1), "h:1;1", "10.0.0.1")
    assert level_of(event) == APPENDED_LEVEL
    assert level_of(msgspec.structs.replace(event, host="")) == FIRST_LEVEL
    machine = ControllerStateMachine()
    machine.apply(1, event_codec.encode_events([event]))
    again = ControllerStateMachine()
    again.load(machine.capture()())()
    group = again.groups[NAME]
    assert (group.host, group.hosts) == ("10.0.0.1", {1: "10.0.0.1"})
    for one in (machine, again):
        assert one.feature_level == APPENDED_LEVEL
        assert one.tally.groups.of_host == one.tally.members.of_host == {"10.0.0.1": 1}
    again.apply(2, event_codec.encode_events([events.CleanBrokerData(NAME, None, SyncStateSetEpoch(0))]))
    assert (again.groups[NAME].host, again.groups[NAME].hosts) == ("10.0.0.1", {})
    assert (again.tally.groups.total, again.tally.members.total) == (1, 0)


def test_changes_are_reported_when_another_state_takes_over() -> None:
    """Decoding runs in another thread; what was applied meanwhile is compared when the state is replaced."""
    machine = begun()
    other = events.ApplyBrokerId("other", "C", "h:3", BrokerId(1), "h:3;1")
    machine.apply(2, event_codec.encode_events([other]))
    data = machine.capture()()
    told: list[tuple[str, BrokerGroup | None]] = []
    again = ControllerStateMachine()
    again.load(data)()
    again.subscribe(lambda name, group: told.append((name, group)))
    again.load(data)()
    assert told == []
    take_over = again.load(data)
    again.apply(3, event_codec.encode_events([events.ApplyBrokerId("other", "C", "h:4", BrokerId(2), "h:4;2")]))
    told.clear()
    take_over()
    assert told == [("other", machine.groups["other"])]
    assert again.groups == machine.groups
