"""A member's folder: lock, term and vote, journal, snapshot; opened in an order that a crash leaves unambiguous.

    lock           one process per folder
    hard-state     written first, then the journal is begun, then hard-state records that: from there on both must exist
    journal-*.log  with journal.mark
    snapshot       must reach to where the journal begins

The composition root opens one and hands its parts to the replica.
"""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from rocketmq_controller.raft.configuration import Configuration, of_voters
from rocketmq_controller.raft.ports import Standing
from rocketmq_controller.raft.storage import hard_state, mark, segments, snapshot_file
from rocketmq_controller.raft.storage.hard_state import HardState
from rocketmq_controller.raft.storage.journal import Journal, JournalOptions
from rocketmq_controller.raft.storage.snapshot_file import SnapshotFile
from rocketmq_controller.raft.storage.storage_codec import MARK_SLOT_SIZE
from rocketmq_controller.raft.storage.storage_errors import (
    HardStateCorruptError,
    JournalCorruptError,
    SnapshotCorruptError,
    StoreLockedError,
)
from rocketmq_runtime.files import atomic_file
from rocketmq_runtime.files.filesystem import OS, FileSystem, close_quietly, read_file, storage_errors

log = structlog.get_logger(__name__)

LOCK_NAME = "lock"
FORCE_NAME = "force-quorum-of-one"
"""A file of this name, whatever is in it, is an operator's order for the next start."""
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

    def first_configuration(self, addresses: Mapping[str, tuple[str, int]]) -> Configuration:
        """The members that the store was made for, unless an entry names others. `addresses`: of those that are
        known."""
        return of_voters({member: addresses.get(member, ("", 0)) for member in self.hard_state.members})

    def close(self) -> None:
        """Close the journal and let another process have the folder; what was not synced is dropped."""
        self.journal.close()
        self.hard_state.close()
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
    """Open or make the store of member `self_id`. `members`: the ids of all, this one may be left out; a store that
    belongs to a quorum has its own.

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
        undo.callback(votes.close)
        if votes.journal_begun:
            _check_mark(folder, filesystem)
        journal = Journal(
            folder,
            votes,
            store_id=votes.store_id,
            must_exist=votes.journal_begun,
            options=options,
            filesystem=filesystem,
        )
        undo.callback(journal.close)
        snapshots = SnapshotFile(folder, filesystem)
        _check_overlap(folder, journal, snapshots)
        if votes.settle():
            log.error(
                "this store is a copy: it neither votes nor counts until a leader has caught it up", folder=str(folder)
            )
        _force_if_asked(folder, votes, snapshots, make_store_id(), filesystem)
        votes.begin_journal()
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


def _force_if_asked(
    folder: Path, votes: HardState, snapshots: SnapshotFile, lineage: bytes, filesystem: FileSystem
) -> None:
    """An operator orders it because the stores of all other members are lost: this one begins a quorum of its own, with
    what it holds, and is the majority until others have been caught up."""
    path = folder / FORCE_NAME
    with storage_errors(folder, "list"):
        if FORCE_NAME not in filesystem.listdir(folder):
            return
    log.warning("this store makes up the majority alone, because of a file", file=str(path), lineage=lineage.hex())
    if (snapshot := snapshots.load()) is not None:
        snapshots.save(msgspec.structs.replace(snapshot, lineage=lineage))
    votes.set_standing(Standing(lineage, voter=True, sole=True))
    with storage_errors(path, "remove"):
        filesystem.unlink(path)
        filesystem.fsync_directory(folder)


def _check_mark(folder: Path, filesystem: FileSystem) -> None:
    """It was on disk, in full length, before the journal was begun: a power cut may tear it, but it can neither remove
    nor shorten it."""
    path = folder / mark.FILE_NAME
    data = read_file(path, filesystem=filesystem)
    if data is None:
        raise JournalCorruptError(path, 0, "the file is missing, though a journal was begun")
    if len(data) < 2 * MARK_SLOT_SIZE:
        raise JournalCorruptError(path, len(data), f"the file ends there, {2 * MARK_SLOT_SIZE} bytes were written")


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
