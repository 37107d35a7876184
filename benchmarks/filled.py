"""A group of one replica with some log to fetch, to recover or to read. Used by `replicas.py` and `stores.py`."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks.engines import Quorum
from benchmarks.groups import Copies, Member, ReplicaGroup
from benchmarks.sending import GroupPoller, create_topic, fill
from rocketmq_client.producer import Producer
from rocketmq_client.routes import PublishQueue
from rocketmq_runtime.remoting.client import RemotingClient


@dataclass(frozen=True)
class Filled:
    """`member` is the only one of `group`."""

    client: RemotingClient
    group: ReplicaGroup
    member: Member
    queues: Sequence[PublishQueue]
    mb_per_second: float
    """At which it was filled."""


@asynccontextmanager
async def filled(quorum: Quorum, total: int, *, body_size: int = 1024) -> AsyncIterator[Filled]:
    """`total` bytes of messages with bodies of `body_size`; ends everything on leaving."""
    client = RemotingClient()
    try:
        with quorum.group(Copies.MASTER) as group:
            member = group.add()
            member.launch()
            await GroupPoller(client, quorum.addresses).wait_in_sync(1)
            async with Producer(group.nameservers) as producer:
                queues = await create_topic(producer)
                began = time.perf_counter()
                await fill(queues, total, body_size=body_size)
                taken = time.perf_counter() - began
            yield Filled(client, group, member, queues, total / 1e6 / taken)
    finally:
        await client.close()
