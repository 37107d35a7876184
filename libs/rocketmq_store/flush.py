"""Slow disk work off the event loop: threads that sync and preallocate for a store.

Group commit: one fdatasync of the log runs at a time, and the next one covers all calls of `flushed` that arrived
during it. The log has a thread of its own and does not wait for consume queues. Used by the broker.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

import structlog

from rocketmq_runtime import background
from rocketmq_store.durability import Job
from rocketmq_store.errors import StoreError, StoreFullError
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger()

CHECKPOINT_SECONDS: Final = 1.0
RETAIN_SECONDS: Final = 10.0


class Flusher:
    """Runs in the loop that calls `start`. Callbacks come in that loop: `on_flushed(offset)` when the log is durable up
    to `offset` (Appended.flushed_offset of the link), `on_deleted(min_offset)` when retention has moved the log's
    begin, `on_failed(error)` when the disk failed to sync: the store refuses appends from then on, and the process
    should stop: a new start writes again what may not be on disk (recovery.py)."""

    def __init__(
        self,
        store: MessageStore,
        *,
        interval_ms: int = 500,
        on_flushed: Callable[[int], None] = lambda _offset: None,
        on_deleted: Callable[[int], None] = lambda _offset: None,
        on_failed: Callable[[OSError], None] = lambda _error: None,
    ) -> None:
        self._store = store
        self._interval = interval_ms / 1000
        self._on_flushed = on_flushed
        self._on_deleted = on_deleted
        self._on_failed = on_failed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(2, "store")
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Future[None]] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: OSError | None = None
        self._no_room = False
        """Logged for the next file of the log."""

    def start(self) -> None:
        """Begin the timers: the log every `interval_ms`, consume queues and checkpoint every second, retention and
        disk check every 10 s."""
        self._loop = asyncio.get_running_loop()
        self._every(self._interval, self._log_tick)
        self._every(CHECKPOINT_SECONDS, self._checkpoint_tick)
        self._every(RETAIN_SECONDS, self._retain_tick)

    def flushed(self, offset: int) -> asyncio.Future[None]:
        """SYNC_FLUSH: done when the log is durable up to `offset`; fails with `OSError`. Starts a sync at once, or when
        the one under way has ended."""
        assert self._loop is not None, "start() first"
        future: asyncio.Future[None] = self._loop.create_future()
        if self._error is not None:
            future.set_exception(self._error)
        elif offset <= self._store.flushed_offset:
            future.set_result(None)
        else:
            self._waiting.append((offset, future))
            self._sync_log()
        return future

    async def idle(self) -> None:
        """Wait until the threads are idle; call it before the writer lock is released."""
        while self._running:
            await asyncio.wait(list(self._running.values()))

    async def stop(self) -> None:
        """End timers and threads; waiting calls fail. It does not sync: `MessageStore.close` does."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._waiting:
            self._waiting.popleft()[1].cancel()
        await self.idle()
        self._threads.shutdown()

    def _every(self, seconds: float, tick: Callable[[], None]) -> None:
        loop = self._loop
        assert loop is not None

        def run() -> None:
            self._timers[tick] = loop.call_later(seconds, run)
            tick()

        self._timers[tick] = loop.call_later(seconds, run)

    # Ticks

    def _log_tick(self) -> None:
        if self._store.flushed_offset < self._store.max_offset:
            self._sync_log()
        if self._store.wants_preallocation:
            self._start("preallocation", self._preallocate, lambda: None)

    def _preallocate(self) -> None:
        try:
            self._store.files.preallocate_next()
        except StoreFullError as error:
            if not self._no_room:  # tried again all the time
                log.error("no room for the next file of the log: sends will be refused", error=str(error))
            self._no_room = True
        else:
            self._no_room = False

    def _checkpoint_tick(self) -> None:
        durability = self._store.durability
        if durability.checkpoint_due and "checkpoint" not in self._running:
            job = durability.checkpoint_job()

            def conclude() -> None:
                job.conclude()
                self._start("checkpoint", durability.checkpoint_sync, lambda: None)

            self._start("checkpoint", job.run, conclude)

    def _retain_tick(self) -> None:
        if "retention" not in self._running:
            assert self._loop is not None
            task = background.start(self._retain(), "retention")
            self._running["retention"] = task
            task.add_done_callback(lambda _: self._running.pop("retention"))

    async def _retain(self) -> None:
        """Queues first, so that they never point to deleted files; then the files, in a thread."""
        store = self._store
        assert self._loop is not None
        before = store.min_offset
        now = datetime.now().astimezone()
        try:
            offset = store.expired(int(now.timestamp() * 1000), now.hour)
            if offset:
                for _ in store.forget_before(offset):
                    await asyncio.sleep(0)
                await self._loop.run_in_executor(self._threads, store.files.deleter(offset))
                store.deleted()
        except (OSError, StoreError) as error:
            log.warning("retention did not run", error=str(error))
        if store.min_offset != before:
            self._on_deleted(store.min_offset)

    # The log

    def _sync_log(self) -> None:
        if "log" not in self._running and self._error is None:
            job = self._store.durability.log_job()
            self._start("log", job.run, lambda: self._log_synced(job))

    def _log_synced(self, job: Job) -> None:
        before = self._store.flushed_offset
        job.conclude()
        flushed = self._store.flushed_offset
        waiting = self._waiting
        # offsets grow from one call of `flushed` to the next, except after a cut: those wait for the next sync
        while waiting and waiting[0][0] <= flushed:
            future = waiting.popleft()[1]
            if not future.done():
                future.set_result(None)
        if flushed > before:
            self._on_flushed(flushed)
        if waiting and flushed < self._store.max_offset:
            self._sync_log()

    # Threads

    def _start(self, name: str, run: Callable[[], None], conclude: Callable[[], None]) -> None:
        """`run` in a thread unless one of this name is there, then `conclude` here."""
        loop = self._loop
        assert loop is not None
        if name in self._running or self._error is not None:
            return
        future = loop.run_in_executor(self._threads, run)
        self._running[name] = future

        def done(future: asyncio.Future[None]) -> None:
            del self._running[name]
            error = future.exception()
            if error is None:
                conclude()
            elif isinstance(error, OSError):
                self._fail(error)
            else:
                raise error

        future.add_done_callback(done)

    def _fail(self, error: OSError) -> None:
        self._error = error
        log.error("the disk failed: sends are refused; check the disk, then restart the broker", error=str(error))
        self._store.disk_space.fail(f"the disk failed: {error}")
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(error)
        self._on_failed(error)
