"""A native slave compares its log with its native master's and repairs damage in its own. Driven by `replication`.
With an official master it compares nothing, and repairs only the damage that its broker has found.

    before a connection's first acknowledgement   damage that is known is copied again from the master; then, once
                                                  after the sidecar's start and not after it was master, digests of the
                                                  log's last `COMPARED_FIRST` bytes, with the same for what they show;
                                                  until then the slave is not in the SyncStateSet
    when it has caught up                         digests of the files not compared yet, while replication runs

Only a record that is not whole is overwritten, with one that is. If the master's record is not whole, the master is
notified; it checks its log and hands over. If both are whole and differ, an operator decides (`LogsDivergedError`).
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

import structlog

from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.token_bucket import TokenBucket
from rocketmq_formats.store.record_chain import HEAD
from rocketmq_runtime import background
from rocketmq_sidecar.audit.audit_link import AuditLink
from rocketmq_sidecar.audit.audit_server import digest_of
from rocketmq_sidecar.audit.compared_files import ComparedFiles
from rocketmq_sidecar.domain.replication.log_judge import (
    FINEST,
    Comparison,
    LogsDivergedError,
    Verdict,
    claimed_size,
    judge,
    record_at,
    whole_size,
)
from rocketmq_store.log.segment import Segment
from rocketmq_store.log.segments import MappedFiles

log = structlog.get_logger()

T = TypeVar("T")
COMPARED_FIRST: Final = 64 * 1024 * 1024
"""Bytes at the log's end, which the last power cut is most likely to have changed: read at once, by both replicas."""
COMPARE_SECONDS: Final = 2.0
"""For that, too: a slow disk must not keep a copy out of the set."""
REPAIR_SECONDS: Final = 8.0
"""For repairs before one connection's first acknowledgement, because the master receives nothing during that time; the
next connection continues."""


class DamageFoundError(ConnectionError):
    """This log must be repaired before anything more is acknowledged: connect again."""


class MasterLog(Protocol):
    """An `AuditLink` to a native master, or a `HaReader` of an official one."""

    async def read(self, offset: int, length: int) -> bytes | None:
        """Bytes of its log, None if it does not hold all of them. Raises `OSError`, `TimeoutError`, `FrameError`."""

    async def report_damage(self, offset: int) -> None:
        """Its record at `offset` is not whole. Raises as `read`."""


