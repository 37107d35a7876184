"""A new master takes over the consumer offsets of members that know better, and serves soon in any case."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables import acting_commits
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.consumer_tables import ConsumerTables
from rocketmq_broker.tables.reverse_sync import PATIENCE_SECONDS, ReverseSync
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.replica_link import Grant, Hello, NoRole, Others, Prepare, Prepared
from rocketmq_formats.steps import finish
from rocketmq_formats.store.config_files import NEVER, ActingCommit, ActingCommits, ConsumerOffsetsFile
from rocketmq_formats.table_copies import NewerOffsetsRequestHeader, newer_offsets_request
from rocketmq_formats.topics import DataVersion
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient
from rocketmq_store.writer_lock import WriterLock
from tests.broker.broker_kit import Group, running, settings_for
from tests.broker.fake_sidecar import FOREVER
from tests.broker.tables.test_table_copies import a_group, commit_request, in_sync
from tests.topic_requests import topic_request

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def version(counter: int, epoch: int = 5) -> DataVersion:
    return DataVersion(state_version=epoch, counter=counter, timestamp=1_000 * counter)


class Members(RemotingClient):
    """The other members: after `seconds` each answers with its table; None: its port is closed."""

    def __init__(self, members: Mapping[str, tuple[float, ConsumerOffsetsFile | bytes | None]]) -> None:
        super().__init__()
        self.members = members
        self.asked: list[tuple[str, DataVersion]] = []

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        assert request.code == RequestCode.GET_ALL_CONSUMER_OFFSET
        self.asked.append((address, decode_header(NewerOffsetsRequestHeader, request.ext_fields or {}).version))
        seconds, table = self.members[address]
        await asyncio.sleep(seconds)
        if table is None:
            raise ConnectError(address)
        body = table if isinstance(table, bytes) else encode_body(table)
        return response(request, ResponseCode.SUCCESS, None, None, body)


def table(counter: int, offset: int, epoch: int = 5) -> ConsumerOffsetsFile:
    return ConsumerOffsetsFile(data_version=version(counter, epoch), offset_table={"T@G": {0: offset}})


async def taken(members: Members, *, held: ConsumerOffsetsFile, addresses: tuple[str, ...] = (A, B)) -> int | None:
    """The offset that the new master of epoch 6 serves, which held `held`."""
    offsets = ConsumerOffsets()
    offsets.load(held.data_version, held.offset_table)
    sync = ReverseSync(offsets=offsets, client=members)
    sync.on_others(Others(6, addresses))
    await sync.run(6)
    if not any(isinstance(table, ConsumerOffsetsFile) and table.acting for _, table in members.members.values()):
        assert offsets.versioned == offsets.changes, "what was copied is not a change of this broker"
    return offsets.find("G", "T", 0)


@pytest.mark.looptime
async def test_the_newest_table_wins_whoever_answers_first() -> None:
    for first, second in ((0.01, 0.02), (0.02, 0.01)):
        members = Members({A: (first, table(19, 190)), B: (second, table(18, 180))})
        assert await taken(members, held=table(17, 170)) == 190
        assert members.asked == [(A, version(17)), (B, version(17))], "all at once"
    assert await taken(Members({A: (0.0, table(16, 160)), B: (0.0, table(17, 999))}), held=table(17, 170)) == 170
    assert await taken(Members({A: (0.0, table(1, 10, epoch=6)), B: (0.0, table(99, 990))}), held=table(17, 170)) == 10


@pytest.mark.looptime
@pytest.mark.parametrize("seconds", [(0.01, 0.02), (0.02, 0.01)])
async def test_commits_at_an_acting_slave_are_joined_to_the_newest_table(seconds: tuple[float, float]) -> None:
    """Whoever answers first: they are no part of the slave's table, and taking that one back is no reset."""
    commits = ActingCommits(base=version(18), commits={"T@G": (ActingCommit(0, 120, 100), ActingCommit(1, 7, NEVER))})
    acting = ConsumerOffsetsFile(version(18), {"T@G": {0: 120, 1: 7}}, commits)
    members = Members({A: (seconds[0], acting), B: (seconds[1], table(19, 110))})
    assert await taken(members, held=table(17, 100)) == 120
    reset = Members({A: (seconds[0], acting), B: (seconds[1], table(19, 90))})
    assert await taken(reset, held=table(17, 100)) == 90


