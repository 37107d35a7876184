"""The commit log of one replica at its sidecar: files, end, confirm offset, epochs, and the mark of how far it reached.
For `replication`, in any role.

It runs on the event loop's thread, except for background writes (`in_background`, the mark).
"""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from rocketmq_formats.replica_link import Hello
from rocketmq_formats.store.epoch_file import EpochFileError, EpochList
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_formats.store.record_chain import HEAD, starts_at
from rocketmq_formats.store.walk import unpack_place
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.domain.replication.truncate import HEAD_OF_RECORD, ReplicationError, corrected
from rocketmq_sidecar.evidence.given_up_file import log_given_up
from rocketmq_sidecar.evidence.log_mark import FILE_NAME as MARK_NAME
from rocketmq_sidecar.evidence.log_mark import LogMark, LogMarkError
from rocketmq_sidecar.evidence.log_proof import LogProof
from rocketmq_sidecar.replication.epoch_store import EpochStore
from rocketmq_sidecar.settings import SidecarSettings
from rocketmq_store.errors import OutOfRangeError, StoreError
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.log_cut import LogCut
from rocketmq_store.writer_lock import WriterLock

log = structlog.get_logger()


class ReplicaLog:
    """`files` is unset until the broker has reported the log; `max_offset` is its end, `confirm_offset` what consumers
    may see of it."""

    def __init__(self, settings: SidecarSettings) -> None:
        self.epoch_store = EpochStore(settings.epoch_file)
        self.lock = WriterLock(settings.root / "writer.lock")
        self.files: MappedFiles | None = None
        self.max_offset = self.confirm_offset = 0
        self._folder = settings.commit_log_path
        self._mark = LogMark(settings.root / MARK_NAME)
        self._cut = LogCut(settings.root)
        self._proof = LogProof(
            settings.root,
            strict=settings.acknowledges_what_all_have,
            sync_flush=settings.flush_disk_type == "SYNC_FLUSH",
        )
        self._background: set[asyncio.Task[None]] = set()
        self._undecided = False
        """Whether what the log lacks is given up."""

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
        """Wait for background writes, then close all files."""
        await self.drained()
        self.epoch_store.close()
        self._proof.close()
        if self.files is not None:
            self.files.close()

    @property
    def unproven(self) -> str | None:
        """Why this log may lack what was acknowledged, see `log_proof`."""
        return self._proof.unproven

    @property
    def acked(self) -> int:
        """Messages up to this offset were acknowledged, as noted on disk; above `max_offset`: the log lost some."""
        return self._proof.acked

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        """Acknowledged messages that the group continues without, until an operator deletes the note. Raises
        `GivenUpError`, `StorageError`."""
        noted = (one.left(self.epoch_store.epochs, self.max_offset) for one in self._proof.given_up.read().given_up)
        return tuple(one for one in noted if one is not None)

    def mark_proven(self, epoch: int, now_millis: int) -> None:
        """The log has all that the master of `epoch` has, or is the master's."""
        end, epochs = self.max_offset, self.epoch_store.epochs
        short = self._proof.acked > end

        def write() -> None:
            try:
                self._give_up(end, epochs, epoch, now_millis)
                if short:
                    self._proof.lower(end)
                self._proof.mark_proven()
            except StorageError as error:
                log.warning("this log will count as unproven at the next start", reason=str(error))

        self.in_background(self._in_thread(write))

    def caught_up(self, epoch: int, now_millis: int) -> None:
        """The log has all that the master of `epoch` has: what it lacked when it was opened is there again or given up.
        If it is unproven, `mark_proven` decides that."""
        if not self._undecided or self.unproven is not None:
            return
        self._undecided = False

        async def settle() -> None:
            end, epochs = self.max_offset, self.epoch_store.epochs  # the caller reports the end after this
            await self._in_thread(lambda: self._give_up(end, epochs, epoch, now_millis))

        self.in_background(settle())

    async def leads(self, end: int, now_millis: int) -> None:
        """This log, which ends at `end`, is the master's, and its epoch is in the file: note what was acknowledged and
        is not in the log, before anything is served. Raises `StorageError`."""
        epochs = self.epoch_store.epochs
        await self._in_thread(lambda: self._give_up(end, epochs, epochs.last_epoch, now_millis))

    def _give_up(self, end: int, epochs: EpochList, epoch: int, now_millis: int) -> None:
        log_given_up(self._proof.give_up(end, epochs, epoch, now_millis), self._proof.given_up.path)

    async def ended(self) -> None:
        """At an orderly end, when nothing appends: sync the log and record that it is on disk."""
        files = self.files
        if files is None:
            return

        def write() -> None:
            files.flusher(max(files.min_offset, files.end - 2 * files.file_size), files.end)()
            self._proof.end()

        try:
            files.refresh()
            await self._in_thread(write)
        except (OSError, StorageError, StoreError) as error:
            log.warning("could not sync the log at the end", reason=str(error))

    async def drained(self) -> None:
        """Wait until all background writes have ended."""
        while self._background:
            await asyncio.wait(self._background)

    def open_log(self, hello: Hello, *, identified: bool) -> str | None:
        """See `Replication.open_log`; `set_broker_id`: the replica has an id already."""
        if self.files is None or self.files.file_size != hello.file_size:
            self.files = MappedFiles(self._folder, hello.file_size, writer=self.lock)
            self.files.load()
        else:
            self.files.refresh()
        if not (self.max_offset > hello.max_offset and self._is_written(hello.max_offset)):
            self.max_offset = hello.max_offset
        self._proof.begin()
        self.confirm_offset = min(max(hello.confirm_offset, self._proof.acked), self.max_offset)
        lost = self._mark.missing(self.max_offset, identified=identified)
        if lost is not None and self.files.segments and self.unproven is not None:
            # A power cut explains it, even if the files are there but empty: the mark covers one synced record, not
            # what lies before it. The other members may need to know where this log ends.
            log.warning("the log is shorter than it was", reason=lost)
            self._mark.save(0)
            lost = None
        lost = lost or self._lost_by_cut()
        if self._mark.offset is None and lost is None:
            self._mark.save(0)
        note = self._proof.ends_at if lost is None else self._proof.lacks
        note(self.max_offset, self.epoch_store.epochs)
        self._undecided = self._proof.given_up.missing() is not None
        # not `save_now`: entries that retention drops at this moment must not come back
        self.epoch_store.change_now(lambda epochs: corrected(epochs, self.max_offset))
        self.extended(self.max_offset)
        return lost

    def accept_loss(self, *, refresh: bool) -> None:
        """What is in the log counts from now on; `refresh` as in `extended`. What it lacks of what was acknowledged is
        noted since `open_log`. Raises `StorageError`."""
        self._mark.save(0)
        self._proof.lower(self.max_offset)
        self._cut.forget()
        self.extended(self.max_offset, refresh=refresh)

    def acknowledged(self, offset: int) -> None:
        """Messages up to `offset` are acknowledged to producers."""
        if self._proof.acknowledged(offset, asyncio.get_running_loop().time()):
            self.in_background(self._in_thread(self._proof.sync))

    def extended(self, end: int, *, refresh: bool = True) -> None:
        """Write the mark of how far the log reaches, if it is due; `refresh` to see files that the broker has
        created."""
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

            self.in_background(self._in_thread(write))

    async def lower_mark(self, offset: int) -> None:
        """Call this before the log is cut at `offset`. Raises `StorageError`."""
        await self._in_thread(lambda: self._mark.lower(offset))
        await self._in_thread(lambda: self._proof.lower(offset))

    def record_end(self, offset: int) -> int | None:
        """The end of the record that begins at `offset` and carries that offset; None without such a record."""
        assert self.files is not None
        try:
            head = bytes(self.files.read(offset, HEAD))
        except OutOfRangeError:
            return None
        return offset + unpack_place(head, 0)[0] if starts_at(head, 0, offset) else None

    def prepare(self) -> None:
        """With the writer lock just acquired: remove bytes after the end of the log."""
        assert self.files is not None
        self.files.load()
        if self._is_written(self.max_offset):
            log.warning("bytes after the end of the log removed", max_offset=self.max_offset)
            self.files.truncate(self.max_offset)

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run `work`, which no caller waits for: it writes what is written again, or only helps."""
        task = background.awaited(work, "files beside the log")
        self._background.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError | StorageError | StoreError):
            log.warning("a file beside the log is not written: check the disk", reason=str(error))
        elif error is not None:
            log.error("a file beside the log is not written because of a bug", exc_info=error)

    def _lost_by_cut(self) -> str | None:
        """Why the log lacks what the broker's recovery cut off although it had been durable; None if it cut nothing."""
        cut = self._cut.read()
        if cut is None:
            return None
        return (
            f"{cut}. While the controllers count this replica as in sync it must not be elected: it waits until it has"
            " copied everything from a master again, or is out of the set. Start another member of the"
            " SyncStateSet; if none is left that has these messages, stop the sidecar, delete"
            f" {self._cut.path}, start it: what is missing is given up"
        )

    def _is_written(self, offset: int) -> bool:
        """Whether there are bytes at `offset`; after the end of the log are zeros."""
        files = self.files
        return files is not None and files.min_offset <= offset < files.end and any(files.read(offset, HEAD_OF_RECORD))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, work)
