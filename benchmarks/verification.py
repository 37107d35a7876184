"""What is measured of the verification: stores of 1 GiB and of 20 GiB in files, and a group under load by its sidecars.

The start of Spark, its first (empty) query and the scan are measured separately; the stores are in the page cache.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import xxhash

from benchmarks.brokers import BenchError
from benchmarks.controller import Figures
from benchmarks.engines import Quorum
from benchmarks.groups import CLUSTER, NAME
from benchmarks.made_logs import make_stores
from benchmarks.sending import GroupPoller, create_topic, fill, send_for
from rocketmq_client.producer import Producer
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.replica import NameServer, Replica
from rocketmq_formats.soundness.places import Extent
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_verify import job
from rocketmq_verify.domain.model import Chunk, ReplicaName
from rocketmq_verify.domain.verdict import Result
from rocketmq_verify.engine.session import Engine, SessionOptions
from rocketmq_verify.history.runs import Group
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.run import EngineKind, Request, Run
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.work import Place

ROUNDS = 3
SMALL, LARGE = 1, 20
"""Files of 1 GiB; the replicas of the large log are links to one, which just fits the memory."""
PIECE = 1 << 20
SERVED = 512 << 20
"""Bytes of the group that is verified by its sidecars."""
SEND_PAIRS = 25
SEND_SECONDS = 2.0
"""Sends are measured alone and beside the reading in short turns: a shared machine drifts by more than what is looked
for."""
BESIDE = 185
"""MiB that a sidecar digests in that time, as it is configured by default."""
WARM_UP = 2.0
SETTLE = 3.0
IN_FLIGHT = 16
NICE = ("nice", "-n", "19")
_HASHER = """
import sys, xxhash
from pathlib import Path
buffer = memoryview(bytearray(1 << 20))
for root in sys.argv[1:]:
    for path in sorted((Path(root) / "commitlog").iterdir()):
        digest = xxhash.xxh3_128()
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
"""
_READER = """
import sys, threading
from itertools import cycle, islice
from rocketmq_verify.domain.model import Chunk, ReplicaName
from rocketmq_verify.sources.open_source import open_source
PIECE = 1 << 20
sources = [open_source(ReplicaName(n), "sidecar:" + a) for n, _, a in (s.partition("=") for s in sys.argv[1:])]
whole = min(source.describe().confirm_offset for source in sources) // PIECE
todo = [cycle([Chunk(PIECE * i, PIECE, 0) for i in range(whole)]) for _ in sources]
def read(i, count):
    for answer in sources[i].digests(list(islice(todo[i], count))):
        assert answer.digest
print("ready", flush=True)
for line in sys.stdin:
    threads = [threading.Thread(target=read, args=(i, int(line))) for i in range(len(sources))]
    for t in threads: t.start()
    for t in threads: t.join()
    print("done", flush=True)
