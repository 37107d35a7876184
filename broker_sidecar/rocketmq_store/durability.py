"""What becomes durable in which order. Jobs are prepared and concluded in the broker's thread and run in any thread.

    checkpoint round   log and consume queues up to what was dispatched, then `recover_from` into the checkpoint, then
                       that: a recovery may believe it
    lowering           `recover_from` and confirm offset down, then the consume queues; the log is cut after that

Used by flush.py and message_store.py.
"""

from collections.abc import Callable

import msgspec

from rocketmq_store.checkpoint import CheckpointFile
from rocketmq_store.commit_log import CommitLog
from rocketmq_store.consume_queues import ConsumeQueues
from rocketmq_store.dispatch import Dispatcher
from rocketmq_store.queue_files import sync_files


class Job(msgspec.Struct, frozen=True):
    """`run` in any thread (raises `OSError`); then `conclude` in the broker's. After an error nothing may be concluded,
    nor synced again: the kernel may have forgotten what it could not write."""

    run: Callable[[], None]
    conclude: Callable[[], None]


class Durability:
    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueues, checkpoint: CheckpointFile, dispatcher: Dispatcher
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._cuts = 0  # a job prepared before a cut says nothing about what was written since

    def log_job(self) -> Job:
        """The log, as far as it is written."""
        end = self._log.max_offset
        run = self._log.files.flusher(self._log.flushed_offset, end)
        return Job(run, self._unless_cut(lambda: self._flushed(end)))

    def checkpoint_job(self) -> Job:
        """Log and consume queues up to what was dispatched; concluded by writing the checkpoint, which is durable after
        `checkpoint_sync`."""
        position, timestamp = self._dispatcher.position, self._dispatcher.store_timestamp
        sync_log = self._log.files.flusher(self._log.flushed_offset, position)
        dirty = self._queues.take_dirty()

        def run() -> None:
            sync_log()
            sync_files(dirty)

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
        """Something was dispatched since the last checkpoint."""
        return self._checkpoint.recover_from != self._dispatcher.position

    def checkpoint_sync(self) -> None:
        """In any thread; raises `OSError`."""
        self._checkpoint.sync()

    def flush(self) -> None:
        """Everything, in this thread."""
        for job in (self.log_job(), self.checkpoint_job()):
            job.run()
            job.conclude()
        self.checkpoint_sync()

    def lower(self, offset: int) -> None:
        """Before a cut of the log at `offset`, in this thread. Raises `OSError`."""
        self._cuts += 1
        checkpoint = self._checkpoint
        java = msgspec.structs.replace(checkpoint.java, confirm_offset=min(checkpoint.java.confirm_offset, offset))
        checkpoint.write(java, min(checkpoint.recover_from, offset))
        checkpoint.sync()
        self._queues.truncate(offset)
        sync_files(self._queues.take_dirty())

    def _flushed(self, end: int) -> None:
        self._log.flushed_offset = max(self._log.flushed_offset, min(end, self._log.max_offset))

    def _unless_cut(self, conclude: Callable[[], None]) -> Callable[[], None]:
        cuts = self._cuts

        def run() -> None:
            if cuts == self._cuts:
                conclude()

        return run
