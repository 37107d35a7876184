"""Arithmetic of majorities, apart from any state: which index is committed, since when a leader has been confirmed.

Called by the machine each turn; small enough to be compared with a plain recount in the tests.
"""

from collections.abc import Iterable


def majority(members: int) -> int:
    """How many of `members` make a majority: 1 of 1, 2 of 3, 3 of 5, and 3 of 4."""
    return members // 2 + 1


def reached_by_majority(own: float, others: Iterable[float]) -> float:
    """The largest value that a majority of all members, oneself included, has reached or passed."""
    values = sorted(others)
    values.append(own)
    values.sort()
    return values[len(values) - majority(len(values))]
