"""What is read: which ranges of the logs, in which chunks. The driver plans and splits, the executors make the chunks.

Memory does not grow with the log: a plan is a handful of pieces, cut into parts for executors, and each executor makes
its chunks one at a time; a petabyte (10^9 chunks of 1 MiB) takes as much memory as a gigabyte.

Chunks lie on a grid of the chunk size, counted from offset 0, so that the same bytes make the same chunk in every run.
A cell is cut further where a file, an epoch of the reference or a zone of a replica begins or ends: every
chunk is wholly inside or outside of each of these.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_settings.verify import CHUNK_SIZE_FORM, LARGEST_CHUNK_SIZE, SMALLEST_CHUNK_SIZE
from rocketmq_verify.domain.model import Chunk
from rocketmq_verify.domain.planning.lineage import Lineage

ALL: Final = 1_000_000
"""Parts of a million: every chunk."""
_MASK: Final = (1 << 64) - 1


class Piece(msgspec.Struct, frozen=True):
    """A range to read, all of it or some of its chunks."""

    extent: Extent
    per_million: int = ALL
    """How many of a million cells of the grid; which ones depends on the seed alone."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one run reads; `chunks` makes chunks of it, `split` parts for executors."""

    pieces: tuple[Piece, ...]
    """Ascending, disjoint."""
    borders: tuple[int, ...]
    """Where chunks are cut besides the grid and the files, ascending."""
    chunk_size: int
    segment_size: int
    seed: int
    full: bool
    new_bytes: int
    """Of the log (not times replicas) that no earlier run compared; every one is read."""
    alone: tuple[Extent, ...] = ()
    """What one replica alone has of what is read as a whole: nothing to compare, but it can be checked by itself."""
    old_bytes: int
    """Compared before; a sample of it is read, or all with `full`."""

    @property
    def expected_bytes(self) -> int:
        """Of the log, about, that will be read from each replica that has them."""
        return sum(piece.extent.length * piece.per_million // ALL for piece in self.pieces)


def covered(extents: Iterable[Extent], copies: int = 2) -> tuple[Extent, ...]:
    """Where at least `copies` of these overlap, merged and ascending."""
    edges: dict[int, int] = {}
    for extent in extents:
        if extent.length:
            edges[extent.start] = edges.get(extent.start, 0) + 1
            edges[extent.end] = edges.get(extent.end, 0) - 1
    found: list[Extent] = []
    depth, start = 0, 0
    for offset in sorted(edges):
        was, depth = depth, depth + edges[offset]
        if was < copies <= depth:
            start = offset
        elif depth < copies <= was:
            found.append(Extent(start, offset))
    return merged(found)


def merged(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """The same bytes in as few extents as possible, ascending."""
    found: list[Extent] = []
    for extent in sorted(extent for extent in extents if extent.length):
        if found and extent.start <= found[-1].end:
            found[-1] = Extent(found[-1].start, max(found[-1].end, extent.end))
        else:
            found.append(extent)
    return tuple(found)


def common(one: Iterable[Extent], other: Iterable[Extent]) -> tuple[Extent, ...]:
    """What is in both."""
    return covered([*merged(one), *merged(other)])


def without(one: Iterable[Extent], other: Iterable[Extent]) -> tuple[Extent, ...]:
    """What is in `one` and not in `other`."""
    away = merged(other)
    ends = [extent.end for extent in away]
    found: list[Extent] = []
    for extent in merged(one):
        start = extent.start
        for index in range(bisect_right(ends, start), len(away)):
            if away[index].start >= extent.end:
                break
            found.append(Extent(start, away[index].start))
            start = away[index].end
        found.append(Extent(start, extent.end))
    return merged(found)


def plan(
    lineage: Lineage,
    new: Iterable[Extent],
    *,
    chunk_size: int,
    sample: float = 0.0,
    full: bool = False,
    seed: int = 0,
) -> Plan:
    """What to read of what at least two replicas have.

    Args:
        new: what no earlier run compared (`watermarks.fresh`); all of it is read.
        sample: from 0 to 1, the part of the rest that is read.
        full: read all.
        seed: decides which chunks the sample takes; another one in every run.
    """
    if not SMALLEST_CHUNK_SIZE <= chunk_size <= LARGEST_CHUNK_SIZE or chunk_size & (chunk_size - 1):
        raise ValueError(f"a chunk of {chunk_size} bytes: it has to be {CHUNK_SIZE_FORM}")
    new = tuple(new)
    both = covered(zone.extent for zone in lineage.zones)
    single = without((zone.extent for zone in lineage.zones), both)
    fresh = common(both, new)
    old = without(both, fresh)
    per_million = ALL if full else round(max(0.0, min(sample, 1.0)) * ALL)
    pieces = [Piece(extent) for extent in fresh]
    pieces += [Piece(extent, per_million) for extent in old if per_million]
    borders = {border for zone in lineage.zones for border in (zone.extent.start, zone.sure, zone.extent.end)}
    borders |= {entry.start_offset for entry in lineage.epochs.entries}
    return Plan(
        pieces=tuple(sorted(pieces, key=lambda piece: piece.extent)),
        borders=tuple(sorted(borders)),
        chunk_size=chunk_size,
        segment_size=lineage.segment_size,
        seed=seed,
        full=full,
        new_bytes=sum(extent.length for extent in fresh),
        old_bytes=sum(extent.length for extent in old),
        alone=single if full else common(single, new),
    )


def split(pieces: Sequence[Piece], parts: int, chunk_size: int) -> tuple[tuple[Piece, ...], ...]:
    """The same pieces in at most `parts` groups of about equal work, cut between cells of the grid."""
    work = sum(_work(piece) for piece in pieces)
    share = max(-(-work // max(parts, 1)), 1)
    groups: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    left = share
    for piece in pieces:
        start, end = piece.extent.start, piece.extent.end
        while start < end:
            reach = start + left * ALL // piece.per_million
            # the last group takes what rounding left over
            stop = end if reach >= end or len(groups) == parts - 1 else min(-(-reach // chunk_size) * chunk_size, end)
            group.append(Piece(Extent(start, stop), piece.per_million))
            left -= _work(group[-1])
            start = stop
            if left <= 0 and len(groups) < parts - 1:
                groups.append(tuple(group))
                group, left = [], share
    if group:
        groups.append(tuple(group))
    return tuple(groups)


def chunks(of: Plan, pieces: Iterable[Piece], lineage: Lineage) -> Iterator[Chunk]:
    """The chunks of these pieces of the plan, ascending in each piece."""
    for piece in pieces:
        for cell in _cells(piece, of):
            start = cell.start
            while start < cell.end:
                end = _next_border(of, start, cell.end)
                yield Chunk(start, end - start, lineage.epoch_at(start))
                start = end


def _work(piece: Piece) -> int:
    return -(-piece.extent.length * piece.per_million // ALL)


def _cells(piece: Piece, of: Plan) -> Iterator[Extent]:
    size = of.chunk_size
    first, last = piece.extent.start // size, (piece.extent.end - 1) // size
    if piece.per_million >= ALL:
        for index in range(first, last + 1):
            yield Extent(index * size, (index + 1) * size).meet(piece.extent)
        return
    # a million cells fall into `per_million` neighbourhoods; of each one cell is taken, at random
    for neighbourhood in range(first * piece.per_million // ALL, last * piece.per_million // ALL + 1):
        low = -(-neighbourhood * ALL // piece.per_million)
        high = -(-(neighbourhood + 1) * ALL // piece.per_million)
        index = low + _random(of.seed, neighbourhood) % (high - low)
        if first <= index <= last:
            yield Extent(index * size, (index + 1) * size).meet(piece.extent)


def _next_border(of: Plan, start: int, end: int) -> int:
    """The first place after `start` where a chunk has to end, at most `end`."""
    end = min(end, start - start % of.segment_size + of.segment_size)
    index = bisect_left(of.borders, start + 1)
    return min(end, of.borders[index]) if index < len(of.borders) else end


def _random(seed: int, index: int) -> int:
    """SplitMix64 of both: without state, and the same on every machine, unlike `random` and `hash`."""
    value = (seed * 0x9E3779B97F4A7C15 + index + 1) * 0xBF58476D1CE4E5B9 & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31
