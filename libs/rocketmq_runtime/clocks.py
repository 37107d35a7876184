"""The clock that leases are in. For the controllers' quorum, and for broker and sidecar, which share it."""

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock() -> float:
    """Seconds since boot, time asleep included (on Linux): a lease must not outlive a suspended machine."""
    return time.clock_gettime(_CLOCK)
