"""Whole replicas in one process for tests: a real store folder, a `Replication`, and a stand-in for the broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_formats.replica_link import Hello
from rocketmq_formats.replica_link import Replication as Progress
from rocketmq_formats.store.message import encode_blank, record_size
from rocketmq_runtime.server import Peer, RemotingServer
from rocketmq_sidecar.replication import Replication, ReplicationSettings
from rocketmq_store.segments import MappedFiles
from rocketmq_store.writer_lock import WriterLock
from tests.made_records import make_record

FILE_SIZE = 64 * 1024


class Replica:
    """One replica; the methods that a broker or an agent would call on its own are called by the test."""

    def __init__(self, folder: Path, broker_id: int, file_size: int = FILE_SIZE, **settings: object) -> None:
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
        self.levels: list[tuple[int, frozenset[int], bool]] = []
        self.changed = asyncio.Event()
        self.set_epoch = 0
        self.replication = Replication(
            ReplicationSettings(
                cluster_name="C",
                broker_name="b",
                store_path=folder,
                commit_log_path=folder / "commitlog",
                epoch_file=folder / "epochFileCheckpoint",
                listen_host="127.0.0.1",
                ha_listen_port=0,
                **settings,  # type: ignore[arg-type]  # keys of tests
            ),
            on_sync_set_wanted=self._on_wish,
            on_progress=self._on_progress,
            on_replicated=self._on_replicated,
            truncate_broker=self._truncate,
            on_status=self._on_status,
            on_trouble=self._on_trouble,
            on_level=self._on_level,
        )
        self.agree_at_once = True
        self._server = RemotingServer(self, host="127.0.0.1", port=0)

    async def start(self) -> None:
        await self._server.start()
        await self.replication.start()
        self.hello()
        self.replication.identified(self.broker_id)

    def hello(self) -> None:
        self.replication.opened(self.said())

    def said(self, address: str | None = None) -> Hello:
        """What the broker says first."""
        return Hello(
            1, "C", "b", address or self.address, self.files.min_offset, self.end, self.confirm, self.file_size
        )

    async def settled(self) -> None:
        """What replication writes down beside its work is written."""
        await self.replication._log.settled()

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
            size = record_size(1, len(body), 0)
            left = self.file_size - self.end % self.file_size
            if size + 8 > left:
                self.files.write(self.end, encode_blank(left))
                self.end += left
            self.files.write(self.end, make_record(self.end, body))
            self.end += size
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

    def _on_wish(self, wanted: SyncStateSet) -> None:
        assert wanted.sync_state_set_epoch == self.set_epoch
        self.wishes.append(wanted.sync_state_set)
        if self.agree_at_once:
            asyncio.get_running_loop().call_soon(self.agree, *wanted.sync_state_set)
        self.changed.set()

    def _on_progress(self, progress: Progress) -> None:
        self.progress = progress
        self.changed.set()

    def _on_level(self, watch: int, level: frozenset[int], acked: bool) -> None:
        self.levels.append((watch, level, acked))
        self.changed.set()

    def _on_replicated(self, max_offset: int, confirm_offset: int) -> None:
        self.replicated = (max_offset, confirm_offset)
        self.end, self.confirm = max_offset, confirm_offset
        self.changed.set()

    async def _truncate(self, offset: int) -> None:
        self.truncations.append(offset)

    def _on_status(self, epochs: bytes, ha: bytes) -> None:
        self.statuses.append((epochs, ha))
        self.changed.set()

    def _on_trouble(self, trouble: str | None) -> None:
        self.troubles.append(trouble)
        self.changed.set()

    # rocketmq_runtime.server.Handler

    def on_request(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        if request.code != RequestCode.EXCHANGE_BROKER_HA_INFO:
            return response(request, 3, "only 906 here")
        master = self.lock.held
        header = ExchangeHAInfoHeader(master_ha_address=f"127.0.0.1:{self.replication.ha_port}" if master else None)
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
