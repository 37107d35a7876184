"""Reads the log again while the broker runs, to find damage: the last files at once after an unclean stop, then all
files slowly in endless rounds, and files that are suspected of damage. Used by `app.py`.

It reads in its own thread, a slice at a time. Damage is logged once and reported to the sidecar, which keeps an
unchecked or damaged replica from being elected, and repairs it.

The slow rounds also compare units of consume queues with the records, and correct those that differ
(`unit_repair.py`): they are made from the log, so such a replica is no less fit. A message that a consumer waits for is
searched at once.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import structlog

from rocketmq_broker.traffic import Traffic
from rocketmq_commitlog.token_bucket import TokenBucket
from rocketmq_formats.replica_link import LogState
from rocketmq_formats.store.message import Record
from rocketmq_runtime import background
from rocketmq_store.errors import StoreError
from rocketmq_store.log.log_check import Damage, LogCheck
from rocketmq_store.message_store import MessageStore
from rocketmq_store.queues.unit_repair import Repaired, Sought, Visit

log = structlog.get_logger(__name__)

TAIL_BYTES_PER_SECOND: Final = 256 * 1024 * 1024
"""For the tail, which an election waits for: a file of 1 GiB in a few seconds."""
REST_SECONDS: Final = 60.0
"""Minimum time between two rounds."""
MAX_URGENT: Final = 64
"""Ranges to read soon; the slow rounds find the others."""
PORTION: Final = 16
"""Units corrected in one turn of the loop: some milliseconds."""
MAX_LINES: Final = 20
"""Log lines about units in one reading; the others are counted."""

T = TypeVar("T")


def _ignore(_: object) -> None:
    pass


@contextmanager
def _errors_logged() -> Generator[None]:
    """Around writes of units: the next reading tries again."""
    try:
        yield
    except (StoreError, OSError) as error:
        log.error("damaged units of consume queues stay: check the disk", reason=str(error))


class LogScrubber:
    """`tail_checked`: the last files have been read since the start, or need not be; they are whole if `damage` is
    None."""

    def __init__(
        self,
        store: MessageStore,
        traffic: Traffic,
        *,
        bytes_per_second: int,
        on_change: Callable[[LogState], None] = _ignore,
        on_readable: Callable[[Collection[tuple[str, int]]], None] = _ignore,
    ) -> None:
        """`bytes_per_second`: of the slow rounds; 0: no rounds. `on_change`: called with the current state.
        `on_readable`: with the topic and queue id of queues that consumers may have waited for."""
        self._store = store
        self._traffic = traffic
        self._rate = bytes_per_second
        self._on_change = on_change
        self._on_readable = on_readable
        self._ended = False
        self._urgent: list[tuple[int, int | None]] = []
        """Ranges to read before anything else; an end of None is the log's end."""
        self._sought: list[Sought] = []
        """Messages to search next."""
        self._visit = store.units.visit()
        """Of the slow round."""
        self._repaired = 0
        """Units since the last count was logged."""
        self._woken = threading.Event()
        self._thread = ThreadPoolExecutor(1, "log-scrubber")
        self._task: asyncio.Task[None] | None = None
        self.tail_checked = False
        self.damage: Damage | None = None

    def start(self, check_from: int) -> None:
        """`check_from`: see `Recovered`."""
        if check_from >= 0:
            self._urgent.append((check_from, None))
        else:
            self.tail_checked = True
        self._report_state()
        self._store.units.on_repaired = self._on_repaired
        self._store.units.on_sought = self._seek
        self._task = background.start(self._run(), "check of the log")

    async def stop(self) -> None:
        self._ended = True
        self._store.units.on_sought = None
        self._woken.set()
        if self._task is not None:
            await self._task
            self._task = None
        self._thread.shutdown()

    def suspect(self, offset: int) -> None:
        """There may be damage at `offset`: read its file soon."""
        size = self._store.files.file_size
        start = offset - offset % size
        if len(self._urgent) < MAX_URGENT and (start, start + size) not in self._urgent:
            self._urgent.append((start, start + size))
            self._woken.set()

    def repaired(self, start: int) -> None:
        """The records from `start` were copied again: check whether they are whole now."""
        if self.damage is not None and self.damage.offset >= start:
            self.damage = None
        self.suspect(start)
        self._woken.set()

    def bytes_removed(self, *, before: int = 0, behind: int | None = None) -> None:
        """What lies `before` an offset has expired; or the log was cut at `behind`."""
        damage = self.damage
        if damage is not None and (damage.offset < before or (behind is not None and damage.offset >= behind)):
            self.damage = None
            self._woken.set()
            self._report_state()

    async def _run(self) -> None:
        slow: LogCheck | None = None
        rest_until = 0.0
        while not self._ended:
            self._woken.clear()
            if self._urgent and self.damage is None:
                await self._scan_urgent()
            elif self._sought:
                await self._scan_sought()
            elif self._rate and self.damage is None and time.monotonic() >= rest_until:
                slow = await self._scan_round(slow)
                rest_until = 0.0 if slow is not None else time.monotonic() + REST_SECONDS
            else:
                left = None if not self._rate or self.damage is not None else rest_until - time.monotonic()
                await self._in_thread(partial(self._woken.wait, left))

    async def _scan_urgent(self) -> None:
        began, (start, end) = time.perf_counter(), self._urgent[0]
        check = self._store.log_check(start, end)
        # without units, which would take half as long again: an election waits for the tail
        await self._scan(check, None, TAIL_BYTES_PER_SECOND, interruptible=False)
        if self._ended or not self._store.is_valid(check):
            return  # the log was cut during the read: read again
        self._urgent.pop(0)
        if check.damage is not None:
            self._urgent.insert(0, (check.damage.offset, end))  # continue here once it is repaired
            self._report_damage(check.damage)
        if not self._urgent or self.damage is not None:
            self.tail_checked = True
            seconds = time.perf_counter() - began
            log.info("log read again", start=start, end=check.offset, seconds=seconds, damage=self.damage)
        self._report_state()

    async def _scan_sought(self) -> None:
        """Whether or not the log is damaged elsewhere: a consumer waits."""
        sought = self._sought[0]
        check, visit = self._store.log_check(sought.start, sought.end), self._store.units.visit()
        await self._scan(check, visit, TAIL_BYTES_PER_SECOND, interruptible=False)
        if self._ended or not self._store.is_valid(check):
            return  # the log was cut during the read: read again
        self._sought.pop(0)
        if check.damage is None:
            self._finish(visit)
        else:
            self.suspect(check.damage.offset)  # nothing else: a cut before the visit may have moved the records
        self._store.units.visited(sought, corrected=visit.corrected)
        self._on_readable([(sought.topic, sought.queue_id)])

    async def _scan_round(self, check: LogCheck | None) -> LogCheck | None:
        """Read a part of a slow round; None at its end."""
        if check is None or not self._store.is_valid(check):
            check, self._visit = self._store.log_check(0), self._store.units.visit()
        await self._scan(check, self._visit, self._rate, interruptible=True)
        if not self._store.is_valid(check):
            return None
        if check.damage is not None:
            self._report_damage(check.damage)
            self._report_state()
            return None
        if self._urgent or self._sought:
            return check
        self._finish(self._visit)
        return None

    async def _scan(self, check: LogCheck, visit: Visit | None, rate: int, *, interruptible: bool) -> None:
        """`visit`: also compare units."""
        bucket = TokenBucket(rate)

        def steps() -> list[Record]:
            """In the thread; returns early with records whose units seem to differ."""
            while not self._ended and not (interruptible and (self._urgent or self._sought)):
                size = check.step()
                if not size:
                    break
                self._traffic.counts.log_checked += size
                differing = [] if visit is None else self._store.units.differing(check.records)
                wait = bucket.take(size, time.monotonic())
                if wait > 0:
                    self._woken.wait(wait)
                if differing:
                    return differing
            return []

        while records := await self._in_thread(steps):
            assert visit is not None
            for start in range(0, len(records), PORTION):
                if self._store.is_valid(check):  # else other records may be there now
                    self._correct(visit, records[start : start + PORTION])
                await asyncio.sleep(0)
        self._count_repaired()

    # Units of consume queues

    def _seek(self, sought: Sought) -> bool:
        if len(self._sought) >= MAX_URGENT:
            return False
        self._sought.append(sought)
        self._woken.set()
        return True

    def _correct(self, visit: Visit, records: list[Record]) -> None:
        with _errors_logged():
            for record in records:
                visit.mend(record)

    def _finish(self, visit: Visit) -> None:
        with _errors_logged():
            visit.finish()
        self._count_repaired()

    def _on_repaired(self, repaired: Repaired) -> None:
        self._traffic.counts.units_repaired += 1
        self._repaired += 1
        if self._repaired <= MAX_LINES:
            log.warning(
                "a unit of a consume queue was damaged: corrected from the log; check the disk",
                topic=repaired.topic,
                queue_id=repaired.queue_id,
                queue_offset=repaired.queue_offset,
                was=repaired.was,
                unit=repaired.unit,
            )

    def _count_repaired(self) -> None:
        if self._repaired > MAX_LINES:
            log.warning("more units of consume queues were corrected", count=self._repaired - MAX_LINES)
        self._repaired = 0

    def _report_damage(self, damage: Damage) -> None:
        self.damage = damage
        log.error(
            "the log is damaged: unless it is repaired from its master, rebuild this replica from another one;"
            " check its disk",
            offset=damage.offset,
            path=str(damage.path),
            reason=damage.reason,
        )

    def _report_state(self) -> None:
        damage = self.damage
        state = LogState(self.tail_checked) if damage is None else LogState(True, damage.offset, str(damage))
        self._on_change(state)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
