"""Official consumers and brokers beside a native group whose controllers and master are gone: RIP-32 asks nothing new
of clients, and official masters take the delayed messages of the acting slave."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import send_request
from tests.gate.patience import patient
from tests.interop.lab import FILE_SIZE, JAVA_BROKER
from tests.lab.clients import PushConsumer
from tests.operator.manifests.cases import keys_set_by
from tests.processes.acting_kit import ACTING, ROUTES, refused_by
from tests.processes.replica_group import TOPIC, Sender, group
from tests.topic_requests import topic_request

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]


async def read(consumer: PushConsumer, sender: Sender) -> None:
    """Until it has all that was acknowledged."""
    wanted = {str(number) for number in sender.acknowledged}
    await asyncio.to_thread(consumer.wait_until, "all that was sent", lambda: wanted <= set(consumer.bodies))


@pytest.mark.usefixtures("apache")
async def test_an_official_consumer_reads_from_the_acting_master(tmp_path: Path) -> None:
    with PortPool() as ports:
        async with group(tmp_path, ports, config=ACTING, name_server_config=ROUTES) as replicas:
            master = await replicas.settled()
            async with Sender(replicas.name_server) as sender:
                await sender.more(100)
            await asyncio.sleep(1)  # confirm offsets reach idle slaves within 0.1 s
            replicas.lose(master)
            consumer = PushConsumer(
                tmp_path / "consumer", nameservers=replicas.name_server, group="official", topic=TOPIC
            )
            with consumer:
                await read(consumer, sender)
                assert len(consumer.bodies) == len(set(consumer.bodies))
                await replicas.regain(master)
                async with Sender(replicas.name_server, after=sender) as after:
                    await after.more(20)
                await read(consumer, after)
                await asyncio.to_thread(consumer.finish)


COUNT = 20
"""Delayed messages."""


@contextmanager
def official_master(folder: Path, ports: PortPool, name_server: str) -> Iterator[str]:
    """A master of another group, without controllers; its address."""
    port = ports.broker()
    process = servers.start_broker(
        folder,
        port=port,
        controllers=[],
        nameservers=[name_server],
        cluster="C",
        name="broker-b",
        config={
            "enableControllerMode": False,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "haListenPort": port + 1,
            "mappedFileSizeCommitLog": FILE_SIZE,
            "waitTimeMillsInSendQueue": 60_000,  # else a broker that a busy machine stops for 200 ms refuses a send
        },
        options=JAVA_BROKER,
    )
    try:
        process.wait_port(patient(90.0))
        yield f"{HOST}:{port}"
    finally:
        process.close()


@pytest.mark.usefixtures("apache")
async def test_delayed_messages_escape_to_an_official_master(tmp_path: Path) -> None:
    """It delivers them at once to an official consumer: they were due."""
    config = {**keys_set_by({"actingMaster": "readsAndEscape"}), "messageDelayLevel": f"{int(patient(10))}s"}
    client = RemotingClient()
    try:
        with PortPool() as ports:
            async with group(tmp_path, ports, count=2, config=config, name_server_config=ROUTES) as replicas:
                master = await replicas.settled()
                (acting,) = replicas.others(master)
                with official_master(tmp_path / "official", ports, replicas.name_server) as official:
                    for address in (master.replica.address, official):
                        answer = await client.call(address, topic_request(TOPIC), timeout=20)
                        assert answer.code == ResponseCode.SUCCESS, answer.remark
                    for number in range(COUNT):
                        properties = f"UNIQ_KEY\x01{number:032}\x02WAIT\x01true\x02DELAY\x011\x02"
                        command = send_request(b"%d" % number, topic=TOPIC, properties=properties)
                        answer = await client.call(master.replica.address, command)
                        assert answer.code == ResponseCode.SUCCESS, answer.remark
                    await asyncio.sleep(1)  # confirm offsets reach idle slaves within 0.1 s
                    replicas.lose(master)
                    await refused_by(client, acting, ResponseCode.SERVICE_NOT_AVAILABLE)
                    consumer = PushConsumer(
                        tmp_path / "consumer", nameservers=replicas.name_server, group="official", topic=TOPIC
                    )
                    with consumer:
                        await asyncio.to_thread(
                            consumer.wait_until,
                            "all delayed messages",
                            lambda: set(consumer.bodies) == {str(number) for number in range(COUNT)},
                        )
                        assert len(consumer.bodies) == COUNT
                        await asyncio.to_thread(consumer.finish)
    finally:
        await client.close()