@pytest.mark.looptime
@pytest.mark.parametrize("impossible", [{"state_version": 7}, {"counter": 2**63 - 1}, {"timestamp": 2**63 - 1}])
async def test_an_impossible_version_is_nobodys(impossible: dict[str, int]) -> None:
    """Of an epoch that is still to come, or so large that no later version fits: nothing could be copied any longer."""
    forged = msgspec.structs.replace(table(19, 190), data_version=msgspec.structs.replace(version(19), **impossible))
    assert await taken(Members({A: (0.0, forged), B: (0.01, table(18, 180))}), held=table(17, 170)) == 180


@pytest.mark.looptime
async def test_a_table_of_the_epoch_that_is_held_is_possible() -> None:
    """The group had controllers and has none now, so its epoch is lower than that of its tables."""
    newer = table(18, 180, epoch=9)
    assert await taken(Members({A: (0.0, newer)}), held=table(17, 170, epoch=9), addresses=(A,)) == 180


@pytest.mark.looptime
async def test_an_offset_that_an_operator_reset_is_not_set_again() -> None:
    before, reset = table(17, 170), table(18, 3)
    assert await taken(Members({A: (0.0, before)}), held=reset, addresses=(A,)) == 3, "a member missed the reset"
    assert await taken(Members({A: (0.0, reset)}), held=before, addresses=(A,)) == 3, "the new master missed it"


@pytest.mark.looptime
async def test_a_silent_member_costs_no_more_than_the_patience() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    members = Members({A: (3_600.0, table(19, 190)), B: (0.1, table(18, 180))})
    assert await taken(members, held=table(17, 170)) == 180
    assert loop.time() - began == PATIENCE_SECONDS
    for answer in (None, b"no json", b'{"dataVersion":7}'):
        began = loop.time()
        assert await taken(Members({A: (0.0, answer), B: (0.0, table(18, 180))}), held=table(17, 170)) == 180
        assert loop.time() == began, "a closed port, or a bad answer, costs nothing"


@pytest.mark.looptime
async def test_a_table_that_is_too_large_is_left_out() -> None:
    large = ConsumerOffsetsFile(
        data_version=version(19), offset_table={f"T{number}@G": {0: 1} for number in range(150_000)}
    )
    assert await taken(Members({A: (0.0, large), B: (0.0, table(18, 180))}), held=table(17, 170)) == 180


@pytest.mark.looptime
async def test_a_full_record_makes_no_table_too_large() -> None:
    numbers = range(acting_commits.MAX_ACTING)
    commits = ActingCommits(
        base=version(19), commits={"T@G": tuple(ActingCommit(number, 1_000_000, 999_999) for number in numbers)}
    )
    queues = {f"T{number}@G": dict.fromkeys(range(1000), 10**9) for number in range(80)}
    large = ConsumerOffsetsFile(version(19), {**queues, "T@G": {0: 190}}, commits)
    assert 1024 * 1024 < len(encode_body(large)) - len(encode_body(commits)) < 1536 * 1024
    assert await taken(Members({A: (0.0, large), B: (0.0, table(18, 180))}), held=table(17, 170)) == 190


@pytest.mark.looptime
async def test_the_members_may_be_named_late_or_never() -> None:
    loop = asyncio.get_running_loop()
    members = Members({A: (0.0, table(18, 180))})
    offsets = ConsumerOffsets()
    sync = ReverseSync(offsets=offsets, client=members)
    sync.on_others(Others(5, (A,)))
    began = loop.time()
    await sync.run(6)
    assert (loop.time() - began, members.asked) == (PATIENCE_SECONDS, []), "those of an earlier epoch are not asked"
    running_on = asyncio.create_task(sync.run(7))
    await asyncio.sleep(0.1)
    sync.on_others(Others(7, (A,)))
    await running_on
    assert offsets.find("G", "T", 0) == 180


