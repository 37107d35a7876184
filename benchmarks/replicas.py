"""What is measured of a group of brokers that hold copies: sends to all, a new copy, a lost master, an acting one.

Every function takes a fresh quorum of either engine and returns figures; their names are keys of `targets.TARGETS`.
"""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.brokers import BenchError, expect
from benchmarks.controller import Figures
from benchmarks.engines import Quorum
from benchmarks.filled import filled
from benchmarks.groups import Copies, Member, ReplicaGroup
from benchmarks.sending import PATIENCE, TOPIC, GroupPoller, create_topic, send_for, sends_per_second
from benchmarks.targets import IN_FLIGHT
from rocketmq_client.errors import ClientError
from rocketmq_client.producer import Producer
from rocketmq_client.queue_reader import QueueReader
from rocketmq_client.routes import Routes
from rocketmq_demo.engines.native_load import NativeLoad
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.broker_admin import TopicRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import EpochEntryCache
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from tests.lab.load import java_sends_per_second

SECONDS = 2.0
"""Of each point."""
WARM_UP = 0.5
JIT_WARM_UP = 5.0
"""What a JVM gets once, beforehand."""
FETCHED = 900_000_000
FETCHED_BODY = 256 * 1024
GAP_SECONDS = 4.0
"""A lost master is watched for at least this time."""
_POLL = 0.02
_FILE_POLL = 0.002


async def sends_to_all(quorum: Quorum) -> Figures:
    """Sends that all three replicas have before they are acknowledged, with our client, then with Java's."""
    with quorum.group(Copies.ALL) as group:
        return await _sends(quorum, group, replicas=3, name="all")


async def sends_to_master(quorum: Quorum) -> Figures:
    """Sends that the master alone acknowledges while two slaves fetch them, with our client, then with Java's."""
    with quorum.group(Copies.MASTER) as group:
        return await _sends(quorum, group, replicas=3, name="master")


async def fetch(quorum: Quorum) -> Figures:
    """A slave that is started with an empty store while the master has 900 MB."""
    async with filled(quorum, FETCHED, body_size=FETCHED_BODY) as store:
        await asyncio.sleep(2.0)  # what was written is on its way to the disk, and reported
        end = await _max_offset(store.client, store.member.address)
        return await _fetch(store.client, quorum, store.group, end)


async def master_lost(quorum: Quorum) -> Figures:
    """kill -9 of the master, later SIGSTOP of the next one: the longest time without an acknowledged send."""
    client = RemotingClient()
    try:
        with quorum.group(Copies.ALL) as group:
            for _ in range(3):
                group.add().launch()
            view = GroupPoller(client, quorum.addresses)
            await view.wait_in_sync(3)
            load = NativeLoad(nameservers=group.nameservers)
            async with Producer(group.nameservers, timeout=1.0) as producer:
                await create_topic(producer)
                await send_for(producer, 16, JIT_WARM_UP if quorum.needs_warm_up else WARM_UP)
            await load.start()
            await _flowing(load, time.monotonic())
            killed = await _master(view, group)
            gap_killed = await _longest_gap(load, killed.process.kill9)
            killed.launch()
            await view.wait_in_sync(3)
            await asyncio.sleep(2.0)
            hung = await _master(view, group)
            gap_hung = await _longest_gap(load, hung.process.suspend)
            hung.process.resume()
            await view.wait_in_sync(3)
            result = await load.finish()
            if result.lost is None or result.problems:
                raise BenchError(f"the ledger could not be read back: {result.problems}")
            return {
                "gap_killed": gap_killed,
                "gap_hung": gap_hung,
                "gap_lost": float(result.lost),
                "gap_sent": float(result.acknowledged),
            }
    finally:
        await client.close()


async def acting_killed(quorum: Quorum) -> Figures:
    """kill -9 of all controllers and of the master, until a consumer reads from the slave that acts for it."""
    return {"acting_killed": await _until_acting(quorum, lambda master: master.process.kill9())}


