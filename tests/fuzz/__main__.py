"""`python -m tests.fuzz --frames 100000 --idle 5000 --seed 7`: every port of a group on loopback, one after the other.

Exit codes: 0, 1 if an expectation was not met. Each of the connections that send at once has its own bytes, which the
seed decides; how they interleave differs. Logs stay in build/fuzz.
"""

import argparse
import asyncio
import contextlib
import random
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import OwnedProcess
from tests.fuzz.target import Port, Target, target

AT_ONCE = 16
"""Connections that send."""
FRAMES_OF_CONNECTION = 40
MAX_GROWTH = 64 * 1024 * 1024
"""Bytes of resident memory that a process may grow by, from after the first port to the end."""
LOG_BYTES_A_MINUTE = 4 * 1024 * 1024
"""Of one process: `logs.LINES` lines of usual length."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="strangers at every port, on loopback")
    parser.add_argument("--frames", type=int, default=100_000, help="for each port")
    parser.add_argument("--idle", type=int, default=5000, help="connections to each port that say nothing")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--port", help="this port only")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the processes, too
    folder = arguments.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"fuzz: --seed {arguments.seed} --frames {arguments.frames} --idle {arguments.idle}", flush=True)
    with PortPool() as ports:
        problems = asyncio.run(_run(arguments, folder, ports))
    for problem in problems:
        print(f"fuzz: {problem}", file=sys.stderr)
    print(f"fuzz: {len(problems)} problems" if problems else "fuzz: all expectations met")
    return 1 if problems else 0


async def _run(arguments: argparse.Namespace, folder: Path, ports: PortPool) -> list[str]:
    problems: list[str] = []
    async with target(folder, ports) as tried:
        began = time.monotonic()
        before: dict[str, int] = {}
        for port in tried.ports:
            if arguments.port in {None, port.name}:
                problems += await _attack(tried, port, arguments.seed, arguments.frames, arguments.idle)
                before = before or _memory(tried)
        if not before:
            return [f"no port {arguments.port}: choose from {[port.name for port in tried.ports]}"]
        problems += _judge(tried, before, time.monotonic() - began)
    return problems


async def _attack(tried: Target, port: Port, seed: int, count: int, idle: int) -> list[str]:
    began, sends, beats, before = time.monotonic(), tried.sends, tried.beats, tried.elected
    left = iter(range(count))
    elections = asyncio.create_task(tried.elections()) if port.elects else None
    await asyncio.gather(
        *(_stranger(port, left, random.Random(f"{seed} {port.name} {number}")) for number in range(AT_ONCE))
    )
    elected = elections is None or await elections
    async with _idle(port.number, idle) as held:
        served = elected and await tried.served()
    ended = [process.name for process in tried.processes if not process.alive]
    print(
        f"fuzz: {port.name}: {time.monotonic() - began:.0f} s, {held} idle at once, "
        f"{tried.sends - sends} sends, {tried.beats - beats} heartbeats, {tried.elected - before} elections",
        flush=True,
    )
    return [f"{port.name}: {name} has ended" for name in ended] + (
        [] if served else [f"{port.name}: {tried.trouble()}"]
    )


async def _stranger(port: Port, left: Iterator[int], rng: random.Random) -> None:
    source = port.frames(rng)
    while True:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection(HOST, port.number)
                try:
                    for _ in range(rng.randint(1, FRAMES_OF_CONNECTION)):
                        if writer.transport.is_closing():
                            break
                        if next(left, None) is None:
                            return
                        writer.write(next(source))
                        await writer.drain()
                        await asyncio.sleep(0)
                    if rng.random() < 0.5:
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(reader.read(100_000), 0.05)
                finally:
                    writer.transport.abort()
            continue
        if next(left, None) is None:  # a connection that was refused counts, so that the run ends
            return


@contextlib.asynccontextmanager
async def _idle(port: int, count: int) -> AsyncIterator[int]:
    writers = []
    for _ in range(count):
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                writers.append((await asyncio.open_connection(HOST, port))[1])
    try:
        yield sum(not writer.transport.is_closing() for writer in writers)
    finally:
        for writer in writers:
            writer.transport.abort()


def _memory(tried: Target) -> dict[str, int]:
    return {process.name: process.resident_bytes() for process in tried.processes}


def _judge(tried: Target, before: dict[str, int], seconds: float) -> Iterator[str]:
    for process in tried.processes:
        grown = process.resident_bytes() - before.get(process.name, 0)
        print(
            f"fuzz: {process.name}: RSS {grown / 2**20:+.1f} MiB, log {_log_bytes(process) / 1024:.0f} KiB", flush=True
        )
        if grown > MAX_GROWTH:
            yield f"{process.name}: memory grew by {grown} bytes, more than {MAX_GROWTH}"
        if _log_bytes(process) > LOG_BYTES_A_MINUTE * (1 + seconds / 60):
            yield f"{process.name}: its log has {_log_bytes(process)} bytes after {seconds:.0f} s"
        text = process.output()
        for sign in ("Traceback", '"exception"', "never retrieved"):
            if sign in text:
                line = next(line for line in text.splitlines() if sign in line)
                yield f"{process.name}: {sign} in its log: {line[:500]}"


def _log_bytes(process: OwnedProcess) -> int:
    return process.log_path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
