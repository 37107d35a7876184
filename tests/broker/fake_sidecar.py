"""A sidecar that says what a test wants: listens on the Unix socket, grants mastership, acknowledges everything.

As a program (`python -m tests.broker.fake_sidecar SOCKET`) it makes a broker master for measurements.
"""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import uvloop

from rocketmq_formats.replica_link import (
    Appended,
    CopyKey,
    FromBroker,
    FromSidecar,
    Grant,
    Hello,
    LinkReader,
    Others,
    Prepare,
    Prepared,
    Replication,
    Welcome,
    decode_from_broker,
    encode,
)

M = TypeVar("M", bound=FromBroker)
FOREVER = 1e12


class FakeSidecar(asyncio.Protocol):
    """One broker at a time. `automatic`: acknowledge every `Appended` at once."""

    def __init__(self, path: Path, *, automatic: bool = True, in_sync: int = 3) -> None:
        self.path = path
        self.automatic = automatic
        self.in_sync = in_sync
        self.members = frozenset({1})
        """Of the SyncStateSet; only the broker itself: changes of tables wait for no other replica."""
        self.others: tuple[str, ...] = ()
        """Addresses that a new master asks for newer tables."""
        self.joins: dict[int, int] = {}
        self.officials: frozenset[int] = frozenset()
        self.copy_key: CopyKey | None = None
        """Sent as soon as the broker connects."""
        self.epoch = 0
        self.received: deque[FromBroker] = deque(maxlen=10_000)
        self.max_offset = 0
        self.progress = 0
        """`Appended`s so far."""
        self._reader = LinkReader()
        self._transport: asyncio.Transport | None = None
        self._server: asyncio.Server | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def start(self) -> None:
        directory = os.open(self.path.parent, os.O_PATH)
        try:
            name = f"/proc/self/fd/{directory}/{self.path.name}"  # paths of tests are longer than an address may be
            self._server = await asyncio.get_running_loop().create_unix_server(lambda: self, name)
        finally:
            os.close(directory)

    async def stop(self) -> None:
        self.hang_up()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._reader = LinkReader()
        if self.copy_key is not None:
            self.send(self.copy_key)

    def data_received(self, data: bytes) -> None:
        for payload in self._reader.receive(data):
            message = decode_from_broker(payload)
            if isinstance(message, Appended):
                self.max_offset = message.max_offset
                self.progress += 1
                if self.automatic:
                    self.acknowledge(message.max_offset)
            self.received.append(message)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    # what a test does

    def send(self, message: FromSidecar) -> None:
        assert self._transport is not None
        self._transport.write(encode(message))

    def acknowledge(self, offset: int, *, confirm: int | None = None) -> None:
        confirm = offset if confirm is None else confirm
        self.send(
            Replication(self.epoch, offset, confirm, self.in_sync, self.members, dict(self.joins), self.officials)
        )

    async def receive(self, kind: type[M], accept: Callable[[M], bool] = lambda _message: True) -> M:
        """The next message of this kind that fits; earlier ones are forgotten."""
        while True:
            while self.received:
                message = self.received.popleft()
                if isinstance(message, kind) and accept(message):
                    return message
            await self._news()

    async def make_master(self, epoch: int = 1, *, lease: float = FOREVER, hello: bool = True) -> int:
        """Prepare, grant, first progress; returns the log's max offset."""
        if hello:
            await self.receive(Hello)
            self.send(Welcome(1))
        self.epoch = epoch
        self.send(Others(epoch, self.others))
        self.send(Prepare(epoch))
        prepared = await self.receive(Prepared)
        before = self.progress
        granted = encode(Grant(epoch, lease))
        progress = encode(Replication(epoch, prepared.max_offset, prepared.max_offset, self.in_sync, self.members))
        assert self._transport is not None
        self._transport.write(granted + progress)
        while self.progress == before:
            # the broker's first word as master: it has seen the grant, and the progress that came with it
            await self._news()
        return prepared.max_offset

    async def _news(self) -> None:
        """Until the broker says anything."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter


async def _run(path: Path) -> None:
    sidecar = FakeSidecar(path)
    await sidecar.start()
    while True:
        await sidecar.make_master(int(time.time()))
        print("master", flush=True)


if __name__ == "__main__":
    uvloop.run(_run(Path(sys.argv[1])))
