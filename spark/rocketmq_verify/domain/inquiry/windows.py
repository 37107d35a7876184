"""The record that covers a differing byte, as several replicas have it. Part of `inquiry`.

All replicas are read in the same window around the byte, and in a wider one if the record is not wholly in it. A
damaged copy may contain anything, so each copy with a whole record or blank there votes on where it starts and ends;
without any, the name and the borders come from what is left.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_formats.soundness.records import (
    LARGEST_RECORD,
    RecordKind,
    body_ok,
    name_record,
    next_record_start,
    record_start,
    walk,
)
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.model import ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage

NEAR: Final = 64 << 10
"""Bytes before and after the place that are read first."""
FAR: Final = LARGEST_RECORD + NEAR
"""The same if that is not enough: the largest record fits on either side."""


MOST_AT_ONCE: Final = 4 << 20
"""Bytes of one read; a sidecar returns up to 8 MiB."""


class Window(msgspec.Struct, frozen=True):
    """The same range as some replicas have it; a copy may end earlier, where its replica's log does."""

    start: int
    copies: dict[ReplicaName, bytes]

    def of(self, replica: ReplicaName, extent: Extent) -> bytes:
        """These bytes, as far as the copy goes."""
        return self.copies[replica][extent.start - self.start : extent.end - self.start]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a differing byte."""

    extent: Extent
    """Of the record or blank; without one, of the bytes that are not a record."""
    kind: RecordKind
    name: RecordName | None
    window: Window
    """Contains the extent, as far as the logs go."""


def locate(offset: int, replicas: tuple[ReplicaName, ...], lineage: Lineage) -> Requests[Found | None]:
    """The record at `offset`; None if fewer than two of these replicas still have it."""
    size = lineage.segment_size
    fallback: Found | None = None
    for reach in (NEAR, FAR):
        around = Extent(offset - reach, offset + reach).meet(_file(offset, size))
        window = yield from read_window(around, replicas, lineage)
        there = {replica: data for replica, data in window.copies.items() if around.start + len(data) > offset}
        window = Window(around.start, there)
        if len(window.copies) < 2:
            return None
        if (found := _voted(offset, window, lineage)) is not None:
            return found
        fallback = _fallback(offset, window, size)
        if around.length < 2 * reach and around == _file(offset, size):
            break
    return fallback


def read_window(extent: Extent, replicas: tuple[ReplicaName, ...], lineage: Lineage) -> Requests[Window]:
    """These bytes of each replica that has at least their start, as far as its log goes."""
    requests: list[ReadRequest] = []
    for replica in replicas:
        zone = lineage.zone(replica)
        part = Extent(0, 0) if zone is None else extent.meet(Extent(zone.extent.start, zone.end))
        if part.length and part.start == extent.start:
            requests += in_parts(replica, part)
    answers = (yield tuple(requests)) if requests else ()
    pieces: dict[ReplicaName, list[bytes | None]] = {}
    for request, data in zip(requests, answers, strict=True):
        pieces.setdefault(request.replica, []).append(
            data if data is None or len(data) == request.extent.length else None
        )
    copies: dict[ReplicaName, bytes] = {}
    for replica, parts in pieces.items():
        there = [part for part in parts if part is not None]
        data = b"".join(there)
        if len(there) < len(parts):
            data = yield from _beginning(replica, Extent(extent.start, extent.start + len(parts) * MOST_AT_ONCE))
        if data:
            copies[replica] = data
    return Window(extent.start, copies)


def in_parts(replica: ReplicaName, extent: Extent) -> list[ReadRequest]:
    """Requests for all bytes of a range, each for at most `MOST_AT_ONCE`."""
    starts = range(extent.start, extent.end, MOST_AT_ONCE)
    return [
        ReadRequest(replica, Extent(start, min(start + MOST_AT_ONCE, extent.end)), digest=False) for start in starts
    ]


def _beginning(replica: ReplicaName, extent: Extent) -> Requests[bytes]:
    """The beginning of a range that a replica still has, in a file that was cut."""
    low, high = extent.start, extent.end
    while high - low > 1:
        middle = (low + high) // 2
        (there,) = yield (ReadRequest(replica, Extent(middle - 1, middle), digest=True),)
        low, high = (low, middle) if there is None else (middle, high)
    low = min(low, extent.start + MOST_AT_ONCE)
    (data,) = (
        (yield (ReadRequest(replica, Extent(extent.start, low), digest=False),)) if low > extent.start else (None,)
    )
    return data if data is not None and len(data) == low - extent.start else b""


def sound(window: Window, replica: ReplicaName, found: Found, segment_size: int) -> bool:
    """Whether this copy has a record or a blank at that place, of any size, with the right body checksum.

    A record that continues beyond the log's end (a slave's last slice) counts.
    """
    data = window.copies[replica]
    end = window.start + len(data)
    piece = next(walk(data, window.start, found.extent.start, end, segment_size=segment_size), None)
    if piece is None or piece[2] is RecordKind.GAP:
        return False
    return piece[2] is not RecordKind.RECORD or body_ok(data, window.start, found.extent.start) is not False


def contents_of(found: Found, lineage: Lineage) -> tuple[dict[ReplicaName, bytes], int]:
    """The copies from the record's start to the window's end, and the bytes of the record to compare."""
    contents: dict[ReplicaName, bytes] = {}
    compared = found.extent.length
    for zone in lineage.zones:
        part = found.window.copies.get(zone.replica, b"")[found.extent.start - found.window.start :]
        if part:
            contents[zone.replica] = part
            compared = min(compared, len(part), zone.extent.end - found.extent.start)
    return contents, compared


def _file(offset: int, size: int) -> Extent:
    start = offset - offset % size
    return Extent(start, start + size)


def _voted(offset: int, window: Window, lineage: Lineage) -> Found | None:
    votes: dict[tuple[int, int, RecordKind], list[ReplicaName]] = {}
    chained: set[tuple[int, int, RecordKind]] = set()
    size = lineage.segment_size
    for replica, data in window.copies.items():
        end = window.start + len(data)
        start = record_start(data, window.start, offset, segment_size=size)
        # a file's start is given even if it is not in the window
        if start is None or start < window.start or start > offset:
            continue
        lost = False
        for at, length, kind in walk(data, window.start, start, end, segment_size=size):
            if at + length > offset:
                if kind in {RecordKind.RECORD, RecordKind.BLANK}:
                    votes.setdefault((at, length, kind), []).append(replica)
                    # a record has its own offset in it; a blank after a gap may belong to another file
                    chained |= {(at, length, kind)} if kind is RecordKind.RECORD or not lost else set()
                break
            lost = kind is RecordKind.GAP
    if not votes:
        return None

    def weight(vote: tuple[int, int, RecordKind]) -> tuple[bool, int, int, bool, int]:
        voters = votes[vote]
        good = sum(body_ok(window.copies[voter], window.start, vote[0]) is not False for voter in voters)
        return vote in chained, good, len(voters), lineage.reference in voters, -vote[0]

    best = max(votes, key=weight)
    at, length, kind = best
    return Found(
        extent=Extent(at, at + length),
        kind=kind,
        name=_name(window, at, {replica: window.copies[replica] for replica in votes[best]}, size),
        window=window,
    )


def _fallback(offset: int, window: Window, size: int) -> Found:
    """No copy has a whole record here: from the nearest start before up to the next start after."""
    starts, ends = [], []
    for data in window.copies.values():
        start = record_start(data, window.start, offset, segment_size=size)
        if start is not None and window.start <= start <= offset:
            starts.append(start)
        following = next_record_start(data, window.start, offset + 1, segment_size=size)
        ends.append(window.start + len(data) if following is None else following)
    start = max(starts, default=offset)
    return Found(
        extent=Extent(start, max(min(ends), offset + 1)),
        kind=RecordKind.GAP,
        name=_name(window, start, window.copies, size),
        window=window,
    )


def names_by(found: Found, replicas: Iterable[ReplicaName], lineage: Lineage) -> dict[ReplicaName, RecordName]:
    """The name by the copy of each of these replicas alone, of those that have one."""
    size, start = lineage.segment_size, found.extent.start
    copies = {replica: found.window.copies.get(replica, b"") for replica in replicas}
    names = {
        replica: name_record(data, found.window.start, start, segment_size=size) for replica, data in copies.items()
    }
    return {replica: name for replica, name in names.items() if name is not None}


def agreed(names: Iterable[RecordName]) -> RecordName | None:
    """The fields that are equal in all of these names that have them; None without names."""
    known = list(names)
    if not known:
        return None
    fields = {field: {getattr(name, field) for name in known} - {None} for field in RecordName.__struct_fields__}
    told = {field: values.pop() if len(values) == 1 else None for field, values in fields.items()}
    return RecordName(**told | {"physical_offset": known[0].physical_offset, "size": told["size"] or known[0].size})


def _name(window: Window, start: int, copies: Mapping[ReplicaName, bytes], size: int) -> RecordName | None:
    """The name from the copy with the most fields."""
    names = [name_record(data, window.start, start, segment_size=size) for data in copies.values()]
    known = [name for name in names if name is not None]

    def fields(name: RecordName) -> int:
        return sum(value is not None for value in msgspec.structs.astuple(name))

    return max(known, key=fields, default=None)


def message(name: RecordName) -> str:
    """Which one it is, for people."""
    number = "a message" if name.queue_offset is None else f"message {name.queue_offset}"
    topic = "a topic without a valid name" if name.topic is None else name.topic
    return f"{number} of queue {'?' if name.queue_id is None else name.queue_id} of {topic}"
