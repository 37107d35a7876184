"""Faults of controllers under load: signals, from a seed, with pauses in between."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from rocketmq_demo.controllers import ControllerCluster


class Faults:
    """Breaks members and heals them; awaited from the event loop that the clients run in."""

    def __init__(self, cluster: ControllerCluster, rng: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._rng = rng

    async def run(self, seconds: float) -> None:
        """Each kind of fault once, in random order; then more until `seconds` are over; then all members run."""
        kinds = [
            self.kill_leader,
            self.kill_one,
            self.kill_two,
            self.kill_all,
            self.hang_leader,
            self.hang_one,
            self.stop_leader,
        ]
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        rounds = self._rng.sample(kinds, len(kinds))
        while rounds or loop.time() < end:
            kind = rounds.pop() if rounds else self._rng.choice(kinds)
            await self._one(kind)
        await self.heal()

    async def heal(self) -> None:
        """Let every member run, and wait until one leads."""
        for member in self._rng.sample(list(self._cluster.ports), len(self._cluster.ports)):
            self._cluster[member].resume()
            if not self._cluster[member].alive:
                self._cluster.start_member(member)
                await self._pause(0, 0.2)
        await asyncio.to_thread(self._cluster.wait_leader, 60.0)

    async def _one(self, kind: Callable[[], Awaitable[None]]) -> None:
        await kind()
        self.done[kind.__name__] += 1
        await self._pause(0, 1.0)
        if self._rng.random() < 0.8:  # else the next fault hits a quorum that is not whole
            await self.heal()
            await self._pause(0.2, 1.0)
        else:
            for member in self._cluster.ports:
                self._cluster[member].resume()
                if not self._cluster[member].alive:
                    self._cluster.start_member(member)

    # Each kind of fault

    async def kill_leader(self) -> None:
        self._cluster[await self._leader()].kill9()

    async def kill_one(self) -> None:
        self._cluster[self._any()].kill9()

    async def kill_two(self) -> None:
        for member in self._rng.sample(list(self._cluster.ports), 2):
            self._cluster[member].kill9()

    async def kill_all(self) -> None:
        for member in self._cluster.ports:
            self._cluster[member].kill9()

    async def hang_leader(self) -> None:
        await self._hang(await self._leader())

    async def hang_one(self) -> None:
        await self._hang(self._any())

    async def stop_leader(self) -> None:
        await asyncio.to_thread(self._cluster[await self._leader()].stop)

    # Inside

    async def _hang(self, member: str) -> None:
        self._cluster[member].suspend()
        await self._pause(0.1, 2.0)
        self._cluster[member].resume()

    async def _leader(self) -> str:
        return await asyncio.to_thread(self._cluster.leader) or self._any()

    def _any(self) -> str:
        return self._rng.choice(list(self._cluster.ports))

    async def _pause(self, shortest: float, longest: float) -> None:
        await asyncio.sleep(self._rng.uniform(shortest, longest))
