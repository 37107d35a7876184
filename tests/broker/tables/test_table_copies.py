"""A master's tables at its slaves: changes by tools are acknowledged when they are there, committed offsets follow at
once (NothingGoesBack)."""

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain.role import Role
from rocketmq_broker.domain.tables.change_order import Changed
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.tables import slave_sync, table_body, table_copies
from rocketmq_broker.tables.consumer_tables import ConsumerTables
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import (
    DeleteSubscriptionGroupRequestHeader,
    TopicRequestHeader,
)
from rocketmq_formats.remoting.client import UpdateConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.replica_link import (
    Copied,
    Following,
    Grant,
    Held,
    Hello,
    Hold,
    HoldKind,
    LinkReader,
    NoRole,
    Others,
    Prepare,
    Prepared,
    Release,
    Released,
    Replicated,
    Replication,
    Welcome,
    decode_from_sidecar,
    encode,
)
from rocketmq_formats.steps import finish
from rocketmq_formats.store.config_files import ConsumerOffsetsFile, SubscriptionGroupsFile, TopicsFile, decode_config
from rocketmq_formats.table_copies import CopyTablesRequestHeader
from rocketmq_formats.topics import SubscriptionGroupConfig
from rocketmq_runtime.remoting import slow_lane
from rocketmq_store.message_store import MessageStore
from tests.broker.broker_kit import Group, running
from tests.broker.fake_sidecar import FOREVER
from tests.store.kit import opened, put, retain
from tests.topic_requests import topic_request

ALL = frozenset({1, 2, 3})


def group_request(name: str = "G", retries: int = 5) -> RemotingCommand:
    body = encode_body(SubscriptionGroupConfig(group_name=name, retry_max_times=retries))
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)


def commit_request(offset: int, queue_id: int = 0) -> RemotingCommand:
    header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=queue_id, commit_offset=offset)
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def follow(slave: Group, address: str, number: int = 2) -> None:
    await slave.sidecar.receive(Hello)
    slave.sidecar.send(Welcome(number))
    slave.sidecar.send(Following(1, 1, address))


async def in_sync(master: Group, members: frozenset[int] = ALL) -> None:
    """The sidecar says who is in the SyncStateSet."""
    master.sidecar.members = members
    master.sidecar.acknowledge(master.app.store.max_offset)
    while (master.app.role.members, master.app.role.joins) != (members, master.sidecar.joins):
        await asyncio.sleep(0)


@asynccontextmanager
async def a_group(root: Path) -> AsyncIterator[tuple[Group, Group, Group]]:
    """A strict master and two slaves that have its tables."""
    async with (
        running(root / "1") as master,
        running(root / "2", master=False) as second,
        running(root / "3", master=False) as third,
    ):
        await in_sync(master)
        await follow(second, master.address, 2)
        await follow(third, master.address, 3)
        yield master, second, third


async def test_a_change_is_acknowledged_when_the_slaves_in_sync_have_it(tmp_path: Path) -> None:
    async with a_group(tmp_path) as (master, second, third):
        for number, command in enumerate((topic_request(), group_request())):
            assert (await master.call(command)).code == 0
            for slave, folder in ((second, "2"), (third, "3")):
                config = tmp_path / folder / "config"
                if number:
                    groups = decode_config(SubscriptionGroupsFile, (config / "subscriptionGroup.json").read_bytes())
                    assert groups.subscription_group_table["G"].retry_max_times == 5
                else:
                    topics = decode_config(TopicsFile, (config / "topics.json").read_bytes())
                    assert "T" in topics.topic_config_table, "on disk"
                    assert slave.app.topics.version == master.app.topics.version
        await master.call(commit_request(7))
        for slave in (second, third):
            await slave.app.tables.offsets_saved()
        for command in (
            request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic="T")),
            request(
                RequestCode.DELETE_SUBSCRIPTIONGROUP,
                DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True),
            ),
        ):
            assert (await master.call(command)).code == 0
        for slave in (second, third):
            assert slave.app.topics.get("T") is None
            assert slave.app.tables.groups.get("G") is None
            assert slave.app.tables.offsets.find("G", "T", 0) is None
        for folder in ("1", "2", "3"):
            content = (tmp_path / folder / "config" / "consumerOffset.json").read_bytes()
            assert decode_config(ConsumerOffsetsFile, content).offset_table == {}, "on disk"


