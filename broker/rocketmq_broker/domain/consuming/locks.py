"""Which client of a group has locked a queue at this broker: orderly consumers lock queues before they pull.

Used by `lock_api.py`. A lock that was not renewed for 60 s is free. Times are seconds of one clock, given by the
caller.
Source: rocketmq-all-5.3.3: RebalanceLockManager.java.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from rocketmq_broker.domain.pairs import Pairs
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
        self._locks = Pairs[dict[MessageQueue, _Lock]](self._freed)
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
            for queue in queues:
                lock = self._find(group, queue)
                if lock is None:
                    if self._shares.why_not(host) is not None:
                        continue
                    self._put(group, queue, _Lock(client_id, host, now, self._requests))
                    new.append(queue)
                elif now - lock.renewed > LOCK_SECONDS:
                    self._remove(group, queue)
                    self._put(group, queue, _Lock(client_id, host, now, self._requests))
                    new.append(queue)
                elif lock.client_id == client_id:
                    lock.renewed, lock.request = now, self._requests
                else:
                    continue
                held.append(queue)
        return Locked(self._requests, frozenset(held), frozenset(new))

    def give_back(self, group: str, taken: Locked, queues: Iterable[MessageQueue]) -> None:
        """Release those of `queues` that the request took. Not those that its client held before, or has renewed since:
        it may rely on them."""
        for queue in taken.new.intersection(queues):
            lock = self._find(group, queue)
            if lock is not None and lock.request == taken.request:
                self._remove(group, queue)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release those that the client holds."""
        for queue in queues:
            lock = self._find(group, queue)
            if lock is not None and lock.client_id == client_id:
                self._remove(group, queue)

    def forget_groups(self, groups: AbstractSet[str]) -> None:
        """These are deleted."""
        self._locks.remove_all(groups=groups)

    def forget_topics(self, topics: AbstractSet[str]) -> None:
        """These are deleted."""
        self._locks.remove_all(topics=topics)

    def any_held(self, group: str, now: float) -> bool:
        """Whether a client of the group holds a queue: the group consumes in order."""
        held = (self._locks.get(topic, group) or {} for topic in self._locks.topics_of(group))
        return any(now - lock.renewed <= LOCK_SECONDS for locks in held for lock in locks.values())

    def expire(self, now: float) -> Steps[None]:
        """Remove expired and forgotten locks, in steps; called now and then to free memory."""
        yield from self._locks.sweep()
        for group in self._locks.groups():
            for topic in self._locks.topics_of(group):
                queues = list(self._locks.get(topic, group) or ())
                for first in range(0, len(queues), SLICE):
                    for queue in queues[first : first + SLICE]:
                        lock = self._find(group, queue)
                        if lock is not None and now - lock.renewed > LOCK_SECONDS:
                            self._remove(group, queue)
                    yield

    def _find(self, group: str, queue: MessageQueue) -> _Lock | None:
        locks = self._locks.get(queue.topic, group)
        return None if locks is None else locks.get(queue)

    def _put(self, group: str, queue: MessageQueue, lock: _Lock) -> None:
        locks = self._locks.get(queue.topic, group)
        if locks is None:
            locks = {}
            self._locks.put(queue.topic, group, locks)
        locks[queue] = lock
        self._shares.put(lock.host)

    def _remove(self, group: str, queue: MessageQueue) -> None:
        locks = self._locks.get(queue.topic, group)
        if locks is not None:
            self._shares.remove(locks.pop(queue).host)
            if not locks:
                self._locks.remove(queue.topic, group)

    def _freed(self, _topic: str, _group: str, locks: dict[MessageQueue, _Lock]) -> None:
        for lock in locks.values():
            self._shares.remove(lock.host)
