"""How long ago the delayed messages of each level arrived: `domain/consuming/arrivals.py` for the queues of a store.

Every replica records it, in every role, by the loop's clock, which never jumps: when a message is due at a new master
does not depend on its wall clock. A master sends its ages to its slaves (`services.py` connects both sides);
`delay_service.py` reports what happens to the queues, and asks when a message is due.
"""

import asyncio
from collections.abc import Mapping, Sequence

from rocketmq_broker.domain.consuming.arrivals import Ages, Arrivals
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_store.message_store import MessageStore


class LevelAges:
    """One per broker. Times are in ms."""

    def __init__(self, *, levels: Sequence[int], role: ReplicaRole, store: MessageStore) -> None:
        """`levels`: delays, level n at n - 1."""
        self.levels = range(1, len(levels) + 1)
        self._role = role
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._arrivals = {level: Arrivals(delay) for level, delay in enumerate(levels, 1)}
        self._found: int | None = None
        """Where the log ended when arrivals were first recorded: when earlier messages arrived is not known here."""

    def of_levels(self) -> Mapping[int, Ages]:
        """By level, for slaves."""
        now = self._now()
        return {level: ages for level, arrivals in self._arrivals.items() if (ages := arrivals.ages(now))}

    def merge(self, ages: Mapping[int, Ages]) -> None:
        """Sent by this slave's native master, whose queues may be longer than those here."""
        for level, of_level in ages.items():
            arrivals = self._arrivals.get(level)
            if arrivals is not None and self._role.role is Role.SLAVE:
                arrivals.merge(of_level, self._now())

    def observe(self, level: int) -> None:
        """Its queue may have new messages."""
        _, end = self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        arrivals = self._arrivals[level]
        if self._found is None or self._store.dispatched_offset <= self._found:
            arrivals.found(end, self._now())
        arrivals.observe(end, self._now())

    def drop_foreign(self) -> None:
        """A new mastership may begin: ages that the old master sent for messages not stored here may become wrong."""
        if self._found is None:
            self._found = self._store.max_offset
        for level, arrivals in self._arrivals.items():
            self.observe(level)
            arrivals.cut(self._store.next_queue_offset(SCHEDULE_TOPIC, level - 1))

    def log_cut(self) -> None:
        """The queues were cut."""
        for level, arrivals in self._arrivals.items():
            arrivals.cut(self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)[1])

    def wall_clock(self, wall: int) -> None:
        """The wall clock's reading, for messages whose arrival is not known. Only the first call counts."""
        for arrivals in self._arrivals.values():
            arrivals.wall_clock(wall, self._now())

    def due_in(self, level: int, offset: int, store_timestamp: int) -> int:
        """As `Arrivals.due_in`."""
        return self._arrivals[level].due_in(offset, store_timestamp, self._now())

    def _now(self) -> int:
        return int(self._loop.time() * 1000)
