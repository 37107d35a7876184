"""What is measured of a controller quorum; every function takes a fresh quorum of either engine and returns figures.

Names of the figures are keys of `targets.TARGETS`. Times are seconds, rates per second, memory MiB.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.brokers import BenchError, Brokers, Group, expect, find_leader
from benchmarks.engines import Quorum
from benchmarks.flood import flood
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import encode_frame, request
from rocketmq_formats.remoting.controller import BrokerReplicasInfo, GetReplicaInfoRequestHeader, SyncStateSet
from rocketmq_runtime.remoting.client import RemotingError

GROUPS = 300
GROUPS_FOR_MEMORY = 350
ALTER_SECONDS = 4.0
FLOOD_SECONDS = 3.0

Figures = dict[str, float]


async def requests(quorum: Quorum) -> Figures:
    """Steady load: 300 groups altering their SyncStateSets at once, then heartbeats, then getReplicaInfo."""
    brokers = Brokers(quorum.addresses, GROUPS)
    await brokers.start()
    try:
        latencies = await _alter_for(brokers, ALTER_SECONDS)
        figures: Figures = {
            "alter_per_second": len(latencies) / ALTER_SECONDS,
            "alter_median": statistics.median(latencies),
            "alter_p99": statistics.quantiles(latencies, n=100)[98],
        }
        beats = [encode_frame(brokers.heartbeat(group, 2, oneway=False)) for group in brokers.groups]
        figures["heartbeat_per_second"] = await flood(brokers.leader, beats, seconds=FLOOD_SECONDS)
        reads = [
            encode_frame(
                request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=group.name))
            )
            for group in brokers.groups
        ]
        figures["replica_info_per_second"] = await flood(brokers.leader, reads, seconds=FLOOD_SECONDS)
        return figures
    finally:
        await brokers.close()


async def masters_lost(quorum: Quorum) -> Figures:
    """All 300 masters' connections close at once: until every group has its new master. Memory is read first."""
    brokers = Brokers(quorum.addresses, GROUPS_FOR_MEMORY)
    await brokers.start()
    try:
        memory = max(process.resident_bytes() for process in quorum.processes.values()) / 2**20
        lost = brokers.groups[:GROUPS]
        await asyncio.sleep(2.0)
        began = time.perf_counter()
        for group in lost:
            client, group.master_client = group.master_client, None
            assert client is not None
            await client.close()
        names = encode_body([group.name for group in lost])
        while True:
            answer = expect(await brokers.call(None, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, names))
            table = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table
            if all(
                table[group.name].master_broker_id == 2 and table[group.name].master_epoch > group.master_epoch
                for group in lost
            ):
                break
            if time.perf_counter() - began > 60:
                raise BenchError("not every group got a new master within 60 s")
            await asyncio.sleep(0.005)
        return {"masters_lost": time.perf_counter() - began, "memory": memory}
    finally:
        await brokers.close()


async def leader_killed(quorum: Quorum) -> Figures:
    """kill -9 of the leading controller, until another has committed a write."""
    return {"leader_killed": await _leader_lost(quorum, lambda address: quorum.processes[address].kill9())}


async def leader_hung(quorum: Quorum) -> Figures:
    """SIGSTOP of the leading controller, until another has committed a write."""
    stopped: list[str] = []

    def stop(address: str) -> None:
        stopped.append(address)
        quorum.processes[address].suspend()

    try:
        return {"leader_hung": await _leader_lost(quorum, stop)}
    finally:
        for address in stopped:
            quorum.processes[address].resume()


async def _leader_lost(quorum: Quorum, lose: Callable[[str], None]) -> float:
    brokers = Brokers(quorum.addresses, 3)
    await brokers.start()
    try:
        await asyncio.sleep(2.0)
        leader = brokers.leader
        brokers.controllers = tuple(address for address in quorum.addresses if address != leader)
        began = time.perf_counter()
        lose(leader)
        await _first(
            [_until_committed(brokers, brokers.groups[0], controller) for controller in brokers.controllers], 60.0
        )
        return time.perf_counter() - began
    finally:
        await brokers.close()


async def _until_committed(brokers: Brokers, group: Group, controller: str) -> None:
    while True:
        try:
            answer = await brokers.alter(group, via=controller, patience=1.0)
        except RemotingError:
            await asyncio.sleep(0.005)
            continue
        if answer.code == ResponseCode.SUCCESS:
            return
        await asyncio.sleep(0.005)


async def _first(waiting: list[Awaitable[None]], patience: float) -> None:
    tasks = [asyncio.ensure_future(one) for one in waiting]
    done, _ = await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if not done:
        raise BenchError(f"no other controller committed within {patience:.0f} s")


async def restart(quorum: Quorum) -> Figures:
    """100,000 events in the log, all members stopped and started: until one leads with all of them applied."""
    brokers = Brokers(quorum.addresses, GROUPS)
    await brokers.start()
    try:
        made = len(brokers.groups) * 6
        while made < 100_000:
            made += len(await _alter_for(brokers, 1.0))
        group = brokers.groups[0]
        epoch = group.sync_state_set_epoch
    finally:
        await brokers.close()
    quorum.stop_all()
    began = time.perf_counter()
    quorum.start_all()
    again = Brokers(quorum.addresses, 0)
    try:
        again.leader = await find_leader(again.client, quorum.addresses)
        answer = expect(
            await again.call(
                GetReplicaInfoRequestHeader(broker_name=group.name), RequestCode.CONTROLLER_GET_REPLICA_INFO
            )
        )
        taken = time.perf_counter() - began
        found = decode_body(SyncStateSet, answer.body).sync_state_set_epoch
        if found < epoch:  # it may be ahead: the brokers went first, and that is an election
            raise BenchError(f"after the restart {group.name} is at syncStateSetEpoch {found}, {epoch} was answered")
        return {"restart": taken, "restart_events": float(made)}
    finally:
        await again.client.close()


async def _alter_for(brokers: Brokers, seconds: float) -> list[float]:
    """Every group alters its set over and over; the latencies of all that succeeded."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def alter_group(group: Group) -> None:
        while (began := time.perf_counter()) < end:
            expect(await brokers.alter(group))
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(alter_group(group) for group in brokers.groups))
    return latencies
