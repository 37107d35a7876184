"""How long sends took, as Java's brokers say it: counts by time, and the time below which most sends stayed.

Source: rocketmq-all-5.3.3: StoreStatsService.java.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from rocketmq_broker.traffic import SEND_BOUNDS

_NAMES: Final = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)
_BOUNDS: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Seconds up to which each of the names counts; the last one has what took longer."""


def distribution(times: Sequence[int]) -> str:
    """`[<=0ms]:180 [0~10ms]:71 ...`; `times` counts by `SEND_BOUNDS`."""
    counts = [0] * len(_NAMES)
    for bound, count in zip((*SEND_BOUNDS, float("inf")), times, strict=True):
        counts[bisect_left(_BOUNDS, bound)] += count
    return "".join(f"{name}:{count} " for name, count in zip(_NAMES, counts, strict=True))


def percentile(times: Sequence[int], part: float, longest: float) -> str:
    """Milliseconds below which `part` of the sends stayed, to the next of the bounds; `longest` in seconds."""
    wanted, seen = part * sum(times), 0
    for bound, count in zip((*SEND_BOUNDS, longest), times, strict=True):
        seen += count
        if seen and seen >= wanted:
            return f"{min(bound, longest) * 1000:.2f}"
    return "0.00"
