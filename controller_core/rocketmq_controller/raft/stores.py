"""What the machine needs from disk, as Protocols: implemented by journal.py and snapshot.py, and in memory by the
simulation."""

from typing import Protocol, overload

import msgspec

Entry = tuple[bytes, int, int]
"""Command, index, term: PySyncObj's order."""


class StateMachine(Protocol):
    """Implemented by the application; called in the event loop, in the order of the log."""

    def apply(self, index: int, command: bytes) -> object:
        """Apply a committed command. Deterministic: no clock, no randomness, no IO. An exception is fatal for the
        process."""

    def snapshot(self) -> bytes:
        """The whole state."""

    def restore(self, snapshot: bytes) -> None:
        """Replace the whole state."""


class LogStore(Protocol):
    """PySyncObj's Journal plus durability. Positions count from the first entry held, indexes are Raft's."""

    @property
    def durable_index(self) -> int:
        """Index of the last entry that is on disk."""

    def sync(self) -> None:
        """Put everything added so far on disk."""

    def onOneSecondTimer(self) -> None:  # noqa: N802 - PySyncObj's name
        """Called about once a second while ticks come, for what need not be on disk with every sync."""

    def add(self, command: bytes, idx: int, term: int) -> None: ...
    def clear(self) -> None: ...
    def deleteEntriesFrom(self, entryFrom: int) -> None: ...  # noqa: N802, N803 - PySyncObj's names
    def deleteEntriesTo(self, entryTo: int) -> None: ...  # noqa: N802, N803 - PySyncObj's names
    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __len__(self) -> int: ...
    def _destroy(self) -> None: ...
    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803 - PySyncObj's names
        """Entries up to here are final: the store may refuse to cut them, and may remember it with the next sync."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802 - PySyncObj's names
        """A commit index from before the start, 1 if none is known; at most what is on disk."""

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803 - PySyncObj's names
        """Put term and vote on disk before returning."""

    def getCurrentTerm(self) -> int: ...  # noqa: N802 - PySyncObj's names
    def getVotedForNodeId(self) -> str | None: ...  # noqa: N802 - PySyncObj's names


class Snapshot(msgspec.Struct, frozen=True):
    """The state after applying everything up to (`index`, `term`)."""

    index: int
    term: int
    data: bytes


class SnapshotStore(Protocol):
    """Keeps the newest snapshot."""

    def load(self) -> Snapshot | None:
        """The newest snapshot, verified; None when there never was one. Raises a fatal error for a damaged one."""

    def save(self, snapshot: Snapshot) -> None:
        """Put `snapshot` on disk in place of the older one before returning."""
