"""Delayed messages: what is delivered, and up to where each level is delivered for good (`arrivals.py`: when).

A level is delivered strictly in order. A copy counts once the replicas have confirmed it: the next master delivers
again, in the same order, what a failover may have taken back; nothing is skipped.
Source: rocketmq-all-5.3.3: ScheduleMessageService.java.
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
    """Where `record` of SCHEDULE_TOPIC_XXXX is to be delivered; None if it does not name a target, or an illegal
    one."""
    topic = find_property(record.properties, REAL_TOPIC)
    queue_id = find_property(record.properties, REAL_QUEUE_ID)
    if topic is None or topic == TRANS_HALF_TOPIC or queue_id is None:
        return None
    if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) < 10):
        return None
    return Target(topic.encode(), int(queue_id))


def is_copy(record: Record, delayed: Record) -> bool:
    """Whether `record` is the delivered copy of `delayed`."""
    return (
        record.properties == delayed.properties
        and record.body_crc == delayed.body_crc
        and record.body_length == delayed.body_length
        and record.born_timestamp == delayed.born_timestamp
    )


class LevelProgress:
    """One level's queue: offsets before `settled` are delivered and confirmed, those before `next` delivered."""

    def __init__(self, settled: int) -> None:
        self.settled = self.next = settled
        self._unconfirmed: deque[tuple[int, int]] = deque()

    @property
    def full(self) -> bool:
        """Too many copies wait for the replicas: pause delivery."""
        return len(self._unconfirmed) >= MAX_UNCONFIRMED

    def delivered(self, end: int) -> None:
        """The copy of the message at `next` ends at this physical offset."""
        self.next += 1
        self._unconfirmed.append((end, self.next))

    def passed_over(self, to: int) -> None:
        """Skip to the offset `to`."""
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
