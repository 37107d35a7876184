"""An official consumer at a native group whose controllers and master are gone: RIP-32 asks nothing new of clients."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_demo.ports import PortPool
from tests.lab.clients import PushConsumer
from tests.processes.acting_kit import ACTING, ROUTES
from tests.processes.replica_group import TOPIC, Sender, group

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
