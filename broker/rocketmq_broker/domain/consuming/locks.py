"""Which client of a group has locked a queue: orderly consumers lock queues before they pull.

Used by `lock_api.py`. A lock that was not renewed for 60 s is free. Times are seconds of one clock, given by the
caller.
Source: rocketmq-all-5.3.3: RebalanceLockManager.java.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.steps import Steps

LOCK_SECONDS: Final = 60.0
MAX_LOCKS: Final = 500_000
SLICE: Final = 1000
"""Locks examined in one step; takes 8 ms."""


class _Lock(msgspec.Struct, gc=False):
    client_id: str
    renewed: float


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float) -> frozenset[MessageQueue]:
        """Take or renew what is free, expired or the client's own; returns the queues that it holds now."""
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= MAX_LOCKS:
                    continue
                locks[queue] = _Lock(client_id, now)
                self._count += 1
            elif lock.client_id == client_id or now - lock.renewed > LOCK_SECONDS:
                lock.client_id, lock.renewed = client_id, now
            else:
                continue
            held.append(queue)
        if not locks:
            del self._groups[group]
        return frozenset(held)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release those that the client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def any_held(self, group: str, now: float) -> bool:
        """Whether a client of the group holds a queue: the group consumes in order."""
        return any(now - lock.renewed <= LOCK_SECONDS for lock in self._groups.get(group, {}).values())

    def expire(self, now: float) -> Steps[None]:
        """Remove expired locks, in steps; called now and then to free memory."""
        for group, locks in list(self._groups.items()):
            entries = list(locks.items())
            for first in range(0, len(entries), SLICE):
                for queue, lock in entries[first : first + SLICE]:
                    if now - lock.renewed > LOCK_SECONDS and locks.get(queue) is lock:
                        del locks[queue]
                        self._count -= 1
                if not locks and self._groups.get(group) is locks:
                    del self._groups[group]
                yield
