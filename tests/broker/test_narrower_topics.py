"""A topic that an administrator has made narrower stays so, whatever is delivered into its former queues."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from rocketmq_broker.host import now_ms
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import ConsumerSendMsgBackRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.replica_link import Hello, Welcome
from tests.broker.broker_kit import Group, running
from tests.topic_requests import topic_request

DELAYED = "DELAY\x011\x02"
LEVELS = "2s"


def width(group: Group, topic: str = "T") -> tuple[int, int]:
    config = group.app.topics.get(topic)
    assert config is not None
    return config.read_queue_nums, config.write_queue_nums


async def delivered(group: Group, queue_id: int) -> None:
    while group.app.store.queue_bounds("T", queue_id)[1] == 0:
        await asyncio.sleep(0.05)
    await group.send(queue_id=0)  # one more turn: consumers have been notified


async def test_a_delayed_message_does_not_widen_it_here_nor_at_the_next_master(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel=LEVELS) as group:
        await group.call(topic_request(queues=4))
        assert (await group.send(queue_id=3, properties=DELAYED)).code == 0
        await group.call(topic_request(queues=2))
        await delivered(group, 3)
        assert width(group) == (2, 2)
    async with running(tmp_path, master=False, messageDelayLevel=LEVELS) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        assert width(group) == (2, 2)


@pytest.mark.parametrize("delayed", [False, True])
async def test_queues_that_the_table_does_not_know_yet_are_read(tmp_path: Path, *, delayed: bool) -> None:
    """The table of this replica is older than the message: an earlier master had made the topic wider."""
    async with running(tmp_path, messageDelayLevel=LEVELS) as group:
        await group.call(topic_request(queues=4))
        await group.send(queue_id=3, properties=DELAYED if delayed else "")
        if not delayed:
            await delivered(group, 3)
    async with running(tmp_path, master=False, messageDelayLevel=LEVELS) as group:
        table = group.app.topics
        narrow = msgspec.structs.replace(table.table["T"], read_queue_nums=2, write_queue_nums=2)
        table.put(narrow, state_version=1, now_ms=now_ms() - 3_600_000)
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        await delivered(group, 3)
        assert width(group) == (4, 2)


async def test_a_message_sent_back_goes_to_a_queue_that_is_read(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel="1s") as group:
        await group.send()
        await group.pull(0)
        wide = msgspec.structs.replace(group.app.tables.groups.table["G"], retry_queue_nums=4)
        group.app.tables.groups.put(wide)
        await group.call(topic_request("%RETRY%G", queues=1))
        for _ in range(3):
            header = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=1)
            answer = await group.call(request(RequestCode.CONSUMER_SEND_MSG_BACK, header))
            assert answer.code == ResponseCode.SUCCESS
        while group.app.store.queue_bounds("%RETRY%G", 0)[1] < 3:
            await asyncio.sleep(0.05)
        assert width(group, "%RETRY%G") == (1, 1)
