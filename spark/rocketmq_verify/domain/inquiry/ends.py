"""Whether a log that ends before others do is only behind, or damaged where it seems to end. Part of `inquiry`.

Read from files, a log ends where no record follows: a record with a broken head, or a file that was cut, looks like the
end, and the bytes after it would never be compared. Files are preallocated, so bytes beyond an end can be read. They
are zeros, or left over from another history; a whole record after the first difference that equals another replica's
proves the same history, and the difference is damage.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.records import (
    LARGEST_RECORD,
    RecordKind,
    name_record,
    next_record_start,
    record_start,
    same_put,
    walk,
)
from rocketmq_formats.store.walk import V4_HEAD_SIZE
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.inquiry.narrow import Requests, first_difference
from rocketmq_verify.domain.inquiry.windows import NEAR, Found, Window, in_parts
from rocketmq_verify.domain.model import ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage, Zone
from rocketmq_verify.domain.planning.table_findings import missing_segment

REACH: Final = 2 * LARGEST_RECORD
"""Bytes beyond an end that are searched for an equal record."""
PROBE: Final = 1 << 20
"""Bytes of each further look: after that, at the next file's start, and where the other log ends."""


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
        if finding.kind.traits.ends_early:
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
    record: Extent | None = None
    done = end.offset
    for reach in (NEAR, REACH):
        # a slave may end within a record
        extent = Extent(max(end.offset - reach, file_end - size), min(end.offset + reach, file_end, end.reach))
        done = extent.end
        window = yield from _window(extent, (end.replica, end.partner))
        if len(window.copies) < 2:
            return None
        at = first_difference(window.copies[end.replica], window.copies[end.partner], end.offset - extent.start)
        rests = [] if at is None else _records_from(window, end.partner, extent.start + at, size)
        if rests:
            record = rests[0]
            mine, other = window.of(end.replica, record), window.of(end.partner, record)
            # only its head is broken: of the last record, behind which there is nothing
            same = mine[V4_HEAD_SIZE:] == other[V4_HEAD_SIZE:] and same_put(mine, other)
            if same or _any_equal(window, end, rests):
                return (yield from _damaged(record, end, lineage))
        if extent.end in {file_end, end.reach}:
            break
    for start in (done, file_end, end.reach - PROBE):  # a hole may be larger than what was read
        probe = Extent(max(start, done), min(start + PROBE, end.reach))
        if record is not None and probe.length:
            window = yield from _window(probe, (end.replica, end.partner))
            if len(window.copies) == 2 and _any_equal(window, end, _records_in(window, end.partner, size)):
                return (yield from _damaged(record, end, lineage))
    return None


def _damaged(record: Extent, end: End, lineage: Lineage) -> Requests[Found | None]:
    """This record of the partner's, as all have it."""
    others = (zone.replica for zone in lineage.zones if zone.replica not in {end.replica, end.partner})
    asked = (end.replica, end.partner, *(other for other in others if _has(lineage, other, record)))
    window = yield from _window(record, asked)
    if end.partner not in window.copies:
        return None
    name = name_record(window.copies[end.partner], record.start, record.start, segment_size=lineage.segment_size)
    return Found(extent=record, kind=RecordKind.RECORD, name=name, window=window)


def _records_from(window: Window, replica: ReplicaName, offset: int, size: int) -> list[Extent]:
    """The record of this copy that covers `offset`, and those behind it; none if no whole one does."""
    data = window.copies[replica]
    start = record_start(data, window.start, offset, segment_size=size)
    if start is None or start < window.start:
        return []
    found = _walked(window, replica, start, size)
    return found if found and found[0].start == start else []


def _records_in(window: Window, replica: ReplicaName, size: int) -> list[Extent]:
    """The whole records of this copy."""
    start = next_record_start(window.copies[replica], window.start, window.start, segment_size=size)
    return [] if start is None else _walked(window, replica, start, size)


def _walked(window: Window, replica: ReplicaName, start: int, size: int) -> list[Extent]:
    data = window.copies[replica]
    pieces = walk(data, window.start, start, window.start + len(data), segment_size=size)
    return [Extent(at, at + length) for at, length, kind in pieces if kind is RecordKind.RECORD]


def _any_equal(window: Window, end: End, records: list[Extent]) -> bool:
    return any(window.of(end.replica, record) == window.of(end.partner, record) for record in records)


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
