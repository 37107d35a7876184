"""The clock that leases are in. For the controllers' quorum, and for broker and sidecar, which share it."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

boot_clock: Final[Callable[[], float]] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds since boot, time asleep included (on Linux): a lease must not outlive a suspended machine. No function of
Python's, because every send reads it."""
