"""A member's folder: lock, term and vote, journal, snapshot; opened in an order that a crash leaves unambiguous.

    lock           one process per folder
    hard-state     written first, then the journal is begun, then hard-state says so: from there on both must exist
    journal-*.log  with journal.mark
    snapshot       must reach to where the journal begins

The composition root opens one and hands its parts to the replica.
"""

import os
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rocketmq_controller.raft import hard_state, mark, segments, snapshot_file
from rocketmq_controller.raft.hard_state import HardState
from rocketmq_controller.raft.journal import Journal, JournalOptions
from rocketmq_controller.raft.snapshot_file import SnapshotFile
from rocketmq_controller.raft.storage_errors import HardStateCorruptError, SnapshotCorruptError, StoreLockedError
from rocketmq_runtime import atomic_file
from rocketmq_runtime.filesystem import OS, FileSystem, close_quietly, storage_errors

LOCK_NAME = "lock"
STORE_ID_BYTES = 16


def new_store_id() -> bytes:
    return os.urandom(STORE_ID_BYTES)


@dataclass(frozen=True, slots=True)
class Store:
    """The open parts; only one process at a time has them."""

    hard_state: HardState
    journal: Journal
    snapshots: SnapshotFile
    release: Callable[[], None]

    def close(self) -> None:
        """Close the journal and let another process have the folder; what was not synced is dropped."""
        self.journal.close()
        self.release()


def open_store(
    folder: Path,
    self_id: str,
    members: Collection[str],
    *,
    options: JournalOptions | None = None,
    filesystem: FileSystem = OS,
    make_store_id: Callable[[], bytes] = new_store_id,
) -> Store:
    """Open or make the store of member `self_id` among `members` (the ids of all, this one may be left out).

    Raises `StoreLockedError`, `ForeignStoreError`, a `StoreCorruptError` (with file and offset), `DiskFullError`,
    `StorageError`.
    """
    with storage_errors(folder, "make the folder"):
        filesystem.mkdir(folder)
        filesystem.fsync_directory(folder.parent)
    with ExitStack() as undo:
        release = _lock(folder, filesystem)
        undo.callback(release)
        atomic_file.remove_temporaries(folder, filesystem=filesystem)
        votes = hard_state.load_hard_state(folder, self_id, members, filesystem)
        if votes is None:
            _check_nothing_else(folder, filesystem)
            votes = hard_state.create_hard_state(folder, self_id, members, make_store_id(), filesystem)
        journal = Journal(
            folder,
            votes,
            store_id=votes.store_id,
            must_exist=votes.journal_begun,
            options=options,
            filesystem=filesystem,
        )
        undo.callback(journal.close)
        votes.begin_journal()
        snapshots = SnapshotFile(folder, filesystem)
        _check_overlap(folder, journal, snapshots)
        undo.pop_all()
    return Store(votes, journal, snapshots, release)


def _lock(folder: Path, filesystem: FileSystem) -> Callable[[], None]:
    path = folder / LOCK_NAME
    with storage_errors(path, "open"):
        handle = filesystem.open(path, create=True, mode=0o600)
    try:
        with storage_errors(path, "lock"):
            filesystem.lock(handle)
    except BaseException as error:
        close_quietly(filesystem, handle)
        if isinstance(error.__cause__, BlockingIOError):
            raise StoreLockedError(path, "another process uses this store") from error
        raise
    return lambda: close_quietly(filesystem, handle)


def _check_nothing_else(folder: Path, filesystem: FileSystem) -> None:
    """Without term and vote there may be nothing of a member."""
    with storage_errors(folder, "list"):
        names = filesystem.listdir(folder)
    ours = {mark.FILE_NAME, snapshot_file.FILE_NAME}
    if others := [name for name in names if name in ours or segments.segment_sequence(name) is not None]:
        raise HardStateCorruptError(folder / hard_state.FILE_NAME, 0, f"the file is missing, beside {others[0]}")


def _check_overlap(folder: Path, journal: Journal, snapshots: SnapshotFile) -> None:
    """Entries that the journal has forgotten must be in the snapshot."""
    snapshot = snapshots.load()
    covered = snapshot.index if snapshot else 0
    if journal.first_index > covered + 1:
        raise SnapshotCorruptError(
            folder / snapshot_file.FILE_NAME,
            0,
            f"it reaches to entry {covered}, but the journal begins at {journal.first_index}",
        )
