"""Whether a log that ends before others do is only behind, or damaged where it seems to end. Part of `inquiry`.

Read from files, a log ends where no record follows: a record with a broken head, or a file that was cut, looks like the
end, and what is behind it would never be compared. Files are preallocated, so bytes behind an end can be read. They are
zeros, or left over from another history; where a whole record behind the first difference is the same as another
replica has it, they are of this history, and the difference is damage.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from rocketmq_formats.store.walk import V4_HEAD_SIZE
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.histories import History, Zone
from rocketmq_verify.domain.model import Ask, Extent, ReplicaName
from rocketmq_verify.domain.narrow import Questions, first_difference
from rocketmq_verify.domain.records import LARGEST_RECORD, RecordKind, name_record, record_start, same_put, walk
from rocketmq_verify.domain.table_findings import missing_segment
from rocketmq_verify.domain.windows import NEAR, Found, Window, in_parts

REACH: Final = 2 * LARGEST_RECORD
"""Bytes behind an end in which an equal record is looked for."""
ENDS: Final = frozenset({Kind.LAGGING, Kind.STALE_TAIL, Kind.DIVERGENT_HISTORY})


class End(msgspec.Struct, frozen=True):
    """Who ends where, though `partner` goes on."""

    replica: ReplicaName
    offset: int
    partner: ReplicaName
    reach: int
    """Where the partner ends."""


def early_ends(history: History) -> Iterator[End]:
    """By what the tables say: who lags, and a reference that others are longer than."""
    zones = {zone.replica: zone for zone in history.zones}

    def longest(offset: int) -> Zone | None:
        there = [zone for zone in history.zones if zone.extent.start <= offset]
        return max(there, key=lambda zone: (zone.end, zone.replica == history.reference), default=None)

    seen: set[ReplicaName] = set()
    for finding in history.findings:
        if finding.kind is Kind.LAGGING:
            replica, partner = finding.replicas[0], longest(finding.extent.start)
        elif finding.kind in ENDS and history.reference is not None:
            replica = history.reference
            partner = next((zones.get(one) for one in finding.replicas if one != replica), None)
        else:
            continue
        offset = finding.extent.start
        if replica in seen or replica not in zones or partner is None or partner.replica == replica:
            continue
        if zones[replica].end == offset < partner.end:
            seen.add(replica)
            yield End(replica, offset, partner.replica, partner.end)


def damage_at(end: End, history: History) -> Questions[Found | Finding | None]:
    """What is damaged where the replica seems to end: a record, or its file, which is told as it is; None: nothing."""
    size = history.segment_size
    file_end = end.offset - end.offset % size + size
    (there,) = yield (Ask(end.replica, Extent(file_end - 1, file_end), digest=False),)
    if there is None and end.offset % size == 0:
        return None  # that file was not made yet, for all that is known
    if there is None:  # files are made as long as they will ever be
        return missing_segment(end.replica, Extent(end.offset, min(file_end, end.reach)), size)
    for reach in (NEAR, REACH):
        # a slave may end within a record
        extent = Extent(max(end.offset - reach, file_end - size), min(end.offset + reach, file_end, end.reach))
        window = yield from _window(extent, (end.replica, end.partner))
        if len(window.copies) < 2:
            return None
        ours, theirs = window.copies[end.replica], window.copies[end.partner]
        at = first_difference(ours, theirs, end.offset - extent.start)
        if at is None or not any(ours[at:]):
            return None
        start = record_start(theirs, extent.start, extent.start + at, segment_size=size)
        if start is None or start < extent.start:
            continue
        pieces = [
            (place, length)
            for place, length, kind in walk(theirs, extent.start, start, extent.end, segment_size=size)
            if kind is RecordKind.RECORD
        ]
        if not pieces or pieces[0][0] != start:
            continue
        record = Extent(start, start + pieces[0][1])
        mine, other = window.of(end.replica, record), window.of(end.partner, record)
        # only its head is broken: of the last record, behind which there is nothing
        same = mine[V4_HEAD_SIZE:] == other[V4_HEAD_SIZE:] and same_put(mine, other)
        rests = (Extent(place, place + length) for place, length in pieces)
        if same or any(window.of(end.replica, rest) == window.of(end.partner, rest) for rest in rests):
            name = name_record(theirs, extent.start, start, segment_size=size)
            others = tuple(zone.replica for zone in history.zones if zone.replica not in window.copies)
            more = yield from _window(record, tuple(o for o in others if _has(history, o, record)))
            copies = {one: window.of(one, record) for one in window.copies} | more.copies
            return Found(extent=record, kind=RecordKind.RECORD, name=name, window=Window(start, copies))
        if extent.end in {file_end, end.reach}:
            break
    return None


def _has(history: History, replica: ReplicaName, extent: Extent) -> bool:
    zone = history.zone(replica)
    return zone is not None and zone.extent.start <= extent.start and extent.end <= zone.end


def _window(extent: Extent, replicas: tuple[ReplicaName, ...]) -> Questions[Window]:
    """These bytes of who has them all."""
    asks = tuple(ask for one in replicas for ask in in_parts(one, extent))
    answers = (yield asks) if asks else ()
    found = dict.fromkeys(replicas, b"")
    for ask, data in zip(asks, answers, strict=True):
        found[ask.replica] += data or b""
    return Window(extent.start, {one: data for one, data in found.items() if len(data) == extent.length})