async def acting_hung(quorum: Quorum) -> Figures:
    """kill -9 of all controllers and SIGSTOP of the master, until a consumer reads from the slave that acts for it."""
    return {"acting_hung": await _until_acting(quorum, lambda master: master.process.suspend())}


# the parts


async def _sends(quorum: Quorum, group: ReplicaGroup, *, replicas: int, name: str) -> Figures:
    for _ in range(replicas):
        group.add().launch()
    client = RemotingClient()
    view = GroupPoller(client, quorum.addresses)
    figures: Figures = {}
    try:
        await view.wait_in_sync(replicas)
        async with Producer(group.nameservers, timeout=5.0) as producer:
            await create_topic(producer)
            if quorum.needs_warm_up:
                await send_for(producer, max(IN_FLIGHT), JIT_WARM_UP)
            await view.wait_in_sync(replicas)
            for in_flight in IN_FLIGHT:
                rate = await sends_per_second(producer, in_flight, warm_up=WARM_UP, seconds=SECONDS)
                figures[f"sends_{name}_{in_flight}"] = rate
        if quorum.with_java_client:
            await view.wait_in_sync(replicas)
            folder = quorum.folder / "load"
            rates = await asyncio.to_thread(
                java_sends_per_second,
                folder,
                nameservers=group.nameservers,
                topic=TOPIC,
                # the client's own warm-up is the first, longer one: it is measured and thrown away
                in_flight=(max(IN_FLIGHT), *IN_FLIGHT),
                warm_up=WARM_UP,
                seconds=SECONDS,
            )
            figures |= {f"sends_{name}_java_client_{in_flight}": rates[in_flight] for in_flight in IN_FLIGHT}
        await view.wait_in_sync(replicas)
        return figures
    finally:
        await client.close()


async def _fetch(client: RemotingClient, quorum: Quorum, group: ReplicaGroup, end: int) -> Figures:
    slave = group.add()
    began = time.perf_counter()
    slave.launch()
    # What has arrived is looked up in the files: neither engine pays for being asked.
    first = await _until_written(slave.commit_log, 4, began) - began
    last = await _until_written(slave.commit_log, end, began) - began
    while await _max_offset(client, slave.address) < end:
        _check(began, "the slave does not say that it has everything")
        await asyncio.sleep(_POLL)
    reported = time.perf_counter() - began
    await GroupPoller(client, quorum.addresses).wait_in_sync(2)
    return {
        "fetch_first_byte": first,
        "fetch_mb_per_second": end / 1e6 / (last - first),
        "fetch_all": reported,
        "fetch_in_sync": time.perf_counter() - began,
        "fetch_floor": _floor(quorum.folder),
    }


