"""The store of a broker: the one object of this package that the broker talks to (the sidecar uses segments.py and
writer_lock.py).

Synchronous and quick; called from the broker's event loop. What takes a disk's time (sync, preallocation, deleting)
runs in the thread of flush.py. Appending needs the writer lock (`writer`), reading and dispatching do not.

A life:

    store = MessageStore(settings)
    store.writer.acquire(); recovered = store.open(); store.writer.release()      # Hello
    slave:   store.extend(max_offset, confirm_offset) at each Replicated
    Prepare: store.writer.acquire(); max_offset = store.cut_tail()                # Prepared
    master:  store.append(draft, now_ms) ...; store.dispatch(confirm_offset) at each Replication
    Release: store.max_offset; await flusher.idle(); store.writer.release()       # Released
    Truncate: store.truncate(offset)                                              # Truncated
    end:     await flusher.stop(); store.close()
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from rocketmq_formats.store import checkpoint, segment_names
from rocketmq_formats.store.delay_levels import parse_levels
from rocketmq_store import recovery
from rocketmq_store.appending import Appender
from rocketmq_store.checkpoint import CheckpointFile
from rocketmq_store.commit_log import CommitLog, Walker
from rocketmq_store.consume_queues import ConsumeQueues
from rocketmq_store.dispatch import Dispatcher
from rocketmq_store.durability import Durability
from rocketmq_store.errors import NotWriterError, RecoveryInterruptedError, StoreFullError
from rocketmq_store.model import Appended, Draft, Recovered, StoreSettings
from rocketmq_store.queue_reading import QueueReading
from rocketmq_store.reading import Reader
from rocketmq_store.retention import LogFile, delete_before
from rocketmq_store.room import Room
from rocketmq_store.root_files import RootFiles
from rocketmq_store.segments import MappedFiles
from rocketmq_store.writer_lock import FILE_NAME, WriterLock

log = structlog.get_logger()

MAX_UNANNOUNCED: Final = 32 * 1024 * 1024
"""The sidecar writes at most so many bytes behind the offset that it announced last."""


class MessageStore(QueueReading):
    """See the module. Not thread-safe."""

    def __init__(self, settings: StoreSettings) -> None:
        settings.root.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.writer = WriterLock(settings.root / FILE_NAME)
        self.files = MappedFiles(settings.commit_log_path, settings.file_size, writer=self.writer)
        self._root = RootFiles(settings.root)
        self._log = CommitLog(self.files, self.writer)
        queues = ConsumeQueues(settings.root / segment_names.CONSUME_QUEUE, settings.consume_queue_file_size)
        super().__init__(queues, Reader(self._log, settings))
        self._checkpoint = CheckpointFile(settings.root / checkpoint.FILE_NAME)
        self._dispatcher = Dispatcher(self._log, self._queues, parse_levels(settings.delay_levels))
        self._appender = Appender(self._log, self._queues, self._dispatcher, settings.max_message_size)
        self.durability = Durability(self._log, self._queues, self._checkpoint, self._dispatcher)
        """What flush.py runs in its thread."""
        self._confirm_offset = 0
        self._files_changed = False  # by the other process, as far as can be known
        self._may_append = False  # every queue's next offset is known
        self._room = Room(settings.commit_log_path, self._queues.folder, settings.disk_refuse_ratio)

    # Life

    def open(self, interrupted: Callable[[], bool] = lambda: False) -> Recovered:
        """Recover what is on disk and be ready. The writer lock must be held: a torn tail is cut off. Ends early when
        `interrupted` says so; may run in another thread.

        Raises:
            StoreDamagedError: files that this store cannot be; the text names the file and the way out.
            StoreInUseError: another broker (ours or Java's) runs on this folder.
            NotWriterError: the writer lock is not held.
            RecoveryInterruptedError: `interrupted` said so.
            StoreFullError, OSError: the disk.
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
        found = recovery.recover(self._log, self._queues, self._checkpoint, clean=clean, check=check)
        self._dispatcher.restart(found.dispatch_from)
        self._dispatcher.store_timestamp = self._appender.store_timestamp = found.store_timestamp
        self.dispatch(min(max(self._checkpoint.java.confirm_offset, self.min_offset), found.end))
        while self._dispatcher.unfinished:
            check()
            self.dispatch(self._confirm_offset)
        self.cut_tail(check)
        self.check_disk()
        return Recovered(self.min_offset, found.end, self._confirm_offset, clean, found.cut)

    def close(self) -> None:
        """Make everything durable and mark the stop as orderly. Releases the writer lock if it is held.
        Raises `OSError`: then the next start recovers as after a crash."""
        try:
            self.flush()
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

    def append(self, draft: Draft, now_ms: int) -> Appended:
        """Store one message; visible to consumers after `dispatch`.

        Raises:
            MessageIllegalError, PropertiesSizeExceededError: nothing was stored, nor ever will be.
            StoreFullError: nothing was stored; try later.
            NotWriterError: without the writer lock, or without `cut_tail` after `extend` or `truncate`.
        """
        self._accept()
        try:
            return self._appender.append(draft, now_ms)
        except StoreFullError as error:
            self._room.refuse(str(error))
            raise

    def append_batch(self, drafts: Sequence[Draft], now_ms: int) -> Appended:
        """Store several messages (at least one) of one topic and queue with consecutive queue offsets, all in one file,
        all or none. Raises as `append`."""
        self._accept()
        try:
            return self._appender.append_batch(drafts, now_ms)
        except StoreFullError as error:
            self._room.refuse(str(error))
            raise

    def cut_tail(self, check: Callable[[], None] = lambda: None) -> int:
        """On becoming master, with the writer lock: go over what was not dispatched yet, cut the log behind the last
        whole record, know every queue's next offset. Reads what follows from `dispatched_offset`, at most 32 MiB behind
        what `extend` was told. Returns the log's max offset.
        `check` is called now and then and may raise. Raises `NotWriterError`, `StoreDamagedError`, `OSError`."""
        self.writer.require()
        self.files.refresh()
        dispatcher = self._dispatcher
        dispatcher.restart(max(dispatcher.position, self.files.min_offset))
        self._queues.forget_next_offsets()
        timestamp = max(self._appender.store_timestamp, dispatcher.store_timestamp)
        walker = Walker(self.files, dispatcher.position, self.files.end, check_crc=True)
        for record in walker.records(check):
            timestamp = max(timestamp, record.store_timestamp)
            dispatcher.found(record)
        end = walker.offset
        if self.files.has_data(end, max(self._log.max_offset - end, 0) + MAX_UNANNOUNCED):
            log.info("incomplete tail of the log cut off", offset=end, reason=walker.reason)
            self._log.cut(end)
        self._log.set_max_offset(end)
        self._appender.store_timestamp = timestamp
        self._may_append = True
        return end

    # Slave

    def find_end(self) -> int:
        """Where the last whole record ends, if another process may have appended without living to tell; needs no lock.
        Reads what follows from `dispatched_offset`. Raises `StoreDamagedError`, `OSError`."""
        self.files.refresh()
        start = max(self._dispatcher.position, self.files.min_offset)
        walker = Walker(self.files, start, self.files.end, check_crc=True)
        while walker.next() is not None:
            pass
        self._log.set_max_offset(walker.offset)
        return walker.offset

    def extend(self, max_offset: int, confirm_offset: int) -> set[tuple[str, int]]:
        """The sidecar has appended; dispatches as `dispatch(confirm_offset)` does and returns the same.
        Raises also `StoreDamagedError`: the sidecar's files are none that a log can have."""
        self._may_append = False
        files = self.files
        before = self._log.max_offset
        if self._files_changed or max_offset > files.end or before // files.file_size != max_offset // files.file_size:
            files.refresh()
            self._files_changed = False
            if self._dispatcher.position < files.min_offset:  # a log begun anew behind what this replica had
                self._dispatcher.restart(files.min_offset)
        if max_offset != before:
            self._log.set_max_offset(max_offset)
        return self.dispatch(confirm_offset)

    def truncate(self, offset: int) -> None:
        """Forget, durably, everything at and behind `offset`, before the log is cut there (by the sidecar).
        Raises `OSError`: call again."""
        self._may_append = False
        self.files.stop_deleting()
        self._confirm_offset = min(self._confirm_offset, offset)
        self.durability.lower(offset)
        self._dispatcher.restart(min(self._dispatcher.position, offset))
        self._log.set_max_offset(min(self._log.max_offset, offset))
        self._files_changed = True

    # Dispatch, and reading from the log (from queues: `QueueReading`)

    def dispatch(self, confirm_offset: int) -> set[tuple[str, int]]:
        """Make the messages that end at or before `confirm_offset` visible. Returns the (topic, queue id) that have new
        ones. A `confirm_offset` lower than before is taken over for `confirm_offset` but takes nothing back. What has
        to be read from the log first is done in portions: while `unfinished`, call again in the loop's next turn.

        Raises:
            StoreFullError: no room in the consume queues; call again later, nothing is lost. Sends are refused
                meanwhile.
        """
        self._confirm_offset = confirm_offset
        self._checkpoint.set_confirm_offset(confirm_offset)
        try:
            return self._dispatcher.run(min(confirm_offset, self._log.max_offset))
        except StoreFullError as error:
            self._room.refuse(str(error))
            raise

    @property
    def unfinished(self) -> bool:
        """The last `dispatch` or `extend` has left something to do."""
        return self._dispatcher.unfinished

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at `physical_offset`; None if none does (it is checked, CRC included), or if consumers
        may not see it yet: a failover may take it back. Query by message id, CONSUMER_SEND_MSG_BACK."""
        record = self._log.record_at(physical_offset)
        visible = max(self.confirm_offset, self.dispatched_offset)
        return None if record is None or physical_offset + len(record) > visible else record

    # Housekeeping

    def flush(self) -> None:
        """Make everything written so far durable, in this thread: orderly stops and tests; else flush.py.
        Raises `OSError`."""
        self.durability.flush()

    def expired(self, now_ms: int, hour: int) -> int:
        """Look at the disk, and which files have expired; `hour` of the local day for deleteWhen. Call every 10 s.
        Returns the offset before which they lie, 0 if none has; then call `forget_before`, run `files.deleter` in a
        thread, call `deleted`. Raises `OSError`."""
        used = self.check_disk()
        self.files.refresh()
        found = [LogFile(segment.end, int(segment.path.stat().st_mtime * 1000)) for segment in self.files.segments]
        keep_from = min(self._dispatcher.position, self.confirm_offset, max(self._checkpoint.recover_from, 0))
        return delete_before(found, self.settings, used_ratio=used, keep_from=keep_from, now_ms=now_ms, hour=hour)

    def forget_before(self, offset: int) -> Iterator[None]:
        """Take the messages before `offset` of the log out of the queues, before they are deleted there: in portions,
        between which others may have their turn. Raises `OSError`."""
        return self._queues.raise_min_slowly(offset)

    def deleted(self) -> int:
        """See which files are left. Returns the log's min offset. Raises `OSError`."""
        self.files.refresh()
        log.info("files of the log deleted", min_offset=self.files.min_offset)
        return self.files.min_offset

    def check_disk(self) -> float:
        """How much of the disk is used, 0 to 1; appends are refused, or let in again: see `Room`. Raises `OSError`."""
        end = self._log.max_offset
        ends_soon = self.wants_preallocation or self.files.end == end
        return self._room.look(self.settings.file_size if ends_soon else 0)

    def fail(self, reason: str) -> None:
        """The disk does not do what it says: refuse appends for ever."""
        self._room.fail(reason)

    @property
    def refuses(self) -> str | None:
        """Why appends are refused at present (disk full, nearly so, or failing), None if they are not."""
        return self._room.refuses

    @property
    def wants_preallocation(self) -> bool:
        """The log's last file is filling: `files.preallocate_next` in a thread, so that no send has to wait for it."""
        return self._log.wants_preallocation

    def _accept(self) -> None:
        if not self._may_append:
            raise NotWriterError("others have written to the log: cut_tail comes before appending")
        if (reason := self._room.refuses) is not None:
            raise StoreFullError(reason)
