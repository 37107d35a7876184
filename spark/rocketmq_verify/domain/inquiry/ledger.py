"""What the log was, by digests of its cells: the ledger. It shows a change that is the same in all replicas, and
compares one replica alone, a copy or an archive with the past. Kept in the history, or in a file of its own.

A cell is entered when a run has read all of it and all replicas that have it agree (or when the only one has sound
records), below the confirm offset; it never changes then, it is only confirmed. Why a cell has other bytes later is
decided in `changes`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding, Severity
from rocketmq_verify.domain.inquiry.cells import CellSums, Read, mark
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.model import ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, common, merged, whole_chunk
from rocketmq_verify.domain.planning.lineage import Lineage

CELL_SIZE: Final = 64 << 20
"""Bytes of the log: 160,000 cells are 10 TiB."""
MOST_CELLS: Final = 1 << 18
"""Of a ledger, 16 TiB: in memory some 200 bytes each, three times that while it is written. Others are not entered."""
MOST_CUT: Final = 1024
"""Chunks of one leg that are read once more; cells with others have no digest in this run."""


class Cell(msgspec.Struct, frozen=True, order=True):
    """A cell as earlier runs read it."""

    start: int
    digest: bytes
    first_epoch: int
    last_epoch: int
    """Of its first and its last byte; -1: no table had it."""
    first_ms: int
    """When a run had read it so first, in milliseconds since 1970."""
    last_ms: int
    """When a run had read it so last."""
    copies: int
    """The most replicas that ever had it so at once."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Of one group. Digests of other sizes cannot be compared, so a run with a ledger takes these."""

    chunk_size: int
    cell_size: int
    segment_size: int
    cells: tuple[Cell, ...]
    """Ascending."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that the ledger has, and that was read again."""

    cell: Cell
    extent: Extent
    same: tuple[ReplicaName, ...]
    current: tuple[ReplicaName, ...]
    """Of these, those without another history there: a former master may still have what was cut off. All of them if
    the epochs of these bytes are the same now: an epoch has one master, which wrote them once."""
    changed: tuple[ReplicaName, ...]
    alike: bool
    """All that changed have the same bytes now."""


def cut_chunks(plan: Plan, lineage: Lineage, sums: CellSums) -> Requests[None]:
    """Read the chunks of this plan that borders cut, as a whole, and add them."""
    if not plan.cell_size:
        return
    read = merged([*plan.pieces, *plan.alone])
    at_borders = ((border, whole_chunk(plan, border)) for border in plan.borders)
    asked = [
        ReadRequest(zone.replica, chunk, digest=True)
        for chunk in sorted({chunk for border, chunk in at_borders if border > chunk.start})
        if sum(part.length for part in common([chunk], read)) == chunk.length
        for zone in lineage.zones
        if zone.extent.meet(chunk) == chunk
    ]
    yield from read_chunks(plan, asked[:MOST_CUT], sums)


def compared(read: Read, known: Mapping[int, Cell], lineage: Lineage, cell_size: int) -> tuple[Compared, ...]:
    """The cells that were read beside what they were, ascending."""
    found = []
    sure = {zone.replica: zone.sure for zone in lineage.zones}
    for start, digests in sorted(read.items()):
        cell, extent = known.get(start), Extent(start, start + cell_size)
        if cell is None:
            continue
        there = _holders(digests, extent, lineage)
        same = tuple(replica for replica in sorted(there) if there[replica] == cell.digest)
        as_then = cell.last_epoch >= 0 and (cell.first_epoch, cell.last_epoch) == cell_epochs(extent, lineage)
        changed = tuple(replica for replica in sorted(there) if replica not in same)
        found.append(
            Compared(
                cell=cell,
                extent=extent,
                same=same,
                current=same if as_then else tuple(replica for replica in same if sure[replica] >= extent.end),
                changed=changed,
                alike=len({there[replica] for replica in changed}) == 1,
            )
        )
    return tuple(found)


def updated(
    known: Mapping[int, Cell],
    read: Read,
    latest: Lineage,
    *,
    cell_size: int,
    blocked: Iterable[Extent],
    alone_from: int | None,
    replaced: frozenset[int] = frozenset(),
    now_ms: int,
) -> dict[int, Cell]:
    """The ledger after some cells were read.

    Args:
        latest: of both looks; what it does not contain is not entered.
        blocked: places that are damaged, or that could not be settled.
        alone_from: what one replica alone has is entered from here on: it was checked by itself, and the ledger had
            nothing there. A cell that was left out before this place may have been damaged then. None: it was not
            checked.
        replaced: cells that were written again.
        now_ms: of the last look: what is written later is no part of this, in milliseconds since 1970.
    """
    cells = {start: cell for start, cell in known.items() if start not in replaced}
    for start, digests in read.items():
        extent = Extent(start, start + cell_size)
        there = _holders(digests, extent, latest)
        first, last = cell_epochs(extent, latest)
        cell = cells.get(start)
        if cell is not None:
            same = sum(digest == cell.digest for digest in there.values())
            if same:
                cells[start] = msgspec.structs.replace(
                    cell,
                    # a table may have been late, or may have lost its beginning
                    first_epoch=cell.first_epoch if first < 0 else first,
                    last_epoch=cell.last_epoch if last < 0 else last,
                    last_ms=max(now_ms, cell.last_ms),
                    copies=max(same, cell.copies),
                )
            continue
        trusted = len(there) > 1 or (alone_from is not None and start >= alone_from)
        if len(set(there.values())) != 1 or not trusted or common([extent], blocked):
            continue
        if len(cells) < MOST_CELLS:
            cells[start] = Cell(
                start=start,
                digest=next(iter(there.values())),
                first_epoch=first,
                last_epoch=last,
                first_ms=now_ms,
                last_ms=now_ms,
                copies=len(there),
            )
    return cells


def blocking(findings: Iterable[Finding]) -> tuple[Extent, ...]:
    """Where a cell is not entered."""
    return tuple(
        finding.extent
        for finding in findings
        if finding.severity is Severity.MISMATCH or finding.kind.traits.explains_difference
    )


def without_expired(known: Mapping[int, Cell], least: int) -> dict[int, Cell]:
    """The cells of which no byte is below `least`, the first one that any replica has."""
    return {start: cell for start, cell in known.items() if start >= least}


def _holders(digests: Mapping[ReplicaName, bytes], extent: Extent, lineage: Lineage) -> dict[ReplicaName, bytes]:
    zones = {zone.replica: zone.extent for zone in lineage.zones}
    return {
        replica: digest
        for replica, digest in digests.items()
        if replica in zones and zones[replica].meet(extent) == extent
    }


def cell_epochs(extent: Extent, lineage: Lineage) -> tuple[int, int]:
    """The epochs of its first and its last byte."""
    return lineage.epoch_at(extent.start), lineage.epoch_at(extent.end - 1)


def read_chunks(plan: Plan, asked: Sequence[ReadRequest], sums: CellSums) -> Requests[None]:
    answers = (yield tuple(asked)) if asked else ()
    for request, digest in zip(asked, answers, strict=True):
        if digest is not None:
            at = request.extent.start
            sums.add(at - at % plan.cell_size, request.replica, mark(at, digest), request.extent.length)
