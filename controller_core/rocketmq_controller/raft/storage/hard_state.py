"""Term, vote, promise and standing, durable before anything that rests on them leaves the process; and whose store this
is.

A member that forgets its vote can vote twice in a term, and then two leaders may follow: so a file that is damaged,
missing or another member's refuses the start. Written in place into slots that are there from the beginning: a full
disk prevents no vote. Made by store.py; journal.py reads and writes it for the machine.
"""

import dataclasses
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from rocketmq_controller.raft.ports import Standing
from rocketmq_controller.raft.storage.storage_codec import (
    HARD_STATE_SECTOR,
    VOTE_SLOTS,
    CodecError,
    HardStateOwner,
    HardStateRecord,
    decode_hard_state,
    encode_hard_state,
    encode_vote_slot,
)
from rocketmq_controller.raft.storage.storage_errors import (
    DiskFullError,
    ForeignStoreError,
    HardStateCorruptError,
    StorageFailedError,
    replace_file,
)
from rocketmq_runtime.files.filesystem import DISK_FULL_ERRNOS, OS, FileSystem, read_file, storage_errors, write_all

FILE_NAME = "hard-state"


class HardState:
    """The present state, equal to what is on disk. All changes are durable when they return; they raise
    `DiskFullError` (nothing has changed, try again later; only where writing in place takes space) and
    `StorageFailedError` (the process has to end)."""

    def __init__(
        self, path: Path, owner: HardStateOwner, counter: int, record: HardStateRecord, fs: FileSystem
    ) -> None:
        self._path = path
        self._owner = owner
        self._counter = counter
        self._record = record
        self._filesystem = fs
        self._slots = len(encode_hard_state(owner, 0, record)) - VOTE_SLOTS * HARD_STATE_SECTOR
        with storage_errors(path, "open"):
            self._handle = fs.open(path)

    @property
    def term(self) -> int:
        return self._record.term

    @property
    def voted_for(self) -> str | None:
        """Who got our vote in this term."""
        return self._record.voted_for

    @property
    def promised(self) -> float:
        """Seconds for which a leader may count on us since it was heard last."""
        return self._record.promise

    @property
    def standing(self) -> Standing:
        return Standing(self._record.lineage, self._record.voter, self._record.sole)

    @property
    def store_id(self) -> bytes:
        """16 bytes that all files of this store carry."""
        return self._owner.store_id

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of the first configuration: the members configured when the store was made."""
        return self._owner.members

    @property
    def journal_begun(self) -> bool:
        """Was there ever a journal beside this file? Then one must be there."""
        return self._record.journal_begun

    def save(self, term: int, voted_for: str | None) -> None:
        """Change term and vote. `ValueError`: a term that goes back or a vote that changes within its term."""
        if term < self.term or (term == self.term and self.voted_for not in {None, voted_for}):
            raise ValueError(f"term {self.term}, vote {self.voted_for} cannot become term {term}, vote {voted_for}")
        self._write(dataclasses.replace(self._record, term=term, voted_for=voted_for))

    def promise(self, seconds: float) -> None:
        self._write(dataclasses.replace(self._record, promise=seconds))

    def set_standing(self, standing: Standing) -> None:
        self._write(
            dataclasses.replace(self._record, lineage=standing.lineage, voter=standing.voter, sole=standing.sole)
        )

    def begin_journal(self) -> None:
        """Remember that there is a journal now."""
        self._write(dataclasses.replace(self._record, journal_begun=True))

    def settle(self) -> bool:
        """Write what was found again: the previous process may have ended before it was durable. Returns whether it was
        found in a copy of the file it was written to: the member may have gone on after the copy was made, so the copy
        does not count from here on."""
        with storage_errors(self._path, "identify"):
            identity = self._filesystem.identity(self._handle)
        was_copied = self._record.identity not in {b"", identity}
        found = dataclasses.replace(self._record, identity=identity)
        if was_copied:
            found = dataclasses.replace(found, voter=False, sole=False)
        self._write(found, anyway=True)
        return was_copied

    def close(self) -> None:
        with suppress(OSError):
            self._filesystem.close(self._handle)

    def _write(self, record: HardStateRecord, *, anyway: bool = False) -> None:
        if record == self._record and not anyway:
            return
        counter = self._counter + 1
        pair = 2 * encode_vote_slot(self._owner.store_id, counter, record)
        try:
            write_all(self._filesystem, self._handle, pair, self._slots + counter % 2 * len(pair))
        except OSError as error:  # a part of it may be in the slot that does not count
            kind = DiskFullError if error.errno in DISK_FULL_ERRNOS else StorageFailedError
            raise kind(self._path, f"cannot write: {error.strerror}") from error
        try:
            self._filesystem.fdatasync(self._handle)
        except OSError as error:  # a full disk too: the kernel may have dropped the pages
            raise StorageFailedError(self._path, f"cannot sync: {error.strerror}") from error
        self._record, self._counter = record, counter


def load_hard_state(
    folder: Path, self_id: str, members: Collection[str], filesystem: FileSystem = OS
) -> HardState | None:
    """What the folder has, None if it has no such file. Nothing is written but a file of an older version, and other
    `members` into a store that belongs to no quorum yet: it has not voted.

    Raises `HardStateCorruptError`; `ForeignStoreError` if it was written for another member.
    """
    path = folder / FILE_NAME
    data = read_file(path, filesystem=filesystem)
    if data is None:
        return None
    try:
        owner, slots, counter, record = decode_hard_state(data)
    except CodecError as error:
        raise HardStateCorruptError(path, error.offset, str(error)) from error
    if owner.self_id != self_id:
        raise ForeignStoreError(path, f"this is the store of member {owner.self_id}, not of {self_id}")
    configured = _all_members(self_id, members)
    if record.lineage is None and owner.members != configured:
        owner, slots = dataclasses.replace(owner, members=configured), 0
    if not slots:  # the new file's identity is not known yet
        record = dataclasses.replace(record, identity=b"")
        replace_file(path, encode_hard_state(owner, counter, record), filesystem)
    return HardState(path, owner, counter, record, filesystem)


def create_hard_state(
    folder: Path, self_id: str, members: Collection[str], store_id: bytes, filesystem: FileSystem = OS
) -> HardState:
    """Term 0, no vote, no journal, no lineage; durable. Raises `DiskFullError`, `StorageFailedError`."""
    owner = HardStateOwner(store_id, self_id, _all_members(self_id, members))
    record = HardStateRecord()
    path = folder / FILE_NAME
    replace_file(path, encode_hard_state(owner, 0, record), filesystem)
    return HardState(path, owner, 0, record, filesystem)


def _all_members(self_id: str, members: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({self_id, *members}))
