"""The record that covers a differing byte, as several replicas have it. Part of `inquiry`.

Replicas are asked for a window around the byte, the same for all; a wider one if the record is not wholly in it. A
damaged copy may say anything, so each copy that has a whole record or blank there has a vote on where it starts and
ends; without any, names and borders are what can still be told.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rocketmq_verify.domain.histories import History
from rocketmq_verify.domain.model import Ask, Extent, RecordName, ReplicaName
from rocketmq_verify.domain.narrow import Questions
from rocketmq_verify.domain.records import (
    LARGEST_RECORD,
    RecordKind,
    body_ok,
    name_record,
    next_record_start,
    record_start,
    walk,
)

NEAR: Final = 64 << 10
"""Bytes in front of and behind the place that are read first."""
FAR: Final = LARGEST_RECORD + NEAR
"""Where that is not enough: the largest record fits on either side."""


MOST_AT_ONCE: Final = 4 << 20
"""Bytes of one question; a sidecar gives up to 8 MiB."""


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
    """Of the record or blank; where none can be made out, the bytes that are none."""
    kind: RecordKind
    name: RecordName | None
    window: Window
    """Holds the extent, as far as the logs go."""


def locate(offset: int, replicas: tuple[ReplicaName, ...], history: History) -> Questions[Found | None]:
    """What covers `offset`; None if fewer than two of these replicas still have it."""
    size = history.segment_size
    fallback: Found | None = None
    for reach in (NEAR, FAR):
        around = Extent(offset - reach, offset + reach).meet(_file(offset, size))
        window = yield from read_window(around, replicas, history)
        there = {one: data for one, data in window.copies.items() if around.start + len(data) > offset}
        window = Window(around.start, there)
        if len(window.copies) < 2:
            return None
        if (found := _voted(offset, window, history)) is not None:
            return found
        fallback = _fallback(offset, window, size)
        if around.length < 2 * reach and around == _file(offset, size):
            break
    return fallback


def read_window(extent: Extent, replicas: tuple[ReplicaName, ...], history: History) -> Questions[Window]:
    """These bytes of each replica that has at least their start, as far as its log goes."""
    asks: list[Ask] = []
    for replica in replicas:
        zone = history.zone(replica)
        part = Extent(0, 0) if zone is None else extent.meet(Extent(zone.extent.start, zone.end))
        if part.length and part.start == extent.start:
            asks += in_parts(replica, part)
    answers = (yield tuple(asks)) if asks else ()
    pieces: dict[ReplicaName, list[bytes | None]] = {}
    for ask, data in zip(asks, answers, strict=True):
        pieces.setdefault(ask.replica, []).append(data if data is None or len(data) == ask.extent.length else None)
    copies: dict[ReplicaName, bytes] = {}
    for replica, parts in pieces.items():
        whole = [part for part in parts if part is not None]
        data = b"".join(whole)
        if len(whole) < len(parts):
            data = yield from _beginning(replica, Extent(extent.start, extent.start + len(parts) * MOST_AT_ONCE))
        if data:
            copies[replica] = data
    return Window(extent.start, copies)


def in_parts(replica: ReplicaName, extent: Extent) -> list[Ask]:
    """Questions for all bytes of a range, each for `MOST_AT_ONCE` at the most."""
    starts = range(extent.start, extent.end, MOST_AT_ONCE)
    return [Ask(replica, Extent(start, min(start + MOST_AT_ONCE, extent.end)), digest=False) for start in starts]


def _beginning(replica: ReplicaName, extent: Extent) -> Questions[bytes]:
    """What a replica has of a range in a file that was cut."""
    low, high = extent.start, extent.end
    while high - low > 1:
        middle = (low + high) // 2
        (there,) = yield (Ask(replica, Extent(middle - 1, middle), digest=True),)
        low, high = (low, middle) if there is None else (middle, high)
    low = min(low, extent.start + MOST_AT_ONCE)
    (data,) = (yield (Ask(replica, Extent(extent.start, low), digest=False),)) if low > extent.start else (None,)
    return data if data is not None and len(data) == low - extent.start else b""


def sound(window: Window, replica: ReplicaName, found: Found, segment_size: int) -> bool:
    """Whether this copy has a record or a blank at that place, of any size, with the right body checksum.

    One that goes on behind the log's end (a slave's last slice) counts.
    """
    data = window.copies[replica]
    end = window.start + len(data)
    piece = next(walk(data, window.start, found.extent.start, end, segment_size=segment_size), None)
    if piece is None or piece[2] is RecordKind.GAP:
        return False
    return piece[2] is not RecordKind.RECORD or body_ok(data, window.start, found.extent.start) is not False


def contents_of(found: Found, history: History) -> tuple[dict[ReplicaName, bytes], int]:
    """The copies from the record's start to the window's end, and how many bytes of the record are to be compared."""
    contents: dict[ReplicaName, bytes] = {}
    compared = found.extent.length
    for zone in history.zones:
        part = found.window.copies.get(zone.replica, b"")[found.extent.start - found.window.start :]
        if part:
            contents[zone.replica] = part
            compared = min(compared, len(part), zone.extent.end - found.extent.start)
    return contents, compared


def _file(offset: int, size: int) -> Extent:
    start = offset - offset % size
    return Extent(start, start + size)


def _voted(offset: int, window: Window, history: History) -> Found | None:
    votes: dict[tuple[int, int, RecordKind], list[ReplicaName]] = {}
    chained: set[tuple[int, int, RecordKind]] = set()
    size = history.segment_size
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
                    # a record says where it belongs; a blank behind a gap may be of another file
                    chained |= {(at, length, kind)} if kind is RecordKind.RECORD or not lost else set()
                break
            lost = kind is RecordKind.GAP
    if not votes:
        return None

    def weight(vote: tuple[int, int, RecordKind]) -> tuple[bool, int, int, bool, int]:
        voters = votes[vote]
        good = sum(body_ok(window.copies[one], window.start, vote[0]) is not False for one in voters)
        return vote in chained, good, len(voters), history.reference in voters, -vote[0]

    best = max(votes, key=weight)
    at, length, kind = best
    return Found(
        extent=Extent(at, at + length),
        kind=kind,
        name=_name(window, at, {one: window.copies[one] for one in votes[best]}, size),
        window=window,
    )


def _fallback(offset: int, window: Window, size: int) -> Found:
    """No copy has a whole record here: what is known of the nearest start in front, up to the next start behind."""
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


def _name(window: Window, start: int, copies: Mapping[ReplicaName, bytes], size: int) -> RecordName | None:
    """The name by the copy that knows most."""
    names = [name_record(data, window.start, start, segment_size=size) for data in copies.values()]
    known = [name for name in names if name is not None]

    def fields(name: RecordName) -> int:
        return sum(value is not None for value in msgspec.structs.astuple(name))

    return max(known, key=fields, default=None)
