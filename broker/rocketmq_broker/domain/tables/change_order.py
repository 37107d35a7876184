"""Which keys of a table changed, and in what order: a slave copies what changed since its last copy, in parts. Pure.

Each change has a number. Of a key only the last change is known, so as many numbers are kept as there are keys. Each
table of a master that slaves copy has one: topics, groups, and consumer offsets.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import count, islice
from typing import Final, NamedTuple

MAX_REMOVED: Final = 1000
"""Removed names that are remembered for slaves; with more they copy the whole table."""


class Changed(NamedTuple):
    """The next part of what a slave has to copy."""

    keys: list[str]
    removed: list[str]
    """What was removed, all of it: before these keys."""
    until: int
    """With it the slave has all changes up to this one, except those of keys that changed again after it."""
    begins: bool
    """It is the first part of a copy of the whole table."""


class ChangeOrder:
    def __init__(self) -> None:
        self.changes = 0
        """The number of the last change."""
        self.floor = 0
        """Removals before this number are no longer known."""
        self._numbers: dict[str, int] = {}
        """Key -> the number of its last change, in this order."""
        self._removals: dict[str, int] = {}
        """Name -> the number of its last removal, in this order."""

    def keys(self) -> list[str]:
        """All that were not forgotten."""
        return list(self._numbers)

    def touch(self) -> None:
        """Something changed that has no key."""
        self.changes += 1

    def mark(self, key: str) -> None:
        """The key has another value."""
        self.changes += 1
        self._numbers.pop(key, None)
        self._numbers[key] = self.changes

    def removed(self, name: str) -> None:
        """What has this name was removed: a key, or several that are to be forgotten, at once or later."""
        self.changes += 1
        self.forget(name)
        self._removals.pop(name, None)
        self._removals[name] = self.changes
        if len(self._removals) > MAX_REMOVED:
            self._forget_removals()

    def forget(self, key: str) -> None:
        """The key has no value."""
        self._numbers.pop(key, None)

    def replaced(self, keys: Iterable[str]) -> None:
        """The table is another one, which has these keys."""
        self.changes += 1
        self._forget_removals()
        self._numbers = dict(zip(keys, count(self.changes), strict=False))
        self.changes += len(self._numbers)

    def since(self, changes: int, most: int, *, begun: int | None = None) -> Changed:
        """The oldest changes after number `changes`, of at most `most` keys (of one more in a first part), and all
        removals. If these are no longer known it is the whole table, from the beginning, unless a copy of the whole
        table that began with `floor` at `begun` is at `changes`. Keys may have no value any more."""
        begins = changes > self.changes or (changes < self.floor and begun != self.floor) or changes < 0
        since = 0 if begins else changes
        numbers = self._numbers
        if self.changes - since <= most:
            keys = [key for key in islice(reversed(numbers), self.changes - since) if numbers[key] > since]
            until = self.changes
        else:
            order = list(numbers.values())
            start = bisect_right(order, since)
            end = start + most
            if begins and end <= len(order) and order[end - 1] == changes:
                end += 1  # else a slave without this part would be where it leads
            keys = list(islice(numbers, start, end))
            until = self.changes if end >= len(order) else order[end - 1]
        removed = [] if begins else [name for name, number in self._removals.items() if number > since]
        return Changed(keys, removed, until, begins)

    def _forget_removals(self) -> None:
        self._removals.clear()
        self.floor = self.changes
