"""NothingGoesBack with real processes: what a strict group acknowledged to a tool or a consumer is at the next master,
whether the last one was killed right after its answer or has handed over."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    GetSubscriptionGroupConfigRequestHeader,
    TopicRequestHeader,
)
from rocketmq_formats.remoting.client import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.topics import SubscriptionGroupConfig
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from tests.processes.replica_group import PATIENCE, Group, Member, group
from tests.topic_requests import topic_request

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


class Tool:
    """Requests to masters."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def ask(self, member: Member, command: RemotingCommand) -> RemotingCommand:
        return await self._client.call(member.replica.address, command, timeout=10)

    async def change(self, master: Member, number: int) -> None:
        """A topic, and a group that must not consume."""
        config = encode_body(SubscriptionGroupConfig(group_name=f"G{number}", consume_enable=False))
        for command in (
            topic_request(f"T{number}", 3),
            request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config),
        ):
            answer = await self.ask(master, command)
            assert answer.code == 0, answer.remark

    async def changed(self, master: Member, number: int) -> None:
        """It exists."""
        topic = await self.ask(master, request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic=f"T{number}")))
        assert topic.code == 0, topic.remark
        header = GetSubscriptionGroupConfigRequestHeader(group=f"G{number}")
        answer = await self.ask(master, request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header))
        assert not decode_body(SubscriptionGroupConfig, answer.body).consume_enable

    async def commit(self, master: Member, offset: int) -> int:
        header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T0", queue_id=0, commit_offset=offset)
        return (await self.ask(master, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))).code

    async def leads(self, member: Member) -> bool:
        """Unchanged: slaves accept commits too, which do not last."""
        answer = await self.ask(member, request(RequestCode.EXCHANGE_BROKER_HA_INFO))
        return "masterAddress" in (answer.ext_fields or {})

    async def committed(self, master: Member) -> int:
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="T0", queue_id=0)
        answer = await self.ask(master, request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        return int((answer.ext_fields or {})["offset"])


async def next_master(replicas: Group, killed: Member) -> Member:
    """The master among the remaining replicas."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for member in replicas.others(killed):
                view = await member.view()
                if view is not None and view.role.name == "MASTER":
                    return member
            await asyncio.sleep(0.01)


async def any_master(replicas: Group) -> Member:
    """The one that serves now."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for member in replicas.members:
                view = await member.view()
                if view is not None and view.role.name == "MASTER":
                    return member
            await asyncio.sleep(0.01)


async def test_changes_by_tools_survive_the_master_that_acknowledged_them(tmp_path: Path, ports: PortPool) -> None:
    client = RemotingClient()
    tool = Tool(client)
    try:
        async with group(tmp_path, ports) as replicas:
            for number in range(3):
                master = await replicas.settled()
                await tool.change(master, number)
                master.kill()
                new = await next_master(replicas, master)
                for earlier in range(number + 1):
                    await tool.changed(new, earlier)
                master.start_again()
    finally:
        await client.close()


async def test_committed_offsets_do_not_go_back_at_hand_overs(tmp_path: Path, ports: PortPool) -> None:
    client = RemotingClient()
    tool = Tool(client)
    try:
        async with group(tmp_path, ports) as replicas:
            master = await replicas.settled()
            await tool.change(master, 0)
            offset = taken = 0
            for _ in range(3):
                handing_over = asyncio.create_task(master.client.hand_over(None, seconds=20.0))
                while not handing_over.done():
                    offset += 1
                    if await tool.commit(master, offset) == 0 and await tool.leads(master):
                        taken = offset
                await handing_over
                master = await replicas.settled()
                assert await tool.committed(master) >= taken
    finally:
        await client.close()


async def test_confirmed_offsets_are_at_the_next_master_whoever_that_is(tmp_path: Path, ports: PortPool) -> None:
    """kill -9 in the middle of commits. The processes of the killed master start again at once, so that now another
    member is elected, now the one that knows only what its file kept."""
    client = RemotingClient()
    tool = Tool(client)
    try:
        async with group(tmp_path, ports) as replicas:
            offset = taken = 0
            for _ in range(4):
                master = await replicas.settled()
                await tool.change(master, 0)

                async def commit_on(master: Member) -> None:
                    nonlocal offset, taken
                    while True:
                        offset += 1
                        if await tool.commit(master, offset) == 0:
                            taken = offset

                committing = asyncio.create_task(commit_on(master))
                before = taken
                while taken < before + 100:
                    await asyncio.sleep(0.01)
                master.kill()
                master.start_again()
                with pytest.raises(RemotingError):
                    await committing
                new = await any_master(replicas)
                assert taken <= await tool.committed(new) <= offset
    finally:
        await client.close()


async def test_a_crash_takes_no_more_of_the_offsets_than_one_round_trip_to_the_slaves(
    tmp_path: Path, ports: PortPool
) -> None:
    """Commits are answered before the slaves have them. What one exchange of tables with all of them came after, which
    the answer to a tool's change proves, outlives kill -9; the commits since then may go."""
    client = RemotingClient()
    tool = Tool(client)
    try:
        async with group(tmp_path, ports) as replicas:
            offset = 0
            for number in range(3):
                master = await replicas.settled()
                await tool.change(master, 0)
                for _ in range(20):
                    offset += 1
                    assert await tool.commit(master, offset) == 0
                copied = offset
                await tool.change(master, number + 1)
                for _ in range(5):
                    offset += 1
                    assert await tool.commit(master, offset) == 0
                master.kill()
                new = await next_master(replicas, master)
                assert copied <= await tool.committed(new) <= offset
                master.start_again()
    finally:
        await client.close()
