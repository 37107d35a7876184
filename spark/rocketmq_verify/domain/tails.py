"""Whether what differs behind a replica's consistent point is another history or damage. Part of `inquiry`.

There the tables allow the replica other bytes than the reference's, up to its end. Records of another history differ in
every record from the first on: they were written at another time. So one whole record that is equal again behind the
difference proves the same history, and the difference is damage. Equal bytes alone prove nothing: bodies repeat.
"""

from typing import Final

from rocketmq_verify.domain.histories import History, Zone
from rocketmq_verify.domain.model import Extent, ReplicaName
from rocketmq_verify.domain.narrow import Questions
from rocketmq_verify.domain.records import LARGEST_RECORD, RecordKind, next_record_start, walk
from rocketmq_verify.domain.windows import NEAR, Found, Window, read_window, sound

REACH: Final = LARGEST_RECORD + (1 << 20)
"""Bytes behind the difference, and in front of the zone's end, in which an equal record is looked for."""


def is_tail(found: Found, zone: Zone, partner: ReplicaName, history: History) -> Questions[bool]:
    """Whether the replica of `zone` has another history from `found` on than `partner` has."""
    size = history.segment_size
    ours = sound(found.window, zone.replica, found, size)
    if ours and not sound(found.window, partner, found, size):
        return False  # the partner's record is the damaged one
    start, end = found.extent.end, zone.extent.end
    first = Extent(start, min(start + REACH, end))
    if (yield from _equal_again(first, start, zone.replica, partner, history)):
        return False
    last = Extent(max(first.end, end - REACH), end)
    return not (yield from _equal_again(last, None, zone.replica, partner, history))


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
