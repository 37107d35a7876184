"""Answers that take long: in steps, one at a time, in bounded number."""

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from rocketmq_broker.tables import table_body
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import CreateTopicRequestHeader, TopicRequestHeader, TopicStatsTable
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.topics import SubscriptionGroupConfig
from rocketmq_runtime.remoting import slow_lane
from tests.broker.broker_kit import Group, running
from tests.runtime.remoting.remoting_kit import raw

QUEUES = 500


async def create(group: Group) -> None:
    header = CreateTopicRequestHeader(
        topic="Wide", default_topic="TBW102", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
    )
    assert (await group.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))).code == 0


def stats(opaque: int = 0) -> RemotingCommand:
    return request(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic="Wide"), opaque=opaque)


def a_step_per_queue(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(group.app.services.lane, "_clock", lambda: float(next(ticks)))


async def test_sends_are_answered_while_many_queues_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "store") as group, raw(group.app.servers[0]) as tool:
        await create(group)
        a_step_per_queue(group, monkeypatch)
        tool.send(*(stats(opaque) for opaque in range(1, 9)))
        asking = asyncio.ensure_future(tool.receive())
        for _ in range(5):
            assert (await group.send()).code == 0
        assert not asking.done(), "8 x 500 steps, and no send waits for more than a few of them"
        for answer in [await asking, *[await tool.receive() for _ in range(7)]]:
            assert len(TopicStatsTable.decode(answer.body).offset_table) == QUEUES


async def test_no_more_than_some_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "store") as group, raw(group.app.servers[0]) as tool:
        await create(group)
        a_step_per_queue(group, monkeypatch)
        tool.send(*(stats(opaque) for opaque in range(1, 21)))
        codes = [(await tool.receive()).code for _ in range(20)]
        assert codes.count(ResponseCode.SYSTEM_BUSY) == 20 - slow_lane.MAX_WAITING_OF_PEER
        assert codes.count(0) == slow_lane.MAX_WAITING_OF_PEER
        assert not group.app.services.lane.waiting


async def test_a_peer_that_does_not_read_gets_no_more_of_them(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group, raw(group.app.servers[0]) as tool:
        await create(group)
        group.app.servers[0].memory.unsent.limit = -1
        tool.send(stats(1))
        answer = await tool.receive()
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_BUSY, b"")


async def test_a_disk_that_fails_is_one_line_and_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    async with running(tmp_path / "store") as group:
        await create(group)
        await group.send()
        monkeypatch.setattr(group.app.store, "get", fail)
        monkeypatch.setattr(group.app.store, "queue_bounds", fail)
        capfd.readouterr()
        for _ in range(3):
            pulled = await group.pull(0)
            assert (pulled.code, pulled.remark) == (ResponseCode.SYSTEM_ERROR, "OSError: [Errno 5] Input/output error")
        assert (await group.call(stats())).code == ResponseCode.SYSTEM_ERROR
        written = "".join(capfd.readouterr())
        assert written.count("store cannot be read: check the disk") == 2
        assert "Traceback" not in written


@pytest.mark.parametrize(
    "code", [RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG], ids=["topics", "groups"]
)
async def test_sends_are_answered_while_a_whole_table_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    async with running(tmp_path / "store") as group, raw(group.app.servers[0]) as tool:
        names = [f"Name{number}" for number in range(50)]
        for name in names:
            if code == RequestCode.GET_ALL_TOPIC_CONFIG:
                header = CreateTopicRequestHeader(
                    topic=name, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
                )
                assert (await group.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))).code == 0
            else:
                config = encode_body(SubscriptionGroupConfig(group_name=name))
                asked = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
                assert (await group.call(asked)).code == 0
        assert (await group.send()).code == 0  # creates a topic
        monkeypatch.setattr(table_body, "SLICE", 1)
        a_step_per_queue(group, monkeypatch)
        rests, go_on = 0, asyncio.Event()
        real = slow_lane.Pace.rest

        async def rest(pace: slow_lane.Pace) -> None:
            nonlocal rests
            rests += 1
            if rests == len(names) // 2:
                await go_on.wait()
            await real(pace)

        monkeypatch.setattr(slow_lane.Pace, "rest", rest)
        tool.send(request(code, opaque=1))
        asking = asyncio.ensure_future(tool.receive())
        while rests < len(names) // 2:
            await asyncio.sleep(0)
        assert (await group.send()).code == 0
        assert not asking.done()
        go_on.set()
        body = json.loads((await asking).body)
        table = body["topicConfigTable" if code == RequestCode.GET_ALL_TOPIC_CONFIG else "subscriptionGroupTable"]
        assert set(names) <= table.keys()
        assert body["dataVersion"]["counter"] >= len(names)
        # The same version is answered at once.
        tool.send(request(code, opaque=2))
        assert json.loads((await tool.receive()).body) == body
