"""Why a cell of the ledger is not what it was: changed, written again, or gone. Called by `past`.

A cell that was confirmed never changes. So a cell with other bytes later was damaged, whatever the replicas say now.
There is one other reason: the log was cut there and written again, or was made again from its beginning. A cut belongs
to an election, so the bytes have a later epoch then; a log that was made again begins with a message that was stored
after the ledger was written. Either is reported, and the ledger takes what is there now. Clocks alone decide only where
no table has the epochs.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_formats.soundness.records import name_record, next_record_start, record_start
from rocketmq_verify.domain.findings import Copy, Finding, Kind, Severity
from rocketmq_verify.domain.inquiry.cells import CellSums
from rocketmq_verify.domain.inquiry.ledger import Cell, Compared, cell_epochs, read_chunks
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.inquiry.windows import FAR, NEAR, message, read_window
from rocketmq_verify.domain.model import ReadRequest, ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, merged, whole_chunk
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.times import when

MOST_CHANGES: Final = 16
"""Findings of one leg, and changed cells that are read once more; the last finding counts the rest."""
MOST_AHEAD_MS: Final = 86_400_000
"""A message that was stored later than that after now has a damaged time."""
_MOST_STARTS: Final = 8
"""Places where a message may begin that are tried."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the cells that are not what they were."""

    findings: tuple[Finding, ...] = ()
    unsteady: tuple[Extent, ...] = ()
    """What was as before when it was read once more."""
    replaced: frozenset[int] = frozenset()
    """Cells that were written again, or are gone with a cut."""
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
    cells = tuple(cells)
    left = [
        msgspec.structs.replace(one, changed=changed)
        for one in cells
        if (changed := tuple(replica for replica in one.changed if not _explained(replica, one, found)))
    ]
    if left and not any(one.current for one in cells):
        again = yield from _made_again(known, lineage, plan.cell_size, now_ms)
        if again is not None:
            return Changes(findings=(again,), replaced=frozenset(known), made_again=True)
    again_ms: dict[int, int | None] = {}
    for one in left:
        if one.current:
            continue
        last = yield from _last_message(one.changed[0], one.extent, lineage)
        if _written_again(one, last, lineage, now_ms):
            again_ms[one.cell.start] = None if last is None else last.store_timestamp
    steady, unsteady = [], []
    for number, one in enumerate(left):
        changed = one.changed
        if number < MOST_CHANGES and one.cell.start not in again_ms:
            digests = yield from _digests(plan, one.cell.start, one.changed)
            changed = tuple(replica for replica in changed if digests.get(replica) not in {None, one.cell.digest})
        if changed != one.changed:
            unsteady.append(one.extent)
        if changed:
            steady.append(msgspec.structs.replace(one, changed=changed))
    changes = _joined(
        _change(one, again_ms.get(one.cell.start), lineage, replaced=one.cell.start in again_ms) for one in steady
    )
    findings = []
    for change in changes[:MOST_CHANGES]:
        name = yield from _first_message(change.changed[0], change.extent, lineage)
        findings.append(_finding(msgspec.structs.replace(change, name=name), lineage))
    if rest := changes[MOST_CHANGES:]:
        findings.append(_more(rest, lineage))
    return Changes(findings=tuple(findings), unsteady=tuple(unsteady), replaced=frozenset(again_ms))


def ended(
    known: Mapping[int, Cell], logs: Sequence[ReplicaLog], lineage: Lineage, *, cell_size: int, now_ms: int
) -> Requests[Changes]:
    """Cells beyond the end of every log: confirmed bytes that no replica has any more, whatever these have noted.

    Args:
        logs: all replicas, as they were described.
        lineage: of the last look.
    """
    end = max([zone.end for zone in lineage.zones] + [log.max_offset for log in logs])
    lost = [known[start] for start in sorted(known) if start + cell_size > end]
    if not lost:
        return Changes()
    again = yield from _made_again(known, lineage, cell_size, now_ms)
    if again is not None:
        return Changes(findings=(again,), replaced=frozenset(known), made_again=True)
    extent, first = Extent(max(end, lost[0].start), lost[-1].start + cell_size), lost[0]
    empty = not any(log.extent.length for log in logs)
    cut = all(_cut_since(cell, cell_size, lineage) for cell in lost) and not any(log.strict for log in logs)
    cut |= empty
    why = "a later election cut them off" if cut else "no later election cut them off"
    if empty:
        why = "all logs are empty; what was confirmed is lost, unless the group was made again on purpose"
    finding = Finding(
        kind=Kind.REPLACED_SINCE if cut else Kind.LOST_CONFIRMED,
        replicas=tuple(sorted(log.name for log in logs)),
        extent=extent,
        epoch=first.last_epoch,
        detail=f"the bytes from {extent.start} to {extent.end}, which {_replicas(first.copies)} had at "
        f"{when(first.last_ms)}, when a run confirmed them, are in no replica any more: {why}",
    )
    return Changes(findings=(finding,), replaced=frozenset(cell.start for cell in lost) if cut else frozenset())


