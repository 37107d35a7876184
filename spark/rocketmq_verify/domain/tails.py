"""Whether what differs behind a replica's consistent point is another history or damage. Part of `inquiry`.

There the tables allow the replica other bytes than the reference's, up to its end. Records of another history differ in
every record from the first on: they were written at another time. So one whole record that is equal again behind the
difference proves the same history, and the difference is damage; as do the times in the differing record. Equal bytes
alone prove nothing: bodies repeat.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from rocketmq_verify.domain.compare import ChunkResult
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.histories import History, Zone
from rocketmq_verify.domain.judge import judge
from rocketmq_verify.domain.model import Extent, ReplicaName
from rocketmq_verify.domain.narrow import Questions, Suspect, narrow
from rocketmq_verify.domain.records import LARGEST_RECORD, RecordKind, body_ok, next_record_start, same_put, walk
from rocketmq_verify.domain.table_findings import stale_tail
from rocketmq_verify.domain.windows import NEAR, Found, Window, contents_of, locate, read_window, sound

REACH: Final = LARGEST_RECORD + (1 << 20)
"""Bytes behind the difference, and in front of the zone's end, in which an equal record is looked for."""
MOST_TRIES: Final = 16
"""Differences of one replica that are looked at; the others are taken for damage."""

Tail: TypeAlias = tuple[Finding | None, int]
"""From here on a replica has another history, or what it has could not be settled (None)."""


def find_tails(history: History, results: Sequence[ChunkResult]) -> Questions[dict[ReplicaName, Tail]]:
    """Replicas with another history behind their consistent point, and from where on."""
    found: dict[ReplicaName, Tail] = {}
    for zone in history.zones:
        behind = [
            (partner, result)
            for result in results
            if zone.sure <= result.chunk.offset < zone.extent.end
            and (partner := _partner(zone, result, history)) is not None
        ]
        if not behind or (yield from ends_alike(zone, behind[-1][0], history)):
            continue
        for partner, result in behind[:MOST_TRIES]:
            # what is damaged in front of the tail differs as well
            tail = yield from _tail(history, zone, partner, result)
            if tail is not None:
                found[zone.replica] = tail
                break
    return found


def _partner(zone: Zone, result: ChunkResult, history: History) -> ReplicaName | None:
    """With whom to compare: who of those that were compared here has the newest history; None if that is the same.

    It is the reference, unless that has not got these bytes.
    """
    here = {one for group in result.groups for one in group}
    newest = max(
        (one for one in history.zones if one.replica in here),
        key=lambda one: (one.last_epoch, one.end, one.replica == history.reference),
        default=None,
    )
    if newest is None or any({zone.replica, newest.replica} <= set(group) for group in result.groups):
        return None
    return newest.replica if zone.replica in here else None


def _tail(history: History, zone: Zone, partner: ReplicaName, result: ChunkResult) -> Questions[Tail | None]:
    """None: what differs in this chunk is no other history."""
    pair = (zone.replica, partner)
    unsettled = None, zone.sure  # one of the two has not got these bytes any more: nothing is said about it
    narrowed = yield from narrow([Suspect(result.chunk.extent, pair)], most=MOST_TRIES)
    if not narrowed.places:
        return unsettled
    end = 0
    for place in narrowed.places:
        difference = place.differences(end)
        if difference is None:
            continue
        found = yield from locate(difference, pair, history)
        if found is None or set(found.window.copies) != set(pair):
            return unsettled
        if (yield from is_tail(found, zone, partner, history)):
            return _tail_finding(history, zone, partner, found, difference), max(found.extent.start, zone.sure)
        end = found.extent.end
    return None


