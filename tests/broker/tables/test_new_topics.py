"""A message that makes its topic is acknowledged when the slaves in sync have that too: the next master would have to
guess the topic's settings from its log (NothingGoesBack)."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_broker.tables import table_copies
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import ConsumerSendMsgBackRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.replica_link import NoRole, Release
from rocketmq_formats.topics import TopicConfig
from tests.broker.broker_kit import Group, running, send_request
from tests.broker.tables.test_table_copies import a_group, in_sync

ONE_AND_TWO = frozenset({1, 2})


def first_send(topic: str) -> RemotingCommand:
    return send_request(topic=topic, default_topic_queue_nums=3)


def send_back() -> RemotingCommand:
    """Of the first message in the log."""
    header = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=0, origin_topic="T")
    return request(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def leaves(slave: Group) -> None:
    """It copies nothing from now on."""
    slave.sidecar.send(NoRole("it follows nobody"))
    while slave.app.role.master_address is not None:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_topic_is_at_the_slaves_when_its_first_message_is_acknowledged(tmp_path: Path) -> None:
    async with a_group(tmp_path) as (master, second, third):
        for number in range(10):
            name = f"T{number}"
            assert (await master.call(first_send(name))).code == ResponseCode.SUCCESS
            topic = TopicConfig(topic_name=name, read_queue_nums=3, write_queue_nums=3)
            assert [member.app.topics.get(name) for member in (master, second, third)] == [topic] * 3


@pytest.mark.parametrize("command", [first_send("New"), send_back()], ids=["send", "send back"])
async def test_a_slave_without_the_topic_leaves_its_first_message_unacknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: RemotingCommand
) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 0.2)
    async with a_group(tmp_path) as (master, _, third):
        assert (await master.send(topic="T")).code == ResponseCode.SUCCESS
        await leaves(third)
        answer = await master.call(command)
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await master.send(topic="T")).code == ResponseCode.SUCCESS, "others do not wait for that"


async def test_who_is_not_in_the_set_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 1e9)
    async with a_group(tmp_path) as (master, _, third):
        await leaves(third)
        answer = asyncio.create_task(master.call(first_send("New")))
        while master.app.topics.get("New") is None:
            await asyncio.sleep(0)
        await in_sync(master, ONE_AND_TWO)
        assert (await answer).code == ResponseCode.SUCCESS


async def test_a_mastership_that_ends_acknowledges_no_first_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 1e9)
    async with a_group(tmp_path) as (master, _, third):
        assert (await master.send(topic="T")).code == ResponseCode.SUCCESS
        await leaves(third)
        answer = asyncio.create_task(master.call(first_send("New")))
        while master.app.topics.get("New") is None:
            await asyncio.sleep(0)
        assert (await master.send(topic="T")).code == ResponseCode.SUCCESS, "so the first message has its copies too"
        master.sidecar.send(Release())
        assert (await answer).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_relaxed_durability_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 1e9)
    async with running(tmp_path, durability="relaxed") as master:
        await in_sync(master)
        assert (await master.call(first_send("New"))).code == ResponseCode.SUCCESS
