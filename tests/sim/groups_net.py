"""Connections between simulated processes: bytes in order, late, in arbitrary pieces, held up by cuts in one direction
or both, ended by whoever dies. Both forms that the shells use: asyncio's transports, and bare sockets.

As TCP: a cut link keeps what is written until it is back; a killed process's kernel says so; a machine without power
says nothing, its peers find out late.
"""

import asyncio
import os
import struct
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from tests.sim.groups_loop import Host, Process, Schedule

KERNEL_BUFFER = 200_000
RETRY = 0.2
"""Seconds between two SYNs, more or less."""


class Weather(msgspec.Struct, frozen=True):
    """Delays between hosts, in seconds."""

    delay: float = 0.0004
    slow_share: float = 0.0
    slow_delay: float = 0.3
    split_share: float = 0.1
    """Of what is sent, that which arrives in two pieces."""


class End:
    """One end of a connection."""

    def __init__(self, network: "Network", owner: Process, *, local: bool) -> None:
        self.network, self.owner, self.local = network, owner, local
        self.peer: End = self
        self.open = True
        self.inflight = 0
        """Bytes sent that the other process has not read."""
        self.last_arrival = 0.0
        self.held: deque[bytes | None] = deque()
        """What waits for the link to come back; None: the end."""

    # overridden

    def arrived(self, data: bytes) -> None:
        raise NotImplementedError

    def ended(self, *, reset: bool) -> None:
        raise NotImplementedError

    def consumed(self) -> None:
        """The peer has read something."""

    # for both kinds

    def transmit(self, data: bytes) -> None:
        if not self.open or not self.owner.alive:
            return
        self.inflight += len(data)
        rng = self.network.rng
        if len(data) > 1 and rng.random() < self.network.weather.split_share:
            cut = rng.randrange(1, len(data))
            self.network.carry(self, data[:cut])
            self.network.carry(self, data[cut:])
        else:
            self.network.carry(self, data)

    def shut(self, *, silent: bool = False) -> None:
        """Closed on this side; the peer is told, unless the machine has no power."""
        if not self.open:
            return
        self.open = False
        self.network.ends.pop(self, None)
        if silent:
            later = self.network.rng.uniform(0.05, 3.0)
            self.network.schedule.after(later, lambda: self.network.carry(self, None))
        else:
            self.network.carry(self, None)

    def read(self, size: int) -> None:
        """This side has read `size` bytes."""
        self.peer.inflight -= size
        if self.peer.open:
            self.peer.consumed()


class SimTransport(End, asyncio.Transport):
    """As the loop gives to a protocol."""

    def __init__(self, network: "Network", owner: Process, protocol: Any, *, local: bool, peername: Any) -> None:
        End.__init__(self, network, owner, local=local)
        asyncio.Transport.__init__(self)
        self.protocol = protocol
        self._peername = peername
        self._paused = False
        self._inbox: list[bytes] = []
        self._closing = False

    def arrived(self, data: bytes) -> None:
        self.owner.call_soon(self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        if not self.open:
            return
        if self._paused:
            self._inbox.append(data)
            return
        self.read(len(data))
        self.protocol.data_received(data)

    def ended(self, *, reset: bool) -> None:
        self.owner.call_soon(self._lost, ConnectionResetError("reset") if reset else None)

    def _lost(self, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self.shut()
        self.protocol.connection_lost(error)

    def write(self, data: Any) -> None:
        if not self._closing:
            self.transmit(bytes(data))

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self.shut()
        self.owner.call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return max(0, self.inflight - KERNEL_BUFFER)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peername
        return _Credentials() if name == "socket" else default

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        inbox, self._inbox = self._inbox, []
        for data in inbox:
            self.owner.call_soon(self._deliver, data)


class _Credentials:
    """What a Unix socket says of who is on the other end."""

    def getsockopt(self, *_: object) -> bytes:
        return struct.pack("3i", 1, os.geteuid(), 0)


class SimSocket(End):
    """As `socket.socket`, non-blocking, with as much room as the seed gives."""

    def __init__(self, network: "Network", owner: Process, *, local: bool) -> None:
        super().__init__(network, owner, local=local)
        self._buffer = bytearray()
        self._over: Exception | str | None = None
        self._readable: Callable[[], object] | None = None
        self._writable: Callable[[], object] | None = None
        self._told = False

    def arrived(self, data: bytes) -> None:
        self._buffer += data
        self._tell()

    def ended(self, *, reset: bool) -> None:
        self._over = ConnectionResetError("reset") if reset else "end"
        self._tell()

    def consumed(self) -> None:
        if self._writable is not None and self.inflight < self.network.window:
            self.owner.call_soon(self._write_turn)

    def _tell(self) -> None:
        if self._readable is not None and not self._told and (self._buffer or self._over is not None):
            self._told = True
            self.owner.call_soon(self._read_turn)

    def _read_turn(self) -> None:
        self._told = False
        if self._readable is not None and self.open:
            self._readable()
            self._tell()

    def _write_turn(self) -> None:
        if self._writable is not None and self.open:
            self._writable()

    # for the loop

    def on_readable(self, callback: Callable[[], object] | None) -> None:
        self._readable = callback
        self._tell()

    def on_writable(self, callback: Callable[[], object] | None) -> None:
        self._writable = callback
        self.consumed()

    # socket.socket

    def send(self, data: Any, flags: int = 0) -> int:
        if not self.open or (self._over is not None and not isinstance(self._over, str)):
            raise BrokenPipeError("broken pipe")
        room = self.network.window - self.inflight
        if room <= 0:
            raise BlockingIOError
        part = bytes(data[:room])
        self.transmit(part)
        return len(part)

    def recv(self, size: int) -> bytes:
        if not self._buffer:
            if self._over is None:
                raise BlockingIOError
            if isinstance(self._over, str):
                return b""
            raise self._over
        size = min(size, self.network.rng.choice((7, 40, 300, 1 << 16)))
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self.read(len(data))
        return data

    def recv_into(self, buffer: memoryview) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recvmsg_into(self, buffers: Any) -> tuple[int, list[Any], int, Any]:
        data = self.recv(sum(map(len, buffers)))
        position = 0
        for buffer in buffers:
            part = data[position : position + len(buffer)]
            buffer[: len(part)] = part
            position += len(part)
        return len(data), [], 0, None

    def close(self) -> None:
        self._readable = self._writable = None
        self.shut()

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, *_: object) -> None:
        pass

    def fileno(self) -> int:
        raise AssertionError("batches of a simulation are small: no sendfile")


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

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        end = self._waiting.pop(0)
        return end, (end.peer.owner.host.address, 40000)

    # as asyncio.Server and as a socket

    def close(self) -> None:
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]

    async def wait_closed(self) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)


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

    def heal(self) -> None:
        self.blocked.clear()
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
            self.schedule.at(time, lambda: peer.arrived(item) if peer.open else None)

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
        name = (process.host.address, 40000)
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
            target = self.hosts.get(address.rpartition(":")[0])
            if not unix and (target is None or self.cut(process.host, target) or self.cut(target, process.host)):
                await asyncio.sleep(RETRY)
                continue
            listener = self.listeners.get(address)
            if listener is None or not listener.owner.alive:
                raise ConnectionRefusedError(111, "Connection refused")
            return listener, unix
