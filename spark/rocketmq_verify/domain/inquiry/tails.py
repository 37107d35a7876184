"""Whether what differs beyond a replica's consistent point is another history or damage. Part of `inquiry`.

There the tables allow the replica other bytes than the reference's, up to its end. In another history every record
differs from the first on: they were written at another time. So one whole equal record after the difference proves the
same history, and the difference is damage; equal times in the differing record prove it too. Equal bytes
alone prove nothing: bodies repeat. And another history begins where an epoch does: last records that differ behind
equal ones of the same epoch are damaged, even if nothing equal follows.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.records import (
    LARGEST_RECORD,
    RecordKind,
    body_ok,
    next_record_start,
    same_put,
    walk,
)
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.inquiry.compare import ChunkResult
from rocketmq_verify.domain.inquiry.judge import judge
from rocketmq_verify.domain.inquiry.narrow import Requests, Suspect, narrow
from rocketmq_verify.domain.inquiry.windows import NEAR, Found, Window, contents_of, locate, read_window, sound
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage, Zone
from rocketmq_verify.domain.planning.table_findings import stale_tail

REACH: Final = LARGEST_RECORD + (1 << 20)
"""Bytes after the difference, and before the zone's end, that are searched for an equal record."""
MOST_TRIES: Final = 16
"""Differences of one replica that are examined; the others count as damage."""

Tail: TypeAlias = tuple[Finding | None, int]
"""The finding (None: unsettled), and where the replica's other history begins."""


def find_tails(lineage: Lineage, results: Sequence[ChunkResult]) -> Requests[dict[ReplicaName, Tail]]:
    """Replicas with another history beyond their consistent point, and where it begins."""
    found: dict[ReplicaName, Tail] = {}
    for zone in lineage.zones:
        behind = [
            (partner, result)
            for result in results
            if zone.sure <= result.chunk.offset < zone.extent.end
            and (partner := _partner(zone, result, lineage)) is not None
        ]
        if not behind or (yield from ends_alike(zone, behind[-1][0], lineage)):
            continue
        for partner, result in behind[:MOST_TRIES]:
            # damage before the tail differs as well
            tail = yield from _tail(lineage, zone, partner, result)
            if tail is not None:
                found[zone.replica] = tail
                break
    return found


def _partner(zone: Zone, result: ChunkResult, lineage: Lineage) -> ReplicaName | None:
    """The replica to compare with: the one compared here that has the newest history; None if both agree.

    It is the reference, unless that lacks these bytes.
    """
    here = {replica for group in result.groups for replica in group}
    newest = max(
        (candidate for candidate in lineage.zones if candidate.replica in here),
        key=lambda candidate: (candidate.last_epoch, candidate.end, candidate.replica == lineage.reference),
        default=None,
    )
    if newest is None or any({zone.replica, newest.replica} <= set(group) for group in result.groups):
        return None
    return newest.replica if zone.replica in here else None


def _tail(lineage: Lineage, zone: Zone, partner: ReplicaName, result: ChunkResult) -> Requests[Tail | None]:
    """None: the difference in this chunk is not another history."""
    pair = (zone.replica, partner)
    unsettled = None, zone.sure  # one of the two no longer has these bytes: not judged
    narrowed = yield from narrow([Suspect(result.chunk.extent, pair)], most=MOST_TRIES)
    if not narrowed.places:
        return unsettled
    end = 0
    for place in narrowed.places:
        difference = place.differences(end)
        if difference is None:
            continue
        found = yield from locate(difference, pair, lineage)
        if found is None or set(found.window.copies) != set(pair):
            return unsettled
        if (yield from is_tail(found, zone, partner, lineage)):
            return _tail_finding(lineage, zone, partner, found, difference), max(found.extent.start, zone.sure)
        end = found.extent.end
    return None


def _tail_finding(lineage: Lineage, zone: Zone, partner: ReplicaName, found: Found, difference: int) -> Finding:
    start = max(found.extent.start, zone.sure)
    extent = Extent(start, zone.extent.end)
    epoch = lineage.epoch_at(start)
    if zone.beyond is Kind.STALE_TAIL and start >= zone.promised:
        return stale_tail(zone.replica, extent, epoch, partner)
    pair = tuple(sorted((zone.replica, partner)))
    contents, compared = contents_of(found, lineage)
    return Finding(
        kind=Kind.DIVERGENT_HISTORY,
        replicas=pair,
        extent=extent,
        first_difference=difference,
        segment=difference - difference % lineage.segment_size,
        epoch=epoch,
        record=found.name,
        copies=judge(contents, found.extent.start, found.extent.length, compared),
        detail=f"{zone.replica} and {partner} have different messages from {start} to {extent.end}, where both should "
        f"be equal: {partner} has those of epoch {epoch}, which {zone.replica} does not have",
    )


