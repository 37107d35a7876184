"""The native engine's delayed messages: they become due while their group has no master, and must still be delivered.

RIP-32: the slave that acts as master sends them to another group that has the topic. That group is started here, when
it is first needed: two replicas, which is the least for `durability=strict`. Until both are in its SyncStateSet it
refuses sends; without controllers no replica gets in.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rocketmq_client.errors import ClientError, SendError
from rocketmq_client.producer import Producer
from rocketmq_client.reading import read_all
from rocketmq_client.routes import Routes
from rocketmq_demo.calls import call
from rocketmq_demo.engines.engine import BROKER_GROUP, CLUSTER, DelayedResult
from rocketmq_demo.ports import PortPool
from rocketmq_demo.replica import Config, make_group
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.broker_admin import CreateTopicRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.nameserver import MASTER_ID
from rocketmq_formats.store.message_properties import DELAY as DELAY_PROPERTY
from rocketmq_formats.topics import AUTO_CREATE_TOPIC, PERM_READ, PERM_WRITE
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

TOPIC: Final = "reminders"
OTHER_GROUP: Final = "broker-b"
MESSAGES: Final = 20
LEVEL: Final = "2"
DELAY: Final = 5.0
"""Seconds of delay level 2 in RocketMQ's default table."""
REHEARSAL: Final = "reminders-rehearsal"
"""A topic of the other group alone, for a message that shows that it takes sends."""
_QUEUES: Final = {TOPIC: {BROKER_GROUP: 2, OTHER_GROUP: 1}, REHEARSAL: {OTHER_GROUP: 1}}
_ITS_QUEUE: Final = 1
"""Only the group under test has it, so a producer cannot send to the other one."""
_START_SECONDS: Final = 30.0
_POLL: Final = 0.1


class NativeDelayed:
    """Implements `engine.Delayed`."""

    def __init__(
        self,
        folder: Path,
        *,
        ports: PortPool,
        controllers: Sequence[str],
        nameservers: Sequence[str],
        config: Config,
    ) -> None:
        """Nothing runs yet."""
        self._nameservers = list(nameservers)
        self._replicas = make_group(
            OTHER_GROUP,
            2,
            folder=folder,
            ports=ports,
            controllers=controllers,
            nameservers=nameservers,
            cluster=CLUSTER,
            name=OTHER_GROUP,
            config={**config, "autoCreateTopicEnable": False},  # its templates must not take the ledger's messages
        )
        self._started = False
        self._sent = 0

    async def start(self) -> None:
        """Start the other group, create the topic in both, and wait until the other one acknowledges sends; harmless to
        repeat.

        Raises:
            TimeoutError: a group did not take the topic, or the other one no message.
            ProcessDiedError: a replica ended.
        """
        if self._started:
            return
        self._started = True
        for replica in self._replicas:
            replica.launch()
        for replica in self._replicas:
            await asyncio.to_thread(replica.wait_listening)
        client = RemotingClient()
        deadline = time.monotonic() + _START_SECONDS
        try:
            await self._create_topics(Routes(client, self._nameservers), deadline)
        finally:
            await client.close()
        await self._rehearse(deadline)

    async def send(self) -> None:
        """Send the messages to the group that will lose its master. They are due after `DELAY` seconds.

        Raises:
            ClientError, RemotingError: one was not acknowledged.
        """
        async with Producer(self._nameservers, group="reminders-producer") as producer:
            for number in range(self._sent, self._sent + MESSAGES):
                body = f"reminder {number}".encode()
                result = await producer.send(TOPIC, body, queue_id=_ITS_QUEUE, properties={DELAY_PROPERTY: LEVEL})
                if not result.acknowledged:
                    raise SendError(
                        f"{result.broker_name} stored a message without its copies",
                        code=result.code,
                        attempts=result.attempts,
                        maybe_stored=True,
                    )
        self._sent += MESSAGES

    async def delivered(self) -> DelayedResult:
        """What a consumer of the topic gets now."""
        client = RemotingClient()
        try:
            found = await read_all(client, Routes(client, self._nameservers), TOPIC, group="reminders-consumer")
        except (ClientError, RemotingError) as error:
            return DelayedResult(sent=self._sent, delivered=0, early=0, unread=str(error))
        finally:
            await client.close()
        early = sum(1 for message in found if message.store_timestamp - message.born_timestamp < DELAY * 1000)
        return DelayedResult(sent=self._sent, delivered=len({message.body for message in found}), early=early)

    def close(self) -> None:
        """End the other group."""
        for replica in self._replicas:
            replica.close()

    async def _create_topics(self, routes: Routes, deadline: float) -> None:
        """Return when producers are offered each topic in each of its groups."""
        without = {(topic, group) for topic, groups in _QUEUES.items() for group in groups}
        while True:
            without -= {place for place in without if await self._create_topic(routes, *place)}
            if not without and await self._writable(routes):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {TOPIC} is not writable in both groups after {_START_SECONDS:g} s")
            await asyncio.sleep(_POLL)

    async def _create_topic(self, routes: Routes, topic: str, group: str) -> bool:
        queues = _QUEUES[topic][group]
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ | PERM_WRITE,
        )
        try:
            brokers = (await routes.cluster_info()).broker_addr_table
            master = brokers[group].broker_addrs[MASTER_ID]
            answer = await asyncio.to_thread(call, master, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        except (ClientError, OSError, LookupError):
            return False
        return answer.code == ResponseCode.SUCCESS

    async def _writable(self, routes: Routes) -> bool:
        """Whether the topics' routes offer all their groups to producers."""
        try:
            for topic, groups in _QUEUES.items():
                if {queue.broker_name for queue in (await routes.refresh(topic)).publish} != set(groups):
                    return False
        except ClientError:
            return False
        return True

    async def _rehearse(self, deadline: float) -> None:
        """Return when the other group has acknowledged a message: what its master knows of the SyncStateSet counts."""
        async with Producer(self._nameservers, group="reminders-producer", attempts=1) as producer:
            while True:
                try:
                    result = await producer.send(REHEARSAL, b"rehearsal")
                    # a name server without the topic yet offers groups that would create it
                    if result.acknowledged and result.broker_name == OTHER_GROUP:
                        return
                    problem = f"{result.broker_name} answers {result.code}"
                except (ClientError, RemotingError) as error:
                    problem = str(error)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{OTHER_GROUP} takes no message after {_START_SECONDS:g} s: {problem}")
                await asyncio.sleep(_POLL)