async def test_committed_offsets_are_at_the_slaves_at_once_and_only_what_changed(tmp_path: Path) -> None:
    async with a_group(tmp_path) as (master, second, third):
        await master.call(topic_request())
        for offset in range(1, 50):
            assert (await master.call(commit_request(offset, offset % 4))).code == 0
        tables: tuple[ConsumerTables, ...] = (second.app.tables, third.app.tables)
        while any(slave.offsets.find("G", "T", 1) != 49 for slave in tables):
            await asyncio.sleep(0)
        assert all(slave.offsets.find("G", "T", 0) == 48 for slave in tables)
        assert all(slave.offsets.version == master.app.tables.offsets.version for slave in tables)
        # an operator's reset goes back, there too
        await master.call(commit_request(3, 1))
        while any(slave.offsets.find("G", "T", 1) != 3 for slave in tables):
            await asyncio.sleep(0)


async def test_a_commit_is_acknowledged_when_the_slaves_in_sync_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_group(tmp_path) as (master, second, third):
        await master.call(topic_request())
        for offset in range(1, 20):
            assert (await master.call(commit_request(offset))).code == 0
            assert [slave.app.tables.offsets.find("G", "T", 0) for slave in (second, third)] == [offset, offset]
        monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 0.2)
        third.sidecar.send(NoRole("it follows nobody"))
        while third.app.role.master_address is not None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        answer = await master.call(commit_request(20))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "replicas [3] of the SyncStateSet" in (answer.remark or "")
        await in_sync(master, frozenset({1, 2}))
        assert (await master.call(commit_request(21))).code == 0, "who is not in the set is not waited for"


async def test_waiting_commits_are_answered_when_the_mastership_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 0.2)
    async with running(tmp_path) as master:
        await master.call(topic_request())
        await in_sync(master)
        monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 1e9)
        commit = asyncio.create_task(master.call(commit_request(5)))
        while master.app.tables.offsets.find("G", "T", 0) is None:
            await asyncio.sleep(0)
        master.sidecar.send(Release())
        answer = await commit
        assert (answer.code, "ceased to be master" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)


async def test_a_slave_that_does_not_copy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_group(tmp_path) as (master, second, third):
        assert (await master.call(topic_request("before"))).code == 0
        monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 0.2)
        third.sidecar.send(NoRole("it follows nobody"))
        while third.app.role.master_address is not None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(2):
            answer = await master.call(topic_request())
            assert answer.code == ResponseCode.SYSTEM_BUSY, "said again, it waits again"
            assert "replicas [3] of the SyncStateSet have not copied it" in (answer.remark or "")
            assert "send the request again" in (answer.remark or "")
        assert second.app.topics.get("T") is not None
        await in_sync(master, frozenset({1, 2}))
        assert (await master.call(topic_request())).code == 0, "who is not in the set is not waited for"


async def test_official_slaves_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 1e9)
    async with running(tmp_path) as master:
        master.sidecar.officials = frozenset({7})
        await in_sync(master, frozenset({1, 7}))
        assert (await master.call(topic_request())).code == 0
        assert (await master.call(commit_request(1))).code == 0


async def test_a_member_that_is_silent_is_no_official_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 0.0)
    async with running(tmp_path) as master:
        await master.call(topic_request())
        await in_sync(master, frozenset({1, 2}))
        for _ in range(2):
            answer = await master.call(commit_request(1))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "replicas [2] of the SyncStateSet" in (answer.remark or "")


async def test_nothing_is_acknowledged_before_the_members_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 0.0)
    async with running(tmp_path) as master:
        assert (await master.call(topic_request())).code == 0
        for epoch in (2, 3):
            master.sidecar.send(Others(epoch, ()))
            master.sidecar.send(Prepare(epoch))
            await master.sidecar.receive(Prepared)
            master.sidecar.send(Grant(epoch, FOREVER))
            while master.app.role.role is not Role.MASTER:
                await asyncio.sleep(0)
            for command in (topic_request("other"), commit_request(1)):
                answer = await master.call(command)
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert "has not sent the SyncStateSet" in (answer.remark or "")


async def test_a_commit_at_a_replica_that_is_no_master_is_not_acknowledged(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await master.call(topic_request())
        master.sidecar.send(Release())
        await master.sidecar.receive(Released)
        answer = await master.call(commit_request(1))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "this broker is not master")