"""
"""As many MiB as each line on its standard input says are digested by all sidecars, each at the rate that it is
configured for; says when that is done."""


async def verification(quorum: Quorum) -> Sequence[Figures]:
    """Files, then sidecars."""
    figures = list(await asyncio.to_thread(_files, quorum.folder / "stores"))
    figures.append(await _sidecars(quorum))
    return figures


def _files(folder: Path) -> list[Figures]:
    engine = Engine(SessionOptions(master="local[2]"))
    engine.start()
    try:
        engine.spark()
        found: list[Figures] = [{"verify_start": engine.started_seconds, "verify_first": engine.warm_seconds}]
        seconds: dict[int, float] = {}
        for files in (SMALL, LARGE):
            roots, length = make_stores(folder, files=files, linked=files == LARGE)
            places = tuple(Place(ReplicaName(root.name), f"files:{root}") for root in roots)
            _hashed(roots)
            for _ in range(ROUNDS):
                plain = _hashed(roots)
                run = _run(engine, places, checks=files == SMALL)
                seconds[files] = min(seconds.get(files, run.timings.scan), run.timings.scan)
                if files == SMALL:
                    found.append(
                        {
                            "verify_scan": run.timings.scan,
                            "verify_plain": plain,
                            "verify_of_plain": _digested(places) / plain,
                            "verify_structure": length / 1e6 / _structure(places[0], length),
                            "verify_structure_spark": length / 1e6 / run.timings.structure,
                            "verify_queues": run.timings.queues,
                        }
                    )
            if files == SMALL:
                found += [_by_hand(roots) for _ in range(ROUNDS)]
            shutil.rmtree(folder)
        found.append({"verify_growth": seconds[LARGE] / seconds[SMALL] / (LARGE / SMALL)})
        return found
    finally:
        engine.stop()


def _by_hand(roots: Sequence[Path]) -> Figures:
    """The command without Spark, and a process that only hashes the same files: seconds, and CPU seconds with the start
    of Python."""
    replicas = [part for root in roots for part in ("--replica", f"{root.name}={root}")]
    verify = ["-m", "rocketmq_verify", "-q", "--engine", "local", "--no-structure", "--no-queues", *replicas]
    seconds, cpu = _spent(verify)
    _, plain = _spent(["-c", _HASHER, *(str(root) for root in roots)])
    return {"verify_local": seconds, "verify_local_of_plain": cpu / plain}


def _spent(arguments: Sequence[str]) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a process of Python."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{arguments[:2]}: {done.stdout[:500]}{done.stderr[-500:]}")
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return time.perf_counter() - began, cpu


def _run(engine: Engine, places: tuple[Place, ...], *, checks: bool) -> Run:
    request = Request(
        group=Group("bench", "files"), places=places, structure=checks, queues=checks, engine=EngineKind.SPARK
    )
    run = job.run(request, engine, NoProgress())
    if run.verdict.result is not Result.ALIGNED:
        raise BenchError(f"a false alarm: {run.verdict.summary}")
    return run


def _hashed(roots: Sequence[Path]) -> float:
    """Seconds for the plainest loop that there is: every file of every store, one process, one buffer."""
    began = time.perf_counter()
    buffer = memoryview(bytearray(PIECE))
    for root in roots:
        for path in sorted((root / "commitlog").iterdir()):
            digest = xxhash.xxh3_128()
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    digest.update(buffer[:count])
    return time.perf_counter() - began


def _digested(places: Sequence[Place]) -> float:
    """Seconds for the digests of all chunks of all stores as a task of Spark makes them, in one process."""
    began = time.perf_counter()
    for place in places:
        source = open_source(place.name, place.spec)
        chunks = [Chunk(at, PIECE, 0) for at in range(0, source.describe().max_offset, PIECE)]
        for _ in source.digests(chunks):
            pass
    return time.perf_counter() - began


def _structure(place: Place, length: int) -> float:
    """Seconds of the structural check in one process."""
    source = open_source(place.name, place.spec)
    began = time.perf_counter()
    (found,) = source.structures(Extent(0, length), length, 1 << 30)
    if found.fault_count:
        raise BenchError(f"a false alarm: {found.faults[:3]}")
    return time.perf_counter() - began


async def _sidecars(quorum: Quorum) -> Figures:
    """A group with some log; sends to it alone, and while its sidecars digest all of it, over and over, in turn."""
    client = RemotingClient()
    try:
        with ExitStack() as stack:
            ports = stack.enter_context(PortPool())
            name_server = NameServer(quorum.folder / "verified" / "namesrv", port=ports.single())
            stack.callback(name_server.close)
            name_server.wait_listening()
            specs = [_replica(stack, quorum, ports, name_server.address, number) for number in range(3)]
            await GroupPoller(client, quorum.addresses).wait_in_sync(3)
            async with Producer([name_server.address], timeout=5.0) as producer:
                await fill(await create_topic(producer), SERVED, body_size=1024)
                await asyncio.sleep(SETTLE)
                figures = await _beside(producer, specs)
            said = await _command(specs)
            return figures | {"verify_travelled": 100 * said["travelledBytes"] / said["readBytes"]}
    finally:
        await client.close()


def _replica(stack: ExitStack, quorum: Quorum, ports: PortPool, name_server: str, number: int) -> str:
    """Start one; what to give to `--sidecar`."""
    port = ports.single()
    replica = Replica(
        f"verified-{number}",
        folder=quorum.folder / "verified" / str(number),
        ports=ports,
        controllers=quorum.addresses,
        nameservers=[name_server],
        cluster=CLUSTER,
        name=NAME,
        config={"sidecarGrpcPort": port, "durability": "strict", "diskMaxUsedSpaceRatio": 95},
    )
    stack.callback(replica.close)
    replica.launch()
    return f"r{number}={HOST}:{port}"


async def _beside(producer: Producer, specs: Sequence[str]) -> Figures:
    await send_for(producer, IN_FLIGHT, WARM_UP)
    # another machine's work is done there: only what the replicas do for it is to be felt
    reading = await asyncio.create_subprocess_exec(
        *NICE, sys.executable, "-c", _READER, *specs, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert reading.stdin is not None
    assert reading.stdout is not None
    await reading.stdout.readline()
    sent = {True: 0, False: 0}
    for number in range(SEND_PAIRS):
        for beside in (number % 2 == 0, number % 2 == 1):
            if beside:
                reading.stdin.write(b"%d\n" % BESIDE)
            sent[beside] += (await send_for(producer, IN_FLIGHT, SEND_SECONDS)).acknowledged
            if beside:
                await reading.stdout.readline()
    reading.stdin.close()
    await reading.wait()
    seconds = SEND_PAIRS * SEND_SECONDS
    return {
        "verify_sends_alone": sent[False] / seconds,
        "verify_sends_beside": sent[True] / seconds,
        "verify_sends_slower": 100 * (1 - sent[True] / sent[False]),
        "verify_sidecar_mb_per_second": len(specs) * SEND_PAIRS * BESIDE * PIECE / seconds / 1e6,
    }


async def _command(specs: Sequence[str]) -> dict[str, float]:
    arguments = [part for spec in specs for part in ("--sidecar", spec)]
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rocketmq_verify", "-q", "-o", "json", *arguments, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await command.communicate()
    if command.returncode:
        raise BenchError(f"a false alarm: {printed.decode()[:500]}")
    said: dict[str, float] = json.loads(printed)
    return said
