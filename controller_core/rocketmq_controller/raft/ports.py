"""What the machine needs from disk, as Protocols: implemented by journal.py and snapshot_file.py, and in memory by the
simulation."""

from collections.abc import Callable
from typing import Protocol, overload

import msgspec

from rocketmq_controller.raft.configuration import Configuration

Entry = tuple[bytes, int, int]
"""Command, index, term: the order in which PySyncObj keeps them."""


class Standing(msgspec.Struct, frozen=True):
    """Whether a store counts in its quorum (NewStoresWait)."""

    lineage: bytes | None = None
    """16 random bytes made when the quorum began, carried by every store of it; None: a new store, not part of a
    quorum."""
    voter: bool = False
    """It may vote and its acknowledgements count: it holds everything that it ever acknowledged."""
    sole: bool = False
    """It is the majority alone until enough others vote again: an operator ordered it."""


MAX_REPORTS = 4000
"""Bytes: `MAX_MEMBERS` members with the longest ids."""


class StateMachine(Protocol):
    """Implemented by the application; called in the event loop, in the order of the log, unless the method names
    another thread."""

    def apply(self, index: int, command: bytes) -> object:
        """Apply a committed command. Deterministic: no clock, no randomness, no IO. An exception is fatal for the
        process."""

    def capture(self) -> Callable[[], bytes]:
        """The whole state as it is now. The function gives its bytes: in another thread, while more is applied."""

    def load(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a state, in another thread, and change nothing; the function, called in the event loop, puts it in
        place of ours. Raises if the bytes are not such a state."""


class LogStore(Protocol):
    """The Raft log with term and vote. `log[position]` counts from the first entry held; indexes are Raft's."""

    @property
    def durable_index(self) -> int:
        """Index of the last entry that is on disk."""

    def sync(self) -> None:
        """Put everything added so far on disk."""

    def sync_mark(self) -> None:
        """Put the commit index on disk, which `sync` may leave out. Called about once a second."""

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append an entry, which must follow the last one."""

    def clear(self) -> None:
        """Drop everything; the next entry may have any index."""

    def cut(self, index: int) -> None:
        """Drop the entries from `index` on."""

    def forget(self, index: int) -> None:
        """Drop the entries below `index`. A snapshot that holds them must be durable already."""

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __len__(self) -> int: ...

    @property
    def commit_index(self) -> int:
        """At the start the one on disk, at most the last durable entry; 1 if unknown."""

    def set_commit_index(self, index: int) -> None:
        """Entries up to here are final: the store may refuse to cut them, and may remember it with the next sync."""

    @property
    def term(self) -> int: ...
    @property
    def voted_for(self) -> str | None: ...
    def set_term(self, term: int, voted_for: str | None) -> None:
        """Put term and vote on disk before returning."""

    @property
    def promised(self) -> float:
        """Seconds since it was heard last for which a leader may rely on this member."""

    def promise(self, seconds: float) -> None:
        """Put the promise on disk before returning."""

    @property
    def standing(self) -> Standing:
        """Whether this store counts."""

    def set_standing(self, standing: Standing) -> None:
        """Put the standing on disk before returning."""

    @property
    def reports(self) -> bytes:
        """The last that `keep_reports` got; empty: nothing, or it was lost."""

    def keep_reports(self, reports: bytes, *, durable: bool) -> bool:
        """Keep what other members have reported, at most `MAX_REPORTS` bytes, when the process ends; with `durable`, or
        after the next `sync_mark`, also when the machine does. False: the disk is full,
        and may have kept the older ones."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state after applying everything up to (`index`, `term`)."""

    index: int
    term: int
    data: bytes
    chain: bytes = b""
    """Rolling hash of the log up to there (chain.py); empty: unknown."""
    lineage: bytes | None = None
    """Whose log it was made of (standings.py)."""
    members: Configuration | None = None
    """That counts there; None: the first one."""


class SnapshotStore(Protocol):
    """Keeps the newest snapshot. `save` is called beside the event loop, one call at a time."""

    def load(self) -> Snapshot | None:
        """The newest snapshot, verified; None when there never was one. Raises a fatal error for a damaged one."""

    def save(self, snapshot: Snapshot) -> None:
        """Put `snapshot` on disk in place of the older one before returning."""
