"""RIP-32 with real processes: controllers and master are gone, and consumers read on from the least slave."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rocketmq_client.consumer import Consumer
from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import send_request
from tests.gate.patience import patient
from tests.operator.manifests.cases import keys_set_by
from tests.processes.acting_kit import ACTING, NOTIFYING, ROUTES, Reader, all_see, ends, refused_by, says
from tests.processes.replica_group import TOPIC, Sender, group
from tests.topic_requests import topic_request

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.mark.parametrize("compatible", [True, False], ids=["322-105", "904-901"])
async def test_consumers_read_on_without_controllers_and_master(
    tmp_path: Path, ports: PortPool, compatible: bool
) -> None:
    config = {**ACTING, "compatibleWithOldNameSrv": compatible}
    client = RemotingClient()
    try:
        async with group(tmp_path, ports, config=config, name_server_config=NOTIFYING) as replicas:
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

            replicas.lose(master)
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

                await replicas.regain(master)
                await says(acting, acts=False)
                async with Sender(replicas.name_server, after=sender) as after:
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
            replicas = await stack.enter_async_context(
                group(tmp_path, ports, count=2, config=config, name_server_config=ROUTES)
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
            replicas.lose(master)
            await refused_by(client, acting, ResponseCode.SERVICE_NOT_AVAILABLE)
            async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
                reader = Reader(consumer)
                await reader.until(set(range(20)))
                assert set(reader.groups) == {"broker-b"}
                acting.kill()

                await replicas.regain(master, acting)
                await reader.until(wanted)
                await reader.close()
    finally:
        await client.close()
