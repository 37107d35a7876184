"""Which client of a group holds a queue alone: what orderly consumers lock before they pull.

`lock_api.py` asks for clients. A lock not renewed for 60 s is anybody's. Times are seconds of one clock, given by the
caller. Source: client reference, section 3 (`RebalanceLockManager`).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from rocketmq_formats.remoting.client import MessageQueue

LOCK_SECONDS: Final = 60.0
MAX_LOCKS: Final = 500_000


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

    def expire(self, now: float) -> None:
        """Forget locks that nobody has renewed; called now and then, so that they take no room."""
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if now - lock.renewed > LOCK_SECONDS]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]
