"""RIP-32 with real processes: controllers and master are gone, and consumers read on from the least slave."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rocketmq_client.consumer import Consumer
from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import GetMaxOffsetRequestHeader, OffsetResponseHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import send_request
from tests.gate.patience import patient
from tests.operator.manifests.cases import keys_set_by
from tests.processes.replica_group import PATIENCE, TOPIC, Group, Member, Sender, group
from tests.topic_requests import topic_request

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ACTING = {"enableSlaveActingMaster": True}
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


@pytest.mark.parametrize("compatible", [True, False], ids=["322-105", "904-901"])
async def test_consumers_read_on_without_controllers_and_master(
    tmp_path: Path, ports: PortPool, compatible: bool
) -> None:
    config = {**ACTING, "compatibleWithOldNameSrv": compatible}
    routes = {"supportActingMaster": True, "notifyMinBrokerIdChanged": True}
    client = RemotingClient()
    try:
        async with group(tmp_path, ports, config=config, name_server_config=routes) as replicas:
            master = await replicas.settled()
            first, second = replicas.others(master)
            ids = [(view.broker_id, member) for member in (first, second) if (view := await member.view())]
            ids.sort(key=lambda one: one[0])
            acting, other = (member for _, member in ids)
            async with Sender(replicas.name_server) as sender:
                await sender.more(200)
            await all_see(client, replicas, master)
            async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
                consumed = [await anext(consumer) for _ in range(20)]
                for message in consumed:
                    consumer.done(message)
                await consumer.commit()
            done = {int(message.body) for message in consumed}
            before = await ends(client, acting)

            assert replicas.controllers is not None
            replicas.controllers.close()
            master.kill()
            await refused_by(client, acting, ResponseCode.SERVICE_NOT_AVAILABLE)
            await refused_by(client, other, ResponseCode.SYSTEM_BUSY)
            await says(acting, acts=True)
            await says(other, acts=False)
            async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
                reader = Reader(consumer)
                await reader.until(set(sender.acknowledged) - done)
                await asyncio.sleep(2)  # its pulls wait at the acting master
                assert len(reader.read) == len(set(reader.read))
                assert not done & set(reader.read), "it continues where the group was"
                await consumer.commit()
                assert await ends(client, acting) == before, "nothing was appended"

                replicas.controllers.start()
                master.start_again()
                await replicas.settled()
                await says(acting, acts=False)
                async with Sender(replicas.name_server) as after:
                    after.number = sender.number
                    await after.more(50)
                await reader.until(set(after.acknowledged))
                await reader.close()
    finally:
        await client.close()


async def test_delayed_messages_of_a_group_without_a_master_are_consumed_whatever_is_killed(
    tmp_path: Path, ports: PortPool
) -> None:
    """spec.actingMaster: readsAndEscape; what the master left behind goes to another group until the acting slave is
    killed too."""
    wanted = set(range(200))
    config = {**keys_set_by({"actingMaster": "readsAndEscape"}), "messageDelayLevel": f"{int(patient(10))}s"}
    (tmp_path / "other").mkdir()
    client = RemotingClient()
    try:
        async with AsyncExitStack() as stack:
            routes = {"supportActingMaster": True}
            replicas = await stack.enter_async_context(
                group(tmp_path, ports, count=2, config=config, name_server_config=routes)
            )
            elsewhere = {"brokerName": "broker-b", "namesrvAddr": replicas.name_server}
            others = await stack.enter_async_context(
                group(tmp_path / "other", ports, count=1, durability="relaxed", config=elsewhere)
            )
            other, master = await others.settled(), await replicas.settled()
            (acting,) = replicas.others(master)
            for its in (other, master):
                answer = await client.call(its.replica.address, topic_request(TOPIC))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
            for number in wanted:
                properties = f"UNIQ_KEY\x01{number:032}\x02WAIT\x01true\x02DELAY\x011\x02"
                command = send_request(b"%d" % number, topic=TOPIC, properties=properties)
                assert (await client.call(master.replica.address, command)).code == ResponseCode.SUCCESS
            assert replicas.controllers is not None
            replicas.controllers.close()
            master.kill()
            await refused_by(client, acting, ResponseCode.SERVICE_NOT_AVAILABLE)
            async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
                reader = Reader(consumer)
                await reader.until(set(range(20)))
                assert set(reader.groups) == {"broker-b"}
                acting.kill()

                replicas.controllers.start()
                master.start_again()
                acting.start_again()
                await replicas.settled()
                await reader.until(wanted)
                await reader.close()
    finally:
        await client.close()