def is_tail(found: Found, zone: Zone, partner: ReplicaName, lineage: Lineage) -> Requests[bool]:
    """Whether the replica of `zone` has another history from `found` on than `partner` has."""
    if not _begins_epoch(found, zone, lineage):
        return False
    size = lineage.segment_size
    ours = sound(found.window, zone.replica, found, size)
    if ours and not sound(found.window, partner, found, size):
        return False  # the partner's record is the damaged one
    if ours and same_put(*(found.window.of(replica, found.extent) for replica in (zone.replica, partner))):
        return False
    start, end = found.extent.end, zone.extent.end
    first = Extent(start, min(start + REACH, end))
    if (yield from _equal_again(first, start, zone.replica, partner, lineage)):
        return False
    last = Extent(max(first.end, end - REACH), end)
    if (yield from _equal_again(last, None, zone.replica, partner, lineage)):
        return False
    # a broken record alone is not another history: that needs a sound one
    return ours or (yield from _has_sound(Extent(found.extent.start, end), zone.replica, lineage))


def _begins_epoch(found: Found, zone: Zone, lineage: Lineage) -> bool:
    """Whether a master may have begun here: at an epoch of the reference, or where the tables part. True where too
    little is known: the zone's table has nothing in common with the reference's, or the reference's begins later."""
    starts = [start for _, start in lineage.epochs.starts()]
    apart = zone.sure == zone.extent.start and zone.last_epoch >= 0
    if apart or not starts or starts[0] > found.extent.start:
        return True
    return any(found.extent.start <= start < found.extent.end for start in (zone.sure, *starts))


def ends_alike(zone: Zone, partner: ReplicaName, lineage: Lineage) -> Requests[bool]:
    """Whether the last whole record of the zone and all after it are equal in `partner`: then all is one history."""
    end = zone.extent.end
    extent = Extent(max(zone.sure, end - NEAR), end)
    start = zone.sure if extent.start == zone.sure else None
    window, records = yield from _records(extent, start, (zone.replica, partner), lineage)
    if not records:
        return False
    rest = Extent(records[-1].start, end)
    return window.of(zone.replica, rest) == window.of(partner, rest)


def _equal_again(
    extent: Extent, start: int | None, replica: ReplicaName, partner: ReplicaName, lineage: Lineage
) -> Requests[bool]:
    """Whether a whole record of `partner` in here is the same in `replica`."""
    window, records = yield from _records(extent, start, (replica, partner), lineage)
    return any(window.of(partner, record) == window.of(replica, record) for record in records)


def _has_sound(extent: Extent, replica: ReplicaName, lineage: Lineage) -> Requests[bool]:
    """Whether a whole record with the right body checksum begins in the first bytes of this range."""
    extent = Extent(extent.start, min(extent.start + REACH, extent.end))
    window = yield from read_window(extent, (replica,), lineage)
    data, size = window.copies.get(replica, b""), lineage.segment_size
    start = next_record_start(data, extent.start, extent.start, segment_size=size)
    if start is None:
        return False
    return any(
        kind is RecordKind.RECORD and body_ok(data, extent.start, at) is not False
        for at, _, kind in walk(data, extent.start, start, extent.end, segment_size=size)
    )


def _records(
    extent: Extent, start: int | None, pair: tuple[ReplicaName, ReplicaName], lineage: Lineage
) -> Requests[tuple[Window, list[Extent]]]:
    """The whole records that the second of two has in this range, and both copies of it; none if one copy is missing.

    `start` is where a record starts; None: search for it.
    """
    nothing = Window(extent.start, {})
    if not extent.length:
        return nothing, []
    window = yield from read_window(extent, pair, lineage)
    if len(window.copies) < 2:
        return nothing, []
    theirs = window.copies[pair[1]]
    size = lineage.segment_size
    if start is None:
        start = next_record_start(theirs, window.start, extent.start, segment_size=size)
    if start is None:
        return nothing, []
    pieces = walk(theirs, window.start, start, extent.end, segment_size=size)
    return window, [Extent(at, at + length) for at, length, kind in pieces if kind is RecordKind.RECORD]
