"""The commit log of one replica as its sidecar keeps it: files, end, confirm offset, epochs, and the mark of how far it
reached. For `replication`, whatever role the replica has.

All of it runs on the event loop's thread, but for what is written beside the work (`later`, the mark).
"""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from rocketmq_formats.replica_link import Hello
from rocketmq_formats.store.epoch_file import EpochFileError
from rocketmq_sidecar.domain.replication_errors import ReplicationError
from rocketmq_sidecar.domain.truncate import HEAD_OF_RECORD, corrected
from rocketmq_sidecar.epoch_store import EpochStore
from rocketmq_sidecar.log_mark import FILE_NAME as MARK_NAME
from rocketmq_sidecar.log_mark import LogMark, LogMarkError
from rocketmq_sidecar.replication_settings import ReplicationSettings
from rocketmq_store.segments import MappedFiles
from rocketmq_store.writer_lock import WriterLock

log = structlog.get_logger()


class ReplicaLog:
    """`files` is None until the broker has said where the log is; `max_offset` is its end, `confirm_offset` what
    consumers may see of it."""

    def __init__(self, settings: ReplicationSettings) -> None:
        self.epoch_store = EpochStore(settings.epoch_file)
        self.lock = WriterLock(settings.store_path / "writer.lock")
        self.files: MappedFiles | None = None
        self.max_offset = self.confirm_offset = 0
        self._folder = settings.commit_log_path
        self._mark = LogMark(settings.store_path / MARK_NAME)
        self._background: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        """Read the small files.

        Raises:
            ReplicationError: the epoch file is unreadable, and its `.bak` too; or `.broker.mark` is.
        """
        try:
            self.epoch_store.load()
            self._mark.load()
        except (EpochFileError, LogMarkError) as error:
            raise ReplicationError(str(error)) from error

    async def close(self) -> None:
        """Wait for what is written beside the work, then let go of everything."""
        await self.settled()
        self.epoch_store.close()
        if self.files is not None:
            self.files.close()

    async def settled(self) -> None:
        """Nothing is written beside the work any more."""
        while self._background:
            await asyncio.wait(self._background)

    def opened(self, hello: Hello, *, identified: bool) -> str | None:
        """See `Replication.opened`; `identified`: the replica has an id already."""
        if self.files is None or self.files.file_size != hello.file_size:
            self.files = MappedFiles(self._folder, hello.file_size, writer=self.lock)
            self.files.load()
        else:
            self.files.refresh()
        if not (self.max_offset > hello.max_offset and self._is_written(hello.max_offset)):
            self.max_offset = hello.max_offset
        self.confirm_offset = min(hello.confirm_offset, self.max_offset)
        lost = self._mark.missing(self.max_offset, identified=identified)
        if self._mark.offset is None and lost is None:
            self._mark.save(0)
        # not `save_now`: entries that retention forgets at this moment must not come back
        self.epoch_store.change_now(lambda epochs: corrected(epochs, self.max_offset))
        self.grown(self.max_offset)
        return lost

    def forgiven(self, *, refresh: bool) -> None:
        """What is there counts from now on; `refresh` as `grown`. Raises `StorageError`."""
        self._mark.save(0)
        self.grown(self.max_offset, refresh=refresh)

    def grown(self, end: int, *, refresh: bool = True) -> None:
        """Write down how far the log reaches, if it is time; `refresh` to see files that the broker has made."""
        files = self.files
        if files is None or not self._mark.is_due(end):
            return
        if end > files.end and refresh:
            files.refresh()
        record = self._mark.next(files, end)
        if record is not None:
            flush, turn = files.flusher(*record), self._mark.turn

            def write() -> None:
                flush()
                self._mark.write(record[1], turn)

            self.later(self._in_thread(write))

    async def lower_mark(self, offset: int) -> None:
        """To be done before the log is cut at `offset`. Raises `StorageError`."""
        await self._in_thread(lambda: self._mark.lower(offset))

    def prepare(self) -> None:
        """With the writer lock just taken: nothing may stand behind the end of the log."""
        assert self.files is not None
        self.files.load()
        if self._is_written(self.max_offset):
            log.warning("bytes behind the end of the log removed", max_offset=self.max_offset)
            self.files.truncate(self.max_offset)

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Do what nobody waits for; a failure is logged where it happens."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _is_written(self, offset: int) -> bool:
        """Whether something begins at `offset`; what is behind the end of the log is zeros."""
        files = self.files
        return files is not None and files.min_offset <= offset < files.end and any(files.read(offset, HEAD_OF_RECORD))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, work)
