"""The digests of whole cells of the log, made of the digests of its chunks, which a run has anyway. For `ledger`.

A cell has marks, one of each of its whole chunks: a hash over the chunk's place and its digest. All marks of a cell
together, by exclusive or, are its digest. So it does not matter in which order, legs and tasks the chunks were read,
and two chunks that change places are another cell. It is made for faults, as the chunks' xxh3-128 is, not for forgers.

Chunks that a border cuts (the end of a slower replica, an epoch) have no mark: borders move. `ledger.cut_chunks` reads
them once more as a whole.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

import xxhash

from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, whole_chunk

SEED: Final = 42
"""Spark's, whose function `xxhash64` gives the same: the seed of each part is the hash of the parts before."""
HALVES: Final = (1, 2)
"""The first part of each half of a mark."""
Read: TypeAlias = dict[int, dict[ReplicaName, bytes]]
"""The digests of whole cells, by their start."""
DIGEST_BYTES: Final = 16
_BEGIN: Final = tuple(xxhash.xxh64_intdigest(half.to_bytes(8, "little"), SEED) for half in HALVES)


def mark(offset: int, digest: bytes) -> int:
    """Of the chunk at `offset`: 128 bits."""
    place = offset.to_bytes(8, "little")
    high, low = (xxhash.xxh64_intdigest(digest, xxhash.xxh64_intdigest(place, begin)) for begin in _BEGIN)
    return high << 64 | low


class CellSum(NamedTuple):
    """What was read of one replica's cell."""

    marks: int = 0
    length: int = 0
    """Bytes."""

    def plus(self, marks: int, length: int) -> "CellSum":
        return CellSum(self.marks ^ marks, self.length + length)


class CellSums:
    """Of all cells that were read, in bounded memory if the complete ones are taken after each leg."""

    def __init__(self) -> None:
        self._sums: dict[int, dict[ReplicaName, CellSum]] = {}

    def add(self, cell: int, replica: ReplicaName, marks: int, length: int) -> None:
        """More chunks of the cell that starts at `cell`."""
        own = self._sums.setdefault(cell, {})
        own[replica] = own.get(replica, CellSum()).plus(marks, length)

    def add_chunk(self, plan: Plan, chunk: Chunk, digests: Iterable[ChunkDigest]) -> None:
        """The digests of one chunk, if it is a whole one."""
        if not plan.cell_size or whole_chunk(plan, chunk.offset) != chunk.extent:
            return
        cell = chunk.offset - chunk.offset % plan.cell_size
        for one in digests:
            if one.digest is not None and (one.offset, one.length) == (chunk.offset, chunk.length):
                self.add(cell, one.replica, mark(chunk.offset, one.digest), chunk.length)

    def merge(self, other: "CellSums") -> None:
        """What others have read too."""
        for cell, sums in other._sums.items():  # noqa: SLF001 - of its own class
            for replica, found in sums.items():
                self.add(cell, replica, *found)

    def take(self, cell_size: int) -> Read:
        """The digests of all cells that were read completely, ascending; they are forgotten here."""
        found: Read = {}
        for cell in sorted(self._sums):
            whole = {
                replica: sums.marks.to_bytes(DIGEST_BYTES, "big")
                for replica, sums in self._sums[cell].items()
                if sums.length == cell_size
            }
            if whole:
                found[cell] = whole
                del self._sums[cell]
        return found