async def test_a_slave_enters_the_set_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """The sidecar does not ask for a set with it before `Copied`, and from then on nothing is acknowledged without."""
    async with a_group(tmp_path) as (master, _, third):
        await master.call(topic_request())
        assert (await master.call(commit_request(1))).code == 0
        third.sidecar.send(NoRole("it follows nobody"))
        while third.app.role.master_address is not None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await in_sync(master, frozenset({1, 2}))
        assert (await master.call(commit_request(2))).code == 0
        master.sidecar.joins = {3: 17}
        await in_sync(master, frozenset({1, 2}))
        assert (await master.call(commit_request(3))).code == 0, "who does not ask is not waited for"
        assert not any(isinstance(message, Copied) for message in master.sidecar.received), "it lacks 2 and 3"
        third.sidecar.send(Following(1, 1, master.address))
        copied = await master.sidecar.receive(Copied)
        assert (copied.epoch, copied.joins) == (1, {17})
        assert third.app.tables.offsets.find("G", "T", 0) == 3
        for offset in range(4, 20):
            assert (await master.call(commit_request(offset))).code == 0
            assert third.app.tables.offsets.find("G", "T", 0) == offset, "waited for before it is a member"
        # it was away: its earlier confirmations no longer count, but its pending request is answered at once
        master.sidecar.joins = {3: 18}
        await in_sync(master, frozenset({1, 2}))
        again = await master.sidecar.receive(Copied, lambda message: bool(message.joins))
        assert again.joins == {18}


async def test_official_slaves_may_enter_the_set_as_they_are(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        master.sidecar.joins, master.sidecar.officials = {7: 1}, frozenset({7})
        await in_sync(master, frozenset({1}))
        assert (await master.sidecar.receive(Copied)).joins == {1}


async def test_relaxed_durability_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 1e9)
    async with running(tmp_path, durability="relaxed") as master:
        await in_sync(master)
        assert (await master.call(topic_request())).code == 0


async def test_a_master_that_ceases_to_be_one_does_not_say_that_it_is_done(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await in_sync(master)
        change = asyncio.create_task(master.call(topic_request()))
        while master.app.topics.get("T") is None:
            await asyncio.sleep(0)
        master.sidecar.send(Release())
        answer = await change
        assert (answer.code, "ceased to be master" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)


async def test_before_a_hand_over_the_others_have_the_tables(tmp_path: Path) -> None:
    async with a_group(tmp_path) as (master, second, third):
        await master.call(topic_request())
        for round_ in range(5):
            await master.call(commit_request(100 + round_))
            master.sidecar.send(Hold(2 * round_ + 1, HoldKind.HANDING_OVER, "mastership is being handed over"))
            held = await master.sidecar.receive(Held)
            assert held.serial == 2 * round_ + 1
            for slave in (second, third):
                assert slave.app.tables.offsets.find("G", "T", 0) == 100 + round_
            late = await master.call(commit_request(1000))
            assert late.code == ResponseCode.SYSTEM_BUSY, "the next master would not know it"
            assert master.app.tables.offsets.find("G", "T", 0) == 100 + round_
            master.sidecar.send(Hold(2 * round_ + 2, None, ""))
            assert (await master.sidecar.receive(Held)).serial == 2 * round_ + 2


async def test_a_hold_without_copies_is_answered_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "HOLD_SECONDS", 0.1)
    async with running(tmp_path) as master:
        await in_sync(master)
        master.sidecar.send(Hold(1, HoldKind.HANDING_OVER, "x"))
        assert (await master.sidecar.receive(Held)).serial == 1


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(-1, 9), st.booleans()), max_size=60),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_a_copy_by_changes_is_the_table(steps: list[tuple[int, int, int, bool]], most: int, max_removed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rocketmq_broker.domain.tables.change_order.MAX_REMOVED", max_removed)
        master, slave = ConsumerOffsets(), ConsumerOffsets()
        slave.commit("old", "T", 0, 7)
        held, begun = -1, -1

        def copy() -> bool:
            nonlocal held, begun
            before = set(finish(slave.texts()))
            changed = master.changed_since(held, most, begun=begun)
            assert len(changed.keys) <= most
            begun = master.floor if changed.begins else begun
            more = changed.until < master.changes
            table = {name: {int(q): int(o) for q, o in _pairs(master.text(name))} for name in changed.keys}
            finish(slave.take_changes(table, changed.removed, begins=changed.begins, ends=not more))
            held = changed.until
            if more and slave.copying:
                gone = {key for key in before for name in changed.removed if name in {key[: len("T0@")], key[2:]}}
                assert before - gone <= set(finish(slave.texts())), "what is not copied yet stays"
            return more

        for key, queue_id, offset, copies in steps:
            if offset < 0:
                master.remove(groups={f"G{key}"})
            else:
                master.commit(f"G{key}", f"T{key % 2}", queue_id, offset)
            if copies:
                copy()
        while copy():
            pass
        assert finish(slave.texts()) == finish(master.texts())
        assert not slave.copying


def test_texts_are_made_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_broker.domain.tables.offsets.SLICE", 10)
    offsets = ConsumerOffsets()
    for number in range(55):
        offsets.commit(f"G{number}", "T", 0, 1)
    made: list[str] = []
    real = offsets.text
    monkeypatch.setattr(offsets, "text", lambda key: made.append(key) or real(key))
    texts = offsets.texts()
    next(texts)
    assert len(made) == 10
    offsets.commit("G0", "T", 0, 2)
    offsets.remove(groups={"G1"})
    for _ in range(4):
        before = len(made)
        next(texts)
        assert len(made) - before == 10
    table = finish(texts)
    assert len(table) == 54
    assert (table["T@G0"], table["T@G2"]) == (b"0:2", b"0:1")
    made.clear()
    assert finish(offsets.texts()) == table
    assert made == []


async def test_a_slave_copies_a_large_table_of_offsets_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_copies, "PART", 10)
    sizes: list[int] = []
    real = ConsumerTables.encode_changed_offsets

    def encode(tables: ConsumerTables, changed: Changed) -> bytes:
        sizes.append(len(changed.keys))
        return real(tables, changed)

    monkeypatch.setattr(ConsumerTables, "encode_changed_offsets", encode)
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        offsets = master.app.tables.offsets
        for number in range(55):
            offsets.commit(f"G{number}", "T", 0, 1)
        slave.app.tables.offsets.commit("old", "T", 0, 1)
        await in_sync(master, frozenset({1, 2}))
        await follow(slave, master.address)
        while slave.app.tables.offsets.find("G54", "T", 0) is None:
            await asyncio.sleep(0)
            slave.app.tables.offsets.commit("here", "T", 0, 1)  # consumers of a slave commit meanwhile
        while finish(slave.app.tables.offsets.texts()) != finish(offsets.texts()):
            await asyncio.sleep(0)
        assert max(sizes) == 10


