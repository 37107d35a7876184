"""The load on a group of brokers: our client, the same one for both engines, and what the controllers say of the group.

`sends_per_second` is what a user of the client gets; `fill` makes a log quickly from one prepared batch.
"""

import asyncio
import time
from collections.abc import Sequence

import msgspec
import structlog

from benchmarks.brokers import BenchError, expect, find_leader
from benchmarks.groups import NAME
from rocketmq_client.errors import ClientError
from rocketmq_client.pipeline import Pipeline, connect
from rocketmq_client.producer import Producer
from rocketmq_client.routes import PublishQueue
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import BrokerReplicasInfo, ReplicasInfo
from rocketmq_formats.remoting.send_frames import SendTemplate, json_properties
from rocketmq_formats.store.batch import BatchMessage, encode_batch
from rocketmq_formats.store.message_properties import WAIT, format_properties
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

TOPIC = "bench"
BODY = b"x" * 1024
BATCH_BYTES = 512 * 1024
PATIENCE = 120.0
"""Seconds in which a healthy group of either kind settles, on a busy machine too."""
_POLL = 0.02
_FULL_BATCH_WINDOW = 8
_PASSING = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
"""A machine whose disk is busy may hold anything up for a while, the renewal of a lease too."""


class GroupPoller:
    """Reads the group's state (getSyncStateData) from the controller that leads."""

    def __init__(self, client: RemotingClient, controllers: Sequence[str]) -> None:
        self._client, self._controllers = client, tuple(controllers)
        self._leader = ""

    async def get(self) -> ReplicasInfo | None:
        """None while no replica is registered, or no controller leads."""
        try:
            if not self._leader:
                self._leader = await find_leader(self._client, self._controllers)
            command = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_body([NAME]))
            answer = expect(await self._client.call(self._leader, command, timeout=1.0))
        except (RemotingError, BenchError):
            self._leader = ""
            return None
        return decode_body(BrokerReplicasInfo, answer.body).replicas_info_table.get(NAME)

    async def wait_in_sync(self, count: int, *, patience: float = PATIENCE) -> ReplicasInfo:
        """Until `count` replicas are alive and in the SyncStateSet, one of them master.

        Raises:
            BenchError: not within `patience` seconds.
        """
        deadline = time.monotonic() + patience
        info: ReplicasInfo | None = None
        while time.monotonic() < deadline:
            info = await self.get()
            if info is not None and info.master_address and _live(info) == count:
                return info
            await asyncio.sleep(_POLL)
        raise BenchError(f"no SyncStateSet of {count} within {patience:.0f} s: {info}")


def _live(info: ReplicasInfo) -> int:
    return sum(replica.alive for replica in info.in_sync_replicas)


async def create_topic(producer: Producer, topic: str = TOPIC) -> Sequence[PublishQueue]:
    """Send until one is acknowledged and the topic's own route is known; its queues.

    Raises:
        BenchError: not within PATIENCE.
    """
    deadline = time.monotonic() + PATIENCE
    problem: object = "no answer"
    while time.monotonic() < deadline:
        try:
            result = await producer.send(topic, BODY)
            route = await producer.routes.refresh(topic)
        except (ClientError, RemotingError) as error:
            problem = error
        else:
            problem = result
            if result.acknowledged and not route.is_template and route.publish:
                return route.publish
        await asyncio.sleep(0.05)
    raise BenchError(f"no send was acknowledged within {PATIENCE:.0f} s: {problem}")


class Sent(msgspec.Struct):
    """What a span of sending gave."""

    acknowledged: int = 0
    refused: int = 0
    latest_problem: str = ""


