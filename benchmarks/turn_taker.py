"""One of the two sides of `compare`'s turns: under load when it is its turn. Not imported: `compare` runs this file
with the packages of either commit on the path, so it uses only what old commits have too.

    argument   a measurement in turns, such as sends_to_all
    stdout     for each of its figures READY, then for each turn GOT and what was done a second
    stdin      a line for each turn: its seconds; END ends the figure
"""

import asyncio
import runpy
import sys
from collections.abc import Awaitable, Callable, Sequence

from benchmarks import controller, flood, replicas, sending
from benchmarks.brokers import Brokers
from rocketmq_client.producer import Producer

_alter_for = vars(controller)["_alter_for"]


async def _take_turns(turn: Callable[[float], Awaitable[float]]) -> None:
    print("READY", flush=True)
    while (line := (await asyncio.to_thread(sys.stdin.readline)).strip()) not in {"", "END"}:
        print("GOT", await turn(float(line)), flush=True)


# In place of what measures a figure once; what they return is not looked at.


async def _sends_per_second(producer: Producer, in_flight: int, *, warm_up: float, seconds: float) -> float:
    async def turn(seconds: float) -> float:
        return (await sending.send_for(producer, in_flight, seconds)).acknowledged / seconds

    await _take_turns(turn)
    return 1.0


async def _alter_in_turns(brokers: Brokers, seconds: float) -> list[float]:
    async def turn(seconds: float) -> float:
        return len(await _alter_for(brokers, seconds)) / seconds

    await _take_turns(turn)
    return [1.0, 1.0]


async def _flood_in_turns(address: str, frames: Sequence[bytes], *, seconds: float) -> float:
    await _take_turns(lambda seconds: flood.flood(address, frames, seconds=seconds))
    return 1.0


if __name__ == "__main__":
    vars(replicas)["sends_per_second"] = _sends_per_second
    vars(controller).update(_alter_for=_alter_in_turns, flood=_flood_in_turns)
    sys.argv = ["benchmarks", "--without-java", "--rounds", "1", "--only", sys.argv[1], "--output", sys.argv[2]]
    runpy.run_module("benchmarks", run_name="__main__")
