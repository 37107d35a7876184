"""Many stories in a row, for both simulations."""

from collections.abc import Iterable
from typing import Protocol


class Run(Protocol):
    """`run.run` or `groups.run`."""

    def __call__(self, seed: int, /, *, story: bool = False) -> object: ...


def run_all(run: Run, seeds: Iterable[int]) -> None:
    """Run the story of each seed; the one that fails runs once more with its log."""
    for seed in seeds:
        try:
            run(seed)
        except Exception:
            run(seed, story=True)
            raise
