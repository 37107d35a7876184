"""How long tests wait for a state: the seconds that are enough on a quiet machine, times the patience of this run.

`python -m tests.gate` measures it when a phase begins, and the tests find it in the environment. A wait ends as soon as
the state is there, so patience costs time only where something is missing.
"""

import os
import time

VARIABLE = "GATE_PATIENCE"
MOST = 8.0
ROUNDS = 12_500_000
QUIET = 0.5
"""Seconds of ROUNDS on a quiet machine, rounded up."""


def measure() -> float:
    """From 1, for a quiet machine, to MOST."""
    began = time.monotonic()
    total = 0
    for number in range(ROUNDS):
        total += number * number % 7
    return factor(time.monotonic() - began)


def factor(seconds: float) -> float:
    """The patience, if ROUNDS took so long."""
    return round(min(max(seconds / QUIET, 1.0), MOST), 1)


def patient(seconds: float) -> float:
    """How long to wait for what takes at most `seconds` on a quiet machine."""
    return seconds * float(os.environ.get(VARIABLE, "1"))
