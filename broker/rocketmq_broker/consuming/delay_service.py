"""Delivers delayed messages: SCHEDULE_TOPIC_XXXX has a queue for each level, whose messages all wait equally long, so
only its first undelivered message has a timer. The master delivers; slaves follow its progress. When a message is due,
`level_ages.py` knows on every replica.

A level sleeps until its first message is due, or until one arrives: nothing is polled. A new master first searches
the log from the place that its known progress belongs to: copies found there are not delivered again.

A slave that acts as master delivers to other groups, if there is an `Escape`: one message of a level at a time, each
recorded on disk before the next one leaves (`escaping.py`).
Source: rocketmq-all-5.3.3: ScheduleMessageService.java.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from enum import Enum, auto
from typing import Final

import structlog

from rocketmq_broker.consuming.escaping import RETRY_SECONDS, SENDING_SECONDS, Escaping
from rocketmq_broker.consuming.level_ages import LevelAges
from rocketmq_broker.domain.consuming.delay_history import Levels
from rocketmq_broker.domain.consuming.delays import LevelProgress, Target, is_copy, target_of
from rocketmq_broker.domain.consuming.escaped import counts_for, is_record_of, one_more
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.host import now_ms
from rocketmq_broker.sending.escape import Escape
from rocketmq_broker.sending.inner_writer import InnerWriter
from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_formats.replica_link import Counts
from rocketmq_formats.store.config_files import Escaped
from rocketmq_formats.store.message import Record, RecordError, read_record
from rocketmq_formats.store.message_properties import DELAY, find_property
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_runtime import background
from rocketmq_store.errors import MessageIllegalError, QueueIllegalError, StoreError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft

log = structlog.get_logger(__name__)

PORTION: Final = 64
"""Messages that a level delivers in one turn of the loop."""
STUCK_SECONDS: Final = 60.0
"""After a message that the log cannot take: its level waits for it, and only a restart with other settings helps. After
one that cannot be read, while it would escape: the next master may have it whole."""
SEARCH_PORTION: Final = 2048
"""Records that a new master examines in one turn of the loop."""
WAIT_SECONDS: Final = 0.05
"""For the replicas to confirm what the log held when mastership began."""
MAX_SEARCH: Final = 1024 * 1024 * 1024
"""Bytes of the log searched for copies. In a running group the known progress is at most some ten seconds old; a lost
table must not delay the levels for hours."""
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_DELAY: Final = f"{DELAY}\x01".encode()


class _Way(Enum):
    """How due messages are delivered."""

    LOG = auto()
    """As master."""
    ESCAPE = auto()
    """As a slave that acts as master."""


async def _do_nothing() -> None:
    pass


class DelayService:
    """Delivers while this replica is master, or acts as one."""

    def __init__(
        self,
        *,
        ages: LevelAges,
        role: ReplicaRole,
        store: MessageStore,
        writer: InnerWriter,
        delays: DelayOffsets,
        counts: Counts,
        escape: Escape | None = None,
        saved: Callable[[], Awaitable[None]] = _do_nothing,
        ask_members: Callable[[], Awaitable[None]] = _do_nothing,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """`escape`: the way out for an acting slave; None: messages wait for a master. `saved`: returns when `delays`
        are on disk, raises `StorageError`. `ask_members`: returns soon, when `delays` have what other members know to
        have escaped. `clock`: the wall clock, in ms."""
        self._ages = ages
        self._role = role
        self._store = store
        self._writer = writer
        self._delays = delays
        self._counts = counts
        self._escaping = Escaping(escape=escape, delays=delays, saved=saved)
        self._ask_members = ask_members
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._progress: dict[int, LevelProgress] = {}
        """By level, while levels are delivered."""
        self._begun: dict[int, LevelProgress] = {}
        """The same, while the log is searched."""
        self._inherited: tuple[int, int] | None = None
        """The part of the log (from, to) that a new master still has to search for copies that an earlier one
        delivered."""
        self._timers: dict[int, asyncio.Handle | asyncio.Task[None]] = {}
        """By level; 0: the search."""
        self._way: _Way | None = None
        self.on_due: Callable[[str, int, int], None] = lambda _topic, _queue_id, _sent: None
        """Called with topic, queue and store time (ms) of a delayed message before it is delivered here."""

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch; or this slave begins or ceases to act as master."""
        if self._role.role is not Role.NONE:
            self._ages.drop_foreign()
        way = self._way_now()
        if way is not self._way:
            self.stop()
            self._way = way
            if way is _Way.LOG:
                self._take_over(self._store.max_offset)
            elif way is _Way.ESCAPE:
                self._timers[0] = background.start(self._begin_to_escape(), "escape of delayed messages")

    async def before_next_master(self, epoch: int) -> None:
        """The next master, of `epoch`, asks what has escaped: returns, soon, when that is known, and it remains so
        until that master is there."""
        # without controllers all masters have the same epoch; with them a slave does not act while the one of its own
        # epoch lives
        if epoch >= self._role.epoch and self._way is _Way.ESCAPE:
            self._escaping.yield_to_master()
        await self._escaping.sent(SENDING_SECONDS)

    async def sent(self) -> None:
        """After `stop`: until nothing is escaping, or for the time that a stopping broker waits for that."""
        await self._escaping.sent()

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """There are new messages; wakes levels that wait for one."""
        for topic, queue_id in queues:
            level = queue_id + 1
            if topic == SCHEDULE_TOPIC and level in self._ages.levels:
                self._ages.observe(level)
                if self._progress and level not in self._timers:
                    self._at(level, 0)

    def stop(self) -> None:
        """Stop delivering."""
        self.settle()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._progress.clear()
        self._escaping.forget_failures()
        self._inherited = self._way = None

    def settle(self) -> None:
        """Bring the table of offsets up to date."""
        place = self._settled_place()
        if self._way is _Way.LOG and self._progress and place is not None:
            levels = {level: progress.settle(place) for level, progress in self._progress.items()}
            self._delays.record(place, {level: offset for level, offset in levels.items() if offset})

    # inside

    def _settled_place(self) -> int | None:
        """The end of a record up to which everything is confirmed; None while that is not known."""
        place = self._store.dispatched_offset
        return place if place <= self._store.confirm_offset else None

    def _way_now(self) -> _Way | None:
        if self._role.role is Role.MASTER:
            return _Way.LOG
        return _Way.ESCAPE if self._role.acting and self._escaping.possible else None

    async def _begin_to_escape(self) -> None:
        await self._ask_members()
        # what this slave does not know to be confirmed may be cut off again
        self._take_over(self._store.dispatched_offset)

    def _take_over(self, end: int) -> None:
        """Find out what of the log before `end` was delivered, then deliver."""
        self._ages.wall_clock(self._clock())
        place, levels = self._delays.at(end)
        if end - place > MAX_SEARCH:
            file_size = self._store.settings.file_size
            place = min(-((MAX_SEARCH - end) // file_size) * file_size, end)  # where a file begins, a record does
            log.warning("the log is not searched from where delayed messages were delivered", search_from=place)
        self._inherited = place, end
        self._begun = {level: LevelProgress(self._begin(level, levels)) for level in self._ages.levels}
        self._search()

    def _search(self) -> None:
        """Search one portion of what earlier masters may have delivered, as far as consumers see it; then start the
        levels."""
        assert self._inherited is not None
        self._timers.pop(0, None)
        place, end = self._inherited
        visible = min(end, self._store.dispatched_offset)
        steps = 0
        for record in self._store.records(place, visible):
            skipped = self._count_copy(record)
            if skipped == SEARCH_PORTION:
                break  # and perhaps more: with this record again
            place = record.physical_offset + record.size
            steps += 1 + skipped
            if steps >= SEARCH_PORTION:
                break
        else:
            place = max(visible, place)
        self._inherited = place, end
        if place < end or self._escaping.under_way:
            self._timers[0] = self._loop.call_later(0 if place < visible else WAIT_SECONDS, self._search)
            return
        self._inherited = None
        self._progress = self._begun
        self.settle()  # deliveries from now on may be cut off again
        for level in self._progress:
            self._at(level, 0)

    def _count_copy(self, record: Record) -> int:
        """Advance past the next message if `record` is the copy that an earlier master delivered. Returns how many
        messages of deleted topics were skipped first; SEARCH_PORTION: call again."""
        if record.topic == _SCHEDULE_TOPIC or _DELAY not in record.properties:
            return 0
        level = find_property(record.properties, DELAY)
        progress = self._begun.get(int(level)) if level and level.isascii() and level.isdecimal() else None
        if progress is None or level is None:
            return 0
        self._skip_escaped(int(level), progress)
        skipped = self._skip_deleted(int(level), progress)
        if skipped == SEARCH_PORTION:
            return skipped
        delayed = self._delayed(int(level), progress.next)
        if delayed is not None and is_copy(record, delayed):
            progress.passed_over(progress.next + 1)
        return skipped

    def _delayed(self, level: int, queue_offset: int) -> Record | None:
        """A delayed message, None if it cannot be read."""
        view = self._store.record_of(SCHEDULE_TOPIC, level - 1, queue_offset)
        try:
            record = None if view is None else read_record(view, 0, len(view), check_crc=False)
        except RecordError:
            return None
        return record if isinstance(record, Record) else None

    def _skip_deleted(self, level: int, progress: LevelProgress) -> int:
        """Continue behind messages of which an earlier master delivered no copies, because their topics were deleted.
        Returns how many, at most SEARCH_PORTION."""
        for skipped in range(SEARCH_PORTION):
            delayed = self._delayed(level, progress.next)
            target = None if delayed is None else target_of(delayed)
            if delayed is None or target is None or not self._is_deleted(target, delayed):
                return skipped
            progress.passed_over(progress.next + 1)
        return SEARCH_PORTION

    def _is_deleted(self, target: Target, delayed: Record) -> bool:
        """The topic was deleted after the message was sent to it."""
        return delayed.physical_offset < self._store.deleted_at(target.topic.decode())

    def _skip_escaped(self, level: int, progress: LevelProgress) -> None:
        """Continue behind what is at other groups."""
        fact = self._delays.escaped.get(level)
        if fact is not None and counts_for(fact, progress.next) and self._is_of_this_log(level, fact):
            log.info("delayed messages are at other groups", level=level, count=fact.next - progress.next)
            progress.passed_over(fact.next)

    def _is_of_this_log(self, level: int, fact: Escaped) -> bool:
        view = self._store.record_of(SCHEDULE_TOPIC, level - 1, fact.next - 1)
        try:
            record = None if view is None else read_record(view, 0, len(view), check_crc=False)
        except RecordError:
            return False
        return view is not None and isinstance(record, Record) and is_record_of(fact, record.physical_offset, view)

    def _begin(self, level: int, levels: Levels) -> int:
        """The offset in `levels`, limited to what the queue has: messages may have expired, or never have reached this
        replica."""
        smallest, _ = self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        largest = self._store.next_queue_offset(SCHEDULE_TOPIC, level - 1)
        return max(min(levels.get(level, 0), largest), smallest)

    def _at(self, level: int, seconds: float) -> None:
        self._timers[level] = self._loop.call_later(seconds, self._deliver, level)

    def _deliver(self, level: int) -> None:
        del self._timers[level]
        for _ in range(PORTION):
            try:
                sleep = self._deliver_one(level)
            except (StoreError, OSError) as error:
                log.error("delayed messages wait: check the disk", level=level, reason=str(error))
                sleep = RETRY_SECONDS
            if sleep is None:
                return
            if sleep > 0:
                self._at(level, sleep)
                return
        self._at(level, 0)

    def _deliver_one(self, level: int) -> float | None:
        """Seconds until the level continues; None: when the next message arrives."""
        progress = self._progress[level]
        self._skip_escaped(level, progress)
        smallest, end = self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        if progress.next < smallest:
            log.warning("delayed messages expired", level=level, count=smallest - progress.next)
            progress.passed_over(smallest)
        if progress.next >= end:
            return None
        view = self._store.record_of(SCHEDULE_TOPIC, level - 1, progress.next)
        try:
            # other members may have whole what is damaged here
            check_crc = self._way is _Way.ESCAPE
            record = None if view is None else read_record(view, 0, len(view), check_crc=check_crc)
        except RecordError as error:
            return self._pass_over(level, str(error))
        if view is None and self._store.units.is_sought(SCHEDULE_TOPIC, level - 1, progress.next):
            return RETRY_SECONDS
        if view is None or not isinstance(record, Record):
            return self._pass_over(level, "its record is missing")
        wait = self._ages.due_in(level, progress.next, record.store_timestamp)
        return wait / 1000 if wait > 0 else self._deliver_due(level, record, view)

    def _deliver_due(self, level: int, record: Record, view: memoryview) -> float | None:
        """Deliver the message that is due; as `_deliver_one`, and None while it is escaping."""
        progress = self._progress[level]
        progress.settle(self._settled_place() or 0)
        if self._way is _Way.LOG and (progress.full or self._writer.refusal() is not None):
            return RETRY_SECONDS
        target = target_of(record)
        if target is None:
            return self._pass_over(level, "it does not name its topic and queue")
        if self._is_deleted(target, record):
            self._drop(level, record, view)
            return 0
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
        if self._way is _Way.ESCAPE:
            return self._let_escape(level, draft, record, view)
        self.on_due(target.topic.decode("utf-8", "replace"), target.queue_id, record.store_timestamp)
        return self._append(level, draft)

    def _drop(self, level: int, record: Record, view: memoryview) -> None:
        """Its topic was deleted."""
        progress = self._progress[level]
        if self._way is _Way.ESCAPE:
            # what is known of a level has no gap: without this the next master would send what escaped before again
            self._delays.escape(level, self._escaped_with(level, progress.next, record, view))
        progress.passed_over(progress.next + 1)

    def _append(self, level: int, draft: Draft) -> float:
        progress = self._progress[level]
        try:
            progress.delivered(self._writer.append(draft).end)
        except QueueIllegalError as error:
            return self._pass_over(level, str(error))
        except MessageIllegalError as error:
            log.error("delayed messages wait: one cannot be stored", level=level, reason=str(error))
            return STUCK_SECONDS
        except StoreError:  # the store has logged it
            return RETRY_SECONDS
        return 0

    def _pass_over(self, level: int, reason: str) -> float:
        """Only for a message that no longer exists as such: its record cannot be read, or names no queue."""
        progress = self._progress[level]
        if self._way is _Way.ESCAPE:
            log.error("delayed messages wait for a master", level=level, queue_offset=progress.next, reason=reason)
            return STUCK_SECONDS
        self._counts.delayed_passed_over += 1
        log.error("delayed message cannot be delivered", level=level, queue_offset=progress.next, reason=reason)
        progress.passed_over(progress.next + 1)
        return 0

    # escaping

    def _let_escape(self, level: int, draft: Draft, record: Record, view: memoryview) -> float | None:
        left = self._escaping.yields_for
        if left > 0:
            return left
        fact = self._escaped_with(level, self._progress[level].next, record, view)
        draft.body = bytes(draft.body)  # the file may be deleted before it is sent
        self._timers[level] = background.start(self._send(level, draft, fact), f"escape of delay level {level}")
        return None

    def _escaped_with(self, level: int, offset: int, record: Record, view: memoryview) -> Escaped:
        """What is known of the level's messages at other groups once this one need not be delivered any more."""
        known = self._delays.escaped.get(level)
        if known is not None and known.next == offset and not self._is_of_this_log(level, known):
            known = None
        return one_more(known, offset, record.physical_offset, view)

    async def _send(self, level: int, draft: Draft, fact: Escaped) -> None:
        pause = await self._escaping.send(level, draft, fact)
        if pause == 0:
            self._progress[level].passed_over(fact.next)
        self._at(level, pause)
