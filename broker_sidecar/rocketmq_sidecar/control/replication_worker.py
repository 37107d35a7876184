"""Makes the control machine's calls to replication, one after another, and reports how they ended.

The machine's actions come faster than replication can perform them (an epoch is written to disk, a follower releases
the lock), and their order matters; so they queue here.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

from rocketmq_formats.remoting.controller import EpochEntry, SyncStateSet
from rocketmq_formats.replica_link import Hello, LogState
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.domain.actions import (
    AcceptLoss,
    AdoptSyncSet,
    BeginEpoch,
    Follow,
    MarkProven,
    OpenLog,
    ProposalRefused,
    SetBrokerId,
    StopReplication,
    ToReplication,
    WatchCatchUp,
)
from rocketmq_sidecar.replication.ha_server import SlaveLag
from rocketmq_sidecar.replication.replication import ReplicationError

log = structlog.get_logger(__name__)

OPEN_RETRY = 1.0
"""Seconds until the next attempt to write an epoch file or a mark."""


class ReplicationPort(Protocol):
    """The part of `replication.Replication` that the agent uses; its docstrings say what each call means."""

    async def start(self) -> None: ...
    async def stop(self, *, orderly: bool = False) -> None: ...
    def set_broker_id(self, broker_id: int) -> None: ...
    def open_log(self, hello: Hello) -> str | None: ...
    def accept_loss(self) -> None: ...
    def mark_proven(self) -> None: ...
    def log_state(self, state: LogState) -> None: ...
    async def become_master(self, epoch: int, max_offset: int, sync_state_set: SyncStateSet) -> None: ...
    async def resign(self) -> None: ...
    async def follow(self, epoch: int, master_broker_id: int, master_address: str) -> None: ...
    async def unfollow(self) -> None: ...
    def appended(self, max_offset: int, flushed_offset: int) -> None: ...
    def retained(self, min_offset: int) -> None: ...
    def set_sync_state_set(self, agreed: SyncStateSet) -> None: ...
    def proposal_refused(self, proposal: SyncStateSet, dead: int | None) -> None: ...
    def copied(self, epoch: int, joins: frozenset[int]) -> None: ...
    def watch_catch_up(self, watch: int, offset: int | None) -> None: ...
    @property
    def unproven(self) -> str | None: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def confirm_offset(self) -> int: ...
    @property
    def noted_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def epochs(self) -> tuple[EpochEntry, ...]: ...
    @property
    def in_sync(self) -> int | None: ...
    @property
    def slaves(self) -> tuple[SlaveLag, ...]: ...
    @property
    def differences(self) -> tuple[str, ...]: ...
    @property
    def given_up(self) -> tuple[GivenUp, ...]: ...


class ReplicationWorker:
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
            on_opened: replication has opened the log, and what is missing from it.
            on_begun: an epoch began, or why it could not.
            on_stopped: replication has stopped.
            on_failed: a call failed because of a bug; nothing is called after that.
        """
        self._replication = replication
        self._on_opened, self._on_begun = on_opened, on_begun
        self._on_stopped, self._on_failed = on_stopped, on_failed
        self._queue: deque[ToReplication] = deque()
        self._filled = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._worker = background.start(self._work(), "orders to replication")

    async def stop(self) -> None:
        """Stop, and drop what is still queued."""
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
            case SetBrokerId():
                replication.set_broker_id(action.broker_id)
            case OpenLog():
                await self._open(action)
            case AcceptLoss():
                await self._retry(self._replication.accept_loss)
            case MarkProven():
                replication.mark_proven()
            case AdoptSyncSet():
                replication.set_sync_state_set(action.agreed)
            case WatchCatchUp():
                replication.watch_catch_up(action.watch, action.offset)
            case ProposalRefused():
                replication.proposal_refused(action.proposal, action.dead)
            case Follow():
                await replication.follow(action.epoch, action.master_broker_id, action.master_address)
            case BeginEpoch():
                self._on_begun(action.epoch, await self._begin(action))
            case StopReplication():
                await replication.unfollow()
                await replication.resign()
                self._on_stopped()

    async def _open(self, action: OpenLog) -> None:
        def open_log() -> None:
            lost.append(self._replication.open_log(action.hello))

        lost: list[str | None] = []
        await self._retry(open_log)
        if lost:
            self._on_opened(action.hello, lost[0])

    async def _retry(self, call: Callable[[], None]) -> None:
        """Repeat `call` until it works or the broker leaves: what follows in the queue depends on it."""
        logged = False
        while not self._try(call, quiet=logged):
            logged = True
            await asyncio.sleep(OPEN_RETRY)
            if any(isinstance(queued, StopReplication | OpenLog) for queued in self._queue):
                while isinstance(self._queue[0], Follow):
                    self._queue.popleft()
                return

    def _try(self, call: Callable[[], None], *, quiet: bool) -> bool:
        try:
            call()
        except (ReplicationError, StorageError) as error:
            if not quiet:
                log.error("cannot open the log for replication, trying again", reason=str(error))
            return False
        return True

    async def _begin(self, action: BeginEpoch) -> str | None:
        try:
            await self._replication.become_master(action.epoch, action.max_offset, action.agreed)
        except (ReplicationError, StorageError) as error:
            return str(error)
        return None
