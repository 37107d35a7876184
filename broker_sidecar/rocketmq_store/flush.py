"""What takes a disk's time, off the event loop: one thread that syncs, preallocates and deletes for a store.

Group commit: however many wait for `flushed`, one fdatasync at a time is under way and the next one covers all who came
meanwhile. Used by the broker; the sidecar syncs with `LogFlusher` of a log alone.
"""

import asyncio
from collections.abc import Callable

from rocketmq_store.message_store import MessageStore


class Flusher:
    """Runs in the loop that calls `start`. `on_flushed(offset)`: called in the loop when the log is durable up to
    `offset` (Appended.flushed_offset of the link). `on_deleted(min_offset)`: retention has moved the log's begin.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        interval_ms: int = 500,
        on_flushed: Callable[[int], None] = lambda _offset: None,
        on_deleted: Callable[[int], None] = lambda _offset: None,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Begin the timers: the log every `interval_ms`, consume queues and checkpoint every second, retention and
        disk check every 10 s."""
        raise NotImplementedError

    def flushed(self, offset: int) -> asyncio.Future[None]:
        """SYNC_FLUSH: done when the log is durable up to `offset`; fails with `OSError`. Starts a sync at once."""
        raise NotImplementedError

    async def idle(self) -> None:
        """Until nothing is under way in the thread: before the writer lock is released."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End the timers and the thread; sync nothing more."""
        raise NotImplementedError
