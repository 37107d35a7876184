"""What is read: which ranges of the logs, in which chunks. The driver plans and splits, the executors make the chunks.

Memory does not grow with the log: a plan is a handful of pieces, cut into parts for executors, and each executor makes
its chunks one at a time; a petabyte (10^9 chunks of 1 MiB) takes as much memory as a gigabyte.

Chunks lie on a grid of the chunk size, counted from offset 0, so that the same bytes make the same chunk in every run.
A cell is cut further where a file, an epoch of the reference or a zone of a replica begins or ends: every
chunk is wholly inside or outside of each of these.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_settings.verify import CHUNK_SIZE_FORM, LARGEST_CHUNK_SIZE, SMALLEST_CHUNK_SIZE
from rocketmq_verify.domain.model import Chunk
from rocketmq_verify.domain.planning.lineage import Lineage


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one run reads; `chunks` makes chunks of it, `split` parts for executors."""

    pieces: tuple[Extent, ...]
    """Ascending, disjoint."""
    borders: tuple[int, ...]
    """Where chunks are cut besides the grid and the files, ascending."""
    chunk_size: int
    segment_size: int
    full: bool
    new_bytes: int
    """Of the log (not times replicas) that no earlier run compared; every one is read."""
    alone: tuple[Extent, ...] = ()
    """What one replica alone has of what is new: nothing to compare, but it can be checked by itself."""
    old_bytes: int
    """Compared before; a part of it is read, or all with `full`."""
    cell_size: int = 0
    """Of the ledger's cells (`inquiry.ledger`), a multiple of `chunk_size`; 0: there is no ledger."""

    @property
    def expected_bytes(self) -> int:
        """Of the log, that will be read from each replica that has them."""
        return sum(piece.length for piece in self.pieces)


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


def in_cells(extents: Iterable[Extent], cell_size: int) -> tuple[Extent, ...]:
    """All cells that these extents touch, merged."""
    return merged(
        Extent(extent.start - extent.start % cell_size, -(-extent.end // cell_size) * cell_size)
        for extent in extents
        if extent.length
    )


def whole_cells(extents: Iterable[Extent], cell_size: int) -> tuple[Extent, ...]:
    """The cells that are wholly in these extents, merged."""
    return merged(
        Extent(-(-extent.start // cell_size) * cell_size, extent.end - extent.end % cell_size)
        for extent in merged(extents)
        if -(-extent.start // cell_size) * cell_size < extent.end - extent.end % cell_size
    )


def plan(
    lineage: Lineage,
    new: Iterable[Extent],
    *,
    chunk_size: int,
    again: Iterable[Extent] = (),
    full: bool = False,
    cell_size: int = 0,
) -> Plan:
    """What to read of what at least two replicas have.

    Args:
        new: what no earlier run compared (`watermarks.fresh`); all of it is read.
        again: what is read of the rest (`cursor.again`).
        full: read all.
        cell_size: of the ledger; a whole cell of which a part is read is read as a whole.
    """
    if not SMALLEST_CHUNK_SIZE <= chunk_size <= LARGEST_CHUNK_SIZE or chunk_size & (chunk_size - 1):
        raise ValueError(f"a chunk of {chunk_size} bytes: it has to be {CHUNK_SIZE_FORM}")
    new = tuple(new)
    both = covered(zone.extent for zone in lineage.zones)
    single = without((zone.extent for zone in lineage.zones), both)
    fresh = common(both, new)
    old = without(both, fresh)
    borders = {border for zone in lineage.zones for border in (zone.extent.start, zone.sure, zone.extent.end)}
    borders |= {entry.start_offset for entry in lineage.epochs.entries}
    pieces = tuple(sorted((*fresh, *(old if full else common(old, again)))))
    if cell_size:
        pieces = merged([*pieces, *common(in_cells(pieces, cell_size), whole_cells(both, cell_size))])
    return Plan(
        pieces=pieces,
        borders=tuple(sorted(borders)),
        chunk_size=chunk_size,
        segment_size=lineage.segment_size,
        full=full,
        new_bytes=sum(extent.length for extent in fresh),
        old_bytes=sum(extent.length for extent in old),
        alone=single if full else common(single, new),
        cell_size=cell_size,
    )


def alone_cells(of: Plan, lineage: Lineage) -> tuple[Extent, ...]:
    """What one replica alone has of whole cells of the ledger: it is digested too."""
    if not of.cell_size:
        return ()
    return common(of.alone, merged(cell for zone in lineage.zones for cell in whole_cells([zone.extent], of.cell_size)))


def by_cells(of: Plan, pieces: Sequence[Extent]) -> tuple[Extent, ...]:
    """The same bytes in the same order, but what the plan reads of a cell of the ledger at once, with its first piece:
    a chunk that is read in two parts has no digest. Disjoint; as they are without a ledger."""
    if not of.cell_size:
        return tuple(pieces)
    left = merged([*of.pieces, *of.alone])
    found: list[Extent] = []
    for piece in pieces:
        taken = common(left, in_cells([piece], of.cell_size))
        found += taken
        left = without(left, taken)
    return tuple(found)


def within(of: Plan, extents: Iterable[Extent]) -> Plan:
    """The plan to read only what is in `extents`."""
    extents = merged(extents)
    return msgspec.structs.replace(of, pieces=common(of.pieces, extents), alone=common(of.alone, extents))


def split(pieces: Sequence[Extent], parts: int, chunk_size: int) -> tuple[tuple[Extent, ...], ...]:
    """The same pieces in at most `parts` groups of about equal size, cut between cells of the grid."""
    share = max(-(-sum(piece.length for piece in pieces) // max(parts, 1)), 1)
    groups: list[tuple[Extent, ...]] = []
    group: list[Extent] = []
    left = share
    for piece in pieces:
        start, end = piece.start, piece.end
        while start < end:
            reach = start + left
            # the last group takes what rounding left over
            stop = end if reach >= end or len(groups) == parts - 1 else min(-(-reach // chunk_size) * chunk_size, end)
            group.append(Extent(start, stop))
            left -= stop - start
            start = stop
            if left <= 0 and len(groups) < parts - 1:
                groups.append(tuple(group))
                group, left = [], share
    if group:
        groups.append(tuple(group))
    return tuple(groups)


def whole_chunk(of: Plan, offset: int) -> Extent:
    """The chunk at `offset` as it is without borders: cut at the grid and the files only, the same in every run."""
    cell, file = offset - offset % of.chunk_size, offset - offset % of.segment_size
    return Extent(max(cell, file), min(cell + of.chunk_size, file + of.segment_size))


def chunks(of: Plan, pieces: Iterable[Extent], lineage: Lineage) -> Iterator[Chunk]:
    """The chunks of these pieces of the plan, ascending in each piece."""
    for piece in pieces:
        start = piece.start
        while start < piece.end:
            end = _next_border(of, start, min(start - start % of.chunk_size + of.chunk_size, piece.end))
            yield Chunk(start, end - start, lineage.epoch_at(start))
            start = end


def _next_border(of: Plan, start: int, end: int) -> int:
    """The first place after `start` where a chunk has to end, at most `end`."""
    end = min(end, start - start % of.segment_size + of.segment_size)
    index = bisect_left(of.borders, start + 1)
    return min(end, of.borders[index]) if index < len(of.borders) else end
