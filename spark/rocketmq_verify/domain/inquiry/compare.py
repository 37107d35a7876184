"""The digests of one chunk, side by side: which replicas agree. Called for every chunk that was read.

`compare` is for one chunk; `Tally` keeps what is needed of all of them, in bounded memory, and adds up: executors tally
their parts, the driver merges the tallies.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.inquiry.cells import CellSums
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage

Groups: TypeAlias = tuple[tuple[ReplicaName, ...], ...]
"""Replicas by what they have, largest group first, names ascending."""

MOST_DIFFERING: Final = 512
"""Chunks kept for the inquiry, for each way in which replicas differ; the others are only counted."""


MOST_MISSING: Final = 4096
"""Extents that one replica lacks; chunks come in any order, so neighbours may be apart for a while."""


class ChunkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one chunk."""

    chunk: Chunk
    groups: Groups
    missing: tuple[ReplicaName, ...]
    """Replicas that should have it and do not: it expired, or a file is missing."""
    unreadable: dict[ReplicaName, str] = {}
    """Replicas whose disk does not return it, and why."""

    @property
    def differs(self) -> bool:
        return len(self.groups) > 1

    @property
    def compared(self) -> bool:
        """Whether there were two to compare."""
        return sum(len(group) for group in self.groups) > 1


def grouped(contents: Mapping[ReplicaName, bytes]) -> Groups:
    """Replicas by equal contents."""
    by_content: dict[bytes, list[ReplicaName]] = {}
    for replica in sorted(contents):
        by_content.setdefault(contents[replica], []).append(replica)
    return tuple(tuple(group) for group in sorted(by_content.values(), key=lambda group: (-len(group), group)))


def compare(chunk: Chunk, digests: Iterable[ChunkDigest], lineage: Lineage) -> ChunkResult:
    """Only replicas whose zone holds the whole chunk take part; a digest of another range counts as none."""
    digests = list(digests)
    members = {zone.replica for zone in lineage.zones if _inside(chunk.extent, zone.extent)}
    there = {
        answer.replica: answer.digest
        for answer in digests
        if answer.replica in members
        and answer.digest is not None
        and answer.offset == chunk.offset
        and answer.length == chunk.length
    }
    unreadable = {answer.replica: answer.error for answer in digests if answer.error and answer.replica in members}
    missing = members - there.keys() - unreadable.keys()
    return ChunkResult(chunk=chunk, groups=grouped(there), missing=tuple(sorted(missing)), unreadable=unreadable)


class Rest(msgspec.Struct, frozen=True):
    """What was counted and not kept."""

    count: int = 0
    bytes: int = 0
    first: int = 0
    """Offset of the first; of the end of the last: `end`."""
    end: int = 0

    def plus(self, other: "Rest") -> "Rest":
        if not self.count or not other.count:
            return self if self.count else other
        return Rest(
            self.count + other.count,
            self.bytes + other.bytes,
            min(self.first, other.first),
            max(self.end, other.end),
        )

    @classmethod
    def of(cls, extent: Extent) -> "Rest":
        return cls(1, extent.length, extent.start, extent.end)


class Tally:
    """Many chunks in bounded memory. Not shared between threads."""

    def __init__(self) -> None:
        self.chunks = 0
        self.bytes = 0
        """Of the log, where at least two replicas were compared; `read_bytes` counts every replica's."""
        self.read_bytes = 0
        self.differing: dict[Groups, list[ChunkResult]] = {}
        """By the way in which replicas differ, ascending by offset."""
        self.rest: dict[Groups, Rest] = {}
        self.missing: dict[ReplicaName, list[Extent]] = {}
        """Neighbours merged, ascending, at most MOST_MISSING; the last ones are joined, with what is between them."""
        self.unreadable: dict[ReplicaName, list[Extent]] = {}
        """The same, for bytes that the replica's disk does not return."""
        self.why: dict[ReplicaName, str] = {}
        """The first reason for that."""
        self.cells = CellSums()
        """Of the ledger, where there is one."""

    def add(self, result: ChunkResult) -> None:
        """One more chunk, in any order."""
        self.chunks += 1
        self.read_bytes += result.chunk.length * sum(len(group) for group in result.groups)
        if result.compared:
            self.bytes += result.chunk.length
        for replica in result.missing:
            self._lacks(self.missing, replica, result.chunk.extent)
        for replica, why in result.unreadable.items():
            self._lacks(self.unreadable, replica, result.chunk.extent)
            self.why.setdefault(replica, why)
        if result.differs:
            self._differs(result)

    def merge(self, other: "Tally") -> None:
        """What another tally has counted, too."""
        self.chunks += other.chunks
        self.bytes += other.bytes
        self.read_bytes += other.read_bytes
        for results in other.differing.values():
            for result in results:
                self._differs(result)
        for groups, rest in other.rest.items():
            self.rest[groups] = self.rest.get(groups, Rest()).plus(rest)
        for mine, others in ((self.missing, other.missing), (self.unreadable, other.unreadable)):
            for replica, extents in others.items():
                for extent in extents:
                    self._lacks(mine, replica, extent)
        self.why = other.why | self.why
        self.cells.merge(other.cells)

    def results(self) -> tuple[ChunkResult, ...]:
        """All differing chunks that were kept, ascending."""
        return tuple(
            sorted((result for kept in self.differing.values() for result in kept), key=lambda result: result.chunk)
        )

    def _differs(self, result: ChunkResult) -> None:
        kept = self.differing.setdefault(result.groups, [])
        at = len(kept)
        while at and kept[at - 1].chunk > result.chunk:
            at -= 1
        kept.insert(at, result)
        if len(kept) > MOST_DIFFERING:
            last = kept.pop()
            self.rest[result.groups] = self.rest.get(result.groups, Rest()).plus(Rest.of(last.chunk.extent))

    @staticmethod
    def _lacks(of: dict[ReplicaName, list[Extent]], replica: ReplicaName, extent: Extent) -> None:
        found = of.get(replica, [])
        at = bisect_left(found, extent)
        if at and found[at - 1].end >= extent.start:
            at -= 1
            extent = Extent(found[at].start, max(found[at].end, extent.end))
        stop = at
        while stop < len(found) and found[stop].start <= extent.end:
            extent = Extent(min(found[stop].start, extent.start), max(found[stop].end, extent.end))
            stop += 1
        found[at:stop] = [extent]
        if len(found) > MOST_MISSING:
            last = found.pop()
            found[-1] = Extent(found[-1].start, last.end)
        of[replica] = found


def _inside(inner: Extent, outer: Extent) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end
