"""What tests of acting masters share: the keys, what consumers see at a member, and a reader."""

import asyncio

from rocketmq_client.consumer import Consumer
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.client import GetMaxOffsetRequestHeader, OffsetResponseHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import send_request
from tests.processes.replica_group import PATIENCE, TOPIC, Group, Member

ACTING = {"enableSlaveActingMaster": True}
ROUTES = {"supportActingMaster": True}
"""Of the name servers."""
NOTIFYING = {**ROUTES, "notifyMinBrokerIdChanged": True}
"""Of name servers that also tell the members when one of them is gone."""
QUEUES = 8


class Reader:
    """Notes the numbers that a consumer gets, and from which groups."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.read: list[int] = []
        self.groups: list[str] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for message in self._consumer:
            self.read.append(int(message.body))
            self.groups.append(message.broker_name)
            self._consumer.done(message)

    async def until(self, wanted: set[int]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not wanted <= set(self.read):
                assert not self._task.done(), self._task
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def ends(client: RemotingClient, member: Member) -> list[int]:
    """How much of each queue consumers may see there."""
    found = []
    for queue_id in range(QUEUES):
        header = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=queue_id, committed=True)
        answer = await client.call(member.replica.address, request(RequestCode.GET_MAX_OFFSET, header))
        found.append(decode_header(OffsetResponseHeader, answer.ext_fields or {}).offset)
    return found


async def all_see(client: RemotingClient, replicas: Group, master: Member) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            wanted = await ends(client, master)
            others = [await ends(client, member) for member in replicas.others(master)]
            if all(its == wanted for its in others):
                return
            await asyncio.sleep(0.05)


async def refused_by(client: RemotingClient, member: Member, code: int) -> None:
    """It answers sends with this code, soon and from then on."""
    async with asyncio.timeout(PATIENCE):
        while (await client.call(member.replica.address, send_request(topic=TOPIC))).code != code:
            await asyncio.sleep(0.02)


async def says(member: Member, *, acts: bool) -> None:
    """Its sidecar says so, soon."""
    async with asyncio.timeout(PATIENCE):
        while (view := await member.view()) is None or view.acting_master is not acts:
            await asyncio.sleep(0.02)
