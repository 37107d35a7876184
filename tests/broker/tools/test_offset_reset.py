"""222 with useServerSideResetOffset, the default: the broker moves a group, whether its consumers are online or not."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from rocketmq_broker.domain.tables import pending_resets
from rocketmq_broker.domain.tables.pending_resets import PendingResets
from rocketmq_broker.tools import offset_reset
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.broker_admin import (
    DeleteSubscriptionGroupRequestHeader,
    ResetOffsetBody,
    ResetOffsetRequestHeader,
)
from rocketmq_formats.remoting.client import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.replica_link import Following, Release
from rocketmq_runtime.remoting import slow_lane
from tests.broker.broker_kit import Group, pull_request, running
from tests.broker.raw_client import connected

QUEUES = 2


def reset(**fields: object) -> RemotingCommand:
    values = {"topic": "T", "group": "G", "timestamp": 0} | fields
    return request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(**values))  # type: ignore[arg-type]  # fields of a test's choice


async def filled(group: Group) -> None:
    """Two messages in each queue of T, all consumed by G."""
    for number in range(2):
        for queue_id in range(QUEUES):
            await group.send(queue_id=queue_id, default_topic_queue_nums=QUEUES)
            answer = await group.pull(number, queue_id=queue_id, suspend_ms=20_000)
            assert answer.code == ResponseCode.SUCCESS, "visible"
    for queue_id in range(QUEUES):
        assert (await commit(group, 2, queue_id)).code == ResponseCode.SUCCESS


async def commit(group: Group, offset: int, queue_id: int = 0) -> RemotingCommand:
    header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=queue_id, commit_offset=offset)
    return await group.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


async def committed(group: Group, queue_id: int = 0) -> str:
    header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=queue_id)
    answer = await group.call(request(RequestCode.QUERY_CONSUMER_OFFSET, header))
    return (answer.ext_fields or {})["offset"]


def targets(answer: RemotingCommand) -> dict[int, int]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return {queue.queue_id: offset for queue, offset in ResetOffsetBody.decode(answer.body).offset_table.items()}


async def test_a_group_that_is_not_online_is_moved(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await filled(group)
        assert targets(await group.call(reset())) == {0: 0, 1: 0}
        assert [await committed(group, queue_id) for queue_id in range(QUEUES)] == ["0", "0"]
        assert targets(await group.call(reset(timestamp=-1))) == {0: 2, 1: 2}
        assert targets(await group.call(reset(queue_id=1, offset=1))) == {1: 1}
        assert [await committed(group, queue_id) for queue_id in range(QUEUES)] == ["2", "1"]
        # a new group, which never committed: as Java's tools, which make groups first
        assert group.app.tables.groups.find("new") is not None
        assert targets(await group.call(reset(group="new"))) == {0: 0, 1: 0}


async def test_a_consumer_hears_of_it_with_its_next_pull_and_only_once(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await filled(group)
        await group.call(reset())
        late = await commit(group, 2)
        assert (late.code, late.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
        flags = PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET
        answer = await group.pull(2, sys_flag=flags, commit_offset=2)
        fields = answer.ext_fields or {}
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert (fields["nextBeginOffset"], fields["minOffset"], fields["maxOffset"]) == ("0", "0", "2")
        assert await committed(group) == "0", "neither commit undid it"
        assert (await group.pull(2, suspend_ms=0)).code == ResponseCode.PULL_NOT_FOUND
        assert (await commit(group, 1)).remark is None
        assert await committed(group) == "1"
        # who begins where it was reset to needs no correction
        answer = await group.pull(0, queue_id=1)
        assert answer.code == ResponseCode.SUCCESS
        assert (await commit(group, 1, 1)).remark is None


async def test_a_consumer_that_has_read_ahead_hears_that_its_messages_are_skipped(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await filled(group)
        assert (await group.call(reset(timestamp=-1))).code == ResponseCode.SUCCESS
        assert (await group.pull(2, commit_offset=1)).code == ResponseCode.PULL_OFFSET_MOVED
        assert (await group.call(reset(timestamp=-1))).code == ResponseCode.SUCCESS
        assert (await group.pull(2, commit_offset=2)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_pull_that_waits_is_answered_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as group, connected(group) as consumer:
        await filled(group)
        mine = consumer.ask(pull_request(2, suspend_ms=60_000))
        others = consumer.ask(pull_request(2, suspend_ms=60_000, consumer_group="other"))
        while len(group.app.core.held) < 2:
            await group.pull(0)
        await group.call(reset(queue_id=0, offset=1))
        answer = await consumer.answered(mine)
        assert (answer.remark, (answer.ext_fields or {})["nextBeginOffset"]) == ("OFFSET_RESET", "1")
        assert len(group.app.core.held) == 1
        await group.send(default_topic_queue_nums=QUEUES)
        assert (await consumer.answered(others)).code == ResponseCode.SUCCESS
        assert (await commit(group, 1)).remark is None, "it has heard of it"


async def test_what_cannot_be_reset_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await filled(group)
        refusals = {
            (ResponseCode.TOPIC_NOT_EXIST, "Topic none does not exist"): reset(topic="none"),
            (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group none does not exist"): reset(group="none"),
            (ResponseCode.SYSTEM_ERROR, "Target offset 3 not in consume queue range [0-2]"): reset(
                queue_id=0, offset=3
            ),
        }
        for expected, asked in refusals.items():
            answer = await group.call(asked)
            assert (answer.code, answer.remark) == expected
        assert (await group.call(reset(queue_id=QUEUES))).code == ResponseCode.INVALID_PARAMETER
        assert await committed(group) == "2"

        await group.call(reset())
        group.sidecar.send(Release())
        group.sidecar.send(Following(2, 2, "127.0.0.1:1"))
        while (await group.send()).code == ResponseCode.SUCCESS:
            pass
        assert (await group.call(reset())).remark == "Can not reset offset in slave broker"
        assert group.app.tables.offsets.pending_resets.find("G", "T", 0) is None, "its next master's business"


async def test_a_topic_that_is_deleted_meanwhile_gets_no_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as group:
        await filled(group)
        search = group.app.store.offset_by_time

        def delete(topic: str, queue_id: int, timestamp: int) -> int:
            group.app.topics.delete(topic, state_version=1, now_ms=1)
            group.app.tables.offsets.remove(topics={topic})
            return search(topic, queue_id, timestamp)

        monkeypatch.setattr(group.app.store, "offset_by_time", delete)
        assert (await group.call(reset())).code == ResponseCode.TOPIC_NOT_EXIST
        assert group.app.tables.offsets.find("G", "T", 0) is None


async def test_others_work_between_the_slices_of_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they delete the topic after the first slice: the rest is not moved, and the tool hears of it."""
    monkeypatch.setattr(offset_reset, "SLICE", 1, raising=False)
    monkeypatch.setattr(slow_lane, "STEP_SECONDS", 0.0)
    async with running(tmp_path) as group:
        await filled(group)
        offsets, moved = group.app.tables.offsets, []
        reset_one = offsets.reset

        def move(consumer_group: str, topic: str, queue_id: int, offset: int) -> bool:
            moved.append(queue_id)
            asyncio.get_running_loop().call_soon(partial(group.app.topics.delete, topic, state_version=1, now_ms=1))
            return reset_one(consumer_group, topic, queue_id, offset)

        monkeypatch.setattr(offsets, "reset", move)
        assert (await group.call(reset())).code == ResponseCode.TOPIC_NOT_EXIST
        assert moved == [0]


async def test_a_deleted_group_leaves_no_reset(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await filled(group)
        await group.call(reset())
        header = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
        await group.call(request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))
        assert (await group.pull(2)).remark != "OFFSET_RESET"


def test_pending_resets_are_bounded_and_go_with_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_resets, "MAX_PENDING", 3)
    resets = PendingResets()
    for number in range(4):
        resets.add("G", f"T{number}", 0, number)
    assert [resets.find("G", f"T{number}", 0) for number in range(4)] == [None, 1, 2, 3]
    resets.remove(topics={"T1"})
    assert resets.take("G", "T1", 0) is None
    assert (resets.take("G", "T2", 0), resets.take("G", "T2", 0)) == (2, None)
    resets.remove(groups={"G"})
    assert resets.find("G", "T3", 0) is None
