"""Term and vote, durable before anything that rests on them leaves the process; and whose store this is.

A member that forgets its vote can vote twice in a term, and then two leaders may follow: so a file that is damaged,
missing or another member's refuses the start. Made by store.py; journal.py asks it for PySyncObj.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path

from rocketmq_controller.raft.replace_file import replace_file
from rocketmq_controller.raft.storage_codec import (
    CodecError,
    HardStateRecord,
    decode_hard_state,
    encode_hard_state,
)
from rocketmq_controller.raft.storage_errors import ForeignStoreError, HardStateCorruptError
from rocketmq_runtime.filesystem import OS, FileSystem, read_file

FILE_NAME = "hard-state"


class HardState:
    """The present term and vote, equal to what is on disk."""

    def __init__(self, path: Path, record: HardStateRecord, filesystem: FileSystem = OS) -> None:
        self._path = path
        self._record = record
        self._filesystem = filesystem

    @property
    def term(self) -> int:
        return self._record.term

    @property
    def voted_for(self) -> str | None:
        """Who got our vote in this term."""
        return self._record.voted_for

    @property
    def store_id(self) -> bytes:
        """16 bytes that all files of this store carry."""
        return self._record.store_id

    @property
    def journal_begun(self) -> bool:
        """Was there ever a journal beside this file? Then one must be there."""
        return self._record.journal_begun

    def save(self, term: int, voted_for: str | None) -> None:
        """Change term and vote; durable when this returns.

        Raises `DiskFullError` (term and vote are as before, try again later), `StorageFailedError` (the process has to
        end) and `ValueError` for a term that goes back or a vote that changes within its term.
        """
        if term < self.term or (term == self.term and self.voted_for not in {None, voted_for}):
            raise ValueError(f"term {self.term}, vote {self.voted_for} cannot become term {term}, vote {voted_for}")
        self._replace(dataclasses.replace(self._record, term=term, voted_for=voted_for))

    def begin_journal(self) -> None:
        """Remember that there is a journal now; raises like `save`."""
        if not self.journal_begun:
            self._replace(dataclasses.replace(self._record, journal_begun=True))

    def _replace(self, record: HardStateRecord) -> None:
        if record != self._record:
            replace_file(self._path, encode_hard_state(record), self._filesystem)
            self._record = record


def load_hard_state(
    folder: Path, self_id: str, members: Collection[str], filesystem: FileSystem = OS
) -> HardState | None:
    """What the folder has, None if it has no such file.

    Raises `HardStateCorruptError`; `ForeignStoreError` if it was written for another member or other `members`.
    """
    path = folder / FILE_NAME
    data = read_file(path, filesystem=filesystem)
    if data is None:
        return None
    try:
        record = decode_hard_state(data)
    except CodecError as error:
        raise HardStateCorruptError(path, error.offset, str(error)) from error
    if record.self_id != self_id:
        raise ForeignStoreError(path, f"this is the store of member {record.self_id}, not of {self_id}")
    if record.members != (expected := _all_members(self_id, members)):
        ours, theirs = ", ".join(expected), ", ".join(record.members)
        raise ForeignStoreError(path, f"this store was made for the members {theirs}; the configuration says {ours}")
    return HardState(path, record, filesystem)


def create_hard_state(
    folder: Path, self_id: str, members: Collection[str], store_id: bytes, filesystem: FileSystem = OS
) -> HardState:
    """Term 0, no vote, no journal; durable. Raises `DiskFullError`, `StorageFailedError`."""
    record = HardStateRecord(store_id, self_id, _all_members(self_id, members), 0, None, journal_begun=False)
    path = folder / FILE_NAME
    replace_file(path, encode_hard_state(record), filesystem)
    return HardState(path, record, filesystem)


def _all_members(self_id: str, members: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({self_id, *members}))
