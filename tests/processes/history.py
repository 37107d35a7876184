"""What clients saw of versioned values, and what must be true of it under any fault of the controllers.

A register's version grows with each change (syncStateSetEpoch, masterEpoch, the highest brokerId), so a history is
linearizable exactly if the order of versions fits real time: each write has a version of its own, all who saw a
version saw the same value, and an operation that began after another ended has the greater version (a read: no smaller
one). Operations with unknown outcome are not recorded: what they did shows in what others see.
"""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable

import msgspec


class Seen(msgspec.Struct, frozen=True):
    """A completed operation on `register` that wrote or read `version`."""

    register: str
    version: int
    value: Hashable
    """None: unknown from this operation."""
    began: float
    ended: float
    """Seconds, monotonic; of one clock for all."""
    wrote: bool = False


def violations(history: Iterable[Seen]) -> list[str]:
    """Impossible parts of `history`, in words; empty without any."""
    by_register: dict[str, list[Seen]] = defaultdict(list)
    for seen in history:
        by_register[seen.register].append(seen)
    return [
        trouble
        for register in sorted(by_register)
        for check in (_written_twice, _seen_differently, _out_of_order)
        for trouble in check(by_register[register])
    ]


def _written_twice(history: list[Seen]) -> list[str]:
    by_version: dict[int, list[Seen]] = defaultdict(list)
    for seen in history:
        if seen.wrote:
            by_version[seen.version].append(seen)
    return [f"version written twice: {writes}" for writes in by_version.values() if len(writes) > 1]


def _seen_differently(history: list[Seen]) -> list[str]:
    by_version: dict[int, dict[Hashable, Seen]] = defaultdict(dict)
    for seen in history:
        if seen.value is not None:
            by_version[seen.version].setdefault(seen.value, seen)
    return [
        f"one version, several values: {list(values.values())}" for values in by_version.values() if len(values) > 1
    ]


def _out_of_order(history: list[Seen]) -> list[str]:
    troubles: list[str] = []
    ended = sorted(history, key=lambda seen: seen.ended)
    position, newest = 0, None
    for seen in sorted(history, key=lambda seen: seen.began):
        while ended[position].ended < seen.began:
            if newest is None or ended[position].version > newest.version:
                newest = ended[position]
            position += 1
        if newest is not None and (seen.version < newest.version or (seen.wrote and seen.version == newest.version)):
            troubles.append(f"against real time: {newest} was over when this began: {seen}")
    return troubles


def falling(pairs: Iterable[tuple[int, int]]) -> list[str]:
    """Where the second of each pair falls while the first grows."""
    ordered = sorted(set(pairs))
    return [f"{after} follows {before}" for before, after in itertools.pairwise(ordered) if after[1] < before[1]]
