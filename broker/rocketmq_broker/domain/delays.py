"""Delayed messages: when one is due, what is delivered, and how far each level is delivered for good.

A message is due its delay after it was stored. Wall clocks are set, and those of two masters differ, so the present one
is not compared with the one of the storing: Java, which does so, delivers everything at once when its clock is set
forward, and also when it is set back, because what seems to be stored in the future does not wait there.

A level is delivered strictly in order. A copy counts once it is confirmed by the replicas: what a failover may take
back is delivered again by the next master, in the same order; nothing is passed over.
Source: commit log reference, section 12 (`ScheduleMessageService`).
"""

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import Final

import msgspec

from rocketmq_formats.store.message import Record
from rocketmq_formats.store.message_properties import REAL_QUEUE_ID, REAL_TOPIC, find_property
from rocketmq_formats.topics import TRANS_HALF_TOPIC

MAX_UNCONFIRMED: Final = 10_000
"""Copies of one level that may wait for the replicas."""
GRAINS: Final = 1000
"""Of a delay: messages that came within one count as come together, so that there are not many more notes than this."""


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


class _Note(msgspec.Struct, frozen=True):
    """Where a level's queue ended, what the wall clock and the steady clock said then (ms)."""

    end: int
    wall: int
    steady: int


class Arrivals:
    """When the messages of one level's queue came, by the wall clock and by one that nobody sets."""

    def __init__(self, delay: int) -> None:
        """`delay`: of the level, in ms."""
        self._delay = delay
        self._grain = max(delay // GRAINS, 1)
        self._notes: list[_Note] = []
        """Oldest first."""

    def note(self, end: int, wall: int, steady: int) -> None:
        """The queue ends at the offset `end` now; to be said at the begin and whenever there are new messages."""
        notes = self._notes
        while len(notes) > 1 and notes[1].steady <= steady - self._delay:
            del notes[0]  # what came before the second one is due in any case
        if len(notes) > 1 and steady - notes[-2].steady < self._grain:
            del notes[-1]
        notes.append(_Note(end, wall, steady))

    def due_in(self, offset: int, store_timestamp: int, steady: int) -> int:
        """Milliseconds until the message at `offset`, stored at `store_timestamp` (by its master's wall clock), is due;
        0 for at once. What the wall clock said when the message came counts, and the steady time since; it waits no
        longer than the delay from then on, whatever wall clock it was stored by."""
        index = bisect_right(self._notes, offset, key=attrgetter("end"))
        came = self._notes[min(index, len(self._notes) - 1)]
        wait = min(store_timestamp + self._delay - came.wall, self._delay)
        return max(wait - (steady - came.steady), 0)


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
