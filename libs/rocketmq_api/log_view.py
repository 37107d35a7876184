"""One replica's log as its sidecar shows it: plain values beside the messages of log_reader.proto, without gRPC.

Used by `log_readers` for callers and by the sidecar.
"""

from collections.abc import Iterable, Iterator

import msgspec

MAX_RANGES = 16_384
"""Of one Digest."""
MAX_RANGE = 64 << 20
"""Bytes of one of them."""
DIGEST_SIZE = 16
"""Bytes of an xxh3-128."""
MAX_READ = 8 << 20
"""Bytes of one Read."""
MAX_CHECK = 8 << 20
"""Bytes of one Check: bounds the sidecar's memory for the records of a range."""
MAX_GIVEN_UP = 64
"""Losses of one log."""
MAX_SEGMENTS = 1 << 20
"""Files of one log."""


class SegmentRun(msgspec.Struct, frozen=True):
    """`count` files without a gap, the first one from `start`."""

    start: int
    count: int


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """`Log` of log_reader.proto, where each field is described."""

    cluster_name: str
    broker_name: str
    broker_id: int | None = None
    master: bool = False
    master_epoch: int = 0
    min_offset: int
    confirm_offset: int
    max_offset: int
    segment_size: int
    segments: tuple[SegmentRun, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, start offset) each."""
    strict: bool = False
    short: tuple[tuple[int, int], ...] = ()
    """(start, length) of each file that ends early."""
    given_up: tuple[tuple[int, int, int, int], ...] = ()
    """(start, end, epoch, ms since 1970) of each loss."""

    def segment_starts(self) -> Iterator[int]:
        """Start of every file, ascending."""
        for run in self.segments:
            yield from range(run.start, run.start + run.count * self.segment_size, self.segment_size)


def runs_of(starts: Iterable[int], segment_size: int) -> tuple[SegmentRun, ...]:
    """Ascending starts, those without a gap together."""
    runs: list[SegmentRun] = []
    first, count = 0, 0
    for start in starts:
        if count and start == first + count * segment_size:
            count += 1
            continue
        if count:
            runs.append(SegmentRun(first, count))
        first, count = start, 1
    if count:
        runs.append(SegmentRun(first, count))
    return tuple(runs)