async def test_only_a_master_makes_versions(tmp_path: Path) -> None:
    settings: BrokerSettings = settings_for(tmp_path)
    role = ReplicaRole(settings.put_ok)
    tables = ConsumerTables(settings, role)
    tables.offsets.load(version(17), {"T@G": {0: 170}})
    role.follow(6, A)
    tables.on_role_change()
    finish(tables.offsets.take_changes({"T@G": {0: 171}}, (), begins=True, ends=False))
    assert tables.offsets_version() == version(17)
    role.lose_role("its master is gone before it was copied")
    tables.on_role_change()
    tables.offsets.commit("G", "T", 0, 172)
    assert tables.offsets_version() == version(17), "half of a table is not newer than another slave's"
    tables.offsets.merge({"T@G": {0: 173}})
    tables.offsets.copied(version(19))
    role.prepare(7)
    tables.on_role_change()
    tables.offsets.commit("G", "T", 0, 174)
    assert tables.offsets_version() == version(19), "and neither is a table that is being completed"
    role.grant(7, FOREVER)
    tables.on_role_change()
    assert (tables.offsets_version().state_version, tables.offsets_version().counter) == (7, 20)
    tables.offsets.commit("G", "T", 0, 175)
    role.lose_role("the lease has ended")
    tables.on_role_change()
    last = tables.offsets_version()
    assert (last.state_version, last.counter) == (7, 21), "what was committed until then is newer than any copy of it"
    tables.offsets.commit("G", "T", 0, 176)
    assert tables.offsets_version() == last


def offset_of(broker: Group) -> int | None:
    return broker.app.tables.offsets.find("G", "T", 0)


async def test_what_only_another_slave_has_when_the_master_dies_is_at_the_next_master(tmp_path: Path) -> None:
    async with a_group(tmp_path) as (master, second, third):
        await master.call(topic_request())
        assert (await master.call(commit_request(7))).code == 0
        second.sidecar.send(NoRole("cut off"))
        while second.app.role.role is not Role.NONE:
            await asyncio.sleep(0)
        await in_sync(master, frozenset({1, 3}))
        assert (await master.call(commit_request(9))).code == 0
        assert (await master.call(commit_request(8))).code == 0, "an operator's reset"
        assert [offset_of(broker) for broker in (second, third)] == [7, 8]
        second.sidecar.others = (third.address, "127.0.0.1:1")
        await second.sidecar.make_master(2, hello=False)
        assert offset_of(second) == 8
        # the one that is not newer says so, and sends nothing
        held = second.app.tables.offsets_version()
        answer = await third.call(newer_offsets_request(held))
        assert b'"offsetTable":{}' in answer.body


async def test_the_grant_waits_for_the_tables_and_a_lost_link_does_not(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        asked = asyncio.Event()

        async def never(_epoch: int) -> None:
            asked.set()
            await asyncio.Event().wait()

        group.app.replica.on_prepared = never
        await group.sidecar.receive(Hello)
        group.sidecar.send(Prepare(1))
        await group.sidecar.receive(Prepared)
        group.sidecar.send(Grant(1, FOREVER))
        await asked.wait()
        assert (await group.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        group.sidecar.hang_up()
        await group.sidecar.receive(Hello)
        lock = WriterLock(tmp_path / "store" / "writer.lock")
        lock.acquire()
        lock.release()


async def test_skip_pre_online_asks_nobody(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False, skipPreOnline=True) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.epoch = 1
        group.sidecar.send(Prepare(1))
        prepared = await group.sidecar.receive(Prepared)
        group.sidecar.send(Grant(1, FOREVER))
        group.sidecar.acknowledge(prepared.max_offset)
        while group.app.role.role is not Role.MASTER:
            await asyncio.sleep(0)