@pytest.mark.parametrize("table", ["topics", "groups"])
async def test_sends_are_answered_while_a_table_is_encoded_for_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The slave is of an older release, which takes whole tables of topics and groups."""

    def older(**fields: object) -> CopyTablesRequestHeader:
        return CopyTablesRequestHeader(**(fields | {"changes": False}))  # type: ignore[arg-type]

    monkeypatch.setattr(slave_sync, "CopyTablesRequestHeader", older)
    monkeypatch.setattr(table_body, "SLICE", 1)
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        for number in range(20):
            make = topic_request if table == "topics" else group_request
            assert (await master.call(make(f"Name{number}"))).code == 0
        assert (await master.send()).code == 0  # creates a topic
        ticks = itertools.count()
        monkeypatch.setattr(master.app.services._copies._lane, "_clock", lambda: float(next(ticks)))
        rests, go_on = 0, asyncio.Event()
        real = slow_lane.Pace.rest

        async def rest(pace: slow_lane.Pace) -> None:
            nonlocal rests
            rests += 1
            if rests == 10:
                await go_on.wait()
            await real(pace)

        monkeypatch.setattr(slow_lane.Pace, "rest", rest)
        await in_sync(master, frozenset({1, 2}))
        await follow(slave, master.address)
        while rests < 10:
            await asyncio.sleep(0)
        assert (await master.send()).code == 0
        assert slave.app.topics.get("Name0") is None
        go_on.set()
        while slave.app.topics.version != master.app.topics.version:
            await asyncio.sleep(0)
        while slave.app.tables.groups.version != master.app.tables.groups.version:
            await asyncio.sleep(0)


@pytest.mark.parametrize("code", [21, 201, 43])
async def test_a_whole_table_that_no_frame_carries_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async with running(tmp_path) as master:
        assert (await master.call(topic_request())).code == 0
        master.app.tables.offsets.commit("G", "T", 0, 1)
        assert (await master.call(request(RequestCode(code)))).code == 0
        monkeypatch.setattr(table_body, "MAX_BODY", 60)
        master.app.topics.next_version(1, 1)
        master.app.tables.groups.put(SubscriptionGroupConfig(group_name="a name that is longer than the others"))
        master.app.tables.offsets.commit("a name that is longer than the others, with its topic", "T", 0, 1)
        for _ in range(2):
            answer = await master.call(request(RequestCode(code)))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "is larger than the 60 bytes that an answer carries" in (answer.remark or "")
            assert not answer.body


async def test_more_groups_than_a_frame_carries_are_at_a_slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_body, "MAX_BODY", 100_000)
    monkeypatch.setattr(table_copies, "MAX_PART", 20_000)
    monkeypatch.setattr(table_copies, "PART", 100)
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        groups = master.app.tables.groups
        names = [f"group-{number:0100}" for number in range(500)]
        groups.load(groups.version.next(1, 1), {name: SubscriptionGroupConfig(group_name=name) for name in names}, {})
        answer = await master.call(request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        await in_sync(master, frozenset({1, 2}))
        await follow(slave, master.address)
        while slave.app.tables.groups.version != groups.version:
            await asyncio.sleep(0)
        assert slave.app.tables.groups.table == groups.table
        # the others are copied also by a slave that gets whole tables
        await in_sync(master, frozenset({1}))
        master.app.tables.offsets.commit("G", "T", 0, 7)
        while slave.app.tables.offsets.find("G", "T", 0) != 7:
            await asyncio.sleep(0)


def _pairs(text: bytes) -> list[list[bytes]]:
    return [pair.split(b":") for pair in text.split(b",") if pair]


def test_forgotten_removals_make_a_whole_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_broker.domain.tables.change_order.MAX_REMOVED", 3)
    offsets = ConsumerOffsets()
    for number in range(5):
        offsets.commit(f"G{number}", "T", 0, 1)
    before = offsets.changes
    for number in range(4):
        offsets.remove(groups={f"G{number}"})
    assert offsets.changed_since(before, 9).begins
    assert offsets.changed_since(offsets.changes, 9) == ([], [], offsets.changes, False)
    assert offsets.changed_since(offsets.changes + 1, 9).begins, "of another process"


def test_the_members_travel() -> None:
    message = Replication(1, 2, 3, 2, frozenset({1, 2}), {3: 4}, frozenset({5}))
    (payload,) = LinkReader().receive(encode(message))
    assert decode_from_sidecar(payload) == message


def expired_queue(root: Path) -> None:
    """Stores of a master that shows none of the seven messages of T:1, and of a slave that has a copy of its log."""
    store, _ = opened(root / "1", file_size=1024 * 1024, consume_queue_file_size=20 * 1000, file_reserved_hours=1)
    put(store, *[b"old"] * 7, queue_id=1, now_ms=1)
    put(store, *[bytes(100_000)] * 12, queue_id=2, now_ms=1)
    for path in (root / "1" / "commitlog").iterdir():
        os.utime(path, (1, 1))
    store.durability.flush()
    assert retain(store, 10 * 3600 * 1000, 4) > 0
    assert store.queue_bounds("T", 1) == (7, 7)
    store.close()
    shutil.copytree(root / "1" / "commitlog", root / "2" / "commitlog")


async def test_a_new_master_continues_queues_that_had_expired_before_its_copy(tmp_path: Path) -> None:
    expired_queue(tmp_path)
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        assert (await master.call(topic_request())).code == 0
        assert slave.app.store.queue_bounds("T", 1) == (0, 0)
        master.sidecar.joins = {2: 7}
        await in_sync(master, frozenset({1}))
        await follow(slave, master.address)
        while 7 not in (await master.sidecar.receive(Copied)).joins:
            pass
        assert slave.app.store.queue_bounds("T", 1) == (7, 7), "before it can enter the SyncStateSet"
        assert "T" not in slave.app.store.queues() or 1 not in slave.app.store.queues()["T"]
        await slave.sidecar.make_master(2, hello=False)
        answer = await slave.send(b"more", queue_id=1)
        assert (answer.code, (answer.ext_fields or {})["queueOffset"]) == (0, "7")


async def test_ends_of_queues_are_asked_for_when_the_log_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired_queue(tmp_path)
    (tmp_path / "2" / "commitlog").rename(tmp_path / "log")
    asked: list[int] = []
    ended_queues = MessageStore.ended_queues

    def noted(store: MessageStore, log_begin: int) -> Iterator[list[tuple[str, int, int]]]:
        asked.append(log_begin)
        return ended_queues(store, log_begin)

    monkeypatch.setattr(MessageStore, "ended_queues", noted)
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        await in_sync(master, frozenset({1, 2}))
        await follow(slave, master.address)
        for queues in (4, 8):  # answered when the slave has it
            assert (await master.call(topic_request(queues=queues))).code == 0
        store = slave.app.store
        assert (asked, store.queue_bounds("T", 1)) == ([0], (7, 7)), "for an empty log the master's begin counts"
        for path in (tmp_path / "log").iterdir():
            path.rename(tmp_path / "2" / "commitlog" / path.name)
        end = master.app.store.max_offset
        slave.sidecar.send(Replicated(end, end))
        while store.max_offset < end:
            await asyncio.sleep(0)
        for queues in (4, 8):
            assert (await master.call(topic_request(queues=queues))).code == 0
        assert asked == [0, 1024 * 1024]
