"""The ends of simulated connections, in both forms that the shells use: asyncio's transports, and bare sockets.

They read and write; `net.py` carries what they send.
"""

import asyncio
import os
import struct
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import msgspec

from tests.sim.groups.loop import Process, Schedule

KERNEL_BUFFER = 200_000


class Weather(msgspec.Struct, frozen=True):
    """Delays between hosts, in seconds."""

    delay: float = 0.0004
    slow_share: float = 0.0
    slow_delay: float = 0.3
    split_share: float = 0.1
    """Of what is sent, that which arrives in two pieces."""


class Wires(Protocol):
    """What ends need of the network."""

    rng: Random
    schedule: Schedule
    weather: Weather
    window: int
    ends: "dict[End, None]"

    def carry(self, end: "End", item: bytes | None) -> None: ...


class End:
    """One end of a connection."""

    def __init__(self, network: "Wires", owner: Process, *, local: bool) -> None:
        self.network, self.owner, self.local = network, owner, local
        self.peer: End = self
        self.open = True
        self.inflight = 0
        """Bytes sent that the other process has not read."""
        self.last_arrival = 0.0
        self.held: deque[bytes | None] = deque()
        """What waits for the link to come back; None: the end."""

    # overridden

    def acknowledged_epoch(self, data: bytes) -> None:
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
        """Closed on this side; the peer is notified, unless the machine has no power."""
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

    def __init__(self, network: "Wires", owner: Process, protocol: Any, *, local: bool, peername: Any) -> None:
        End.__init__(self, network, owner, local=local)
        asyncio.Transport.__init__(self)
        self.protocol = protocol
        self._peername = peername
        self._paused = False
        self._inbox: list[bytes] = []
        self._closing = False

    def acknowledged_epoch(self, data: bytes) -> None:
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

    def __init__(self, network: "Wires", owner: Process, *, local: bool) -> None:
        super().__init__(network, owner, local=local)
        self._buffer = bytearray()
        self._over: Exception | str | None = None
        self._readable: Callable[[], object] | None = None
        self._writable: Callable[[], object] | None = None
        self._reported = False

    def acknowledged_epoch(self, data: bytes) -> None:
        self._buffer += data
        self._report()

    def ended(self, *, reset: bool) -> None:
        self._over = ConnectionResetError("reset") if reset else "end"
        self._report()

    def consumed(self) -> None:
        if self._writable is not None and self.inflight < self.network.window:
            self.owner.call_soon(self._write_turn)

    def _report(self) -> None:
        if self._readable is not None and not self._reported and (self._buffer or self._over is not None):
            self._reported = True
            self.owner.call_soon(self._read_turn)

    def _read_turn(self) -> None:
        self._reported = False
        if self._readable is not None and self.open:
            self._readable()
            self._report()

    def _write_turn(self) -> None:
        if self._writable is not None and self.open:
            self._writable()

    # for the loop

    def on_readable(self, callback: Callable[[], object] | None) -> None:
        self._readable = callback
        self._report()

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
