"""Whether a log that ends before others do is only behind, or damaged where it seems to end. Part of `inquiry`.

Read from files, a log ends where no record follows: a record with a broken head, or a file that was cut, looks like the
end, and the bytes after it would never be compared. Files are preallocated, so bytes beyond an end can be read. They
are zeros, or left over from another history; a whole record after the first difference that equals another replica's
proves the same history, and the difference is damage.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from rocketmq_formats.store.walk import V4_HEAD_SIZE
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.inquiry.narrow import Requests, first_difference
from rocketmq_verify.domain.inquiry.windows import NEAR, Found, Window, in_parts
from rocketmq_verify.domain.model import Extent, ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage, Zone
from rocketmq_verify.domain.planning.table_findings import missing_segment
from rocketmq_verify.domain.records.records import LARGEST_RECORD, RecordKind, name_record, record_start, same_put, walk

REACH: Final = 2 * LARGEST_RECORD
"""Bytes beyond an end that are searched for an equal record."""


class End(msgspec.Struct, frozen=True):
    """Where `replica` ends while `partner` continues."""

    replica: ReplicaName
    offset: int
    partner: ReplicaName
    reach: int
    """Where the partner ends."""


def early_ends(lineage: Lineage) -> Iterator[End]:
    """By the tables: replicas that lag, and a reference that others are longer than."""
    zones = {zone.replica: zone for zone in lineage.zones}

    def longest(offset: int) -> Zone | None:
        there = [zone for zone in lineage.zones if zone.extent.start <= offset]
        return max(there, key=lambda zone: (zone.end, zone.replica == lineage.reference), default=None)

    seen: set[ReplicaName] = set()
    for finding in lineage.findings:
        if finding.kind is Kind.LAGGING:
            replica, partner = finding.replicas[0], longest(finding.extent.start)
        elif finding.kind.traits.names_end and lineage.reference is not None:
            replica = lineage.reference
            partner = next((zones.get(other) for other in finding.replicas if other != replica), None)
        else:
            continue
        offset = finding.extent.start
        if replica in seen or replica not in zones or partner is None or partner.replica == replica:
            continue
        if zones[replica].end == offset < partner.end:
            seen.add(replica)
            yield End(replica, offset, partner.replica, partner.end)


def damage_at(end: End, lineage: Lineage) -> Requests[Found | Finding | None]:
    """The damage where the replica seems to end: a record, or a missing file as a finding; None: no damage."""
    size = lineage.segment_size
    file_end = end.offset - end.offset % size + size
    (there,) = yield (ReadRequest(end.replica, Extent(file_end - 1, file_end), digest=False),)
    if there is None and end.offset % size == 0:
        return None  # that file may not have been created yet
    if there is None:  # files are created with their full length
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
            others = tuple(zone.replica for zone in lineage.zones if zone.replica not in window.copies)
            more = yield from _window(record, tuple(o for o in others if _has(lineage, o, record)))
            copies = {copy: window.of(copy, record) for copy in window.copies} | more.copies
            return Found(extent=record, kind=RecordKind.RECORD, name=name, window=Window(start, copies))
        if extent.end in {file_end, end.reach}:
            break
    return None


def _has(lineage: Lineage, replica: ReplicaName, extent: Extent) -> bool:
    zone = lineage.zone(replica)
    return zone is not None and zone.extent.start <= extent.start and extent.end <= zone.end


def _window(extent: Extent, replicas: tuple[ReplicaName, ...]) -> Requests[Window]:
    """These bytes of each replica that has them all."""
    requests = tuple(request for replica in replicas for request in in_parts(replica, extent))
    answers = (yield requests) if requests else ()
    found = dict.fromkeys(replicas, b"")
    for request, data in zip(requests, answers, strict=True):
        found[request.replica] += data or b""
    return Window(extent.start, {replica: data for replica, data in found.items() if len(data) == extent.length})
