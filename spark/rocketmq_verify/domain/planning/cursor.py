"""Which bytes a run reads again: the ones that were not read for the longest time, so that each is read again within
the promised time; and in which legs, if it has little time. Called by the job.

A run does not know when the next one comes. It expects it after as long as the last one was ago, and reads

- what would be older than promised before the run after the next one: the promise holds even if one run is missed;
- a part of the rest, as large as that time is a part of half of the promised time. So the work is spread over the runs,
  the oldest byte is about half as old as promised, and some missed runs do no harm.

What is read is read in legs: first known damage, so that it is never out of sight; then what no run has read,
ascending; then the oldest. After each leg all that is known is kept. A run whose time is up ends after a leg, and the
next one continues there.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.planning.ages import Aged, oldest
from rocketmq_verify.domain.planning.chunks import Plan, common, merged, without
from rocketmq_verify.domain.planning.lineage import Lineage

SPREAD: Final = 2
"""How many times everything is read in the promised time; and how many runs ahead the promise has to hold."""
LEG_SECONDS: Final = 120.0
"""Of a leg, about: a run that is killed loses so much."""
FIRST_LEG: Final = 4 << 30
"""Bytes of the log, as long as the speed is unknown."""
LARGEST_LEG: Final = 64 << 30
_DAY_MS: Final = 86_400_000


def again(
    ages: Iterable[Aged], *, now_ms: int, ran_ms: int | None, promise_ms: int, chunk_size: int, cell_size: int = 0
) -> tuple[Extent, ...]:
    """What to read of bytes that were read before, in whole cells of the grid: ascending, disjoint.

    With a ledger its cells are the grid. They may be larger than the part that a run should read: then one is read when
    half of the promised time is over.

    Args:
        ages: of the group; what was never read is read anyway.
        ran_ms: when the last run began; None: unknown.
        promise_ms: the promised time; 0: everything is read in every run.
        cell_size: of the ledger; 0: without one.
    """
    old = sorted((age for age in ages if age.read), key=lambda age: (age.since_ms, age.start))
    total = sum(age.extent.length for age in old)
    pause = promise_ms if ran_ms is None else max(now_ms - ran_ms, 0)
    share = min(total * pause * SPREAD // max(promise_ms, 1), total)
    found: list[Extent] = []
    for age in old:
        if age.since_ms + promise_ms <= now_ms + SPREAD * pause:
            found.append(age.extent)
            share -= age.extent.length
            continue
        # down to the grid: a cell that is read in two runs would be two chunks
        grid = cell_size or chunk_size
        stop = min((age.start + max(share, 0)) // grid * grid, age.end)
        if cell_size and stop <= age.start and not found and age.since_ms + promise_ms // SPREAD <= now_ms:
            stop = min(age.start // grid * grid + grid, age.end)
        if share >= age.extent.length:
            stop = age.end
        if stop <= age.start:
            break
        found.append(Extent(age.start, stop))
        share -= stop - age.start
    return merged(found)


def in_order(
    plan: Plan, fresh: Iterable[Extent], ages: Iterable[Aged], suspects: Iterable[Extent] = ()
) -> tuple[Extent, ...]:
    """What the plan reads, as it is read: what is suspect, what is `fresh`, ascending, then the oldest."""
    whole = (*plan.pieces, *plan.alone)
    known = common(whole, suspects)
    first = (*known, *without(common(whole, fresh), known))
    rest = without(whole, first)
    by_age = sorted(ages, key=lambda age: (age.since_ms, age.start))
    old = [part for age in by_age for part in common(rest, [age.extent])]
    return (*first, *old, *without(rest, old))


def next_leg(pieces: Sequence[Extent], most: int, segment_size: int) -> tuple[tuple[Extent, ...], tuple[Extent, ...]]:
    """The first pieces, of about `most` bytes and at least up to the end of a file, and the others.

    A piece is cut at files only: there a record begins in any case, so that the structure of both parts can be checked.
    """
    left = most
    for number, piece in enumerate(pieces):
        if piece.length <= left:
            left -= piece.length
            continue
        stop = (piece.start + max(left, 0)) // segment_size * segment_size
        if stop <= piece.start and not number:
            stop = piece.start // segment_size * segment_size + segment_size
        taken = () if stop <= piece.start else (Extent(piece.start, min(stop, piece.end)),)
        rest = Extent(max(stop, piece.start), piece.end)
        return (*pieces[:number], *taken), (*([rest] if rest.length else []), *pieces[number + 1 :])
    return tuple(pieces), ()


def leg_bytes(read: int, seconds: float, *, left_seconds: float | None) -> int:
    """How many bytes of the log the next leg may have; 0: the time is up.

    Args:
        read: bytes that this run has read so far, in `seconds`.
        left_seconds: of the run's time; None: without a limit.
    """
    if left_seconds is not None and left_seconds <= 0:
        return 0
    wanted = LEG_SECONDS if left_seconds is None else min(LEG_SECONDS, left_seconds)
    return max(min(int(read * wanted / max(seconds, 0.001)), LARGEST_LEG), 1)


def overdue(ages: Iterable[Aged], *, now_ms: int, promise_ms: int) -> tuple[Aged, ...]:
    """What is older than promised. Made of the ages after a run, and of the time when it began."""
    return tuple(age for age in ages if age.since_ms + promise_ms < now_ms)


def late(ages: Iterable[Aged], lineage: Lineage, *, now_ms: int, promise_ms: int) -> Finding | None:
    """The finding of what was not read in the promised time; None: everything was."""
    found = overdue(ages, now_ms=now_ms, promise_ms=promise_ms)
    first = oldest(found)
    if first is None:
        return None
    last = "was last read" if first.read else "was first seen, unread,"
    extent = Extent(min(age.start for age in found), max(age.end for age in found))
    return Finding(
        kind=Kind.NOT_READ_IN_TIME,
        replicas=tuple(zone.replica for zone in lineage.zones if zone.extent.meet(extent).length),
        extent=extent,
        detail=f"{sum(age.extent.length for age in found)} bytes were not read within {promise_ms / _DAY_MS:g} days; "
        f"the oldest is at {first.start} and {last} {(now_ms - first.since_ms) / _DAY_MS:.1f} days ago",
    )
