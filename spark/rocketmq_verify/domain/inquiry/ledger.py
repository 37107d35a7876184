"""What the log was, by digests of its cells: the ledger. It shows a change that is the same in all replicas, and
compares one replica alone, a copy or an archive with the past. Kept in the history, or in a file of its own.

A cell is entered when a run has read all of it and all replicas that have it agree (or when the only one has sound
records), below the confirm offset; it never changes then, it is only confirmed. So a cell with other bytes later was
damaged, whatever the replicas say now. There is one other reason: the log was cut there and written again, or was made
again from its beginning. Then its last message was stored after the cell was confirmed for the last time, and the
ledger takes what is there now.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_formats.soundness.records import name_record, next_record_start, record_start
from rocketmq_verify.domain.findings import Copy, Finding, Kind, Severity
from rocketmq_verify.domain.inquiry.cells import CellSums, Read, mark
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.inquiry.windows import FAR, NEAR, message, read_window
from rocketmq_verify.domain.model import ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, common, merged, whole_chunk
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.times import when

CELL_SIZE: Final = 64 << 20
"""Bytes of the log: 160,000 cells are 10 TiB."""
MOST_CELLS: Final = 500_000
"""Of a ledger; beyond that others are not entered."""
MOST_CUT: Final = 1024
"""Chunks of one leg that are read once more; cells with others have no digest in this run."""
MOST_CHANGES: Final = 16
"""Findings of one leg, and changed cells that are read once more; the last finding counts the rest."""
MOST_AHEAD_MS: Final = 86_400_000
"""A message that was stored later than that after now has a damaged time."""
_MOST_STARTS: Final = 8
"""Places where a message may begin that are tried."""


class Cell(msgspec.Struct, frozen=True, order=True):
    """A cell as earlier runs read it."""

    start: int
    digest: bytes
    first_epoch: int
    last_epoch: int
    """Of its first and its last byte; -1: no table had it."""
    first_ms: int
    """The start of the run that read it so first, in milliseconds since 1970."""
    last_ms: int
    """The start of the last run that read it so."""
    copies: int
    """Replicas that had it so at that time."""


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
    changed: tuple[ReplicaName, ...]
    alike: bool
    """All that changed have the same bytes now."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the cells that are not what they were."""

    findings: tuple[Finding, ...] = ()
    unsteady: tuple[Extent, ...] = ()
    """What was as before when it was read once more."""
    replaced: frozenset[int] = frozenset()
    """Cells that were written again."""
    made_again: bool = False
    """The whole log was."""


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring cells with one change."""

    kind: Kind
    extent: Extent
    same: tuple[ReplicaName, ...]
    changed: tuple[ReplicaName, ...]
    first: Cell
    """Of its first cell."""
    first_ms: int
    last_ms: int
    """The latest and the earliest of its cells'."""
    alike: bool
    name: RecordName | None
    """Its first message now."""
    stored_ms: int | None
    """When the last message of its first cell was stored, if it was written again."""


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
    yield from _added(plan, asked[:MOST_CUT], sums)


def compared(read: Read, known: Mapping[int, Cell], lineage: Lineage, cell_size: int) -> tuple[Compared, ...]:
    """The cells that were read beside what they were, ascending."""
    found = []
    for start, digests in sorted(read.items()):
        cell, extent = known.get(start), Extent(start, start + cell_size)
        if cell is None:
            continue
        there = _holders(digests, extent, lineage)
        same = tuple(replica for replica in sorted(there) if there[replica] == cell.digest)
        changed = tuple(replica for replica in sorted(there) if replica not in same)
        alike = len({there[replica] for replica in changed}) == 1
        found.append(Compared(cell=cell, extent=extent, same=same, changed=changed, alike=alike))
    return tuple(found)


def examine(
    cells: Iterable[Compared],
    known: Mapping[int, Cell],
    plan: Plan,
    lineage: Lineage,
    found: Sequence[Finding],
    *,
    now_ms: int,
) -> Requests[Changes]:
    """Why cells are not what they were.

    Args:
        known: the ledger; empty: it stays, whatever is there now.
        found: of the comparison of the replicas; what explains a difference is not reported twice.
        now_ms: milliseconds since 1970.
    """
    left = [
        msgspec.structs.replace(one, changed=changed)
        for one in cells
        if (changed := tuple(replica for replica in one.changed if not _explained(replica, one.extent, found)))
    ]
    anew: dict[int, int] = {}
    for one in left:
        last = yield from _last_message(one.changed[0], one.extent, lineage)
        if (stored := _stored_after(last, one.cell, now_ms)) is not None:
            anew[one.cell.start] = stored
    if anew and (yield from _made_again(known, lineage, plan.cell_size, now_ms)):
        return Changes(made_again=True)
    steady, unsteady = [], []
    for number, one in enumerate(left):
        changed = one.changed
        if number < MOST_CHANGES and one.cell.start not in anew:
            again = yield from _digests(plan, one.cell.start, one.changed)
            changed = tuple(replica for replica in changed if again.get(replica) not in {None, one.cell.digest})
        if changed != one.changed:
            unsteady.append(one.extent)
        if changed:
            steady.append(msgspec.structs.replace(one, changed=changed))
    changes = _joined(_change(one, anew.get(one.cell.start), lineage) for one in steady)
    findings = []
    for change in changes[:MOST_CHANGES]:
        name = yield from _first_message(change.changed[0], change.extent, lineage)
        findings.append(_finding(msgspec.structs.replace(change, name=name), lineage))
    if rest := changes[MOST_CHANGES:]:
        findings.append(_more(rest, lineage))
    return Changes(findings=tuple(findings), unsteady=tuple(unsteady), replaced=frozenset(anew))


