"""A topic that is deleted and made again starts empty: at the master, after a failover, after a restart."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_broker.tools import topic_deletion
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import TopicRequestHeader
from rocketmq_formats.remoting.client import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.replica_link import Hello, Hold, HoldKind, Welcome
from rocketmq_formats.store.message import read_records
from rocketmq_formats.topics import DELETED_TOPICS, SubscriptionGroupConfig
from tests.broker.broker_kit import Group, running
from tests.topic_requests import topic_request


async def delete(group: Group, topic: str = "T") -> RemotingCommand:
    return await group.call(request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic=topic)))


async def begin(group: Group, name: str) -> RemotingCommand:
    """A consumer asks where its group is."""
    header = QueryConsumerOffsetRequestHeader(consumer_group=name, topic="T", queue_id=0)
    return await group.call(request(RequestCode.QUERY_CONSUMER_OFFSET, header))


async def consumed(group: Group, name: str) -> list[bytes]:
    """What a consumer of the group gets, and commits."""
    answer = await begin(group, name)
    assert answer.code == 0, answer.remark
    pulled = await group.pull(int((answer.ext_fields or {})["offset"]), consumer_group=name)
    records = read_records(pulled.body, check_crc=True) if pulled.code == 0 else []
    if records:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=name, topic="T", queue_id=0, commit_offset=records[-1].queue_offset + 1
        )
        assert (await group.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, header))).code == 0
    return [bytes(record.body(pulled.body)) for record in records]


async def make_groups(group: Group) -> None:
    for name in ("G", "New"):
        body = encode_body(SubscriptionGroupConfig(group_name=name))
        assert (await group.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body))).code == 0


async def test_a_topic_that_is_made_again_starts_empty_for_old_groups_and_new_ones(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await make_groups(group)
        await group.call(topic_request())
        for body in (b"old 0", b"old 1"):
            await group.send(body)
        assert await consumed(group, "G") == [b"old 0", b"old 1"]
        assert (await delete(group)).code == 0
        await group.call(topic_request())
        assert await consumed(group, "New") == []
        for body in (b"new 0", b"new 1"):
            await group.send(body)
        for name in ("G", "New"):
            assert await consumed(group, name) == [b"new 0", b"new 1"]
    (tmp_path / "config" / "consumerOffset.json").unlink()
    async with running(tmp_path) as group:
        assert await consumed(group, "G") == [b"new 0", b"new 1"], "after a restart"


async def test_another_master_shows_nothing_of_a_deleted_topic(tmp_path: Path) -> None:
    """Its table is a copy from before the deletion; its log has it."""
    async with running(tmp_path) as group:
        await group.send(b"old")
        await group.call(topic_request("Other"))
    tables = {path: path.read_bytes() for path in (tmp_path / "config").iterdir() if path.suffix == ".json"}
    async with running(tmp_path) as group:
        assert (await delete(group)).code == 0
    for path, content in tables.items():
        path.write_bytes(content)
    async with running(tmp_path, master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        assert group.app.topics.get("T") is None
        await group.call(topic_request())
        assert await consumed(group, "G") == []
        assert group.app.topics.get(DELETED_TOPICS) is None, "not a topic that anybody needs"


@pytest.mark.parametrize(
    "copied", [(), ("topics.json",), ("consumerOffset.json",), ("topics.json", "consumerOffset.json")]
)
@pytest.mark.parametrize("visible", [True, False])
async def test_a_failover_in_the_middle_leaves_no_half(tmp_path: Path, copied: tuple[str, ...], visible: bool) -> None:
    """The next master has the deletion in its log and `copied` of the tables."""
    config = tmp_path / "config"
    async with running(tmp_path) as group:
        await make_groups(group)
        await group.send(b"old")
        assert await consumed(group, "G") == [b"old"]
        await group.app.tables.offsets_saved()
        old = {path: path.read_bytes() for path in config.iterdir() if path.suffix == ".json"}
        assert (await delete(group)).code == 0
    for path, content in old.items():
        if path.name not in copied:
            path.write_bytes(content)
    async with running(tmp_path, master=False, automatic=visible) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        if not visible:
            group.sidecar.acknowledge(group.app.store.max_offset)
        while group.app.topics.get("T") is not None:
            await asyncio.sleep(0)
        assert group.app.tables.offsets.groups_of("T") == []
        await group.call(topic_request())
        assert await consumed(group, "New") == []
    async with running(tmp_path, master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(3, hello=False)
        assert group.app.topics.get("T") is not None, "what was made again stays"


async def test_offsets_that_a_newer_table_was_added_to_go_too(tmp_path: Path) -> None:
    """A new master takes over the newest table of the members (43): what that one lacks stays in its own."""
    path = tmp_path / "config" / "consumerOffset.json"
    async with running(tmp_path) as group:
        await make_groups(group)
        await group.send(b"old")
        assert await consumed(group, "G") == [b"old"]
        await group.app.tables.offsets_saved()
        table = group.app.tables.offsets
        old = path.read_bytes().replace(b'"counter":%d' % table.version.counter, b'"counter":99')
        assert (await delete(group)).code == 0
    path.write_bytes(old)
    async with running(tmp_path, master=False) as group:
        await group.sidecar.receive(Hello)
        assert group.app.tables.offsets.version.counter == 99
        assert group.app.tables.offsets.groups_of("T") == ["G"]
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        assert group.app.tables.offsets.groups_of("T") == []


async def test_a_topic_that_was_made_again_stays_at_the_next_master(tmp_path: Path) -> None:
    """Also if the copy of the table is the one from before the deletion, and only its messages show that."""
    async with running(tmp_path) as group:
        await group.send(b"old")
        await group.app.core.topics_file.saved()
        old = (tmp_path / "config" / "topics.json").read_bytes()
        assert (await delete(group)).code == 0
        await group.call(topic_request())
        await group.send(b"new")
    (tmp_path / "config" / "topics.json").write_bytes(old)
    async with running(tmp_path, master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        assert group.app.topics.get("T") is not None
        assert await consumed(group, "New") == [b"new"]


async def test_repeated_at_a_master_that_has_the_table_but_not_the_record(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send(b"old")
    (tmp_path / "config" / "topics.json").unlink()
    async with running(tmp_path) as group:
        group.app.topics.delete("T", state_version=1, now_ms=1)
        assert (await delete(group)).code == 0
        await group.call(topic_request())
        assert await consumed(group, "G") == []


async def test_a_delayed_message_of_a_deleted_topic_is_not_delivered(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel="1s 1s") as group:
        await group.send(b"old", properties="DELAY\x011\x02")
        assert (await delete(group)).code == 0
        await group.send(b"new", properties="DELAY\x011\x02")
        answer = await group.pull(0, suspend_ms=15_000)
        records = read_records(answer.body, check_crc=True)
        assert [bytes(record.body(answer.body)) for record in records] == [b"new"]


async def test_it_is_acknowledged_when_its_record_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "CONFIRM_SECONDS", 0.1)
    async with running(tmp_path, automatic=False) as group:
        await group.call(topic_request())
        answer = await delete(group)
        assert (answer.code, "repeat" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
        group.sidecar.acknowledge(group.app.store.max_offset)
        assert (await delete(group)).code == 0


async def test_it_is_refused_while_nothing_may_be_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send(b"old")
        group.sidecar.send(Hold(1, HoldKind.FENCED, "for a test"))
        while group.app.role.held is None:
            await group.call(topic_request("Other"))
        answer = await delete(group)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert group.app.topics.get("T") is not None


async def test_no_producer_deletes(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        assert (await group.send(b"T", topic=DELETED_TOPICS)).code != 0
        assert (await delete(group, DELETED_TOPICS)).code == ResponseCode.INVALID_PARAMETER


async def test_queues_that_are_only_written_to_yet_stay_so(tmp_path: Path) -> None:
    """The way to give an ordered topic more queues: write first, read when the old ones are empty."""
    async with running(tmp_path) as group:
        await group.call(topic_request(queues=2))
        grown = topic_request(queues=4)
        (grown.ext_fields or {})["readQueueNums"] = "2"
        assert (await group.call(grown)).code == 0
        await group.send(queue_id=3)
        assert (await group.pull(0, queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
        topic = group.app.topics.get("T")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums) == (2, 4)
    async with running(tmp_path, master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        topic = group.app.topics.get("T")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums) == (2, 4), "at the next master too"
