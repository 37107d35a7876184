"""Injects faults, one after the other, and keeps the diary."""

import asyncio
import errno
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Self

from tests.campaign.cluster import Cluster, Controller, Node, Replica
from tests.campaign.load import Load
from tests.campaign.plan import Strike
from tests.campaign.timeline import Event

ELECTED = 5.0
"""Seconds in which another master is elected, as a rule."""
PATIENCE = 90.0
"""Seconds in which a group has to be whole again after a fault that waits for that."""


class NeverSettledError(Exception):
    """The group was not whole again within PATIENCE."""


class Nemesis:
    """Injects faults until it is stopped; `counts` has how often each. A fault draws random numbers only from `rng`."""

    def __init__(self, cluster: Cluster, load: Load, strikes: Iterator[Strike], pause: tuple[float, float]) -> None:
        self.counts: Counter[str] = Counter()
        self.diary: list[Event] = []
        self.cluster = cluster
        self.load = load
        self._strikes = strikes
        self._pause = pause
        self.now = asyncio.get_running_loop().time

    async def strike(self, faults: Mapping[str, Callable[[Self], Awaitable[None]]], until: float) -> None:
        """Inject one fault after the other up to the time `until`; all are healed when this returns.
        Raises NeverSettledError."""
        while self.now() < until:
            name, self.rng = next(self._strikes)
            self.diary.append(Event(self.now(), name, "fault"))
            await faults[name](self)
            self.counts[name] += 1
            self.diary.append(Event(self.now(), "healed", "healed"))
            await self.wait(*self._pause)

    # What faults are made of

    def note(self, text: str) -> None:
        self.diary.append(Event(self.now(), text))

    async def wait(self, least: float, most: float) -> None:
        await asyncio.sleep(self.rng.uniform(least, most))

    async def whole(self) -> None:
        """Wait until everything is whole. Raises NeverSettledError."""
        if not await self.cluster.settled(PATIENCE):
            state = await self.cluster.state()
            raise NeverSettledError(f"not all in sync {PATIENCE:g} s after the last fault was healed: {state}")

    def replica(self) -> Replica:
        return self.rng.choice(self.cluster.replicas)

    def controller(self) -> Controller:
        return self.rng.choice(self.cluster.controllers)

    def server(self) -> Node:
        """A replica or a controller."""
        return self.rng.choice([*self.cluster.replicas, *self.cluster.controllers])

    async def master(self) -> Replica:
        """As the controllers report it; any replica if none of them answers."""
        any_replica = self.replica()  # drawn always, so that the same seed makes the same choices
        return await self.cluster.master() or any_replica

    async def successor(self, master: Replica, seconds: float) -> Replica | None:
        """Who is master after `master`, which has just been killed; None if the controllers name no other within
        `seconds`."""
        until = self.now() + seconds
        while self.now() < until:
            elected = await self.cluster.master()
            if elected not in {None, master}:
                return elected
            await asyncio.sleep(0.02)
        return None

    async def slaves(self) -> list[Replica]:
        master = await self.master()
        return [replica for replica in self.cluster.replicas if replica is not master]

    def note_all_down(self, nodes: Collection[Node]) -> None:
        """`nodes` have just been killed."""
        if all(replica in nodes for replica in self.cluster.replicas):
            self.load.history.all_down.append(self.now())

    async def crash(self, replicas: list[Replica], *, least: float = 0.0, most: float = 3.0) -> None:
        """kill -9, and restart in any order."""
        self.note("kill -9 " + " ".join(replica.name for replica in replicas))
        for replica in replicas:
            replica.signal(signal.SIGKILL)
        if len(replicas) > 1:
            self.load.history.blackout = self.now()
        self.note_all_down(replicas)
        order = list(replicas)
        self.rng.shuffle(order)
        for replica in order:
            await self.wait(least, most)
            replica.start()

    async def split(self, one: list[str], other: list[str], least: float, most: float) -> None:
        """Nothing passes between the two sides for a while."""
        self.note(f"cut {one} from {other}")
        self.cluster.network.split(one, other)
        await self.wait(least, most)
        self.cluster.network.heal()

    async def stutter(self, node: Node, *, most: float) -> None:
        """Stop it ten times, for up to `most` seconds each."""
        for _ in range(10):
            node.signal(signal.SIGSTOP)
            await self.wait(0.05, most)
            node.signal(signal.SIGCONT)
            await self.wait(0.02, 0.2)

    async def slow_sync(self, node: Node, delays_ms: Sequence[int], *, most: float) -> None:
        """Delay its syncs by one of `delays_ms`, for up to `most` seconds."""
        node.shim.sync(delay_ms=self.rng.choice(delays_ms))
        await self.wait(1, most)
        node.shim.sync()

    async def failing_sync(self, node: Node) -> None:
        """Fail its syncs for a while; the caller restarts it."""
        self.note(f"EIO at {node.name}")
        node.shim.sync(error=errno.EIO)
        await self.wait(0.5, 4)
        node.shim.sync()
