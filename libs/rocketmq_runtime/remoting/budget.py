"""Bytes that the connections of a process make it hold, bounded in sum; and which connections give way above the bound.

Pure: the server (`server.py`, `server_memory.py`) reports sizes and times, and closes what `heaviest` names.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

H = TypeVar("H")

SHORTEST_AGE: Final = 0.001
"""Seconds that a holder counts at least: among those of one instant the largest is the heaviest."""


class Budget(Generic[H]):
    """Sizes by holder, in bytes. Times are seconds that only grow."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._held: dict[H, tuple[int, float]] = {}
        """Size, and since when the holder has held something."""

    @property
    def exceeded(self) -> bool:
        return self.total > self.limit

    def __iter__(self) -> Iterator[H]:
        """Those that hold something; a copy, so that sizes may change during the iteration."""
        return iter(list(self._held))

    def set(self, holder: H, size: int, now: float, *, fresh: bool = False) -> None:
        """`holder` holds `size` bytes now. Its age counts from the first of them, or from now where they are `fresh`:
        what it held before was released."""
        held = self._held.get(holder)
        if held is None:
            if size:
                self._held[holder] = (size, now)
                self.total += size
            return
        self.total += size - held[0]
        if size:
            self._held[holder] = (size, now if fresh else held[1])
        else:
            del self._held[holder]

    def since(self, holder: H) -> float | None:
        """When `holder` began to hold what it holds; None: it holds nothing."""
        held = self._held.get(holder)
        return None if held is None else held[1]

    def heaviest(self, now: float, *, down_to: int, older_than: float = 0.0) -> list[H]:
        """Holders, by size times age, without which the total is at most `down_to` bytes. A peer that reads its answers
        is young, however large they are; one that leaves many small ones unread is old. `older_than`: seconds; younger
        ones are left out, so the total may stay larger."""

        def weight(item: tuple[H, tuple[int, float]]) -> float:
            size, since = item[1]
            return size * max(now - since, SHORTEST_AGE)

        chosen: list[H] = []
        total = self.total
        if total > down_to:
            for holder, (size, since) in sorted(self._held.items(), key=weight, reverse=True):
                if now - since >= older_than:
                    chosen.append(holder)
                    total -= size
                    if total <= down_to:
                        break
        return chosen

    def measure(self, size: Callable[[H], int], now: float) -> None:
        """Measure every holder again: those that shrink do not report it."""
        for holder in self:
            self.set(holder, size(holder), now)
