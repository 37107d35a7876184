"""What was committed at a slave that acted as master reaches the next one, once, and makes its table no newer."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain.tables import acting_commits, offsets, resets
from rocketmq_broker.domain.tables.acting_commits import joined
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.tables import acting_reports, table_copies
from rocketmq_broker.tables.acting_reports import ActingReports
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.replica_link import CopyKey, Following, Hello, MasterKnown, Welcome
from rocketmq_formats.steps import finish
from rocketmq_formats.store.config_files import (
    NEVER,
    ActingCommit,
    ActingCommits,
    ConfigFileError,
    ConsumerOffsetsFile,
    decode_config,
)
from rocketmq_formats.table_copies import CopyTablesRequestHeader
from rocketmq_formats.topics import DataVersion
from tests.broker.broker_kit import Group, running
from tests.broker.tables.test_copy_reports import REQUIRED, copy, news, proven, report
from tests.broker.tables.test_table_copies import ALL, commit_request, follow, in_sync
from tests.topic_requests import topic_request

NOBODY = "127.0.0.1:1"


def at(broker: Group) -> dict[int, int]:
    """Queue -> offset of G in T."""
    offsets = broker.app.tables.offsets
    found = {queue_id: offsets.find("G", "T", queue_id) for queue_id in range(8)}
    return {queue_id: offset for queue_id, offset in found.items() if offset is not None}


def commit(broker: Group, **queues: int) -> None:
    """`q0=7`: G commits 7 of queue 0."""
    for queue, offset in queues.items():
        assert broker.app.tables.offsets.commit("G", "T", int(queue[1:]), offset)


async def until_at(broker: Group, queues: dict[int, int]) -> None:
    while at(broker) != queues:
        await asyncio.sleep(0)


@asynccontextmanager
async def a_group(root: Path, key: CopyKey | None = None, **keys: object) -> AsyncIterator[tuple[Group, Group, Group]]:
    """A master, and two slaves that have its table: 10 in each of four queues."""
    with_acting = {"enableSlaveActingMaster": True, **keys}
    async with (
        running(root / "1", copy_key=key, **with_acting) as master,
        running(root / "2", master=False, copy_key=key, **with_acting) as second,
        running(root / "3", master=False, copy_key=key, **with_acting) as third,
    ):
        await in_sync(master)
        await follow(second, master.address, 2)
        await follow(third, master.address, 3)
        await master.call(topic_request())
        commit(master, q0=10, q1=10, q2=10, q3=10)
        for slave in (second, third):
            await until_at(slave, dict.fromkeys(range(4), 10))
            while slave.app.tables.offsets_version() != master.app.tables.offsets_version():
                await asyncio.sleep(0)
        yield master, second, third


async def cut_off(slave: Group, epoch: int = 1) -> None:
    slave.sidecar.send(Following(epoch, 1, NOBODY))
    while slave.app.role.master_address != NOBODY:
        await asyncio.sleep(0)


async def act(slave: Group, number: int = 2) -> None:
    """It knows no master, and is the one to serve consumers."""
    await cut_off(slave)
    slave.sidecar.send(MasterKnown(False))
    slave.app.core.members.update({number: "127.0.0.1:9"})
    slave.app._on_registered_members()
    while not slave.app.role.acting:
        await asyncio.sleep(0)


def recorded(slave: Group) -> ActingCommits | None:
    return slave.app.tables.offsets.acting.commits


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
async def test_a_master_that_was_cut_off_hears_what_was_committed_meanwhile(tmp_path: Path, durability: str) -> None:
    """Its epoch is the same, so nothing but the record tells the two tables apart."""
    async with a_group(tmp_path, durability=durability) as (master, second, _):
        await act(second)
        assert (await second.call(commit_request(15))).code == 0
        commit(second, q2=12, q3=12, q4=4)
        commit(master, q1=30, q2=3, q3=11)
        second.sidecar.send(Following(1, 1, master.address))
        expected = {0: 15, 1: 30, 2: 3, 3: 12, 4: 4}
        await until_at(master, expected)
        await until_at(second, expected)
        while recorded(second) is not None:
            await asyncio.sleep(0)
        # told once: what the master does after that stands
        commit(master, q0=2)
        await until_at(second, {**expected, 0: 2})
    file = decode_config(ConsumerOffsetsFile, (tmp_path / "2" / "config" / "consumerOffset.json").read_bytes())
    assert (file.acting, file.offset_table["T@G"]) == (None, {**expected, 0: 2})


async def test_a_new_master_takes_the_commits_and_not_the_table(tmp_path: Path) -> None:
    async with a_group(tmp_path, durability="relaxed") as (master, second, third):
        await act(second)
        commit(master, q1=30)
        await until_at(third, {0: 10, 1: 30, 2: 10, 3: 10})
        for offset in range(11, 40):  # a counter would be far ahead by now
            commit(second, q0=offset)
            second.app.tables.offsets_version()
        third.sidecar.others = (second.address, NOBODY)
        await third.sidecar.make_master(2, hello=False)
        assert at(third) == {0: 39, 1: 30, 2: 10, 3: 10}
        assert third.app.tables.offsets_version().state_version == 2, "a version that no one else has"


@pytest.mark.parametrize("order", [1, -1])
async def test_a_reset_that_only_the_old_master_knew_is_not_undone(tmp_path: Path, order: int) -> None:
    async with a_group(tmp_path, durability="relaxed") as (master, second, third):
        await cut_off(third)
        await act(second)
        commit(master, q1=20, q2=20)
        commit(master, q1=3, q2=11)
        commit(second, q0=15, q1=12, q2=12)
        master.app.tables.offsets_version()
        third.sidecar.others = (master.address, second.address)[::order]
        await third.sidecar.make_master(2, hello=False)
        assert at(third) == {0: 15, 1: 3, 2: 12, 3: 10}, "queue 2 went on from 10 there: nothing is left out"


async def test_a_reset_after_the_commits_were_taken_over_is_not_undone_when_they_are_told_again(tmp_path: Path) -> None:
    async with a_group(tmp_path, durability="relaxed") as (_, second, third):
        await act(second)
        commit(second, q0=20)
        third.sidecar.others = (second.address,)
        await third.sidecar.make_master(2, hello=False)
        commit(third, q0=30)
        commit(third, q0=12)
        await in_sync(third)
        second.sidecar.send(Following(2, 3, third.address))
        await until_at(second, {0: 12, 1: 10, 2: 10, 3: 10})
        assert (at(third)[0], recorded(second)) == (12, None)


async def test_what_was_taken_over_is_not_taken_over_again(tmp_path: Path) -> None:
    """The new master took a reset (43), its group went on, and the slave tells of the reset again (COPY_TABLES)."""
    async with a_group(tmp_path, durability="relaxed") as (_, second, third):
        await act(second)
        commit(second, q0=5)
        third.sidecar.others = (second.address,)
        await third.sidecar.make_master(2, hello=False)
        assert at(third)[0] == 5
        commit(third, q0=30)
        await in_sync(third)
        second.sidecar.send(Following(2, 3, third.address))
        while recorded(second) is not None:
            await asyncio.sleep(0)
        assert at(third)[0] == 30
        await until_at(second, {0: 30, 1: 10, 2: 10, 3: 10})


@pytest.mark.parametrize("key", [None, REQUIRED], ids=["without a secret", "with it"])
async def test_a_slave_outside_the_set_is_heard(tmp_path: Path, key: CopyKey | None) -> None:
    """Its requests are refused, and it may never enter the set: the refusal says that its commits have arrived."""
    async with a_group(tmp_path, key) as (master, second, _):
        await in_sync(master, frozenset({1, 3}))
        await act(second)
        commit(second, q0=15, q1=4)
        commit(master, q2=3)
        second.sidecar.send(Following(1, 1, master.address))
        expected = {0: 15, 1: 4, 2: 3, 3: 10}
        await until_at(master, expected)
        while recorded(second) is not None:
            await asyncio.sleep(0)
        await until_at(second, expected)
        assert master.app.services._copies._holders._held.keys() == {3}, "it acknowledges nothing"


async def test_a_master_of_an_earlier_epoch_takes_nothing(tmp_path: Path) -> None:
    """Before the epoch begins there, another member's table may take the place of its own."""
    commits = ActingCommits(base=DataVersion(), commits={"T@G": (ActingCommit(0, 15, NEVER),)})
    async with running(tmp_path) as master:
        await in_sync(master, ALL)
        for number in (2, 4):
            header = msgspec.structs.replace(report(number), epoch=7)
            answer = await master.call(request(RequestCode.COPY_TABLES, header, encode_body(commits)))
            assert (answer.ext_fields or {})["actingTaken"] == "false"
        assert at(master) == {}


