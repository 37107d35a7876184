"""Delayed messages: when one is due, what is delivered, and how far each level is delivered for good.

A level is delivered strictly in order. A copy counts once it is confirmed by the replicas: what a failover may take
back is delivered again by the next master, in the same order; nothing is passed over.
Source: commit log reference, section 12 (`ScheduleMessageService`).
"""

from collections import deque
from typing import Final

import msgspec

from rocketmq_formats.store.message import Record
from rocketmq_formats.store.message_properties import REAL_QUEUE_ID, REAL_TOPIC, find_property
from rocketmq_formats.topics import TRANS_HALF_TOPIC

MAX_UNCONFIRMED: Final = 10_000
"""Copies of one level that may wait for the replicas."""


class Target(msgspec.Struct, frozen=True):
    """Where a delayed message was sent to."""

    topic: bytes
    queue_id: int


def target_of(record: Record) -> Target | None:
    """Where `record` of SCHEDULE_TOPIC_XXXX is to be delivered; None if it does not say so, or may not go there."""
    topic = find_property(record.properties, REAL_TOPIC)
    queue_id = find_property(record.properties, REAL_QUEUE_ID)
    if topic is None or topic == TRANS_HALF_TOPIC or queue_id is None:
        return None
    if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) < 10):
        return None
    return Target(topic.encode(), int(queue_id))


def due_in(store_timestamp: int, delay: int, now: int) -> int:
    """Milliseconds until a message stored then is due, 0 for at once. A store time in the future (another master's
    clock) never makes it wait longer than its delay: as in Java it is delivered at once then."""
    wait = store_timestamp + delay - now
    return 0 if wait > delay else max(wait, 0)


class LevelProgress:
    """One level's queue: offsets before `settled` are delivered and confirmed, those before `next` delivered."""

    def __init__(self, settled: int) -> None:
        self.settled = self.next = settled
        self._unconfirmed: deque[tuple[int, int]] = deque()

    @property
    def full(self) -> bool:
        """Too many copies wait for the replicas: deliver no more for now."""
        return len(self._unconfirmed) >= MAX_UNCONFIRMED

    def delivered(self, end: int) -> None:
        """The copy of the message at `next` ends at this physical offset."""
        self.next += 1
        self._unconfirmed.append((end, self.next))

    def passed_over(self, to: int) -> None:
        """Nothing is to be delivered before the offset `to`."""
        self.next = to
        if self._unconfirmed:
            end, _ = self._unconfirmed.pop()
            self._unconfirmed.append((end, to))
        else:
            self.settled = to

    def settle(self, confirm_offset: int) -> int:
        """The replicas have confirmed the log up to here; returns `settled`."""
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0][0] <= confirm_offset:
            self.settled = unconfirmed.popleft()[1]
        return self.settled