async def send_for(producer: Producer, in_flight: int, seconds: float, topic: str = TOPIC) -> Sent:
    """`in_flight` lanes that send 1 KiB bodies, one after the other each, for `seconds`."""
    sent = Sent()
    end = time.monotonic() + seconds

    async def lane() -> None:
        send = producer.send
        while time.monotonic() < end:
            try:
                result = await send(topic, BODY)
            except (ClientError, RemotingError) as error:
                sent.refused += 1
                sent.latest_problem = str(error)
                await asyncio.sleep(_POLL)
                continue
            if result.acknowledged:
                sent.acknowledged += 1
            else:
                sent.refused += 1
                sent.latest_problem = f"code {result.code}"

    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return sent


async def sends_per_second(producer: Producer, in_flight: int, *, warm_up: float, seconds: float) -> float:
    """Acknowledged sends per second with `in_flight` in flight, after `warm_up` seconds of the same.

    Raises:
        BenchError: more than one send in a hundred was not acknowledged.
    """
    await send_for(producer, in_flight, warm_up)
    began = time.perf_counter()
    sent = await send_for(producer, in_flight, seconds)
    taken = time.perf_counter() - began
    if sent.refused * 100 > sent.acknowledged:
        raise BenchError(f"{sent.refused} sends failed, {sent.acknowledged} did not: {sent.latest_problem}")
    return sent.acknowledged / taken


async def fill(queues: Sequence[PublishQueue], total: int, *, body_size: int = 1024, topic: str = TOPIC) -> int:
    """Make the log `total` bytes longer with bodies of `body_size`, several to a request; the number of messages.

    Raises:
        BenchError: a refusal that waiting does not help against, or no end within ten minutes.
    """
    per_request = BATCH_BYTES // body_size
    if per_request < 4:
        templates, body, per_request = _templates(queues, topic, batch=False), b"x" * body_size, 1
    else:
        message = BatchMessage(0, b"x" * body_size, format_properties({WAIT: "true"}))
        body, templates = encode_batch([message] * per_request), _templates(queues, topic, batch=True)
    requests = -(-total // (body_size * per_request))
    properties = json_properties(format_properties({WAIT: "true"}))
    line = await connect(queues[0].address, timeout=60.0)
    left = iter(range(requests))

    async def lane() -> None:
        for number in left:
            await _send_until_taken(line, templates[number % len(templates)], properties, body)

    try:
        async with asyncio.timeout(600):
            await asyncio.gather(*(lane() for _ in range(_FULL_BATCH_WINDOW)))
    except TimeoutError:
        raise BenchError("the log was not filled within ten minutes") from None
    finally:
        line.close()
    return requests * per_request


async def send_one_to(address: str, queue_id: int, *, topic: str = TOPIC) -> bool:
    """One attempt to send one message to the broker at `address`, without a route; whether it was acknowledged.

    Raises:
        RemotingError: no connection, or no answer within a second.
    """
    line = await connect(address, timeout=1.0)
    try:
        template = _templates([PublishQueue(NAME, queue_id, address)], topic, batch=False)[0]
        properties = json_properties(format_properties({WAIT: "true"}))
        answer = await line.send(template.frame(line.next_opaque, _now_ms(), properties, BODY))
        return answer.code == ResponseCode.SUCCESS
    finally:
        line.close()


async def _send_until_taken(line: Pipeline, template: SendTemplate, properties: bytes, body: bytes) -> None:
    while True:
        answer = await line.send(template.frame(line.next_opaque, _now_ms(), properties, body))
        if answer.code == ResponseCode.SUCCESS:
            return
        if answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT:
            return  # it is in the log, only a copy is late
        if answer.code not in _PASSING:
            raise BenchError(f"code {answer.code}: {answer.remark}")
        log.debug("refused and sent again", code=answer.code, remark=answer.remark)
        await asyncio.sleep(_POLL)


def _templates(queues: Sequence[PublishQueue], topic: str, *, batch: bool) -> list[SendTemplate]:
    return [
        SendTemplate(
            producer_group="bench", topic=topic, queue_id=queue.queue_id, broker_name=queue.broker_name, batch=batch
        )
        for queue in queues
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
