"""A client of a broker that is asked things too: what the broker sends it waits until the test looks, and answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request, response
from rocketmq_formats.remoting.connection import RemotingConnection
from tests.broker.broker_kit import Group


class RawClient:
    """One connection, on which both sides ask."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = RemotingConnection()
        self._received: list[RemotingCommand] = []
        self._opaque = 0

    async def asked(self, code: int) -> RemotingCommand:
        """The broker's next request with this code."""
        return await self._next(lambda command: not command.is_response and command.code == code)

    def answer(self, command: RemotingCommand, code: int = 0, body: bytes = b"", remark: str | None = None) -> None:
        self._writer.write(encode_frame(response(command, code, remark, None, body)))

    def ask(self, command: RemotingCommand) -> int:
        """Send; the opaque that the answer will have."""
        self._opaque += 1
        self._writer.write(encode_frame(msgspec.structs.replace(command, opaque=self._opaque)))
        return self._opaque

    async def answered(self, opaque: int) -> RemotingCommand:
        return await self._next(lambda command: command.is_response and command.opaque == opaque)

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        return await self.answered(self.ask(command))

    async def joins(self, client_id: str, *, producer: str = "", consumer: str = "", version: int = 479) -> None:
        """A heartbeat, as a member of these groups; consumers read topic T."""
        subscription = SubscriptionData(topic="T", sub_version=1)
        data = HeartbeatData(
            client_id=client_id,
            producer_data_set=(ProducerData(group_name=producer),) if producer else (),
            consumer_data_set=(ConsumerData(group_name=consumer, subscription_data_set=(subscription,)),)
            if consumer
            else (),
        )
        heartbeat = request(RequestCode.HEART_BEAT, None, encode_body(data))
        answer = await self.call(msgspec.structs.replace(heartbeat, version=version))
        assert answer.code == ResponseCode.SUCCESS

    def close(self) -> None:
        self._writer.transport.abort()

    async def _next(self, wanted: Callable[[RemotingCommand], bool]) -> RemotingCommand:
        while True:
            for command in self._received:
                if wanted(command):
                    self._received.remove(command)
                    return command
            data = await self._reader.read(65536)
            assert data, "closed by the broker"
            self._received += self._frames.receive_data(data)


@asynccontextmanager
async def connected(group: Group) -> AsyncIterator[RawClient]:
    host, _, port = group.address.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.close()
