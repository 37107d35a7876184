"""A slave that acts as master (RIP-32): what it serves, what it refuses, and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.client import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    SubscriptionData,
)
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.replica_link import Alive, Following, MasterKnown, Probe, Release
from rocketmq_formats.store.config_files import (
    NEVER,
    ActingCommit,
    ActingCommits,
    ConsumerOffsetsFile,
    decode_config,
)
from rocketmq_formats.table_copies import newer_offsets_request
from rocketmq_formats.topics import DataVersion
from tests.broker.broker_kit import Group, running, send_request

MASTER = "127.0.0.1:1"


def registered(group: Group, *ids: int) -> None:
    """What a name server says."""
    group.app.core.members.update(dict.fromkeys(ids, "127.0.0.1:9"))
    group.app._on_registered_members()


async def until(group: Group, *, acting: bool) -> None:
    while group.app.role.acting is not acting:
        await asyncio.sleep(0)


def follow(group: Group, epoch: int = 2) -> None:
    group.sidecar.send(Release())
    group.sidecar.send(Following(epoch, 2, MASTER))


@asynccontextmanager
async def acting(tmp_path: Path, **keys: object) -> AsyncIterator[Group]:
    """Three messages of T; a slave whose master died."""
    async with running(tmp_path / "store", enableSlaveActingMaster=True, **keys) as group:
        for _ in range(3):
            await group.send()
        follow(group)
        group.sidecar.send(MasterKnown(False))
        registered(group, 1, 3)
        await until(group, acting=True)
        yield group


async def held(group: Group, count: int) -> None:
    while len(group.app.core.held) != count:
        await asyncio.sleep(0)


def next_offset(answer: RemotingCommand) -> int:
    return int((answer.ext_fields or {})["nextBeginOffset"])


async def ask(at: Group, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
    return await at.call(RemotingCommand(code, ext_fields={"topic": "T", "queueId": "0", **fields}, body=body))


async def test_it_is_read_whatever_slave_read_enable_says(tmp_path: Path) -> None:
    async with acting(tmp_path) as group:
        answer = await group.pull(0)
        assert (answer.code, next_offset(answer)) == (0, 3)
        assert (answer.ext_fields or {})["suggestWhichBrokerId"] == "0"


async def test_its_sidecar_hears_of_it(tmp_path: Path) -> None:
    async def said(group: Group) -> bool:
        group.sidecar.send(Probe())
        return (await group.sidecar.receive(Alive)).acting

    async with acting(tmp_path) as group:
        assert await said(group)
        group.sidecar.send(MasterKnown(True))
        await until(group, acting=False)
        assert not await said(group)


async def test_a_pull_at_the_end_waits_as_at_a_master(tmp_path: Path) -> None:
    async with acting(tmp_path) as group:
        pulling = asyncio.ensure_future(group.pull(3, suspend_ms=60_000))
        await held(group, 1)
        group.sidecar.send(MasterKnown(True))
        assert (await pulling).code == ResponseCode.SYSTEM_BUSY, "look for the master"
        assert (await group.pull(0)).code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("offset", [7, 3])
async def test_it_moves_no_consumer_that_is_ahead_of_its_log(tmp_path: Path, offset: int) -> None:
    """A master that returns has the rest."""
    async with acting(tmp_path) as group:
        answer = await group.pull(offset)
        assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_NOT_FOUND, offset)
        empty = await group.pull(offset, queue_id=1)
        assert (empty.code, next_offset(empty)) == (ResponseCode.PULL_NOT_FOUND, offset)


async def test_it_moves_no_consumer_that_is_behind_its_log(tmp_path: Path) -> None:
    """A log may begin later than the master's: moved, the consumer would miss what the master still has."""
    async with acting(tmp_path) as group:
        queue = group.app.store._queues.find("T", 0)
        assert queue is not None
        queue.min_offset = 2
        answer = await group.pull(1)
        assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_NOT_FOUND, 1)
        assert (await group.pull(2)).code == 0