def told(replaced: Iterable[int], findings: Iterable[Finding]) -> frozenset[int]:
    """Of these cells, those that the findings name: a finding that no longer stood is made by the next run."""
    kinds = {Kind.REPLACED_SINCE, Kind.LOST_CONFIRMED, Kind.CHANGED_SINCE}
    places = merged(finding.extent for finding in findings if finding.kind in kinds)
    starts, ends = [place.start for place in places], [place.end for place in places]
    return frozenset(start for start in replaced if bisect_right(starts, start) > bisect_right(ends, start))


def _explained(replica: ReplicaName, one: Compared, found: Iterable[Finding]) -> bool:
    """Unused bytes explain why replicas differ, not why none is what it was. Where only one replica ever had the cell,
    it may be the wrong one."""
    doubtful = one.cell.copies < 2 and bool(one.current)
    return any(
        finding.kind.traits.explains_difference
        and (one.current or finding.kind is not Kind.UNUSED_BYTES)
        and (doubtful or replica in finding.replicas)
        and finding.extent.meet(one.extent).length
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


def _written_again(one: Compared, last: RecordName | None, lineage: Lineage, now_ms: int) -> bool:
    """Whether the cell has what a later master wrote; `last`: its last message now."""
    _, epoch = cell_epochs(one.extent, lineage)
    if one.cell.last_epoch < 0 or epoch < 0:
        return _stored_after(last, one.cell, now_ms)
    return epoch > one.cell.last_epoch


def _cut_since(cell: Cell, cell_size: int, lineage: Lineage) -> bool:
    """Whether a later master began before the end of the cell."""
    entries = lineage.epochs.entries
    later = (entry.start_offset for entry in entries if entry.epoch > cell.last_epoch)
    return cell.last_epoch >= 0 and min(later, default=cell.start + cell_size) < cell.start + cell_size


def _stored_after(name: RecordName | None, cell: Cell, now_ms: int) -> bool:
    """Whether this message, which is in the cell now, cannot have been there when the cell was confirmed."""
    if name is None or name.store_timestamp is None:
        return False
    return cell.last_ms < name.store_timestamp <= now_ms + MOST_AHEAD_MS


def _made_again(known: Mapping[int, Cell], lineage: Lineage, cell_size: int, now_ms: int) -> Requests[Finding | None]:
    """A finding, if the log was written again from the beginning of the oldest cell on that a replica still has."""
    zones = [zone for zone in lineage.zones if zone.extent.length]
    for start in sorted(known):
        extent = Extent(start, start + cell_size)
        holders = [zone for zone in zones if zone.extent.start <= start < zone.extent.end]
        if not holders:
            continue
        name = yield from _first_message(holders[0].replica, extent.meet(holders[0].extent), lineage)
        if name is None or not _stored_after(name, known[start], now_ms):
            return None
        stored = "" if name.store_timestamp is None else f", stored at {when(name.store_timestamp)}"
        return Finding(
            kind=Kind.REPLACED_SINCE,
            replicas=tuple(sorted(zone.replica for zone in zones)),
            extent=Extent(start, max(known) + cell_size),
            segment=start - start % lineage.segment_size,
            epoch=lineage.epoch_at(start),
            record=name,
            detail=f"the log from {start} to {max(known) + cell_size}, which {_replicas(known[start].copies)} had at "
            f"{when(known[start].last_ms)}, was made again since: what was confirmed before is lost, unless the "
            f"group was made again on purpose; the first message there is {message(name)}{stored}",
        )
    return None


def _digests(plan: Plan, start: int, replicas: Iterable[ReplicaName]) -> Requests[dict[ReplicaName, bytes]]:
    """The digests of this cell, read now; without those of replicas that do not have all of it."""
    chunks, at = list[Extent](), start
    while at < start + plan.cell_size:
        chunks.append(whole_chunk(plan, at))
        at = chunks[-1].end
    sums = CellSums()
    yield from read_chunks(plan, [ReadRequest(name, chunk, digest=True) for name in replicas for chunk in chunks], sums)
    return sums.take(plan.cell_size).get(start, {})


def _change(one: Compared, stored_ms: int | None, lineage: Lineage, *, replaced: bool) -> _Change:
    """`stored_ms`: of the last message of the cell, if it was written again (`replaced`)."""
    kind = Kind.CHANGED_SINCE
    if replaced:
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
