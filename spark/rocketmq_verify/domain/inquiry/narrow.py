"""From a differing chunk to the bytes that differ, with few and small reads.

Everything that reads from replicas is a generator: it yields a batch of `ReadRequest`s, is sent the answers in the same
order, and returns its result; `drive` runs one. So a batch is one round trip to every replica, however many chunks it
is about, and the tests answer from memory.

A chunk is cut into FAN_OUT parts, of which the differing ones are cut again, down to LEAF bytes, which are then read.
A digest costs about 32 bytes on the wire and a round trip some milliseconds: with 16 parts a chunk of 1 MiB takes two
rounds and 512 bytes of digests from each replica before 4 KiB are read; in halves it would take eight rounds.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.inquiry.compare import Groups, Rest, grouped
from rocketmq_verify.domain.model import ReadRequest, ReplicaName

T = TypeVar("T")
Answers: TypeAlias = Sequence[bytes | None]
Requests: TypeAlias = Generator[tuple[ReadRequest, ...], Answers, T]

LEAF: Final = 4 << 10
"""Bytes: ranges of this size are read."""
FAN_OUT: Final = 16
MOST_RANGES: Final = 64
"""Kept of each way in which replicas differ, at every level; the others are only counted."""


class Suspect(msgspec.Struct, frozen=True):
    """A range in which these replicas differ."""

    extent: Extent
    replicas: tuple[ReplicaName, ...]


class Place(msgspec.Struct, frozen=True):
    """At most LEAF bytes in which replicas differ."""

    extent: Extent
    contents: dict[ReplicaName, bytes]
    """Of every replica that has them, each `extent.length` bytes."""

    def differences(self, start: int) -> int | None:
        """Offset of the first byte at or after `start` that is not equal in all; None: no such byte here."""
        first, *others = self.contents.values()
        low = max(start - self.extent.start, 0)
        found = [at for other in others if (at := first_difference(first, other, low)) is not None]
        return self.extent.start + min(found) if found else None


class Narrowed(msgspec.Struct, frozen=True, kw_only=True):
    """The result for some suspects."""

    places: tuple[Place, ...]
    """Ascending."""
    rest: dict[Groups, Rest]
    """Other differing ranges, which were not read, by the way in which replicas differ."""


def drive(requests: Requests[T], answer: Callable[[tuple[ReadRequest, ...]], Answers]) -> T:
    """Run it to its end; `answer` returns one answer for every request of a batch, in order."""
    try:
        batch = next(requests)
        while True:
            batch = requests.send(answer(batch))
    except StopIteration as stop:
        result: T = stop.value
        return result


def narrow(suspects: Iterable[Suspect], *, most: int = MOST_RANGES) -> Requests[Narrowed]:
    """Where exactly these differ. Bytes that are no longer there are left out."""
    rest: dict[Groups, Rest] = {}
    ranges = list(suspects)
    done: list[Suspect] = []
    while ranges:
        done += [suspect for suspect in ranges if suspect.extent.length <= LEAF]
        parts = [
            Suspect(part, suspect.replicas)
            for suspect in ranges
            if suspect.extent.length > LEAF
            for part in _parts(suspect.extent)
        ]
        if not parts:
            break
        ranges = _differing(parts, (yield _read_requests(parts, digest=True)), most, rest)
    done.sort(key=lambda suspect: suspect.extent)
    places = []
    if done:
        answer = iter((yield _read_requests(done, digest=False)))
        for suspect in done:
            contents = {replica: data for replica in suspect.replicas if (data := next(answer)) is not None}
            place = Place(
                suspect.extent, {r: data for r, data in contents.items() if len(data) == suspect.extent.length}
            )
            if len(place.contents) > 1 and place.differences(suspect.extent.start) is not None:
                places.append(place)
    return Narrowed(places=tuple(places), rest=rest)


def first_difference(one: bytes, other: bytes, start: int = 0) -> int | None:
    """Index of the first byte at or after `start` that differs; None: they are equal up to the shorter end."""
    end = min(len(one), len(other))
    if one[start:end] == other[start:end]:
        return None
    low, high = start, end
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _parts(extent: Extent) -> Iterator[Extent]:
    """About FAN_OUT parts on a grid of their own size, a power of two from LEAF up."""
    size = LEAF
    while size * FAN_OUT < extent.length:
        size *= 2
    start = extent.start
    while start < extent.end:
        end = min(start - start % size + size, extent.end)
        yield Extent(start, end)
        start = end


def _read_requests(ranges: Iterable[Suspect], *, digest: bool) -> tuple[ReadRequest, ...]:
    return tuple(ReadRequest(replica, suspect.extent, digest) for suspect in ranges for replica in suspect.replicas)


def _differing(parts: Iterable[Suspect], answers: Answers, most: int, rest: dict[Groups, Rest]) -> list[Suspect]:
    """The parts that differ, of each way at most `most`."""
    found: list[Suspect] = []
    kept: dict[Groups, int] = {}
    answer = iter(answers)
    for part in parts:
        there = {replica: data for replica in part.replicas if (data := next(answer)) is not None}
        groups = grouped(there)
        if len(groups) < 2:
            continue
        kept[groups] = kept.get(groups, 0) + 1
        if kept[groups] <= most:
            found.append(Suspect(part.extent, tuple(sorted(there))))
        else:
            rest[groups] = rest.get(groups, Rest()).plus(Rest.of(part.extent))
    return found
