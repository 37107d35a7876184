"""The Raft log on disk.

Entries live in memory and in numbered segment files (segments.py; layouts in storage_codec.py). The files are a log of
operations (append, cut, forget, reset) and only ever grow, so that a cut at a conflict truncates no durable bytes.
Methods that change the log work on memory; everything since the last sync then goes to disk as one frame with one
fdatasync (group commit). Nothing above `durable_index` may be acknowledged.

After a failed write or sync the journal is dead: every later call raises `StorageFailedError`. Only when the disk was
full it keeps in memory what is not written, and the next sync tries again; watch `pending_bytes` until then.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, overload

from rocketmq_controller.raft.ports import Entry, Standing
from rocketmq_controller.raft.storage.journal_files import JournalFiles, state_of
from rocketmq_controller.raft.storage.storage_codec import RecordKind, encode_record
from rocketmq_controller.raft.storage.storage_errors import DiskFullError, StorageError, StorageFailedError
from rocketmq_runtime.files.filesystem import OS, FileSystem

FIRST_COMMIT_INDEX = 1
"""The entry that every log begins with counts as committed."""


class VoteStore(Protocol):
    """Where term and vote are kept (hard_state.py)."""

    @property
    def term(self) -> int: ...
    @property
    def voted_for(self) -> str | None: ...
    @property
    def promised(self) -> float: ...
    @property
    def standing(self) -> Standing: ...
    def save(self, term: int, voted_for: str | None) -> None:
        """Durable when it returns, as the others."""

    def promise(self, seconds: float) -> None: ...
    def set_standing(self, standing: Standing) -> None: ...


@dataclass(frozen=True, slots=True)
class JournalOptions:
    segment_bytes: int = 16 * 1024 * 1024
    """A segment that a frame would take beyond this size gets a successor; a single larger frame is all right."""
    zero_ahead_bytes: int = 256 * 1024
    """How far segments are filled with zeros ahead of the frames; 0: not at all."""


@dataclass(slots=True)
class _Pending:
    """What the next frame will hold."""

    records: list[bytes] = field(default_factory=list)
    size: int = 0
    lowest_cut: int | None = None  # lowest index that a cut or reset in it removed

    def push(self, record: bytes, cut: int | None = None) -> None:
        self.records.append(record)
        self.size += len(record)
        if cut is not None:
            self.lowest_cut = cut if self.lowest_cut is None else min(self.lowest_cut, cut)


@dataclass(slots=True)
class Batch:
    """One group commit between `Journal.begin_sync` and `end_sync`."""

    pending: _Pending
    last_index: int
    write_frame: Callable[[], None]
    error: StorageError | None = None

    def write(self) -> None:
        """Write and sync, in any thread; `end_sync` raises the outcome."""
        try:
            self.write_frame()
        except StorageError as error:
            self.error = error


class Journal:
    """See the module. Not thread-safe, except `Batch.write`.

    `votes` keeps term and vote. `store_id`: 16 bytes that a store's files share. `must_exist`: missing files are an
    error, not a new log.
    Opening raises `JournalCorruptError`, `ForeignStoreError`, `DiskFullError`, `StorageError`.
    """

    def __init__(
        self,
        folder: Path,
        votes: VoteStore,
        *,
        store_id: bytes,
        must_exist: bool = False,
        options: JournalOptions | None = None,
        filesystem: FileSystem = OS,
    ) -> None:
        options = options or JournalOptions()
        self._folder = folder
        self._votes = votes
        self._files = JournalFiles(
            folder,
            store_id,
            must_exist=must_exist,
            segment_bytes=options.segment_bytes,
            zero_ahead_bytes=options.zero_ahead_bytes,
            filesystem=filesystem,
        )
        self._image = self._files.image
        self._pending = _Pending()
        self._batch: Batch | None = None
        self._failure: StorageError | None = None
        self._closed = False
        self._commit_index = max(self._files.commit_index, FIRST_COMMIT_INDEX)
        self._durable_index = self.last_index
        self.syncs = 0
        """Group commits since the start, for metrics."""

    # Reading

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._image.entries[item]

    def __len__(self) -> int:
        return len(self._image.entries)

    @property
    def first_index(self) -> int:
        """Lowest index held; 0 in a log that has not begun."""
        return self._image.first_index

    @property
    def last_index(self) -> int:
        """Highest index held; 0 in a log that has not begun."""
        return max(self._image.next_index - 1, 0)

    @property
    def durable_index(self) -> int:
        """All entries up to this index are on disk as they are in memory. At most `last_index`."""
        return self._durable_index

    @property
    def pending_bytes(self) -> int:
        """Size of what is not on disk yet; grows while the disk is full."""
        return self._pending.size + (self._batch.pending.size if self._batch else 0)

    @property
    def position(self) -> tuple[int, int]:
        """Number of the segment written to and its durable length in bytes."""
        return self._files.position

    # Changing: in memory until the next sync. What the log does not allow raises ValueError and changes nothing.

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append an entry, which must follow the last one."""
        self._check_alive()
        self._image.append(command, index, term)
        self._pending.push(encode_record(RecordKind.ENTRY, index, term, command))

    def clear(self) -> None:
        """Drop everything; the next entry may have any index."""
        self._check_alive()
        self._image.reset()
        self._pending.push(encode_record(RecordKind.RESET, 0), cut=0)
        self._durable_index = 0

    def cut(self, index: int) -> None:
        """Drop the entries from `index` on: they conflict with the leader's. The next entry has this index."""
        self._check_alive()
        if index <= self._commit_index:
            raise ValueError(f"cut at {index}, but the log is committed up to {self._commit_index}")
        self._image.cut(index)
        self._pending.push(encode_record(RecordKind.CUT, index), cut=index)
        self._durable_index = min(self._durable_index, index - 1)

    def forget(self, index: int) -> None:
        """Drop the entries below `index`. A snapshot that holds them must be durable already."""
        self._check_alive()
        self._image.forget(index)
        self._pending.push(encode_record(RecordKind.FORGET, index))

    # Making durable

    def sync(self) -> None:
        """Put everything so far on disk.

        Raises `DiskFullError`: nothing is lost and `durable_index` is as before; sync again later.
        Raises `StorageFailedError`: it is unknown what is on disk; the process has to end.
        """
        if batch := self.begin_sync():
            batch.write()
            self.end_sync(batch)

    def begin_sync(self) -> Batch | None:
        """`sync` in three steps, for callers that wait for the disk elsewhere; None: there is nothing to sync.

        The log may change before `end_sync`; that belongs to the next batch.
        """
        self._check_alive()
        if self._batch:
            raise RuntimeError("a batch is under way already")
        if not self._pending.records:
            return None
        pending, self._pending = self._pending, _Pending()
        after = state_of(self._image)
        commit_index = min(self._commit_index, self.last_index)

        def write_frame() -> None:
            self._files.write(b"".join(pending.records), len(pending.records), after, commit_index)

        self._batch = Batch(pending, self.last_index, write_frame)
        return self._batch

    def end_sync(self, batch: Batch) -> None:
        """Account for a batch that was written; raises what `sync` does."""
        self._batch = None
        if batch.error:
            self._take_back(batch.pending)
            if isinstance(batch.error, DiskFullError):
                raise batch.error
            self._fail(batch.error)
        self.syncs += 1
        cut_since = self._pending.lowest_cut
        self._durable_index = batch.last_index if cut_since is None else min(batch.last_index, max(cut_since - 1, 0))
        try:
            self._files.settle(batch.last_index, batch.pending.lowest_cut)
        except StorageError as error:
            self._fail(error)

    def sync_mark(self) -> None:
        """Make the mark durable: how far the journal is, and the commit index. Raises `StorageFailedError`."""
        self._check_alive()
        if self._batch is None:
            try:
                self._files.sync_mark(min(self._commit_index, self._durable_index))
            except DiskFullError:
                return  # the mark before still holds; the next second comes
            except StorageError as error:
                self._fail(error)

    def close(self) -> None:
        """Close the files; what was not synced was never acknowledged and is dropped."""
        if not self._closed:
            self._closed = True
            self._files.close()
            self._failure = self._failure or StorageError(self._folder, "the journal is closed")

    def _take_back(self, pending: _Pending) -> None:
        newer, self._pending = self._pending, pending
        for record in newer.records:
            pending.push(record)
        cuts = [cut for cut in (pending.lowest_cut, newer.lowest_cut) if cut is not None]
        pending.lowest_cut = min(cuts, default=None)

    def _fail(self, error: StorageError) -> None:
        self._failure = error
        self._check_alive()

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise StorageFailedError(
                self._folder, f"the journal cannot be used any more: {self._failure}"
            ) from self._failure

    # What is kept beside the log

    @property
    def commit_index(self) -> int:
        return self._commit_index

    def set_commit_index(self, index: int) -> None:
        """Remember the commit index; it becomes durable with a later sync, never ahead of the entries it covers."""
        self._commit_index = index

    @property
    def term(self) -> int:
        return self._votes.term

    @property
    def voted_for(self) -> str | None:
        return self._votes.voted_for

    def set_term(self, term: int, voted_for: str | None) -> None:
        """Put term and vote on disk before returning."""
        self._votes.save(term, voted_for)

    @property
    def promised(self) -> float:
        return self._votes.promised

    def promise(self, seconds: float) -> None:
        """Put the promise on disk before returning."""
        self._votes.promise(seconds)

    @property
    def standing(self) -> Standing:
        return self._votes.standing

    def set_standing(self, standing: Standing) -> None:
        """Put the standing on disk before returning."""
        self._votes.set_standing(standing)

    @property
    def reports(self) -> bytes:
        return self._files.reports

    def keep_reports(self, reports: bytes, *, durable: bool) -> bool:
        """Keep what other members have reported, at most `MAX_REPORTS` bytes; False: the disk is full, and the proof
        comes later. Raises `StorageFailedError`."""
        self._check_alive()
        try:
            self._files.write_reports(reports)
            if durable:
                self._files.sync_reports()
        except DiskFullError:
            return False
        except StorageError as error:
            self._fail(error)
        return True