class Later:
    """The running loop's time, moved forward."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.seconds = 0.0

    def time(self) -> float:
        return self._loop.time() + self.seconds


async def test_when_acting_ends_consumers_with_old_routes_do_not_spin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave with slaveReadEnable sends them to the master, which they take this slave for."""
    async with acting(tmp_path, slaveReadEnable=True) as group:
        later = Later()
        monkeypatch.setattr(group.app.services.pulls, "_loop", later)
        group.sidecar.send(MasterKnown(True))
        await until(group, acting=False)
        assert (await group.pull(0)).code == 0
        assert (await group.pull(3)).code == ResponseCode.PULL_NOT_FOUND
        pulling = asyncio.ensure_future(group.pull(3, suspend_ms=60_000))
        await held(group, 1)
        assert not pulling.done()
        later.seconds = 31.0
        asked_early = "its route is of the moment before the new master registered, which took a second"
        assert (await group.pull(3)).code == ResponseCode.PULL_NOT_FOUND, asked_early
        later.seconds = 40.0
        assert (await group.pull(3)).code == ResponseCode.PULL_RETRY_IMMEDIATELY, "its routes are new by then"
        for known in (False, True):
            group.sidecar.send(MasterKnown(known))
            await until(group, acting=not known)
        assert (await pulling).code == ResponseCode.PULL_NOT_FOUND


async def test_only_the_least_of_the_registered_acts(tmp_path: Path) -> None:
    async with acting(tmp_path) as group:
        for ids in ((0, 1, 3), (1, 3), (1,)):
            registered(group, *ids)
            assert (await group.pull(0)).code == (ResponseCode.SYSTEM_BUSY if 0 in ids else 0)


@pytest.mark.parametrize("end", ["known", "registered", "elected", "other"])
async def test_when_there_is_a_master_consumers_look_for_it(tmp_path: Path, end: str) -> None:
    async with acting(tmp_path) as group:
        pulling = asyncio.ensure_future(group.pull(3, suspend_ms=60_000))
        await held(group, 1)
        if end == "known":
            group.sidecar.send(MasterKnown(True))
        elif end == "registered":
            registered(group, 0, 1, 3)
        elif end == "other":
            group.sidecar.send(Following(3, 3, "127.0.0.1:2"))
        else:
            await group.sidecar.make_master(3, hello=False)
            await group.send()
            assert (await pulling).code == 0, "its own consumers stay"
            return
        assert (await pulling).code == ResponseCode.SYSTEM_BUSY
        assert (await group.send()).code == ResponseCode.SYSTEM_BUSY


async def test_nothing_is_appended(tmp_path: Path) -> None:
    async with acting(tmp_path) as group:
        store = group.app.store
        end, topics = store.max_offset, group.app.topics.version
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            refused = await group.call(send_request(code=code, topic="New"))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        delayed = await group.send(properties="DELAY\x011\x02")
        assert delayed.code == ResponseCode.SERVICE_NOT_AVAILABLE
        back = await ask(group, RequestCode.CONSUMER_SEND_MSG_BACK, offset="0", group="G", delayLevel="0")
        assert (back.code, back.remark) == (ResponseCode.SYSTEM_ERROR, "no master available along with 127.0.0.1")
        ending = await ask(group, RequestCode.END_TRANSACTION)
        assert (ending.code, ending.remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, None)
        heartbeat = HeartbeatData(client_id="c", consumer_data_set=(subscriber(),))
        await ask(group, RequestCode.HEART_BEAT, encode_body(heartbeat))
        assert (store.max_offset, store.writer.held, group.app.topics.version) == (end, False, topics)


def subscriber() -> ConsumerData:
    return ConsumerData(
        group_name="G",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=(SubscriptionData(topic="T", sub_string="*"),),
    )


