"""A command line tool run in the test's own process, and what it left behind: for tests of rocketmq-admin and
kubectl-rocketmq."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Outcome:
    """What a run left behind, with stable names in place of the addresses of this run."""

    code: int
    out: str
    err: str


Tool = Callable[..., Outcome]
"""Called with a command line's words."""


def run(
    main: Callable[[Sequence[str]], int],
    arguments: Sequence[str],
    capsys: pytest.CaptureFixture[str],
    masked: Callable[[str], str],
) -> Outcome:
    """Run `main`; what it printed goes through `masked`."""
    code = main(arguments)
    printed = capsys.readouterr()
    return Outcome(code, masked(printed.out), masked(printed.err))
