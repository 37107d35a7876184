"""The keys to reconcile: each at most once in the queue, and never with two workers at a time.

A key that is added while a worker has it is processed once more afterwards. A failed key is retried with a growing
delay. Used by `reconciler`.
"""

import asyncio
import random
from collections import deque
from typing import Final, Generic, TypeVar

FIRST_RETRY: Final = 0.25
LAST_RETRY: Final = 30.0
"""Seconds."""

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """For one event loop."""

    def __init__(self, *, jitter: random.Random | None = None) -> None:
        self._ready: deque[K] = deque()
        self._queued: set[K] = set()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()
        self._jitter = jitter or random.Random()  # noqa: S311 - it spreads retries, nothing secret

    def add(self, key: K, after: float = 0.0) -> None:
        """Queue a key after that many seconds, unless it is due sooner already."""
        if after <= 0.0:
            self._cancel(key)
            self._push(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + after
        timer = self._timers.get(key)
        if key in self._queued or (timer is not None and timer.when() <= due):
            return
        self._cancel(key)
        self._timers[key] = loop.call_at(due, self._due, key)

    async def get(self) -> K:
        """The next key; call `done` afterwards."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._queued.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """A worker has finished with the key."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._push(key)

    def succeeded(self, key: K) -> None:
        """Reset the retry delay."""
        self._failures.pop(key, None)

    def failed(self, key: K) -> float:
        """Retry with exponential backoff; returns the delay in seconds."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(count - 1, 16)) * (0.75 + 0.5 * self._jitter.random())
        self.add(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The resource was deleted."""
        self._cancel(key)
        self._failures.pop(key, None)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._ready)

    def _push(self, key: K) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)
            self._wake.set()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self._push(key)

    def _cancel(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
