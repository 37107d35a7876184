"""The store of a broker: the one object of this package that the broker talks to (the sidecar uses segments.py and
writer_lock.py).

Synchronous and fast; called from the broker's event loop. Slow disk work (sync, preallocation, deleting) runs in the
threads of flush.py. Appending needs the writer lock (`writer`), reading and dispatching do not.

The calls in the course of a replica's life:

    store = MessageStore(settings)
    store.writer.acquire(); recovered = store.open(); store.writer.release()      # Hello
    slave:   store.extend(max_offset, confirm_offset) at each Replicated; store.dispatch()
    Prepare: store.writer.acquire(); max_offset = store.cut_tail()                # Prepared
    master:  store.append(draft, now_ms) ...; store.confirm(confirm_offset) at each Replication; store.dispatch()
    Release: store.max_offset; await flusher.idle(); store.writer.release()       # Released
    Truncate: store.truncate(offset)                                              # Truncated
    end:     await flusher.stop(); store.close()
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import structlog

from rocketmq_formats.store import checkpoint, segment_names
from rocketmq_formats.store.delay_levels import parse_levels
from rocketmq_formats.store.message import SMALLEST_RECORD, Record
from rocketmq_formats.store.queue_ends import FILE_NAME as QUEUE_ENDS
from rocketmq_formats.store.queue_ends import QueueEnds
from rocketmq_formats.store.record_chain import may_arrive
from rocketmq_store import recovery
from rocketmq_store.appending import Appender
from rocketmq_store.checkpoint import CheckpointFile
from rocketmq_store.disk_space import DiskSpace
from rocketmq_store.durability import Durability
from rocketmq_store.errors import (
    LogDamagedError,
    NotWriterError,
    RecoveryInterruptedError,
    StoreFullError,
)
from rocketmq_store.log.commit_log import CommitLog, Walker
from rocketmq_store.log.log_check import LogCheck
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.log.torn_records import Crash
from rocketmq_store.log.whole_records import LogEnd, find_end, first_whole, reach
from rocketmq_store.log_cut import LogCut
from rocketmq_store.model import Appended, Draft, Recovered, Stop, StoreSettings
from rocketmq_store.queues import queue_ends
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.deletions import Deletion, Deletions
from rocketmq_store.queues.dispatch import Dispatcher
from rocketmq_store.queues.queue_ends import QueueEndsFile
from rocketmq_store.queues.queue_reading import QueueReading
from rocketmq_store.queues.reading import Reader
from rocketmq_store.queues.unit_repair import UnitRepair
from rocketmq_store.retention import LogFile, delete_before
from rocketmq_store.root_files import RootFiles
from rocketmq_store.writer_lock import FILE_NAME, WriterLock

log = structlog.get_logger()


class MessageStore(QueueReading):
    """Not thread-safe."""

    def __init__(self, settings: StoreSettings) -> None:
        settings.root.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.writer = WriterLock(settings.root / FILE_NAME)
        self.files = MappedFiles(settings.commit_log_path, settings.file_size, writer=self.writer)
        self._root = RootFiles(settings.root)
        self._log = CommitLog(self.files, self.writer)
        queues = ConsumeQueues(settings.root / segment_names.CONSUME_QUEUE, settings.consume_queue_file_size)
        self._dispatcher = Dispatcher(self._log, queues, parse_levels(settings.delay_levels))
        self.units = UnitRepair(self._log, queues, self._dispatcher)
        """Looks for damaged units of consume queues."""
        reader = Reader(self._log, settings, self.units)
        super().__init__(queues, reader)
        self._deletions = Deletions(queues, reader)
        self._checkpoint = CheckpointFile(settings.root / checkpoint.FILE_NAME)
        self._appender = Appender(self._log, self._queues, self._dispatcher, settings.max_message_size)
        self._ends = QueueEndsFile(settings.root / QUEUE_ENDS)
        self.durability = Durability(self._log, self._queues, self._checkpoint, self._ends, self._dispatcher)
        """What flush.py runs in its thread."""
        self._confirm_offset = 0
        self._files_changed = False  # by the other process, as far as can be known
        self._may_append = False  # every queue's next offset is known
        self._lost: QueueEnds | None = (
            None  # the old ends of queues that are being rebuilt, until they are reached again
        )
        self.disk_space = DiskSpace(settings.commit_log_path, self._queues.folder, settings.disk_refuse_ratio)
        """Why appends are refused at present."""

    # Life

    def open(self, interrupted: Callable[[], bool] = lambda: False) -> Recovered:
        """Recover what is on disk. The writer lock must be held: a torn tail is cut off. Ends early when `interrupted`
        returns True; may run in another thread.

        Raises:
            StoreDamagedError: files that cannot be this store; the text names the file and the way out.
            StoreInUseError: another broker (ours or Java's) runs on this folder.
            NotWriterError: the writer lock is not held.
            RecoveryInterruptedError: `interrupted` returned True.
            StoreFullError, OSError: the disk. Where only consume queues lack room, `dispatch` raises it later.
        """

        def check() -> None:
            if interrupted():
                raise RecoveryInterruptedError("the recovery was interrupted")

        self.writer.require()
        self._root.lock()
        try:
            return self._recover(check)
        except BaseException:
            self._root.unlock()
            raise

    def _recover(self, check: Callable[[], None]) -> Recovered:
        self.files.load()
        self._queues.load(check)
        clean = self._root.mark_running()
        self._checkpoint.open()
        self._ends.load()
        ends = self._ends.saved
        cut_note = LogCut(self.settings.root)
        found = recovery.recover(
            self._log, self._queues, self._checkpoint, ends=ends, cut_note=cut_note, clean=clean, check=check
        )
        self._dispatcher.restart(found.dispatch_from)
        self._dispatcher.store_timestamp = self._appender.store_timestamp = found.store_timestamp
        confirmed = min(max(self._checkpoint.java.confirm_offset, self.min_offset), found.end)
        if ends is not None and ends.position <= confirmed:
            self._lost = ends
        self.confirm(confirmed)
        with suppress(StoreFullError):  # what can be read is served until then
            self.dispatch()
            while self.unfinished:
                check()
                self.dispatch()
        self._deletions.load()
        self.durability.incomplete = self._lost is not None
        self._confirm_offset = 0  # after a start the sidecar judges whether anything is missing
        self.cut_tail(check=check)
        self._confirm_offset = min(confirmed, self.max_offset)
        self._checkpoint.opened()
        self.durability.flush()
        self.check_disk()
        file_size = self.files.file_size
        check_from = -1 if clean else max(found.end // file_size * file_size - file_size, self.min_offset)
        return Recovered(self.min_offset, found.end, self._confirm_offset, clean, found.cut, check_from)

    def close(self) -> None:
        """Make everything durable and mark the stop as orderly. Releases the writer lock if it is held.
        Raises `OSError`: then the next start recovers as after a crash."""
        try:
            self.durability.flush()
            self._root.mark_stopped()
        finally:
            self._checkpoint.close()
            self._queues.close()
            self.files.close()
            self.writer.release()
            self._root.unlock()

    # The log's bounds, in bytes

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        """End of what is written; on a slave not always a record's end."""
        return self._log.max_offset

    @property
    def confirm_offset(self) -> int:
        """Consumers see the messages that end here or before."""
        return min(self._confirm_offset, self._log.max_offset)

    @property
    def flushed_offset(self) -> int:
        """The log is durable up to here."""
        return self._log.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        """The consume queues hold the messages before it."""
        return self._dispatcher.position

    # Master

    def append(self, draft: Draft, now_ms: int, *, again: bool = False) -> Appended:
        """Store one message; visible to consumers after `dispatch`. `again`: it is in the log already, under another
        topic, so that maxMessageSize, which may have been larger then, does not count.

        Raises:
            MessageIllegalError, QueueIllegalError, PropertiesSizeExceededError: nothing was stored, nor ever will be.
            StoreFullError: nothing was stored; try later.
            NotWriterError: without the writer lock, or without `cut_tail` after `extend` or `truncate`.
        """
        self._accept()
        try:
            return self._appender.append(draft, now_ms, again=again)
        except StoreFullError as error:
            self.disk_space.refuse(str(error))
            raise

    def append_batch(self, drafts: Sequence[Draft], now_ms: int) -> Appended:
        """Store several messages (at least one) of one topic and queue with consecutive queue offsets, all in one file,
        all or none. Raises as `append`."""
        self._accept()
        try:
            return self._appender.append_batch(drafts, now_ms)
        except StoreFullError as error:
            self.disk_space.refuse(str(error))
            raise

    def cut_tail(self, *, check: Callable[[], None] = lambda: None) -> int:
        """On becoming master, with the writer lock: read what was not dispatched yet, cut the log behind the last whole
        record, determine every queue's next offset. Reads from `dispatched_offset` on, at most 32 MiB behind the offset
        of the last `extend`. Returns the log's max offset. `check` is called now and then and may raise.
        Raises `NotWriterError`, `StoreDamagedError`, `OSError`; `LogDamagedError`: nothing was cut."""
        self.writer.require()
        self.files.refresh()
        dispatcher = self._dispatcher
        dispatcher.restart(max(dispatcher.position, self.files.min_offset))
        self._queues.forget_next_offsets()
        timestamp = max(self._appender.store_timestamp, dispatcher.store_timestamp)
        walker = Walker(self.files, dispatcher.position, self.files.end, check_crc=True, crash=Crash.KILLED)
        for record in walker.records(check):
            timestamp = max(timestamp, record.store_timestamp)
            dispatcher.found(record)
        end = walker.offset
        limit = reach(end, self._log.max_offset)
        has_tail = self.files.has_data(end, limit - end)
        confirmed = self._confirm_offset
        continues = None
        if has_tail and (following := first_whole(self.files, end, limit)) is not None:
            continues = f"at {following.physical_offset} behind it"
        elif self._lacks_confirmed(end):
            continues = f"messages up to {confirmed} are confirmed"
        if continues is not None:
            raise LogDamagedError(self.files.directory, end, walker.reason or "the log ends there", continues)
        self._confirm_offset = min(confirmed, end)
        if has_tail:
            log.info("incomplete tail of the log cut off", offset=end, reason=walker.reason)
            self._log.cut(end)
        self._log.set_max_offset(end)
        self._appender.store_timestamp = timestamp
        self._may_append = True
        return end

    # Slave

    def find_end(self) -> Iterator[LogEnd]:
        """Where the last whole record ends, if another process may have appended and died before reporting it; needs no
        lock. Reads from `dispatched_offset` on, in portions, so that other work that does not change the store can run
        in between; the last value counts. Raises `StoreDamagedError`, `OSError`."""
        self.files.refresh()
        end = max(self._dispatcher.position, self.min_offset)
        for found in find_end(self.files, end, self._log.max_offset):
            end = found.offset
            yield found
        if not self._lacks_confirmed(end):  # the sidecar may remove the partial record
            self._confirm_offset = min(self._confirm_offset, end)
        self._log.set_max_offset(end)

    def _lacks_confirmed(self, end: int) -> bool:
        """Whether a confirmed record is not whole at `end`. Bytes are confirmed, so the beginning of a record may be
        that has not been received to its end."""
        confirmed = self._confirm_offset - end
        if confirmed < SMALLEST_RECORD:
            return False
        files = self.files
        return end >= files.end or not may_arrive(files.read(end, confirmed), end, files.segment_at(end).end - end)

    def extend(self, max_offset: int, confirm_offset: int) -> None:
        """The sidecar has appended; call `dispatch`. Raises `OSError`; `StoreDamagedError`: a log cannot have the
        sidecar's files."""
        self._may_append = False
        files = self.files
        before = self._log.max_offset
        if self._files_changed or max_offset > files.end or before // files.file_size != max_offset // files.file_size:
            files.refresh()
            self._files_changed = False
            if self._dispatcher.position < files.min_offset:  # a new log that starts behind the old one's end
                self._dispatcher.restart(files.min_offset)
        if max_offset != before:
            self._log.set_max_offset(max_offset)
        self.confirm(confirm_offset)

    def truncate(self, offset: int) -> None:
        """Forget, durably, everything at and behind `offset`, before the log is cut there (by the sidecar).
        Raises `OSError`: call again."""
        self._may_append = False
        self.files.stop_deleting()
        self._confirm_offset = min(self._confirm_offset, offset)
        self.durability.lower(offset)
        self._deletions.cut(offset, self.min_offset)
        self._dispatcher.restart(min(self._dispatcher.position, offset))
        self._log.set_max_offset(min(self._log.max_offset, offset))
        self._files_changed = True

    def deleted_at(self, topic: str) -> int:
        """Where in the log the topic was last deleted: its messages before that place are hidden. -1 if it was not, or
        if nothing of that part of the log is left."""
        return self._deletions.place_of(topic)

    @property
    def deletions(self) -> Mapping[str, Deletion]:
        """The last deletion of each topic, as far as the log was dispatched and has them."""
        return self._deletions.last

    # Dispatch, and reading from the log (from queues: `QueueReading`)

    def confirm(self, confirm_offset: int) -> None:
        """Consumers may see the messages that end here or before; call `dispatch`. A lower offset than before is stored
        but hides nothing again."""
        self._confirm_offset = confirm_offset
        self._checkpoint.set_confirm_offset(confirm_offset)

    def dispatch(self) -> set[tuple[str, int]]:
        """Make the confirmed messages visible. Returns the (topic, queue id) that have new ones. Reads from the log are
        done in portions: while `unfinished`, call again in the loop's next turn.

        Raises:
            StoreFullError: no room in the consume queues; call again later, nothing is lost. Sends are refused
                until then.
        """
        start = self._dispatcher.position
        try:
            visible = self._dispatcher.run(self.confirm_offset)
        except (StoreFullError, OSError) as error:
            self._deletions.dispatch_failed()
            if isinstance(error, StoreFullError):
                self.disk_space.refuse(str(error))
            raise
        self._deletions.dispatched(visible, start)
        if self._lost is not None:
            with suppress(StoreFullError):  # the next append tries again
                self._complete()
        return visible

    def _complete(self) -> None:
        """Queues that lost units are complete again: appends are allowed. Raises `StoreFullError`, `OSError`."""
        lost = self._lost
        assert lost is not None
        if min(lost.position, self._log.max_offset) <= self._dispatcher.position:
            queue_ends.complete(self._queues, lost)
            self._lost = None
            self.durability.incomplete = False

    # Ends of queues that the log does not tell

    def ended_queues(self, log_begin: int) -> Iterator[list[tuple[str, int, int]]]:
        """(topic, queue id, end) of the queues of which a log that begins at `log_begin` has no message; 0: as this
        one's. In portions, so that other work can run in between. Raises `OSError`."""
        return self._queues.ended_before(log_begin or self.min_offset)

    def end_queue(self, topic: str, queue_id: int, end: int) -> bool:
        """The log has no message of the queue before its offset `end`, the master says: no later message gets such an
        offset. False if the queue has messages, or ends there or later: then it stays as it is. As durable as other
        units. Raises `QueueIllegalError`, `StoreFullError`, `OSError`."""
        queue = self._queues.get_or_make(topic.encode(), queue_id)
        if queue.min_offset < queue.pending_offset or queue.pending_offset >= end:
            return False
        queue.skip_to(end)
        return True

    @property
    def dispatch_stopped(self) -> Stop | None:
        """Where the last `dispatch` found no record, although the log continues there."""
        return self._dispatcher.stopped

    @property
    def unfinished(self) -> bool:
        """The last `dispatch` did not finish."""
        return self._dispatcher.unfinished

    def record_at(self, physical_offset: int, acknowledged: int = 0) -> memoryview | None:
        """The record that begins at `physical_offset`, checked with its CRC. None if none begins there, or if it is
        neither visible to consumers nor `acknowledged`: a failover may take it back. Query by message id,
        CONSUMER_SEND_MSG_BACK."""
        record = self._log.record_at(physical_offset)
        visible = max(self.confirm_offset, self.dispatched_offset, acknowledged)
        return None if record is None or physical_offset + len(record) > visible else record

    def records(self, start: int, end: int) -> Iterator[Record]:
        """The log's records from `start`, where one begins, to `end`; not checked. Ends early where no record
        begins."""
        walker = Walker(self.files, max(start, self.min_offset), min(end, self.max_offset), check_crc=False)
        while (record := walker.next()) is not None:
            yield record

    # Damage

    def is_damaged(self, offset: int) -> bool:
        """Whether the log holds `offset`, but no whole record, and no blank, begins there. A record that may still
        arrive is no damage. Raises `OSError`."""
        if not self.min_offset <= offset < self.max_offset:
            return False
        walker = Walker(self.files, offset, self.max_offset, check_crc=True, crash=Crash.KILLED)
        walker.next()
        return walker.offset == offset and not walker.ended

    def log_check(self, start: int, end: int | None = None) -> LogCheck:
        """A check of the log from `start` (a record's or a file's), or from its begin, up to `end`, at most to what was
        dispatched. Call `step` in any thread; its result counts if `is_valid` is true afterwards."""
        limit = self.dispatched_offset if end is None else min(end, self.dispatched_offset)
        return LogCheck(self.files, max(start, self.min_offset), limit, cuts=self.durability.cuts)

    def is_valid(self, check: LogCheck) -> bool:
        """Whether the log was not cut since the check began and the damage found has not expired."""
        return check.cuts == self.durability.cuts and (check.damage is None or check.damage.offset >= self.min_offset)

    def repaired(self, start: int, end: int) -> None:
        """The records from `start` to `end` were copied again: where a queue's unit does not point to one of them, the
        next dispatch rebuilds the queue from there. Raises `OSError`."""
        self.units.forget_lost()
        self._deletions.read_again()
        for record in self.records(start, end):
            queue = self._dispatcher.queue_of(record)
            place = record.physical_offset
            if queue is None or place + record.size > self._dispatcher.position:
                continue
            if not queue.min_offset <= record.queue_offset < queue.max_offset:
                fits = record.queue_offset < queue.min_offset
            else:
                fits = queue.unit_at(record.queue_offset)[:2] == (place, record.size)
            if not fits:
                queue.drop_from(record.queue_offset)
                self._dispatcher.restart(place)
                return

    # Housekeeping

    def expired(self, now_ms: int, hour: int) -> int:
        """Check the disk and which files have expired; `hour` of the local day for deleteWhen. Call every 10 s.
        Returns the offset before which they lie, 0 without any; then call `forget_before`, run `files.deleter` in a
        thread, call `deleted`. Raises `OSError`."""
        used = self.check_disk()
        self.files.refresh()
        found = [LogFile(segment.end, int(segment.path.stat().st_mtime * 1000)) for segment in self.files.segments]
        keep_from = min(self._dispatcher.position, self.confirm_offset, max(self._checkpoint.recover_from, 0))
        return delete_before(found, self.settings, used_ratio=used, keep_from=keep_from, now_ms=now_ms, hour=hour)

    def forget_before(self, offset: int) -> Iterator[None]:
        """Remove the messages before `offset` of the log from the queues, before the log deletes them: in portions, so
        that other work can run in between. Raises `OSError`."""
        return self._queues.raise_min_slowly(offset)

    def deleted(self) -> int:
        """Refresh the list of files after a deletion. Returns the log's min offset. Raises `OSError`."""
        self.files.refresh()
        self._deletions.forget_before(self.files.min_offset)
        log.info("files of the log deleted", min_offset=self.files.min_offset)
        return self.files.min_offset

    def check_disk(self) -> float:
        """How much of the disk is used, 0 to 1; refuses or accepts appends: see `DiskSpace`. Raises `OSError`."""
        end = self._log.max_offset
        ends_soon = self.wants_preallocation or self.files.end == end
        return self.disk_space.measure(self.settings.file_size if ends_soon else 0)

    @property
    def wants_preallocation(self) -> bool:
        """The log's last file is filling up: run `files.preallocate_next` in a thread, so that no send has to wait for
        it."""
        return self._log.wants_preallocation

    def _accept(self) -> None:
        if not self._may_append:
            raise NotWriterError("the other half has written to the log: call cut_tail before appending")
        if (reason := self.disk_space.refuses) is not None:
            raise StoreFullError(reason)
        if self._lost is not None:
            self._complete()
            if self._lost is not None:
                raise StoreFullError(
                    "consume queues that lost units are not complete again, for which there was no room"
                )
