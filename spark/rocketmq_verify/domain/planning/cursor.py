"""Which bytes a run reads again: the ones that were not read for the longest time, so that each is read again within
the promised time. Called by the job.

A run does not know when the next one comes. It expects it after as long as the last one was ago, and reads

- what would be older than promised before the run after the next one: the promise holds even if one run is missed;
- a part of the rest, as large as that time is a part of half of the promised time. So the work is spread over the runs,
  the oldest byte is about half as old as promised, and some missed runs do no harm.
"""

from collections.abc import Iterable
from typing import Final

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.domain.planning.chunks import merged

SPREAD: Final = 2
"""How many times everything is read in the promised time; and how many runs ahead the promise has to hold."""


def again(
    ages: Iterable[Aged], *, now_ms: int, ran_ms: int | None, promise_ms: int, chunk_size: int
) -> tuple[Extent, ...]:
    """What to read of bytes that were read before, in whole cells of the grid: ascending, disjoint.

    Args:
        ages: of the group; what was never read is read anyway.
        ran_ms: when the last run began; None: unknown.
        promise_ms: the promised time; 0: everything is read in every run.
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
        stop = min((age.start + max(share, 0)) // chunk_size * chunk_size, age.end)
        if share >= age.extent.length:
            stop = age.end
        if stop <= age.start:
            break
        found.append(Extent(age.start, stop))
        share -= stop - age.start
    return merged(found)


def overdue(ages: Iterable[Aged], *, now_ms: int, promise_ms: int) -> tuple[Aged, ...]:
    """What is older than promised. Made of the ages after a run, and of the time when it began."""
    return tuple(age for age in ages if age.since_ms + promise_ms < now_ms)
