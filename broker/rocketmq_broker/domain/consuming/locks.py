"""Which client of a group has locked a queue at this broker: orderly consumers lock queues before they pull.

Used by `lock_api.py`. A lock that was not renewed for 60 s is free. Times are seconds of one clock, given by the
caller.
Source: rocketmq-all-5.3.3: RebalanceLockManager.java.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.shares import Shares
from rocketmq_formats.steps import Steps

LOCK_SECONDS: Final = 60.0
MAX_LOCKS: Final = 500_000
"""A host gets its share only (`rocketmq_formats.shares`)."""
SLICE: Final = 1000
"""Locks examined in one step; takes 8 ms."""


class _Lock(msgspec.Struct, gc=False):
    client_id: str
    host: str
    renewed: float
    request: int
    """That took or renewed it."""


class Locked(NamedTuple):
    """What one request for locks achieved."""

    request: int
    held: frozenset[MessageQueue]
    """The client holds them now."""
    new: frozenset[MessageQueue]
    """Those of them that it did not hold before."""


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self, *, grants_from: float = float("-inf")) -> None:
        """`grants_from`: before that time no one gets a lock, because the process before this one gave some that it
        cannot tell of any more."""
        self._grants_from = grants_from
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._shares = Shares(MAX_LOCKS, "locks")
        self._requests = 0

    def __len__(self) -> int:
        return self._shares.total

    def grants(self, now: float) -> bool:
        """Whether anybody can get a lock yet."""
        return now >= self._grants_from

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float, *, host: str) -> Locked:
        """Take or renew what is free, expired or the client's own; nothing new for which `host` has no room."""
        self._requests += 1
        held: list[MessageQueue] = []
        new: list[MessageQueue] = []
        if self.grants(now):
            locks = self._groups.setdefault(group, {})
            for queue in queues:
                lock = locks.get(queue)
                if lock is None:
                    if self._shares.why_not(host) is not None:
                        continue
                    self._put(locks, queue, _Lock(client_id, host, now, self._requests))
                    new.append(queue)
                elif now - lock.renewed > LOCK_SECONDS:
                    self._remove(locks, queue)
                    self._put(locks, queue, _Lock(client_id, host, now, self._requests))
                    new.append(queue)
                elif lock.client_id == client_id:
                    lock.renewed, lock.request = now, self._requests
                else:
                    continue
                held.append(queue)
            if not locks:
                del self._groups[group]
        return Locked(self._requests, frozenset(held), frozenset(new))

    def give_back(self, group: str, taken: Locked, queues: Iterable[MessageQueue]) -> None:
        """Release those of `queues` that the request took. Not those that its client held before, or has renewed since:
        it may rely on them."""
        locks = self._groups.get(group, {})
        for queue in taken.new.intersection(queues):
            lock = locks.get(queue)
            if lock is not None and lock.request == taken.request:
                self._remove(locks, queue)
        if not locks:
            self._groups.pop(group, None)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release those that the client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._remove(locks, queue)
        if not locks:
            self._groups.pop(group, None)

    def forget_groups(self, groups: AbstractSet[str]) -> None:
        """These are deleted."""
        self._drop(groups & self._groups.keys(), lambda _queue: True)

    def forget_topics(self, topics: AbstractSet[str]) -> None:
        """These are deleted."""
        self._drop(set(self._groups), lambda queue: queue.topic in topics)

    def _drop(self, groups: AbstractSet[str], goes: Callable[[MessageQueue], bool]) -> None:
        for group in groups:
            locks = self._groups[group]
            for queue in [queue for queue in locks if goes(queue)]:
                self._remove(locks, queue)
            if not locks:
                del self._groups[group]

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
                        self._remove(locks, queue)
                if not locks and self._groups.get(group) is locks:
                    del self._groups[group]
                yield

    def _put(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue, lock: _Lock) -> None:
        locks[queue] = lock
        self._shares.put(lock.host)

    def _remove(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        self._shares.remove(locks.pop(queue).host)
