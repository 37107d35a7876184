"""Members of a group that ask each other for locks, without sockets: calls take virtual time and can be cut off."""

import asyncio
from typing import cast

from rocketmq_broker.consuming.lock_api import LockApi
from rocketmq_broker.consuming.lock_members import LockMembers
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_runtime.remoting.client import CallTimeoutError, ConnectError, RemotingClient
from rocketmq_runtime.remoting.server import Peer

GROUP = "broker-a"


class _From:
    host = "10.0.0.1"


PEER = cast("Peer", _From())


def queues(*numbers: int) -> frozenset[MessageQueue]:
    return frozenset(MessageQueue(topic="T", broker_name=GROUP, queue_id=number) for number in numbers)


def lock_body(client: str, wanted: frozenset[MessageQueue], *, only: bool = False) -> bytes:
    body = LockBatchRequestBody(consumer_group="G", client_id=client, mq_set=wanted, only_this_broker=only)
    return encode_body(body)


def held(answer: RemotingCommand) -> frozenset[MessageQueue]:
    return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set


class LockGroup:
    """Brokers by address, and the network between them and to the clients, all in the running loop's time."""

    def __init__(self, *addresses: str, strict: bool = True, replicas: int | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.strict = strict
        self.replicas = len(addresses) if replicas is None else replicas
        self.known = addresses
        """The members as the name servers have them, alive or not."""
        self.cut: set[frozenset[str]] = set()
        """Pairs between which nothing arrives."""
        self.delay = 0.005
        """Seconds, one way."""
        self.brokers: dict[str, LockApi] = {}
        for address in addresses:
            self.start(address)

    def start(self, address: str) -> None:
        """A process without memory; instead of the one before it, if there was one."""
        self.brokers[address] = LockApi(GROUP, self._members(address) if self.strict else None, clock=self.loop.time)

    def kill(self, address: str) -> None:
        del self.brokers[address]

    def _members(self, own: str) -> LockMembers:
        def others() -> dict[int, str]:
            return {number: address for number, address in enumerate(self.known) if address != own}

        return LockMembers(replicas=self.replicas, members=others, client=Caller(self, own))

    async def call(self, own: str, address: str, command: RemotingCommand, *, timeout: float) -> RemotingCommand:
        """As `RemotingClient.call`; `own`: who calls."""
        try:
            async with asyncio.timeout(timeout):
                await self._travel(own, address)
                if address not in self.brokers:
                    raise ConnectError(f"cannot connect to {address}")
                answer = await self.handle(address, command)
                await self._travel(own, address)
                return answer
        except TimeoutError:
            raise CallTimeoutError(f"{address} did not answer within {timeout:g} s") from None

    async def handle(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """What the broker at `address` answers; a test replaces it to have one answer otherwise."""
        try:
            answer = self.brokers[address].processors[command.code](command, PEER)
        except RequestRefusedError as error:
            return response(command, error.code, str(error))
        return await answer if isinstance(answer, asyncio.Future) else cast("RemotingCommand", answer)

    async def _travel(self, one: str, other: str) -> None:
        await asyncio.sleep(self.delay)
        if frozenset((one, other)) in self.cut:
            await self.loop.create_future()

    # clients

    async def lock(self, client: str, address: str, wanted: frozenset[MessageQueue]) -> frozenset[MessageQueue]:
        """The queues that the client holds now, by the broker at `address`. Raises `RemotingError`; like Java's
        clients it waits for 1 s."""
        command = request(RequestCode.LOCK_BATCH_MQ, None, lock_body(client, wanted))
        return held(await self.call(client, address, command, timeout=1.0))

    async def unlock(self, client: str, address: str, wanted: frozenset[MessageQueue]) -> None:
        command = request(RequestCode.UNLOCK_BATCH_MQ, None, lock_body(client, wanted))
        await self.call(client, address, command, timeout=1.0)

    def votes(self, address: str, client: str, wanted: frozenset[MessageQueue]) -> frozenset[MessageQueue]:
        """Which of `wanted` this member alone gives to the client; it holds them then."""
        command = request(RequestCode.LOCK_BATCH_MQ, None, lock_body(client, wanted, only=True))
        return held(cast("RemotingCommand", self.brokers[address].processors[command.code](command, PEER)))


class Caller(RemotingClient):
    """The member `own` calls others."""

    def __init__(self, group: LockGroup, own: str) -> None:
        super().__init__()
        self._group, self._own = group, own

    async def call(self, address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
        return await self._group.call(self._own, address, request, timeout=timeout)
