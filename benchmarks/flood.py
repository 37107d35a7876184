"""A fixed number of requests in flight on a few connections: throughput of one kind, at little cost here."""

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import cast

from benchmarks.brokers import BenchError

_LENGTH = struct.Struct(">i")


class _Lane(asyncio.Protocol):
    """One connection that answers every response with the next request."""

    def __init__(self, frames: Sequence[bytes], window: int, smallest: int) -> None:
        self._frames, self._window = frames, window
        self._smallest = smallest
        self._next = 0
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.answered = 0
        self.lost = False
        self.too_small = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send(self._window)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        at, size, count = 0, len(data), 0
        while size - at >= 4:
            end = at + 4 + _LENGTH.unpack_from(data, at)[0]
            if end > size:
                break
            self.too_small |= end - at < self._smallest
            at = end
            count += 1
        self._buffer = data[at:]
        self.answered += count
        self._send(count)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def _send(self, count: int) -> None:
        if self._transport is None or not count:
            return
        frames, size = self._frames, len(self._frames)
        out = [frames[(self._next + number) % size] for number in range(count)]
        self._next += count
        self._transport.write(b"".join(out))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def flood(
    address: str, frames: Sequence[bytes], *, seconds: float, lanes: int = 4, window: int = 32, smallest: int = 0
) -> float:
    """Answers per second to `frames`, sent over and over, `lanes` x `window` of them in flight.

    Raises:
        BenchError: a connection ended, or an answer was shorter than `smallest` bytes, so not what was asked for.
    """
    host, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    opened = [
        (await loop.create_connection(lambda: _Lane(frames, window, smallest), host, int(port)))[1]
        for _ in range(lanes)
    ]
    await asyncio.sleep(seconds * 0.2)  # warm-up
    began, before = time.perf_counter(), sum(lane.answered for lane in opened)
    await asyncio.sleep(seconds)
    taken, answered = time.perf_counter() - began, sum(lane.answered for lane in opened) - before
    lost = any(lane.lost for lane in opened)
    for lane in opened:
        lane.close()
    if lost:
        raise BenchError("a connection was closed under load")
    if any(lane.too_small for lane in opened):
        raise BenchError(f"an answer was shorter than {smallest} bytes")
    return answered / taken