async def test_the_record_stays_until_a_master_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete copy is no proof of that: a master of an older release, or one that refuses the record, sends one."""

    refused = asyncio.Event()

    def refuse(*_: object) -> ActingCommits:
        refused.set()
        raise ConfigFileError("not what it should be")

    async with a_group(tmp_path, durability="relaxed") as (master, second, _):
        await act(second)
        commit(second, q0=15)
        with monkeypatch.context() as patch:
            patch.setattr(acting_reports, "decode_config", refuse)
            second.sidecar.send(Following(1, 1, master.address))
            await refused.wait()
            commit(master, q1=30)
            await until_at(second, {0: 10, 1: 30, 2: 10, 3: 10})
            assert recorded(second) is not None
        await until_at(master, {0: 15, 1: 30, 2: 10, 3: 10})
        while recorded(second) is not None:
            await asyncio.sleep(0)
        await until_at(second, {0: 15, 1: 30, 2: 10, 3: 10})


async def test_a_master_is_told_once_and_not_with_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "PART", 1)
    told = 0
    async with a_group(tmp_path, durability="relaxed") as (master, second, _):
        for number in range(9):
            assert master.app.tables.offsets.commit(f"G{number}", "T", 0, 1)
        await act(second)
        commit(second, q0=15)

        real = ActingReports.take_over

        def take_over(
            reports: ActingReports,
            body: bytes,
            header: CopyTablesRequestHeader,
            nonce: str,
            current: Callable[[], bool],
        ) -> Generator[None, None, bool]:
            nonlocal told
            told += 1
            return real(reports, body, header, nonce, current)

        monkeypatch.setattr(ActingReports, "take_over", take_over)
        second.sidecar.send(Following(1, 1, master.address))
        while second.app.tables.offsets_version() != master.app.tables.offsets_version():
            await asyncio.sleep(0)
        assert (at(second)[0], recorded(second), told) == (15, None, 1)


async def test_a_large_record_is_taken_over_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "SLICE", 1)
    async with a_group(tmp_path, durability="relaxed") as (master, second, _):
        await act(second)
        commit(second, q0=15, q1=15, q2=15, q3=15, q4=15)
        ticks = itertools.count()
        monkeypatch.setattr(master.app.services._copies._lane, "_clock", lambda: float(next(ticks)))
        steps = set[int]()
        second.sidecar.send(Following(1, 1, master.address))
        while recorded(second) is not None:
            steps.add(sum(offset == 15 for offset in at(master).values()))
            await asyncio.sleep(0)
        assert at(master) == dict.fromkeys(range(5), 15)
        assert steps & {1, 2, 3, 4}, "others had their turn"


async def test_the_record_survives_a_restart(tmp_path: Path) -> None:
    async with a_group(tmp_path, durability="relaxed") as (master, _, third):
        await act(third, 3)
        commit(third, q0=15)
        third.sidecar.send(MasterKnown(True))
        while third.app.role.acting:
            await asyncio.sleep(0)
        await third.app.tables._offsets_file.saved()
        file = decode_config(ConsumerOffsetsFile, (tmp_path / "3" / "config" / "consumerOffset.json").read_bytes())
        assert file.acting == recorded(third)
        assert file.acting is not None
    async with running(tmp_path / "1", durability="relaxed") as master, running(tmp_path / "3", master=False) as third:
        assert recorded(third) == file.acting
        await in_sync(master)
        commit(master, q1=30)
        await third.sidecar.receive(Hello)
        third.sidecar.send(Welcome(3))
        third.sidecar.send(Following(1, 1, master.address))
        await until_at(master, {0: 15, 1: 30, 2: 10, 3: 10})
        await until_at(third, {0: 15, 1: 30, 2: 10, 3: 10})


async def test_a_slave_that_acted_and_is_elected_keeps_its_commits(tmp_path: Path) -> None:
    async with a_group(tmp_path, durability="relaxed") as (master, second, third):
        await act(second)
        commit(second, q0=15)
        commit(master, q1=30)
        await until_at(third, {0: 10, 1: 30, 2: 10, 3: 10})
        second.sidecar.others = (third.address,)  # whose table is newer
        await second.sidecar.make_master(2, hello=False)
        assert at(second) == {0: 15, 1: 30, 2: 10, 3: 10}
        assert recorded(second) is None


async def test_half_of_a_table_is_not_offered_as_newer(tmp_path: Path) -> None:
    async with a_group(tmp_path, durability="relaxed") as (_, second, third):
        await cut_off(second)
        held = second.app.tables.offsets_version()
        finish(second.app.tables.offsets.take_changes({"T@G": dict.fromkeys(range(4), 5)}, (), begins=True, ends=False))
        await act(second)
        commit(second, q0=6)
        third.sidecar.others = (second.address,)
        assert second.app.tables.offsets_version() == held
        await third.sidecar.make_master(2, hello=False)
        assert at(third) == dict.fromkeys(range(4), 10)


async def test_only_a_replica_of_the_group_is_believed(tmp_path: Path) -> None:
    async with a_group(tmp_path, REQUIRED) as (master, second, third):
        forged = ActingCommits(base=DataVersion(), commits={"T@G": (ActingCommit(1, 99, 10),)})
        nonce = (await master.call(copy(report(3)))).ext_fields or {}
        header = proven(report(3), REQUIRED, nonce["nonce"])
        for proof in ("", "ab"):
            command = request(
                RequestCode.COPY_TABLES, msgspec.structs.replace(header, acting_proof=proof), encode_body(forged)
            )
            assert news(await master.call(command)).offsets >= 0, "the copy goes on"
        assert at(master)[1] == 10
        await act(second)
        commit(second, q0=15)
        second.sidecar.send(Following(1, 1, master.address))
        await until_at(third, {0: 15, 1: 10, 2: 10, 3: 10})


async def test_nonsense_keeps_no_slave_from_copying(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await in_sync(master, ALL)
        answer = await master.call(request(RequestCode.COPY_TABLES, report(2), b'{"base":7}'))
        assert news(answer).offsets >= 0


# the rule

FORWARD, BACK = ActingCommit(0, 15, 10), ActingCommit(0, 5, 10, reset=True)


@pytest.mark.parametrize(
    ("own", "commit", "reset", "result"),
    [
        (10, FORWARD, False, 15),
        (12, FORWARD, False, 15),
        (20, FORWARD, False, 20),
        (3, FORWARD, False, 3),
        (10, FORWARD, True, 10),
        (12, FORWARD, True, 12),
        (10, BACK, False, 5),
        (20, BACK, False, 5),
        (3, BACK, False, 3),
        (7, BACK, True, 5),
        (None, FORWARD, False, None),
        (None, ActingCommit(0, 15, NEVER), False, 15),
        (0, ActingCommit(0, 15, NEVER), False, 15),
        (20, ActingCommit(0, 15, NEVER), False, 20),
    ],
)
def test_one_queue_on_both_sides(own: int | None, commit: ActingCommit, reset: bool, result: int | None) -> None:
    assert joined(own, commit, reset=reset) == result


@given(st.lists(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 20)), st.integers(0, 20))
def test_nothing_is_left_out(acting: list[int], own: list[int], before: int) -> None:
    """Whatever each side commits: no further than one of them was, and not behind a reset that one of them made last;
    told again, nothing changes."""
    slave, master = ConsumerOffsets(acts=lambda: True), ConsumerOffsets()
    for table in (slave, master):
        table.load(DataVersion(state_version=5, counter=7), {"T@G": {0: before}})
    for offset in acting:
        slave.commit("G", "T", 0, offset)
    for offset in own:
        master.commit("G", "T", 0, offset)
    theirs, ours = slave.find("G", "T", 0), master.find("G", "T", 0)
    commits = slave.acting.commits
    assert (commits is None) == (all(offset == before for offset in acting))
    if commits is None:
        return
    finish(master.take_acting(commits))
    result = master.find("G", "T", 0)
    assert theirs is not None
    assert ours is not None
    assert result in (theirs, ours)
    assert result is not None
    if ours < before:
        assert result <= ours
    elif theirs < before:
        assert result <= max(theirs, ours)
    finish(master.take_acting(commits))
    assert master.find("G", "T", 0) == result
    assert slave.version == DataVersion(state_version=5, counter=7)


def test_a_reset_that_the_acting_slave_had_copied_is_no_later_one() -> None:
    master, slave = ConsumerOffsets(), ConsumerOffsets(acts=lambda: True)
    master.load(DataVersion(counter=1), {"T@G": {0: 10}})
    master.commit("G", "T", 0, 3)
    master.copied(DataVersion(counter=2))
    slave.load(master.version, {"T@G": {0: 3}})
    slave.commit("G", "T", 0, 8)
    commits = slave.acting.commits
    assert commits is not None
    finish(master.take_acting(commits))
    assert master.find("G", "T", 0) == 8


@pytest.mark.parametrize(
    ("path", "reset"),
    [
        ((9, 500), False),
        ((9, 10), False),
        ((9,), True),
        ((150, 120), True),
        ((150, 120, 130), True),
        ((150, 120, 150), False),
        ((5, 8, 7, 9), True),
    ],
)
def test_an_offset_that_has_passed_where_it_went_back_from_is_no_reset(path: tuple[int, ...], reset: bool) -> None:
    slave = ConsumerOffsets(acts=lambda: True)
    slave.load(DataVersion(counter=1), {"T@G": {0: 10}})
    for offset in path:
        slave.commit("G", "T", 0, offset)
    commits = slave.acting.commits
    assert commits is not None
    assert commits.commits["T@G"] == (ActingCommit(0, path[-1], 10, reset),)


def _commits(offset: int, before: int, counter: int) -> ActingCommits:
    commits = (ActingCommit(0, offset, before, offset < before),)
    return ActingCommits(base=DataVersion(counter=counter), commits={"T@G": commits})


@pytest.mark.parametrize("how", ["restarted", "copied"])
def test_resets_that_this_process_has_not_seen_may_have_been(how: str) -> None:
    """100 at the acting slave; at the master 100, then a reset to 10, then 150, of which its memory knows nothing."""

    def at_150() -> ConsumerOffsets:
        table = ConsumerOffsets()
        if how == "restarted":
            table.load(DataVersion(counter=3), {"T@G": {0: 150}})
        else:
            table.load(DataVersion(counter=1), {"T@G": {0: 100}})
            finish(table.take_changes({"T@G": {0: 150}}, (), begins=True))
            table.copied(DataVersion(counter=3))
        return table

    for commits, expected in (
        (_commits(300, 100, 1), 150),  # 150 to 299 come again
        (_commits(300, 150, 1), 300),
        (_commits(50, 100, 1), 50),
        (_commits(300, 100, 3), 300),
    ):
        table = at_150()
        finish(table.take_acting(commits))
        assert table.find("G", "T", 0) == expected


def test_what_another_table_replaces_is_taken_over_again() -> None:
    table = ConsumerOffsets()
    table.load(DataVersion(counter=1), {"T@G": {0: 10}})
    finish(table.take_acting(_commits(5, 10, 1)))
    table.merge({"T@G": {0: 10}})
    table.copied(DataVersion(counter=2))
    finish(table.take_acting(_commits(5, 10, 1)))
    assert table.find("G", "T", 0) == 5


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting_commits, "MAX_ACTING", 3)
    monkeypatch.setattr(acting_commits, "MAX_TAKEN", 3)
    monkeypatch.setattr(resets, "MAX_RESETS", 3)
    table = ConsumerOffsets(acts=lambda: True)
    for number in (*range(9), *range(9)):
        assert table.commit(f"G{number}", "T", 0, 5)
        assert table.commit(f"G{number}", "T", 0, 4)
    commits = table.acting.commits
    assert commits is not None
    assert sorted(commits.commits) == ["T@G0", "T@G1", "T@G2"]
    assert len(table._resets._versions) == 3
    for counter in range(9):
        finish(table.take_acting(_commits(5, 4, counter)))
    assert len(table._taken._taken) == 3


def test_an_acting_slaves_first_commit_does_not_bring_back_what_was_deleted() -> None:
    master = ConsumerOffsets()
    base = master.version = DataVersion(state_version=1, timestamp=1, counter=1)
    acting = ActingCommits(base=base, commits={"T@G": (ActingCommit(1, 5, NEVER),)})
    assert master.commit("G", "T", 0, 7)
    master.remove(topics={"T"})
    master.copied(DataVersion(state_version=2, timestamp=2, counter=2))
    finish(master.take_acting(acting))
    assert master.find("G", "T", 1) is None
    later = msgspec.structs.replace(acting, base=master.version)
    finish(master.take_acting(later))
    assert master.find("G", "T", 1) == 5, "of a topic of the same name"
