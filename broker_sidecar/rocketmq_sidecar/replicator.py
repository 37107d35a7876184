"""Makes the calls to replication that the control machine asks for, one after another, and reports how they ended.

The machine's actions come faster than replication can follow them (an epoch is written to disk, a follower lets go of
the lock), and their order matters; so they queue here.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

from rocketmq_formats.remoting.controller import EpochEntry, SyncStateSet
from rocketmq_formats.replica_link import Hello
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain.actions import (
    Adopt,
    Begin,
    Follow,
    Forgive,
    Identified,
    Opened,
    SetRefused,
    StopReplication,
    ToReplication,
    WatchLevel,
)
from rocketmq_sidecar.ha_server import SlaveLag
from rocketmq_sidecar.replication import ReplicationError

log = structlog.get_logger(__name__)

OPEN_RETRY = 1.0
"""Seconds until an epoch file or a mark that could not be written is tried again."""


class ReplicationPort(Protocol):
    """What is used of `replication.Replication`; its docstrings say what each call means."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def identified(self, broker_id: int) -> None: ...
    def opened(self, hello: Hello) -> str | None: ...
    def forgiven(self) -> None: ...
    async def become_master(self, epoch: int, max_offset: int, sync_state_set: SyncStateSet) -> None: ...
    async def resign(self) -> None: ...
    async def follow(self, epoch: int, master_broker_id: int, master_address: str) -> None: ...
    async def unfollow(self) -> None: ...
    def appended(self, max_offset: int, flushed_offset: int) -> None: ...
    def retained(self, min_offset: int) -> None: ...
    def set_sync_state_set(self, agreed: SyncStateSet) -> None: ...
    def sync_set_refused(self) -> None: ...
    def watch_level(self, watch: int, offset: int | None) -> None: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def confirm_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def epochs(self) -> tuple[EpochEntry, ...]: ...
    @property
    def slaves(self) -> tuple[SlaveLag, ...]: ...


class Replicator:
    """One per agent."""

    def __init__(
        self,
        replication: ReplicationPort,
        *,
        on_opened: Callable[[Hello, str | None], None],
        on_begun: Callable[[int, str | None], None],
        on_stopped: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """
        Args:
            on_opened: the log is taken up, and what is missing from it.
            on_begun: an epoch began, or why it could not.
            on_stopped: nothing is replicated any more.
            on_failed: a call raised what it never should; nothing is called after that.
        """
        self._replication = replication
        self._on_opened, self._on_begun = on_opened, on_begun
        self._on_stopped, self._on_failed = on_stopped, on_failed
        self._queue: deque[ToReplication] = deque()
        self._filled = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work."""
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """Give up what is still queued."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    def put(self, action: ToReplication) -> None:
        """Do `action` after those before it."""
        self._queue.append(action)
        self._filled.set()

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            try:
                await self._do(self._queue.popleft())
            except Exception as error:  # noqa: BLE001 - reported, and the process ends
                self._on_failed(error)
                return

    async def _do(self, action: ToReplication) -> None:
        replication = self._replication
        match action:
            case Identified():
                replication.identified(action.broker_id)
            case Opened():
                await self._open(action)
            case Forgive():
                await self._take_up(self._replication.forgiven)
            case Adopt():
                replication.set_sync_state_set(action.agreed)
            case WatchLevel():
                replication.watch_level(action.watch, action.offset)
            case SetRefused():
                replication.sync_set_refused()
            case Follow():
                await replication.follow(action.epoch, action.master_broker_id, action.master_address)
            case Begin():
                self._on_begun(action.epoch, await self._begin(action))
            case StopReplication():
                await replication.unfollow()
                await replication.resign()
                self._on_stopped()

    async def _open(self, action: Opened) -> None:
        def opened() -> None:
            lost.append(self._replication.opened(action.hello))

        lost: list[str | None] = []
        await self._take_up(opened)
        if lost:
            self._on_opened(action.hello, lost[0])

    async def _take_up(self, call: Callable[[], None]) -> None:
        """What is to be replicated comes after this in the queue, so it waits until this works, or the broker goes."""
        told = False
        while not self._try(call, quiet=told):
            told = True
            await asyncio.sleep(OPEN_RETRY)
            if any(isinstance(one, StopReplication | Opened) for one in self._queue):
                while isinstance(self._queue[0], Follow):
                    self._queue.popleft()
                return

    def _try(self, call: Callable[[], None], *, quiet: bool) -> bool:
        try:
            call()
        except (ReplicationError, StorageError) as error:
            if not quiet:
                log.error("the log cannot be taken up for replication, trying again", reason=str(error))
            return False
        return True

    async def _begin(self, action: Begin) -> str | None:
        try:
            await self._replication.become_master(action.epoch, action.max_offset, action.agreed)
        except (ReplicationError, StorageError) as error:
            return str(error)
        return None
