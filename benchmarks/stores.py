"""What is measured of one broker and its store: the way back after a crash, and reading.

Every function takes a fresh quorum of either engine and returns figures; their names are keys of `targets.TARGETS`.
"""

import asyncio
import time
from collections.abc import Sequence

from benchmarks.brokers import BenchError
from benchmarks.controller import Figures
from benchmarks.engines import Quorum
from benchmarks.filled import filled
from benchmarks.flood import flood
from benchmarks.groups import NAME
from benchmarks.sending import PATIENCE, TOPIC, send_one_to
from rocketmq_client.errors import ClientError
from rocketmq_client.queue_reader import BATCH, QueueReader
from rocketmq_client.reading import read_all
from rocketmq_client.routes import PublishQueue, ReadQueue, Routes
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.client import DEFAULT_MAX_MSG_BYTES, PULL_SUBSCRIPTION, PullMessageRequestHeader
from rocketmq_formats.remoting.command import encode_frame, request
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

RECOVERED = 4_000_000_000
RECOVERED_BODY = 4096
CRASHES = 3
"""Of the same store."""
READ = 100 * 1024 * 1024
"""Bytes of bodies of 1 KiB."""
FLOOD_SECONDS = 3.0
_GROUP = "bench-reader"
_POLL = 0.01


async def recovery(quorum: Quorum) -> Sequence[Figures]:
    """kill -9 with 4 GB of 4 KiB messages: until a send is acknowledged and the last old message can be read."""
    async with filled(quorum, RECOVERED, body_size=RECOVERED_BODY) as store:
        member, queue_id = store.member, store.queues[0].queue_id
        last = await _reader(store.client, member.address, queue_id).max_offset() - 1
        rounds: list[Figures] = []
        for _ in range(CRASHES):
            member.process.kill9()
            began = time.perf_counter()
            member.launch()
            await _until_taken(member.address, queue_id, began)
            taken = time.perf_counter() - began
            await _until_read(_reader(store.client, member.address, queue_id), last, began)
            rounds.append(
                {
                    "recovery": time.perf_counter() - began,
                    "recovery_send": taken,
                    "recovery_filled_mb_per_second": store.mb_per_second,
                }
            )
            await asyncio.sleep(1.0)
        return rounds


async def pulls(quorum: Quorum) -> Figures:
    """A topic of 1 KiB messages read over and over by prepared requests, then once by our client."""
    async with filled(quorum, READ) as store:
        client, address = store.client, store.member.address
        frames = await _pulls(client, address, store.queues)
        if quorum.needs_warm_up:
            await flood(address, frames, seconds=FLOOD_SECONDS, window=2, smallest=BATCH * 1024)
        rate = await flood(address, frames, seconds=FLOOD_SECONDS, window=2, smallest=BATCH * 1024)
        began = time.perf_counter()
        messages = await read_all(client, Routes(client, store.group.nameservers), TOPIC, group=_GROUP)
        return {
            "pulled_per_second": rate * BATCH,
            "read_per_second": len(messages) / (time.perf_counter() - began),
        }


def _reader(client: RemotingClient, address: str, queue_id: int) -> QueueReader:
    return QueueReader(client, TOPIC, ReadQueue(NAME, queue_id, {0: address}), _GROUP, timeout=1.0)


async def _until_taken(address: str, queue_id: int, began: float) -> None:
    while True:
        try:
            if await send_one_to(address, queue_id):
                return
        except RemotingError:
            pass
        _check(began)
        await asyncio.sleep(_POLL)


async def _until_read(reader: QueueReader, offset: int, began: float) -> None:
    while True:
        try:
            pulled = await reader.pull(offset)
            if pulled.messages and pulled.messages[0].queue_offset == offset:
                return
        except (RemotingError, ClientError):
            pass
        _check(began)
        await asyncio.sleep(_POLL)


def _check(began: float) -> None:
    if time.perf_counter() - began > PATIENCE:
        raise BenchError(f"the broker does not serve {PATIENCE:.0f} s after its start")


async def _pulls(client: RemotingClient, address: str, queues: Sequence[PublishQueue]) -> list[bytes]:
    """A request for every full batch in the topic, queue by queue in turn."""
    per_queue: list[list[bytes]] = []
    for queue in queues:
        end = await _reader(client, address, queue.queue_id).max_offset()
        per_queue.append(
            [_pull(queue.queue_id, offset) for offset in range(0, end - BATCH + 1, BATCH)],
        )
    return [frame for frames in zip(*per_queue, strict=False) for frame in frames]


def _pull(queue_id: int, offset: int) -> bytes:
    header = PullMessageRequestHeader(
        consumer_group=_GROUP,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=BATCH,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
        max_msg_bytes=DEFAULT_MAX_MSG_BYTES,
    )
    return encode_frame(request(RequestCode.PULL_MESSAGE, header))
