"""How old the knowledge of each byte is. Kept for each replica by `watermarks`; `cursor` chooses by it what to read.

A byte's age begins when it was last read, or, as long as it never was, when a run saw it for the first time. So one
limit of age is the promise for both: an old byte is read again, and a new one is read at all, before it is that old.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.planning.chunks import without

MOST_AGES: Final = 256
"""Of one replica. Beyond that, neighbours count as of the older one's age."""


class Aged(msgspec.Struct, frozen=True, order=True):
    """A range of a log whose bytes are known since the same time."""

    start: int
    end: int
    since_ms: int
    """The start of the run that read them last, or first saw them; in milliseconds since 1970."""
    read: bool = True
    """False: no run has read them yet."""

    @property
    def extent(self) -> Extent:
        return Extent(self.start, self.end)

    def clipped(self, extent: Extent) -> "Aged":
        return msgspec.structs.replace(self, start=max(self.start, extent.start), end=min(self.end, extent.end))


def believed(ages: Iterable[Aged], extent: Extent, now_ms: int) -> tuple[Aged, ...]:
    """The ages in `extent`. A time that lies ahead is not believed: a clock was wrong, and these bytes are as old as
    can be."""
    return tuple(
        part if part.since_ms <= now_ms else msgspec.structs.replace(part, since_ms=0)
        for age in ages
        if (part := age.clipped(extent)).start < part.end
    )


def renewed(ages: Iterable[Aged], there: Iterable[Extent], read: Iterable[Extent], now_ms: int) -> tuple[Aged, ...]:
    """The ages after a run.

    Args:
        ages: ascending, disjoint.
        there: what is compared of this log; what is not known of it is seen now for the first time.
        read: what the run read and compared.
    """
    read = tuple(read)
    kept = [
        msgspec.structs.replace(age, start=part.start, end=part.end)
        for age in ages
        for part in without([age.extent], read)
    ]
    new = [Aged(part.start, part.end, now_ms) for part in without(read, ())]
    known = [age.extent for age in (*kept, *new)]
    first = [Aged(part.start, part.end, now_ms, read=False) for part in without(there, known)]
    return _bounded(sorted((*kept, *new, *first)))


def together(logs: Sequence[tuple[Extent, Sequence[Aged]]], now_ms: int) -> tuple[Aged, ...]:
    """The age of what at least two of these logs have: that of the copy which was not read for the longest time.

    Args:
        logs: what is compared of each, and its ages; what is not known is seen now for the first time.
    """
    steps: list[tuple[int, int, Aged | None]] = []
    for number, (extent, ages) in enumerate(logs):
        known = [part for age in ages if (part := age.clipped(extent)).start < part.end]
        gaps = without([extent], [age.extent for age in known])
        for age in (*known, *(Aged(gap.start, gap.end, now_ms, read=False) for gap in gaps)):
            steps += [(age.start, number, age), (age.end, number, None)]
    at: dict[int, Aged] = {}
    found: list[Aged] = []
    before = 0
    # of one offset the ends come first
    for offset, number, begins in sorted(steps, key=lambda step: (step[0], step[2] is not None)):
        if len(at) > 1 and before < offset:
            since = min(copy.since_ms for copy in at.values())
            found.append(Aged(before, offset, since, all(copy.read for copy in at.values())))
        before = offset
        if begins is None:
            at.pop(number, None)
        else:
            at[number] = begins
    return _joined(found)


def oldest(ages: Iterable[Aged]) -> Aged | None:
    """What was not read for the longest time; of several the first. None: nothing is known."""
    return min(ages, key=lambda age: (age.since_ms, age.start), default=None)


def _joined(ages: Iterable[Aged]) -> tuple[Aged, ...]:
    found: list[Aged] = []
    for age in ages:
        last = found[-1] if found else None
        if last is not None and (last.end, last.since_ms, last.read) == (age.start, age.since_ms, age.read):
            found[-1] = msgspec.structs.replace(last, end=age.end)
        else:
            found.append(age)
    return tuple(found)


def _bounded(ages: Iterable[Aged]) -> tuple[Aged, ...]:
    """At most MOST_AGES; what that costs is that some bytes are read again too early."""
    found = list(_joined(ages))
    while len(found) > MOST_AGES:
        pairs = [
            (abs(one.since_ms - other.since_ms), index)
            for index, (one, other) in enumerate(pairwise(found))
            if one.end == other.start and one.read == other.read
        ]
        if pairs:
            _, index = min(pairs)
            one, other = found[index : index + 2]
            found[index : index + 2] = [Aged(one.start, other.end, min(one.since_ms, other.since_ms), one.read)]
        else:  # all apart: what is forgotten is read again
            found.remove(min(found, key=lambda age: age.extent.length))
    return tuple(found)
