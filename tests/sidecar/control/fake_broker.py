"""A broker as its sidecar sees one: says hello, holds the writer lock when it is to be master, and obeys. No messages.

Speaks `replica_link` over the real socket and answers 906 and 1008 on a real port, so that real sidecars can be tested
without the broker process.
"""

import asyncio
import os
from pathlib import Path
from typing import cast

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_formats.replica_link import (
    PROTOCOL,
    Alive,
    Copied,
    Following,
    FromBroker,
    FromSidecar,
    Grant,
    Held,
    Hello,
    Hold,
    Lease,
    LinkReader,
    LogState,
    NoRole,
    Prepare,
    Prepared,
    Probe,
    Release,
    Released,
    Replication,
    RoleNotice,
    Truncate,
    Truncated,
    Welcome,
    decode_from_sidecar,
    encode,
)
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.remoting.server import Peer, RemotingServer
from rocketmq_store.writer_lock import WriterLock

HOST = "127.0.0.1"
FILE_SIZE = 65_536


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class FakeBroker(asyncio.Protocol):
    """Reconnects until `stop`; its attributes have what it received."""

    def __init__(self, root: Path, *, port: int, cluster: str = "C", name: str = "broker-a") -> None:
        self.root, self.port, self.cluster, self.name = root, port, cluster, name
        self.address = f"{HOST}:{port}"
        self.heard: list[FromSidecar] = []
        self.broker_id: int | None = None
        self.role = "none"
        self.reason = ""
        self.epoch = 0
        self.lease_until = float("-inf")
        self.in_sync = 0
        self.following: Following | None = None
        self.held: Hold | None = None
        self.refuses: str | None = None
        """Why its store takes nothing."""
        self.acting = False
        """What it says of itself."""
        self.log = LogState()
        self.max_offset = 0
        self.changed = asyncio.Event()
        self.lock = WriterLock(root / "writer.lock")
        self._loop = asyncio.get_running_loop()
        self._server = RemotingServer(self, host=HOST, port=port)
        self._transport: asyncio.Transport | None = None
        self._reader = LinkReader()
        self._connecting: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def accepts(self) -> bool:
        """Whether a send would be accepted now."""
        held = self.held is not None and self.held.kind is not None
        return self.role == "master" and not held and boot_clock() < self.lease_until

    @property
    def connected(self) -> bool:
        return self._transport is not None

    async def start(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "commitlog").mkdir(exist_ok=True)
        await self._server.start()
        self._connecting = self._loop.create_task(self._connect())

    async def stop(self) -> None:
        self._stopped = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        self.cut()
        await _turns()  # asyncio drops, unclosed, what is being accepted while its server closes
        await self._server.stop()
        await _turns()
        self.lock.release()

    def cut(self) -> None:
        """Close the link to the sidecar."""
        if self._transport is not None:
            self._transport.abort()

    def hang(self) -> None:
        """Read nothing any more."""
        assert self._transport is not None
        self._transport.pause_reading()

    def send(self, message: FromBroker) -> None:
        if self._transport is not None:
            self._transport.write(encode(message))

    async def until(self, condition: "object", timeout: float = 60.0) -> None:
        """Wait until `condition()` holds, looked at after each message."""
        assert callable(condition)
        async with asyncio.timeout(timeout):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._reader = LinkReader()
        self.epoch, self.held = 0, None
        self.send(
            Hello(
                PROTOCOL,
                self.cluster,
                self.name,
                self.address,
                0,
                self.max_offset,
                self.max_offset,
                FILE_SIZE,
                self.log,
            )
        )
        self.changed.set()

    def data_received(self, data: bytes) -> None:
        for payload in self._reader.receive(data):
            message = decode_from_sidecar(payload)
            self.heard.append(message)
            self._obey(message)
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fence("link lost")
        self.changed.set()
        if not self._stopped:
            self._connecting = self._loop.create_task(self._connect())

    # rocketmq_runtime.remoting.server.Handler

    def on_request(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        match request.code:
            case RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                self.send(RoleNotice())
                return response(request, ResponseCode.SUCCESS)
            case RequestCode.EXCHANGE_BROKER_HA_INFO:
                known = ExchangeHAInfoHeader(master_ha_address=f"{HOST}:{self.port + 1}")
                header = known if self.role == "master" else ExchangeHAInfoHeader()
                return response(request, ResponseCode.SUCCESS, None, header)
            case _:
                return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def on_close(self, peer: Peer) -> None:
        pass

    # inside

    def _obey(self, message: FromSidecar) -> None:
        match message:
            case Welcome():
                self.broker_id = message.broker_id
            case Prepare():
                assert message.epoch > self.epoch, "an epoch is prepared once"
                self.role, self.epoch = "preparing", message.epoch
                self.lock.acquire()
                self.send(Prepared(message.epoch, self.max_offset))
            case Grant():
                assert self.role == "preparing"
                assert message.epoch == self.epoch
                self.role, self.lease_until = "master", message.lease_until
            case Lease():
                assert (self.role, self.epoch) == ("master", message.epoch)
                self.lease_until = message.until
            case Replication():
                self._replicated(message)
            case Hold():
                self.held = message
                self.send(Held(message.serial, self.max_offset))
            case Release():
                self._fence("released")
                self.send(Released(self.max_offset))
            case Following():
                self._fence("following")
                self.role, self.epoch, self.following = "slave", message.epoch, message
            case NoRole():
                self._fence(message.reason)
            case Truncate():
                self.send(Truncated(message.offset))
            case Probe():
                self.send(Alive(refuses=self.refuses, acting=self.acting))
            case _:
                pass

    def _replicated(self, message: Replication) -> None:
        self.in_sync = message.in_sync
        if message.joins:
            self.send(Copied(message.epoch, frozenset(message.joins.values())))

    def _fence(self, reason: str) -> None:
        self.role, self.reason, self.following = "none", reason, None
        self.lease_until = float("-inf")
        self.lock.release()

    async def _connect(self) -> None:
        path = self.root / "sidecar.sock"
        while True:
            try:
                folder = os.open(self.root, os.O_PATH | os.O_DIRECTORY)
                try:
                    await self._loop.create_unix_connection(lambda: self, f"/proc/self/fd/{folder}/{path.name}")
                finally:
                    os.close(folder)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return