class LogAudit:
    """One per replica; used in the event loop only."""

    def __init__(
        self,
        compared: ComparedFiles,
        *,
        bytes_per_second: float,
        on_repaired: Callable[[int, int], None],
        on_suspected: Callable[[int], None],
    ) -> None:
        """`on_repaired(start, end)`: the broker should check these records again. `on_suspected(offset)`: and this
        place."""
        self.damage = -1
        """Offset of the damage that the broker has found; -1: none."""
        self.places: set[int] = set()
        """Offsets of records to check before the next acknowledgement."""
        self._compared = compared
        self.has_compared_first = False
        """Attempted, or this process was master. What it adds needs no look, which would lengthen each failover."""
        self._bucket = TokenBucket(bytes_per_second)
        self._on_repaired, self._on_suspected = on_repaired, on_suspected

    def load(self) -> None:
        """Raises `StorageError`."""
        self._compared.load()

    def cut(self, offset: int) -> None:
        """The log will be cut at `offset`."""
        self._compared.forget(offset)
        self.places = {place for place in self.places if place < offset}

    @property
    def has_work(self) -> bool:
        """Whether `repair` has anything to do."""
        return self.damage >= 0 or bool(self.places)

    def try_again(self) -> None:
        """No one has judged the damage: the broker checks it again."""
        self._on_repaired(self.damage, self.damage)

    async def repair(self, link: MasterLog, files: MappedFiles, end: int) -> bool:
        """Copy damaged records before `end` again. The writer lock is held.

        Returns:
            Whether the master's log is damaged at one of these places too.

        Raises:
            LogsDivergedError: see there. DamageFoundError: the repair takes longer than one connection allows.
            OSError, TimeoutError, FrameError, StoreError: the caller may try again.
        """
        until = time.monotonic() + REPAIR_SECONDS
        verdicts = set[Verdict]()
        for place in sorted(self.places | ({self.damage} if self.damage >= 0 else set())):
            if files.min_offset <= place < end:
                verdicts.add(await self._repair(link, files, place, end, until))
            self.places.discard(place)
        return not verdicts.isdisjoint({Verdict.THEIRS, Verdict.BOTH})

    async def _repair(self, link: MasterLog, files: MappedFiles, place: int, end: int, until: float) -> Verdict:
        """Returns what ended the repair."""
        position = place
        verdict = Verdict.OURS
        while position < end and verdict is Verdict.OURS and time.monotonic() < until:
            ours, theirs = await self._pair(link, files, position, end)
            if theirs is None:
                log.warning("the master does not hold the records that are damaged here", offset=position)
                break
            file_left = files.file_size - position % files.file_size
            verdict = judge(ours, theirs, position, file_left)
            if verdict is Verdict.OURS:
                size = whole_size(theirs, position, file_left)
                data = theirs[:size]
                await background.completed(_in_thread(partial(files.repair, position, data)), "repair of the log")
                position += size
        if position > place:
            self._compared.forget(place)
            log.warning("damaged records of the log copied again from the master", start=place, end=position)
        if verdict is Verdict.OURS and position < end and time.monotonic() >= until:
            self._on_repaired(place, position)
            self.places.add(position)
            raise DamageFoundError("the repair is not complete: continuing with another connection")
        wrong = self.damage == place and verdict in {Verdict.EQUAL, Verdict.THEIRS}
        if position > place or wrong:  # the broker has to check that the damage is repaired
            self.damage = -1 if self.damage == place else self.damage
            self._on_repaired(place, position)
        await self._act_on_verdict(link, verdict, position)
        return verdict

    async def _act_on_verdict(self, link: MasterLog, verdict: Verdict, place: int) -> None:
        match verdict:
            case Verdict.THEIRS | Verdict.BOTH:
                log.error("the master's log is damaged", offset=place, finding=verdict.value)
                await link.report_damage(place)
                if verdict is Verdict.BOTH:
                    self._on_suspected(place)
            case Verdict.DIVERGED:
                self.places.add(place)
                text = (
                    f"the log differs from the master's at offset {place}, both records are whole by their checksums:"
                    " nothing was changed. Find out which one is right (rocketmq-verify compares all replicas), and"
                    " rebuild the other replica"
                )
                log.error("logs have diverged", offset=place)
                raise LogsDivergedError(text)
            case _:
                pass

    async def _pair(self, link: MasterLog, files: MappedFiles, place: int, end: int) -> tuple[bytes, bytes | None]:
        """What both logs hold at `place`: the longer of the two records' claimed sizes."""
        left = min(files.file_size - place % files.file_size, end - place)
        size = min(FINEST, left)
        theirs = await link.read(place, size)
        ours = await _in_thread(lambda: files.pread(place, size))
        if theirs is None:
            return ours, None
        file_left = files.file_size - place % files.file_size
        wanted = max(claimed_size(data[:HEAD], place, file_left) for data in (ours, theirs))
        if wanted > size and size < left:
            size = min(wanted, left)
            theirs = await link.read(place, size)
            ours = await _in_thread(lambda: files.pread(place, size))
        return ours, theirs

    # Comparing

    async def compare_and_repair(self, link: AuditLink, files: MappedFiles, end: int) -> bool:
        """`repair`, and compare the last `COMPARED_FIRST` bytes before `end` once in the life of this process. The
        writer lock is held; returns and raises what `repair` does. `link` is of no further use."""
        shared = await self.repair(link, files, end)
        if self.has_compared_first:
            return shared
        self.has_compared_first = True  # even if it fails: else each later failover would take that long
        try:
            return await self._compare_first(link, files, end) or shared
        except (LogsDivergedError, DamageFoundError):
            self.has_compared_first = False  # the next connection continues
            raise

    async def _compare_first(self, link: AuditLink, files: MappedFiles, end: int) -> bool:
        until = asyncio.get_running_loop().time() + COMPARE_SECONDS
        shared = False
        while True:
            try:
                async with asyncio.timeout_at(until):
                    await self.compare(link, files, end, start=max(end - COMPARED_FIRST, 0), at_once=True)
            except DamageFoundError:
                shared = await self.repair(link, files, end) or shared
            except TimeoutError:  # the link may be in the middle of an answer: nothing more is asked over it
                log.warning("the end of the log is compared with the master's later", end=end)
                return shared
            else:
                return shared

    async def compare(
        self, link: AuditLink, files: MappedFiles, end: int, *, start: int = 0, at_once: bool = False
    ) -> None:
        """Compare the log from `start` to `end`, except for what was compared before; `at_once`: as fast as it can be
        read.

        Raises:
            DamageFoundError: `places` has what to repair. LogsDivergedError: see there.
            OSError, TimeoutError, FrameError, LogReadError: the next connection continues.
        """
        folder = await _in_thread(lambda: LogFolder(files.directory, segment_size=files.file_size))
        size, began = 0, time.monotonic()
        for segment in list(files.segments):
            until = min(segment.end, end)
            if max(segment.start, start) >= until:
                continue
            reached = await _in_thread(partial(self._compared.reached, segment))
            begin = max(reached, start)
            if begin >= until:
                continue
            modified = segment.modified_ns()
            size += until - begin
            equal = await self._compare(link, files, folder, segment, (begin, until), at_once=at_once)
            if equal and begin == reached:
                await _in_thread(partial(self._compared.mark_equal, segment, until, modified, files.min_offset))
        if size and not at_once:
            log.info("log compared with the master's", bytes=size, end=end, seconds=time.monotonic() - began)

    async def _compare(
        self,
        link: AuditLink,
        files: MappedFiles,
        folder: LogFolder,
        segment: Segment,
        bounds: tuple[int, int],
        *,
        at_once: bool,
    ) -> bool:
        """Whether a part of one file is equal; False also if one of the logs no longer holds it."""
        search = Comparison(*bounds)
        while (asked := search.next()) is not None:
            theirs = await link.digest(*asked)
            ours = await _in_thread(partial(digest_of, folder, *asked))
            if not theirs or not ours:
                return False
            search.on_compared(equal=theirs == ours)
            if not at_once:
                await asyncio.sleep(self._bucket.take(asked[1], time.monotonic()))
        if search.found is None:
            return True
        offset, length = search.found
        theirs = await link.read(offset, length)
        ours = await _in_thread(lambda: folder.read(offset, length))
        if theirs is None or theirs == ours:
            return False
        different = offset + next(at for at, (our, their) in enumerate(zip(ours, theirs, strict=True)) if our != their)
        place = await _in_thread(lambda: record_at(folder.read, segment.start, different, segment.end))
        log.error("the log differs from the master's", offset=different, record=place)
        if place is None:
            self._on_suspected(different)
            return False
        ours, theirs = await self._pair(link, files, place, bounds[1])
        if theirs is None:
            return False
        verdict = judge(ours, theirs, place, segment.end - place)
        if verdict is Verdict.OURS:
            self.places.add(place)
            raise DamageFoundError(f"the record at offset {place} is damaged here and whole at the master")
        await self._act_on_verdict(link, verdict, place)
        blank = whole_size(theirs, place, segment.end - place) == segment.end - place
        return verdict is Verdict.EQUAL and blank  # else it has changed since


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
