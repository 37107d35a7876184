"""The order in which data becomes durable. Jobs are prepared and concluded in the broker's thread and run in any
thread.

    checkpoint round   log and consume queues up to what was dispatched, now and then the queues' ends, then
                       `recover_from` into the checkpoint, then that: a recovery may believe it
    lowering           `recover_from` and confirm offset down, then the consume queues and their ends; the log is cut
                       after that

Used by flush.py and message_store.py.
"""

from collections.abc import Callable

import msgspec

from rocketmq_store.checkpoint import CheckpointFile
from rocketmq_store.log.commit_log import CommitLog
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.dispatch import Dispatcher
from rocketmq_store.queues.queue_ends import QueueEndsFile, ends_of
from rocketmq_store.queues.queue_files import sync_files


class Job(msgspec.Struct, frozen=True):
    """`run` in any thread (raises `OSError`); then `conclude` in the broker's. After an error do not conclude or
    sync again: the kernel may have dropped what it could not write."""

    run: Callable[[], None]
    conclude: Callable[[], None]


class Durability:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: CheckpointFile,
        ends: QueueEndsFile,
        dispatcher: Dispatcher,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._ends = ends
        self._dispatcher = dispatcher
        self.incomplete = False
        """Queues lack units that they had: keep their recorded ends."""
        self.cuts = 0
        """How often the log was cut: a job prepared before a cut does not cover what was written since."""

    def log_job(self) -> Job:
        """The log, as far as it is written."""
        end = self._log.max_offset
        run = self._log.files.flusher(self._log.flushed_offset, end)
        return Job(run, self._unless_cut(lambda: self._flushed(end)))

    def checkpoint_job(self, *, with_ends: bool = False) -> Job:
        """Log and consume queues up to what was dispatched; concluded by writing the checkpoint, which is durable after
        `checkpoint_sync`. `with_ends`: the queues' ends in any case."""
        position, timestamp = self._dispatcher.position, self._dispatcher.store_timestamp
        sync_log = self._log.files.flusher(self._log.flushed_offset, position)
        dirty = self._queues.take_dirty()
        due = not self.incomplete and (self._ends.due(position) or with_ends)
        ends = ends_of(self._queues, position) if due else None

        def run() -> None:
            sync_log()
            sync_files(dirty)
            if ends is not None and ends != self._ends.saved:
                self._ends.save(ends)

        def conclude() -> None:
            self._flushed(position)
            java = self._checkpoint.java
            java = msgspec.structs.replace(
                java,
                physic_msg_timestamp=max(timestamp, java.physic_msg_timestamp),
                logics_msg_timestamp=max(timestamp, java.logics_msg_timestamp),
            )
            self._checkpoint.write(java, position)

        return Job(run, self._unless_cut(conclude))

    @property
    def checkpoint_due(self) -> bool:
        """Something was dispatched since the last checkpoint, or a unit was corrected."""
        return self._checkpoint.recover_from != self._dispatcher.position or self._queues.corrected

    def checkpoint_sync(self) -> None:
        """In any thread; raises `OSError`."""
        self._checkpoint.sync()

    def flush(self) -> None:
        """Everything, in this thread: orderly stops and tests; else flush.py. Raises `OSError`."""
        for job in (self.log_job(), self.checkpoint_job(with_ends=True)):
            job.run()
            job.conclude()
        self.checkpoint_sync()

    def lower(self, offset: int) -> None:
        """Before a cut of the log at `offset`, in this thread. Raises `OSError`."""
        self.cuts += 1
        checkpoint = self._checkpoint
        java = msgspec.structs.replace(checkpoint.java, confirm_offset=min(checkpoint.java.confirm_offset, offset))
        checkpoint.write(java, min(checkpoint.recover_from, offset))
        checkpoint.sync()
        self._queues.truncate(offset)
        sync_files(self._queues.take_dirty())
        saved = self._ends.saved
        if saved is not None and saved.position > offset:
            self._ends.replace(ends_of(self._queues, min(offset, self._dispatcher.position)))

    def _flushed(self, end: int) -> None:
        self._log.flushed_offset = max(self._log.flushed_offset, min(end, self._log.max_offset))

    def _unless_cut(self, conclude: Callable[[], None]) -> Callable[[], None]:
        cuts = self.cuts

        def run() -> None:
            if cuts == self.cuts:
                conclude()

        return run
