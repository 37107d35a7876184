"""A master is killed as soon as it has answered about topics and groups that did not exist a moment ago: the next one
serves them, with all that was acknowledged and as they were made. Real processes."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from rocketmq_client.errors import ClientError
from rocketmq_client.reading import read_all
from rocketmq_client.routes import Routes
from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    CreateTopicRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    TopicRequestHeader,
)
from rocketmq_formats.remoting.client import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.topics import SubscriptionGroupConfig, TopicConfig
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from tests.broker.broker_kit import send_request
from tests.processes.replica_group import PATIENCE, Group, Member, group
from tests.processes.replicas.test_nothing_goes_back import next_master

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ROUNDS = 3
SENT = 30
"""Topics that sends make, at the same time."""
QUEUES = 3


async def topic_at(client: RemotingClient, member: Member, name: str) -> TopicConfig | None:
    command = request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic=name))
    answer = await client.call(member.replica.address, command, timeout=10)
    return None if answer.code else decode_body(TopicConfig, answer.body)


async def served(client: RemotingClient, replicas: Group, master: Member, topic: str, bodies: list[bytes]) -> None:
    """It is written and read by its route, and has these messages."""
    routes = Routes(client, [replicas.name_server])
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(ClientError):
                route = await routes.refresh(topic)
                if any(queue.address == master.replica.address for queue in route.publish):
                    break
            await asyncio.sleep(0.05)
        while (await client.call(master.replica.address, send_request(b"more", topic=topic))).code != 0:
            await asyncio.sleep(0.05)
        while {message.body for message in await read_all(client, routes, topic)} != {*bodies, b"more"}:
            await asyncio.sleep(0.05)


async def test_topics_of_first_sends_are_at_the_next_master(tmp_path: Path, ports: PortPool) -> None:
    client = RemotingClient()
    try:
        async with group(tmp_path, ports) as replicas:
            for number in range(ROUNDS):
                master = await replicas.settled()
                acknowledged: dict[str, bytes] = {}

                async def send(
                    topic: str, body: bytes, master: Member = master, known: dict[str, bytes] = acknowledged
                ) -> None:
                    command = send_request(body, topic=topic, default_topic_queue_nums=QUEUES)
                    answer = await client.call(master.replica.address, command, timeout=10)
                    if answer.code == ResponseCode.SUCCESS:
                        known[topic] = body

                sends = [asyncio.create_task(send(f"sent-{number}-{one}", b"%d" % one)) for one in range(SENT)]
                while not acknowledged:
                    await asyncio.sleep(0)
                master.kill()
                for ended in await asyncio.gather(*sends, return_exceptions=True):
                    assert ended is None or isinstance(ended, RemotingError)
                new = await next_master(replicas, master)
                for topic, body in acknowledged.items():
                    expected = TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
                    assert await topic_at(client, new, topic) == expected
                    await served(client, replicas, new, topic, [body])
                master.start_again()
    finally:
        await client.close()


async def test_a_topic_and_a_group_of_tools_are_at_the_next_master(tmp_path: Path, ports: PortPool) -> None:
    client = RemotingClient()
    try:
        async with group(tmp_path, ports) as replicas:

            async def ask(member: Member, command: RemotingCommand) -> RemotingCommand:
                answer = await client.call(member.replica.address, command, timeout=10)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                return answer

            for number in range(ROUNDS):
                master = await replicas.settled()
                topic = TopicConfig(
                    topic_name=f"made-{number}",
                    read_queue_nums=5,
                    write_queue_nums=QUEUES,
                    order=True,
                    attributes={"message.type": "FIFO"},
                )
                header = CreateTopicRequestHeader(
                    topic=topic.topic_name,
                    default_topic="TBW102",
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=topic.write_queue_nums,
                    perm=topic.perm,
                    order=True,
                    attributes="+message.type=FIFO",
                )
                consumers = SubscriptionGroupConfig(group_name=f"group-{number}", retry_max_times=3, retry_queue_nums=2)
                await ask(master, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
                made = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(consumers))
                await ask(master, made)
                for one in range(10):
                    await ask(master, send_request(b"%d" % one, topic=topic.topic_name))
                commit = UpdateConsumerOffsetRequestHeader(
                    consumer_group=consumers.group_name, topic=topic.topic_name, queue_id=0, commit_offset=7
                )
                await ask(master, request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
                master.kill()

                new = await next_master(replicas, master)
                assert await topic_at(client, new, topic.topic_name) == topic
                named = GetSubscriptionGroupConfigRequestHeader(group=consumers.group_name)
                answer = await ask(new, request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, named))
                assert decode_body(SubscriptionGroupConfig, answer.body) == consumers
                query = QueryConsumerOffsetRequestHeader(
                    consumer_group=consumers.group_name, topic=topic.topic_name, queue_id=0
                )
                answer = await ask(new, request(RequestCode.QUERY_CONSUMER_OFFSET, query))
                assert (answer.ext_fields or {})["offset"] == "7"
                await served(client, replicas, new, topic.topic_name, [b"%d" % one for one in range(10)])
                master.start_again()
    finally:
        await client.close()
