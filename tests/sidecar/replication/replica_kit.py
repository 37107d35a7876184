"""Whole replicas in one process for tests: a real store folder, a `Replication`, and a stand-in for the broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_formats.replica_link import Hello, LogState
from rocketmq_formats.replica_link import Replication as Progress
from rocketmq_runtime.remoting.server import Peer, RemotingServer
from rocketmq_sidecar.replication.replication import Replication
from rocketmq_sidecar.settings import SidecarSettings
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.writer_lock import WriterLock
from tests.records import blank_before, make_record

FILE_SIZE = 64 * 1024
secret = b""
"""What the replicas prove themselves by; see `conftest`."""


class Replica:
    """One replica; the methods that a broker or an agent would call on its own are called by the test."""

    def __init__(
        self,
        folder: Path,
        broker_id: int,
        file_size: int = FILE_SIZE,
        *,
        own_secret: bytes | None = None,
        **settings: object,
    ) -> None:
        self.folder, self.broker_id, self.file_size = folder, broker_id, file_size
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = WriterLock(folder / "writer.lock")
        self.files = MappedFiles(folder / "commitlog", file_size, writer=self.lock)
        self.files.load()
        self.end = 0
        self.confirm = 0
        self.wishes: list[frozenset[int]] = []
        self.progress = Progress(-1, 0, 0, 0)
        self.replicated = (0, 0)
        self.truncations: list[int] = []
        self.statuses: list[tuple[bytes, bytes]] = []
        self.troubles: list[str | None] = []
        self.aligned: list[str] = []
        """Masters whose log continued this one, by address; empty when the connection to one ended."""
        self.levels: list[tuple[int, frozenset[int], bool]] = []
        self.repaired: list[tuple[int, int]] = []
        self.suspected: list[int] = []
        self.known = LogState()
        """What the broker says of the log's bytes."""
        self.native = True
        """Its broker says that it answers questions about the log."""
        self.controllers: str | None = None
        """controllerDLegerGroup of its controllers."""
        self.changed = asyncio.Event()
        self.set_epoch = 0
        self.wall_time = 2_000_000_000.0
        self.replication = Replication(
            SidecarSettings(
                **{  # type: ignore[arg-type]  # keys of tests
                    "broker_cluster_name": "C",
                    "broker_name": "b",
                    "controller_addr": "127.0.0.1:1",
                    "store_path_root_dir": str(folder),
                    "bind_address": "127.0.0.1",
                    **settings,
                }
            ),
            ha_port=0,
            secret=secret if own_secret is None else own_secret,
            on_proposal=self._on_proposal,
            on_progress=self._on_progress,
            on_replicated=self._on_replicated,
            truncate_broker=self._truncate,
            on_status=self._on_status,
            on_trouble=self._on_trouble,
            on_aligned=self._on_aligned,
            on_replicas_caught_up=self._on_replicas_caught_up,
            on_repaired=self._on_repaired,
            on_suspected=self._on_suspected,
            controllers=lambda: self.controllers,
            wall_clock=lambda: self.wall_time,
        )
        self.agree_at_once = True
        self.copies = True
        """Its broker says at once that slaves have its tables."""
        self._server = RemotingServer(self, host="127.0.0.1", port=0)

    async def start(self) -> None:
        await self._server.start()
        await self.replication.start()
        self.hello()
        self.replication.set_broker_id(self.broker_id)

    def hello(self, known: LogState | None = None) -> None:
        """The broker connects. `known`: what it says of its log from now on; None: as before."""
        if known is not None:
            self.known = known
        self.replication.open_log(self.said())

    def said(self, address: str | None = None) -> Hello:
        """What the broker says first."""
        return Hello(
            1,
            "C",
            "b",
            address or self.address,
            self.files.min_offset,
            self.end,
            self.confirm,
            self.file_size,
            self.known,
        )

    async def settled(self) -> None:
        """What replication writes down beside its work is written."""
        await self.replication._log.drained()

    async def stop(self) -> None:
        await self.replication.stop()
        await self._server.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    # as the controllers

    async def lead(self, epoch: int, *members: int, max_offset: int | None = None) -> None:
        if not self.lock.held:
            await self.replication.unfollow()
            self.lock.acquire()
            self.files.load()
        self.set_epoch += 1
        agreed = SyncStateSet(sync_state_set=frozenset(members), sync_state_set_epoch=self.set_epoch)
        await self.replication.become_master(epoch, self.end if max_offset is None else max_offset, agreed)

    async def follow(self, master: Replica, epoch: int) -> None:
        if self.lock.held:
            await self.replication.resign()
            self.lock.release()
        await self.replication.follow(epoch, master.broker_id, master.address)

    def agree(self, *members: int) -> None:
        self.set_epoch += 1
        self.replication.set_sync_state_set(
            SyncStateSet(sync_state_set=frozenset(members), sync_state_set_epoch=self.set_epoch)
        )

    # as the broker

    def append(self, *bodies: bytes) -> int:
        for body in bodies:
            if blank := blank_before(self.end, len(make_record(body=body)), self.file_size):
                self.files.write(self.end, blank)
                self.end += len(blank)
            record = make_record(self.end, body)
            self.files.write(self.end, record)
            self.end += len(record)
        self.replication.appended(self.end, self.end)
        return self.end

    def log(self, start: int = 0) -> bytes:
        self.files.refresh()
        data, offset = bytearray(), start
        while offset < self.end:
            part = self.files.read(offset, self.end - offset)
            data += part
            offset += len(part)
        return bytes(data)

    async def until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    # callbacks

    def _on_proposal(self, wanted: SyncStateSet) -> None:
        assert wanted.sync_state_set_epoch == self.set_epoch
        self.wishes.append(wanted.sync_state_set)
        if self.agree_at_once:
            asyncio.get_running_loop().call_soon(self.agree, *wanted.sync_state_set)
        self.changed.set()

    def _on_progress(self, progress: Progress) -> None:
        self.progress = progress
        if progress.joins and self.copies:
            asyncio.get_running_loop().call_soon(
                self.replication.copied, progress.epoch, frozenset(progress.joins.values())
            )
        self.changed.set()

    def _on_replicas_caught_up(self, watch: int, level: frozenset[int], acked: bool) -> None:
        self.levels.append((watch, level, acked))
        self.changed.set()

    def _on_aligned(self, master_address: str) -> None:
        self.aligned.append(master_address)
        self.changed.set()

    def _on_replicated(self, max_offset: int, confirm_offset: int) -> None:
        self.replicated = (max_offset, confirm_offset)
        self.end, self.confirm = max_offset, confirm_offset
        self.changed.set()

    async def _truncate(self, offset: int) -> None:
        self.truncations.append(offset)

    def _on_repaired(self, start: int, end: int) -> None:
        self.repaired.append((start, end))
        self.changed.set()

    def _on_suspected(self, offset: int) -> None:
        self.suspected.append(offset)
        self.changed.set()

    def _on_status(self, epochs: bytes, ha: bytes) -> None:
        self.statuses.append((epochs, ha))
        self.changed.set()

    def _on_trouble(self, trouble: str | None) -> None:
        self.troubles.append(trouble)
        self.changed.set()

    # rocketmq_runtime.remoting.server.Handler

    def on_request(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        if request.code != RequestCode.EXCHANGE_BROKER_HA_INFO:
            return response(request, 3, "only 906 here")
        master = self.lock.held
        header = ExchangeHAInfoHeader(
            master_ha_address=f"127.0.0.1:{self.replication.ha_port}" if master else None,
            log_audit=self.native or None,
            ha_introduction=self.native or None,
            enable_controller_mode=None if self.replication.settings.enable_controller_mode else False,
        )
        return response(request, 0, header=header)

    def on_close(self, peer: Peer) -> None:
        pass


@contextlib.asynccontextmanager
async def replicas(folder: Path, count: int, **settings: object) -> AsyncIterator[list[Replica]]:
    group = [Replica(folder / str(number), number, **settings) for number in range(1, count + 1)]
    try:
        for one in group:
            await one.start()
        yield group
    finally:
        for one in group:
            await one.stop()


async def in_sync(master: Replica, *slaves: Replica, epoch: int = 1) -> None:
    """The slaves follow, are agreed on, and have acknowledged everything."""
    for slave in slaves:
        await slave.follow(master, epoch)
    await master.until(lambda: master.progress.in_sync == 1 + len(slaves))
    await acknowledged(master)


async def acknowledged(master: Replica) -> None:
    await master.until(lambda: master.progress.acked_offset == master.end)


def epochs(replica: Replica) -> list[str]:
    """The entries of its epoch file."""
    return (replica.folder / "epochFileCheckpoint").read_text().splitlines()[2:]