def updated(
    known: Mapping[int, Cell],
    read: Read,
    latest: Lineage,
    *,
    cell_size: int,
    blocked: Iterable[Extent],
    alone: bool,
    replaced: frozenset[int] = frozenset(),
    began_ms: int,
) -> dict[int, Cell]:
    """The ledger after some cells were read.

    Args:
        latest: of both looks; what it does not contain is not entered.
        blocked: places that are damaged, or that could not be settled.
        alone: what one replica alone has was checked by itself and is sound.
        replaced: cells that were written again.
        began_ms: of the run.
    """
    cells = {start: cell for start, cell in known.items() if start not in replaced}
    for start, digests in read.items():
        extent = Extent(start, start + cell_size)
        there = _holders(digests, extent, latest)
        cell = cells.get(start)
        if cell is not None:
            same = sum(digest == cell.digest for digest in there.values())
            if same:
                cells[start] = msgspec.structs.replace(cell, last_ms=max(began_ms, cell.last_ms), copies=same)
            continue
        if len(set(there.values())) != 1 or (len(there) < 2 and not alone) or common([extent], blocked):
            continue
        if len(cells) < MOST_CELLS:
            cells[start] = Cell(
                start=start,
                digest=next(iter(there.values())),
                first_epoch=latest.epoch_at(start),
                last_epoch=latest.epoch_at(extent.end - 1),
                first_ms=began_ms,
                last_ms=began_ms,
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


def _explained(replica: ReplicaName, extent: Extent, found: Iterable[Finding]) -> bool:
    return any(
        finding.kind.traits.explains_difference and replica in finding.replicas and finding.extent.meet(extent).length
        for finding in found
    )


def _first_message(replica: ReplicaName, extent: Extent, lineage: Lineage) -> Requests[RecordName | None]:
    """The first message that begins in this cell; None: nothing there looks like one."""
    size = lineage.segment_size
    for reach in (NEAR, FAR):
        window = yield from read_window(Extent(extent.start, extent.start + reach), (replica,), lineage)
        data = window.copies.get(replica, b"")
        place = extent.start
        for _ in range(_MOST_STARTS):
            at = next_record_start(data, extent.start, place, segment_size=size)
            if at is None or at >= extent.end:
                break
            name = name_record(data, extent.start, at, segment_size=size)
            if name is not None and name.topic is not None:
                return name
            place = at + 1
    return None


def _last_message(replica: ReplicaName, extent: Extent, lineage: Lineage) -> Requests[RecordName | None]:
    """The last message that begins in this cell; None: nothing there looks like one."""
    size = lineage.segment_size
    for reach in (NEAR, FAR):
        start = max(extent.end - reach, extent.start)
        window = yield from read_window(Extent(start, extent.end + reach), (replica,), lineage)
        data = window.copies.get(replica, b"")
        place = min(extent.end, start + len(data))
        for _ in range(_MOST_STARTS):
            at = record_start(data, start, place - 1, segment_size=size) if place > start else None
            if at is None or at < start:
                break
            name = name_record(data, start, at, segment_size=size)
            if name is not None and name.topic is not None:
                return name
            place = at
    return None


def _stored_after(name: RecordName | None, cell: Cell, now_ms: int) -> int | None:
    """When this message, which is in the cell now, was stored, if it cannot have been there when the cell was
    confirmed."""
    if name is None or name.store_timestamp is None:
        return None
    return name.store_timestamp if cell.last_ms < name.store_timestamp <= now_ms + MOST_AHEAD_MS else None


def _made_again(known: Mapping[int, Cell], lineage: Lineage, cell_size: int, now_ms: int) -> Requests[bool]:
    """Whether the log was written again from the beginning of the oldest cell on that a replica still has."""
    for start in sorted(known):
        extent = Extent(start, start + cell_size)
        holders = [zone.replica for zone in lineage.zones if zone.extent.meet(extent) == extent]
        if holders:
            name = yield from _first_message(holders[0], extent, lineage)
            return _stored_after(name, known[start], now_ms) is not None
    return False


def _digests(plan: Plan, start: int, replicas: Iterable[ReplicaName]) -> Requests[dict[ReplicaName, bytes]]:
    """The digests of this cell, read now; without those of replicas that do not have all of it."""
    chunks, at = list[Extent](), start
    while at < start + plan.cell_size:
        chunks.append(whole_chunk(plan, at))
        at = chunks[-1].end
    sums = CellSums()
    yield from _added(plan, [ReadRequest(name, chunk, digest=True) for name in replicas for chunk in chunks], sums)
    return sums.take(plan.cell_size).get(start, {})


def _added(plan: Plan, asked: Sequence[ReadRequest], sums: CellSums) -> Requests[None]:
    answers = (yield tuple(asked)) if asked else ()
    for request, digest in zip(asked, answers, strict=True):
        if digest is not None:
            at = request.extent.start
            sums.add(at - at % plan.cell_size, request.replica, mark(at, digest), request.extent.length)


def _change(one: Compared, stored_ms: int | None, lineage: Lineage) -> _Change:
    """`stored_ms`: of the last message of the cell, if it was written again."""
    kind = Kind.CHANGED_SINCE
    if stored_ms is not None:
        zones = [zone for zone in lineage.zones if zone.replica in one.changed]
        promised = any(zone.promised >= one.extent.end for zone in zones)
        kind = Kind.LOST_CONFIRMED if promised else Kind.REPLACED_SINCE
    return _Change(
        kind=kind,
        extent=one.extent,
        same=one.same,
        changed=one.changed,
        first=one.cell,
        first_ms=one.cell.first_ms,
        last_ms=one.cell.last_ms,
        alike=one.alike,
        name=None,
        stored_ms=stored_ms,
    )


def _joined(changes: Iterable[_Change]) -> list[_Change]:
    found: list[_Change] = []
    for one in changes:
        last = found[-1] if found else None
        if (
            last is not None
            and last.extent.end == one.extent.start
            and (last.kind, last.same, last.changed) == (one.kind, one.same, one.changed)
        ):
            found[-1] = msgspec.structs.replace(
                last,
                extent=Extent(last.extent.start, one.extent.end),
                first_ms=max(last.first_ms, one.first_ms),
                last_ms=min(last.last_ms, one.last_ms),
                alike=last.alike and one.alike,
            )
        else:
            found.append(one)
    return found


def _finding(change: _Change, lineage: Lineage) -> Finding:
    start, end = change.extent.start, change.extent.end
    who, then = " and ".join(change.changed), when(change.last_ms)
    name = change.name
    first = "no message was found there" if name is None else f"the first message there is {message(name)}"
    if change.kind is Kind.CHANGED_SINCE:
        others = ", the same in all of them" if change.alike and len(change.changed) > 1 else ""
        if change.same:
            others += f"; {' and '.join(change.same)} has them as they were"
        detail = (
            f"the bytes from {start} to {end} in {who} are not what they were at {then}, when a run confirmed what it "
            f"first read at {when(change.first_ms)}{others}; {first}"
        )
    else:
        stored = "" if change.stored_ms is None else f", and messages stored at {when(change.stored_ms)}"
        detail = (
            f"the bytes from {start} to {end}, which {_replicas(change.first.copies)} had in epoch "
            f"{change.first.first_epoch} at {then}, were written again since in {who}: confirmed messages may be lost; "
            f"{first}{stored}"
        )
    changed = change.kind is Kind.CHANGED_SINCE
    wrong = [Copy(replica=replica, right=False, reason=f"not as at {then}") for replica in change.changed]
    right = [Copy(replica=replica, right=True, reason=f"as at {then}") for replica in change.same]
    return Finding(
        kind=change.kind,
        replicas=change.changed,
        extent=change.extent,
        segment=start - start % lineage.segment_size,
        epoch=lineage.epoch_at(start),
        record=name,
        copies=tuple(sorted([*wrong, *right], key=lambda copy: copy.replica)) if changed else (),
        detail=detail,
    )


def _more(changes: Sequence[_Change], lineage: Lineage) -> Finding:
    replicas = tuple(sorted({replica for change in changes for replica in change.changed}))
    extent = Extent(changes[0].extent.start, max(change.extent.end for change in changes))
    length = sum(change.extent.length for change in changes)
    return Finding(
        kind=max((change.kind for change in changes), key=lambda kind: kind.traits.severity is Severity.MISMATCH),
        replicas=replicas,
        extent=extent,
        epoch=lineage.epoch_at(extent.start),
        detail=f"{' and '.join(replicas)}: {len(changes)} more places up to offset {extent.end}, in {length} bytes, "
        "are not what earlier runs read; they were not examined one by one",
    )


def _replicas(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'}"
