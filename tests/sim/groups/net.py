"""Connections between simulated processes: bytes in order, late, in arbitrary pieces, held up by cuts in one direction
or both, ended by a process that dies.

As TCP: a cut link keeps what is written until it is back; a killed process's kernel says so; a machine without power
says nothing, its peers find out late.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from rocketmq_formats.addresses import parse_address
from tests.sim.groups.ends import KERNEL_BUFFER, End, SimSocket, SimTransport, Weather
from tests.sim.groups.loop import Host, Process, Schedule

RETRY = 0.2
"""Seconds between two SYNs, more or less."""


class Listener:
    """A port."""

    def __init__(self, network: "Network", owner: Process, address: str) -> None:
        self.network, self.owner, self.address = network, owner, address
        self.sockets: list[Any] = [self]
        self._waiting: list[SimSocket] = []
        self._readable: Callable[[], object] | None = None
        self.factory: Any = None

    # as a bare socket

    def on_readable(self, callback: Callable[[], object] | None) -> None:
        self._readable = callback

    def accepted(self, end: SimSocket) -> None:
        self._waiting.append(end)
        if self._readable is not None:
            self.owner.call_soon(self._readable)

    def accept(self) -> tuple[SimSocket, tuple[object, ...]]:
        if not self._waiting:
            raise BlockingIOError
        end = self._waiting.pop(0)
        return end, _name(end.peer.owner.host.address, 40000)

    # as asyncio.Server and as a socket

    def close(self) -> None:
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]

    async def wait_closed(self) -> None:
        pass

    def getsockname(self) -> tuple[object, ...]:
        return (self.address, 0) if self.address.startswith("unix:") else _name(*parse_address(self.address))


def _name(host: str, port: int) -> tuple[object, ...]:
    """Of a socket, as the kernel has it: IPv6 adds flow and scope."""
    return (host, port, 0, 0) if ":" in host else (host, port)


class Network:
    """All links of the world."""

    def __init__(self, schedule: Schedule, rng: Random) -> None:
        self.schedule, self.rng = schedule, rng
        self.weather = Weather()
        self.window = rng.choice((300, 2000, 20_000, KERNEL_BUFFER))
        """Bytes that a bare socket takes before it blocks."""
        self.blocked: set[tuple[str, str]] = set()
        """Names of hosts: what the first one sends does not reach the second."""
        self.dark: set[str] = set()
        """Hosts without power."""
        self.listeners: dict[str, Listener] = {}
        self.ends: dict[End, None] = {}
        self.hosts: dict[str, Host] = {}
        """By address."""

    # Faults

    def block(self, pairs: set[tuple[str, str]]) -> None:
        self.blocked |= pairs

    def heal(self, pairs: set[tuple[str, str]] | None = None) -> None:
        """`pairs` are no longer blocked, or none is."""
        self.blocked -= set(self.blocked if pairs is None else pairs)
        for end in list(self.ends) + [end.peer for end in self.ends]:
            held, end.held = end.held, deque()
            for item in held:
                self.carry(end, item)

    def close_all(self, process: Process, *, silent: bool) -> None:
        """The process is gone."""
        for listener in [one for one in self.listeners.values() if one.owner is process]:
            listener.close()
        for end in [end for end in self.ends if end.owner is process]:
            end.shut(silent=silent)

    def reset(self, process: Process) -> int:
        """Something between the hosts forgets the connections of `process`: both sides get a reset."""
        ends = [end for end in self.ends if end.owner is process and not end.local]
        for end in ends:
            for side in (end, end.peer):
                if side.open:
                    later = self.rng.uniform(0.0001, 0.05)
                    self.schedule.after(later, lambda side=side: self._reset(side))  # type: ignore[misc]
        return len(ends)

    def _reset(self, end: End) -> None:
        if end.open:
            end.ended(reset=True)

    # Carrying

    def cut(self, one: Host, other: Host) -> bool:
        return (one.name, other.name) in self.blocked or one.name in self.dark or other.name in self.dark

    def delay(self, *, local: bool) -> float:
        rng, weather = self.rng, self.weather
        if local:
            return rng.uniform(0.00002, 0.0001) if rng.random() < 0.98 else rng.uniform(0.001, 0.02)
        if weather.slow_share and rng.random() < weather.slow_share:
            return rng.uniform(0.1, 1.0) * weather.slow_delay
        return rng.uniform(0.2, 1.5) * weather.delay

    def carry(self, end: End, item: bytes | None) -> None:
        """`item` leaves `end` for its peer; None is the end of the stream."""
        peer = end.peer
        if not peer.open:
            return
        if end.held or (not end.local and (end.owner.host.name, peer.owner.host.name) in self.blocked):
            end.held.append(item)
            self.ends.setdefault(peer)
            return
        time = max(end.last_arrival, self.schedule.now + self.delay(local=end.local))
        end.last_arrival = time
        if item is None:
            self.schedule.at(time, lambda: peer.ended(reset=False) if peer.open else None)
        else:
            self.schedule.at(time, lambda: peer.acknowledged_epoch(item) if peer.open else None)

    # Connecting

    def listen_transport(self, process: Process, address: str, factory: Any) -> Listener:
        listener = self.listen(process, address)
        listener.factory = factory
        return listener

    def listen(self, process: Process, address: str) -> Listener:
        if address in self.listeners:
            raise OSError(98, f"address in use: {address}")
        listener = self.listeners[address] = Listener(self, process, address)
        return listener

    async def connect_transport(self, process: Process, address: str, factory: Any) -> tuple[Any, Any]:
        listener, local = await self._reach(process, address)
        protocol = factory()
        name = _name(process.host.address, 40000)
        here = SimTransport(self, process, protocol, local=local, peername=listener.getsockname())
        server = listener.factory()
        there = SimTransport(self, listener.owner, server, local=local, peername=name)
        self._join(here, there)
        listener.owner.call_soon(server.connection_made, there)
        protocol.connection_made(here)
        return here, protocol

    async def connect_socket(self, process: Process, address: str) -> SimSocket:
        listener, local = await self._reach(process, address)
        here = SimSocket(self, process, local=local)
        there = SimSocket(self, listener.owner, local=local)
        self._join(here, there)
        listener.accepted(there)
        return here

    def _join(self, here: End, there: End) -> None:
        here.peer, there.peer = there, here
        self.ends[here] = self.ends[there] = None

    async def _reach(self, process: Process, address: str) -> tuple[Listener, bool]:
        """Until the other side's kernel has answered; the caller has the time-out."""
        while True:
            unix = address.startswith("unix:")
            await asyncio.sleep(self.delay(local=unix) * 2)
            if not process.alive:
                raise OSError("this process is ending")
            target = None if unix else self.hosts.get(parse_address(address)[0])
            if not unix and (target is None or self.cut(process.host, target) or self.cut(target, process.host)):
                await asyncio.sleep(RETRY)
                continue
            listener = self.listeners.get(address)
            if listener is None or not listener.owner.alive:
                raise ConnectionRefusedError(111, "Connection refused")
            return listener, unix
