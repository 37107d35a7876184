"""Offsets that an administrator reset and that no consumer has heard of. Pure.

With useServerSideResetOffset a reset changes the table at once, and here it waits for the queue's next pull, which is
answered with the new offset. Until then the group's commits are about what it took before the reset, so they do not
count. As in Java it is not kept: after a failover consumers that are online continue where they are.
Source: rocketmq-all-5.3.3: ConsumerOffsetManager.java.
"""

from collections.abc import Set as AbstractSet
from typing import Final

MAX_PENDING: Final = 100_000
"""Above it the oldest is forgotten: it stays in the table, where consumers that start look."""

Queue = tuple[str, str, int]


class PendingResets:
    """By group, topic and queue."""

    def __init__(self) -> None:
        self._offsets: dict[Queue, int] = {}

    def add(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queue = (group, topic, queue_id)
        self._offsets.pop(queue, None)
        self._offsets[queue] = offset
        if len(self._offsets) > MAX_PENDING:
            del self._offsets[next(iter(self._offsets))]

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._offsets.get((group, topic, queue_id))

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset, which the group's consumer hears of now."""
        return self._offsets.pop((group, topic, queue_id), None) if self._offsets else None

    def remove(self, *, groups: AbstractSet[str] = frozenset(), topics: AbstractSet[str] = frozenset()) -> None:
        self._offsets = {
            queue: offset
            for queue, offset in self._offsets.items()
            if queue[0] not in groups and queue[1] not in topics
        }

    def clear(self) -> None:
        """This replica is not master any more: another one may have reset them again."""
        self._offsets.clear()