async def test_consumers_find_what_they_need(tmp_path: Path) -> None:
    async with acting(tmp_path) as group:
        for code, fields, offset in [
            (RequestCode.GET_MAX_OFFSET, {}, "3"),
            (RequestCode.GET_MIN_OFFSET, {}, "0"),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "0"}, "0"),
        ]:
            assert ((await ask(group, code, **fields)).ext_fields or {})["offset"] == offset
        earliest = await ask(group, RequestCode.GET_EARLIEST_MSG_STORETIME)
        assert int((earliest.ext_fields or {})["timestamp"]) > 1_700_000_000_000
        assert (await ask(group, RequestCode.VIEW_MESSAGE_BY_ID, offset="0")).code == 0
        heartbeat = HeartbeatData(client_id="c", consumer_data_set=(subscriber(),))
        assert (await ask(group, RequestCode.HEART_BEAT, encode_body(heartbeat))).code == 0
        listed = await ask(group, RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G")
        assert (listed.code, b'"c"' in listed.body) == (0, True)
        queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
        lock = LockBatchRequestBody(consumer_group="G", client_id="c", mq_set=frozenset({queue}))
        locked = await ask(group, RequestCode.LOCK_BATCH_MQ, encode_body(lock))
        assert decode_body(LockBatchResponseBody, locked.body).lock_ok_mq_set == {queue}
        assert (await ask(group, RequestCode.UNLOCK_BATCH_MQ, encode_body(lock))).code == 0


async def test_offsets_are_committed_by_request_and_by_pull(tmp_path: Path) -> None:
    async with acting(tmp_path) as group:
        commit = await ask(group, RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", commitOffset="2")
        assert commit.code == 0
        found = await ask(group, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G")
        assert (found.ext_fields or {})["offset"] == "2"
        pulling = PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET
        await group.pull(3, sys_flag=pulling, commit_offset=3)
        found = await ask(group, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G")
        assert (found.ext_fields or {})["offset"] == "3"


async def test_what_is_committed_meanwhile_is_recorded_for_the_next_master(tmp_path: Path) -> None:
    """The version stays the copied one: a counter cannot compare two tables that went different ways."""
    async with acting(tmp_path) as group:
        tables = group.app.tables

        async def commit(offset: int) -> None:
            text = str(offset)
            answer = await ask(group, RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", commitOffset=text)
            assert answer.code == 0

        masters = tables.offsets_version()
        await commit(1)
        await commit(2)
        group.sidecar.send(MasterKnown(True))
        await until(group, acting=False)
        assert (await ask(group, RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", commitOffset="3")).code != 0
        assert tables.offsets_version() == masters
        recorded = ActingCommits(base=masters, commits={"T@G": (ActingCommit(0, 2, NEVER),)})
        assert tables.offsets.acting.commits == recorded
        answer = await group.call(newer_offsets_request(masters))
        assert decode_config(ConsumerOffsetsFile, answer.body) == ConsumerOffsetsFile(
            data_version=masters, acting=recorded
        )
        answer = await group.call(newer_offsets_request(DataVersion()))
        assert decode_config(ConsumerOffsetsFile, answer.body).acting == recorded


async def test_strict_locks_alone_make_nobody_act(tmp_path: Path) -> None:
    """They need to know the members of the group too."""
    async with running(tmp_path / "store", lockInStrictMode=True, totalReplicas=3) as group:
        await group.send()
        follow(group)
        group.sidecar.send(MasterKnown(False))
        registered(group, 1, 3)
        while group.app.role.master_known:
            await asyncio.sleep(0)
        assert not group.app.role.acting
        assert (await group.pull(0)).code == ResponseCode.SYSTEM_BUSY


async def test_a_readable_slave_lets_nobody_spin_while_there_is_no_master(tmp_path: Path) -> None:
    async with running(tmp_path / "store", slaveReadEnable=True) as group:
        await group.send()
        follow(group)
        assert (await group.pull(1)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        group.sidecar.send(MasterKnown(False))
        while group.app.role.master_known:
            await asyncio.sleep(0)
        assert (await group.pull(1)).code == ResponseCode.PULL_NOT_FOUND
        unfound = asyncio.ensure_future(group.pull(1, suspend_ms=60_000))
        await held(group, 1)
        group.sidecar.send(MasterKnown(True))
        assert (await unfound).code == ResponseCode.PULL_NOT_FOUND, "and the next pull sends it to the master"
        assert not group.app.role.acting
