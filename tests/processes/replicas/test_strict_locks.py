"""lockInStrictMode with real processes: the master is killed and comes back, and a queue keeps its one holder."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rocketmq_broker.domain.consuming.locks import LOCK_SECONDS
from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.command import request
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.consuming.lock_kit import held, lock_body, queues
from tests.processes.replica_group import PATIENCE, Member, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ALL = queues(0, 1, 2)


async def until(true: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not await true():
            await asyncio.sleep(0.2)


async def test_a_queue_keeps_its_holder_while_masters_change(tmp_path: Path, ports: PortPool) -> None:
    client = RemotingClient()

    async def lock(name: str, member: Member) -> frozenset[MessageQueue]:
        answer = await client.call(
            member.replica.address, request(RequestCode.LOCK_BATCH_MQ, None, lock_body(name, ALL))
        )
        assert answer.code == ResponseCode.SUCCESS
        return held(answer)

    async def gets(name: str, member: Member) -> bool:
        return await lock(name, member) == ALL

    try:
        config = {"lockInStrictMode": True, "totalReplicas": 3}
        async with group(tmp_path, ports, config=config) as replicas:
            old = await replicas.settled()
            assert not await gets("holder", old), "all have just started"
            await until(lambda: gets("holder", old), LOCK_SECONDS + PATIENCE)
            old.kill()
            for member in replicas.others(old):
                assert not await lock("second", member), "no matter which of them becomes master"
            first, second = replicas.others(old)
            await until(lambda: gets("holder", first))
            assert await gets("holder", second)
            old.start_again()
            await replicas.settled()
            for member in (old, first, second):
                assert not await lock("second", member)
            assert await gets("holder", old), "with the votes of the others"
            await client.call(old.replica.address, request(RequestCode.UNLOCK_BATCH_MQ, None, lock_body("holder", ALL)))
            await until(lambda: gets("second", first))
    finally:
        await client.close()