def _tail_finding(history: History, zone: Zone, partner: ReplicaName, found: Found, difference: int) -> Finding:
    start = max(found.extent.start, zone.sure)
    extent = Extent(start, zone.extent.end)
    epoch = history.epoch_at(start)
    if zone.beyond is Kind.STALE_TAIL and start >= zone.promised:
        return stale_tail(zone.replica, extent, epoch, partner)
    pair = tuple(sorted((zone.replica, partner)))
    contents, compared = contents_of(found, history)
    return Finding(
        kind=Kind.DIVERGENT_HISTORY,
        replicas=pair,
        extent=extent,
        first_difference=difference,
        segment=difference - difference % history.segment_size,
        epoch=epoch,
        record=found.name,
        copies=judge(contents, found.extent.start, found.extent.length, compared),
        detail=f"{zone.replica} and {partner} have different messages from {start} to {extent.end}, where both should "
        f"have the same: {partner} has them of epoch {epoch}, which {zone.replica} does not know",
    )


def is_tail(found: Found, zone: Zone, partner: ReplicaName, history: History) -> Questions[bool]:
    """Whether the replica of `zone` has another history from `found` on than `partner` has."""
    size = history.segment_size
    ours = sound(found.window, zone.replica, found, size)
    if ours and not sound(found.window, partner, found, size):
        return False  # the partner's record is the damaged one
    if ours and same_put(*(found.window.of(one, found.extent) for one in (zone.replica, partner))):
        return False
    start, end = found.extent.end, zone.extent.end
    first = Extent(start, min(start + REACH, end))
    if (yield from _equal_again(first, start, zone.replica, partner, history)):
        return False
    last = Extent(max(first.end, end - REACH), end)
    if (yield from _equal_again(last, None, zone.replica, partner, history)):
        return False
    # a broken record is no other history by itself: that takes a sound one
    return ours or (yield from _has_sound(Extent(found.extent.start, end), zone.replica, history))


def ends_alike(zone: Zone, partner: ReplicaName, history: History) -> Questions[bool]:
    """Whether the last whole record of the zone and what is behind it are the same in `partner`.

    Then the whole zone is of one history.
    """
    end = zone.extent.end
    extent = Extent(max(zone.sure, end - NEAR), end)
    start = zone.sure if extent.start == zone.sure else None
    window, records = yield from _records(extent, start, (zone.replica, partner), history)
    if not records:
        return False
    rest = Extent(records[-1].start, end)
    return window.of(zone.replica, rest) == window.of(partner, rest)


def _equal_again(
    extent: Extent, start: int | None, replica: ReplicaName, partner: ReplicaName, history: History
) -> Questions[bool]:
    """Whether a whole record of `partner` in here is the same in `replica`."""
    window, records = yield from _records(extent, start, (replica, partner), history)
    return any(window.of(partner, record) == window.of(replica, record) for record in records)


def _has_sound(extent: Extent, replica: ReplicaName, history: History) -> Questions[bool]:
    """Whether a whole record with the right body checksum begins in the first bytes of this range."""
    extent = Extent(extent.start, min(extent.start + REACH, extent.end))
    window = yield from read_window(extent, (replica,), history)
    data, size = window.copies.get(replica, b""), history.segment_size
    start = next_record_start(data, extent.start, extent.start, segment_size=size)
    if start is None:
        return False
    return any(
        kind is RecordKind.RECORD and body_ok(data, extent.start, at) is not False
        for at, _, kind in walk(data, extent.start, start, extent.end, segment_size=size)
    )


def _records(
    extent: Extent, start: int | None, pair: tuple[ReplicaName, ReplicaName], history: History
) -> Questions[tuple[Window, list[Extent]]]:
    """The whole records that the second of two has in this range, and both copies of it; none if one copy is not there.

    `start` is where a record starts; None: look for it.
    """
    nothing = Window(extent.start, {})
    if not extent.length:
        return nothing, []
    window = yield from read_window(extent, pair, history)
    if len(window.copies) < 2:
        return nothing, []
    theirs = window.copies[pair[1]]
    size = history.segment_size
    if start is None:
        start = next_record_start(theirs, window.start, extent.start, segment_size=size)
    if start is None:
        return nothing, []
    pieces = walk(theirs, window.start, start, extent.end, segment_size=size)
    return window, [Extent(at, at + length) for at, length, kind in pieces if kind is RecordKind.RECORD]
