"""Delivers delayed messages: SCHEDULE_TOPIC_XXXX has a queue for each level, whose messages all wait equally long, so
only its first undelivered message has a timer. The master does so; slaves follow its progress.

A level sleeps until its first message is due, or until one comes: nothing is polled. How long a message has waited is
taken from the loop's clock, which is never set.
Source: commit log reference, section 12 (`ScheduleMessageService`).
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog

from rocketmq_broker.domain.delays import Arrivals, LevelProgress, target_of
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.host import now_ms
from rocketmq_broker.inner_writer import InnerWriter
from rocketmq_broker.tables import DelayOffsets
from rocketmq_formats.store.message import Record, RecordError, read_record
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_store.errors import MessageIllegalError, StoreError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft

log = structlog.get_logger(__name__)

PORTION: Final = 64
"""Messages that a level delivers in one turn of the loop."""
RETRY_SECONDS: Final = 0.5
"""After nothing could be appended: too few replicas in sync, a full disk."""


class DelayService:
    """Runs while this replica is master."""

    def __init__(
        self,
        *,
        levels: Sequence[int],
        role: ReplicaRole,
        store: MessageStore,
        writer: InnerWriter,
        delays: DelayOffsets,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """`levels`: delays in ms, level n at n - 1. `clock`: the wall clock, in ms."""
        self._levels = levels
        self._role = role
        self._store = store
        self._writer = writer
        self._delays = delays
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._progress: dict[int, LevelProgress] = {}
        """By level, while master."""
        self._arrivals: dict[int, Arrivals] = {}
        """By level, while master."""
        self._timers: dict[int, asyncio.Handle] = {}

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch."""
        if self._role.role is not Role.MASTER:
            self.stop()
        elif not self._progress:
            for level in range(1, len(self._levels) + 1):
                self._progress[level] = LevelProgress(self._begin(level))
                self._arrivals[level] = Arrivals(self._levels[level - 1])
                self._note(level)
                self._at(level, 0)

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """There are new messages; wakes levels that slept for want of one."""
        if self._progress:
            for topic, queue_id in queues:
                if topic == SCHEDULE_TOPIC and queue_id < len(self._levels):
                    self._note(queue_id + 1)
                    if queue_id + 1 not in self._timers:
                        self._at(queue_id + 1, 0)

    def stop(self) -> None:
        """Deliver nothing more."""
        self.settle()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._progress.clear()
        self._arrivals.clear()

    def settle(self) -> None:
        """Bring the table of offsets up to date."""
        confirmed = self._store.confirm_offset if self._progress else 0
        for level, progress in self._progress.items():
            settled = progress.settle(confirmed)
            if settled or level in self._delays.table:
                self._delays.put(level, settled)

    # inside

    def _begin(self, level: int) -> int:
        """Where the table says, within what the queue has: messages may have expired, or never have come here."""
        smallest, _ = self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        largest = self._store.next_queue_offset(SCHEDULE_TOPIC, level - 1)
        return max(min(self._delays.table.get(level, 0), largest), smallest)

    def _note(self, level: int) -> None:
        _, end = self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        self._arrivals[level].note(end, self._clock(), self._steady())

    def _steady(self) -> int:
        return int(self._loop.time() * 1000)

    def _at(self, level: int, seconds: float) -> None:
        self._timers[level] = self._loop.call_later(seconds, self._deliver, level)

    def _deliver(self, level: int) -> None:
        del self._timers[level]
        for _ in range(PORTION):
            try:
                sleep = self._deliver_one(level)
            except (StoreError, OSError) as error:
                log.error("delayed messages wait: look at the disk", level=level, reason=str(error))
                sleep = RETRY_SECONDS
            if sleep is None:
                return
            if sleep > 0:
                self._at(level, sleep)
                return
        self._at(level, 0)

    def _deliver_one(self, level: int) -> float | None:
        """Seconds until the level goes on; None: when there is a new message."""
        progress = self._progress[level]
        smallest, end = self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        if progress.next < smallest:
            log.warning("delayed messages expired", level=level, count=smallest - progress.next)
            progress.passed_over(smallest)
        if progress.next >= end:
            return None
        view = self._store.record_of(SCHEDULE_TOPIC, level - 1, progress.next)
        try:
            record = None if view is None else read_record(view, 0, len(view), check_crc=False)
        except RecordError as error:
            return self._pass_over(level, str(error))
        if view is None or not isinstance(record, Record):
            return self._pass_over(level, "its record is gone")
        wait = self._arrivals[level].due_in(progress.next, record.store_timestamp, self._steady())
        return wait / 1000 if wait > 0 else self._append(level, record, view)

    def _append(self, level: int, record: Record, view: memoryview) -> float:
        """Deliver the message that is due; seconds until the level goes on."""
        progress = self._progress[level]
        progress.settle(self._store.confirm_offset)
        if progress.full or self._writer.refusal() is not None:
            return RETRY_SECONDS
        target = target_of(record)
        if target is None:
            return self._pass_over(level, "it does not say where it belongs")
        draft = Draft(
            topic=target.topic,
            queue_id=target.queue_id,
            body=record.body(view),
            # as in Java, with the properties of its delay
            properties=record.properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
        )
        try:
            progress.delivered(self._writer.append(draft).end)
        except MessageIllegalError as error:
            return self._pass_over(level, str(error))
        except StoreError:  # the store has said so
            return RETRY_SECONDS
        return 0

    def _pass_over(self, level: int, reason: str) -> float:
        progress = self._progress[level]
        log.error("delayed message cannot be delivered", level=level, queue_offset=progress.next, reason=reason)
        progress.passed_over(progress.next + 1)
        return 0