def _floor(folder: Path) -> float:
    """MB/s at which anybody here can write a new file of that size: some virtual machines give new pages slowly."""
    path = folder / "floor"
    piece = b"x" * (1 << 20)
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(FETCHED // len(piece)):
            file.write(piece)
    taken = time.perf_counter() - began
    path.unlink()
    return FETCHED / 1e6 / taken


async def _until_written(commit_log: Path, end: int, began: float) -> float:
    """When the byte before `end`, which is not zero in a written log, was there; all of it is in the first file."""
    path = commit_log / f"{0:020d}"
    while not path.exists():
        _check(began, f"no {path}")
        await asyncio.sleep(_FILE_POLL)
    file = os.open(path, os.O_RDONLY)
    try:
        while not any(os.pread(file, 1, end - 1)):
            _check(began, f"nothing at {end - 1} of {path}")
            await asyncio.sleep(_FILE_POLL)
        return time.perf_counter()
    finally:
        os.close(file)


def _check(began: float, problem: str) -> None:
    if time.perf_counter() - began > PATIENCE:
        raise BenchError(f"{problem} after {PATIENCE:.0f} s")


async def _max_offset(client: RemotingClient, address: str) -> int:
    """What the broker says of its own log (1007); -1 if it does not answer yet."""
    try:
        answer = expect(await client.call(address, request(RequestCode.GET_BROKER_EPOCH_CACHE), timeout=1.0))
    except (RemotingError, BenchError):
        return -1
    return decode_body(EpochEntryCache, answer.body).max_offset


async def _master(view: GroupPoller, group: ReplicaGroup) -> Member:
    info = await view.wait_in_sync(3)
    return next(member for member in group.members if member.address == info.master_address)


async def _longest_gap(load: NativeLoad, lose: Callable[[], None]) -> float:
    """The longest time without an acknowledgement from shortly before the loss until sends have flowed again."""
    before = time.monotonic() - 1.0
    lose()
    await asyncio.sleep(GAP_SECONDS)
    await _flowing(load, time.monotonic())
    times = [entry.at for entry in load.acknowledgements() if entry.at > before]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


async def _until_acting(quorum: Quorum, lose: Callable[[Member], None]) -> float:
    """Seconds from the loss of the master, right after that of all controllers, until messages can be read."""
    client = RemotingClient()
    try:
        with quorum.group(Copies.ALL, acting=True) as group:
            for _ in range(3):
                group.add().launch()
            view = GroupPoller(client, quorum.addresses)
            await view.wait_in_sync(3)
            async with Producer(group.nameservers, timeout=5.0) as producer:
                await create_topic(producer)
                await send_for(producer, 16, JIT_WARM_UP if quorum.needs_warm_up else WARM_UP)
            for member in group.members:
                # Official slaves copy topics every 10 s.
                await _until(lambda member=member: _has_topic(client, member), f"{member.label} has no topic")
            routes = Routes(client, group.nameservers)
            if quorum.needs_warm_up:
                await _pull_everywhere(client, routes, JIT_WARM_UP)
            master = await _master(view, group)
            await _until(lambda: _reads(client, routes), "nothing can be read")
            for controller in quorum.processes.values():
                controller.kill9()
            began = time.perf_counter()
            lose(master)
            await _until(lambda: _reads(client, routes, lost=master), "no slave acts")
            return time.perf_counter() - began
    finally:
        await client.close()


async def _reads(client: RemotingClient, routes: Routes, *, lost: Member | None = None) -> bool:
    """One pull of a consumer by a fresh route: whether it gets messages, from another member than `lost`."""
    reader = await _reader(client, routes)
    pulled = await reader.pull(0)
    return bool(pulled.messages) and (lost is None or reader.queue.address() != lost.address)


async def _pull_everywhere(client: RemotingClient, routes: Routes, seconds: float) -> None:
    """Pull at every member in turn: official slaves serve pulls at any time, the first ones slowly."""
    reader = await _reader(client, routes)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for broker_id in reader.queue.addresses:
            with contextlib.suppress(RemotingError, ClientError):
                await reader.pull(0, broker_id=broker_id)


async def _reader(client: RemotingClient, routes: Routes) -> QueueReader:
    """Of the first queue, by a fresh route."""
    return QueueReader(client, TOPIC, (await routes.refresh(TOPIC)).read[0], "bench-reader", timeout=1.0)


async def _has_topic(client: RemotingClient, member: Member) -> bool:
    command = request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic=TOPIC))
    return (await client.call(member.address, command, timeout=1.0)).code == ResponseCode.SUCCESS


async def _until(attempt: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Until one succeeds."""
    began = time.perf_counter()
    while True:
        with contextlib.suppress(RemotingError, ClientError):
            if await attempt():
                return
        _check(began, problem)
        await asyncio.sleep(_POLL)


async def _flowing(load: NativeLoad, since: float) -> None:
    """Until many sends were acknowledged after `since`."""
    began = time.perf_counter()
    while len(load.acknowledgements()) < 20 or load.acknowledgements()[-20].at < since:
        _check(began, "no sends are acknowledged")
        await asyncio.sleep(_POLL)
