"""Arithmetic of majorities, apart from any state: which index is committed, since when a leader has been confirmed.

Called by the machine each turn; small enough to be compared with a plain recount in the tests.
"""

from collections.abc import Iterable


def majority(voters: int) -> int:
    """How many of `voters` make a majority: 1 of 1, 2 of 3, 3 of 5, and 3 of 4."""
    return voters // 2 + 1


def reached_by_majority(values: Iterable[float]) -> float:
    """The largest value that a majority has reached or passed. `values`: one of each voter, at least one."""
    ordered = sorted(values)
    return ordered[len(ordered) - majority(len(ordered))]
