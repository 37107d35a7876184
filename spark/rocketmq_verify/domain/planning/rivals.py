"""Epoch tables that give bytes from one start to two epochs. Called by `lineage`; `inquiry.tables` reads the bytes.

That is no fault by itself: two masters that began at one place write different bytes, and one of them is a stale tail.
But the same bytes were written once, in one epoch.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.message import SMALLEST_RECORD
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.points import table

MOST_RIVALS: Final = 16
"""Starts that are looked at; a damaged table may have 1000 wrong entries."""


class Rival(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    """Where all of these epochs begin."""
    epochs: dict[ReplicaName, int]
    """By the table of each replica that has an entry there; two or more different ones."""
    extent: Extent
    """What all of them have of these epochs."""


def rivals(logs: Sequence[ReplicaLog], confirm: int) -> Iterator[Rival]:
    """At most `MOST_RIVALS`, ascending; `confirm`: bytes from there on prove nothing."""
    at: dict[int, dict[ReplicaName, int]] = {}
    extents: dict[int, Extent] = {}
    for log in logs:
        for entry in table(log).entries:
            own = Extent(max(entry.start_offset, log.min_offset), min(entry.end_offset, log.max_offset, confirm))
            if own.length < SMALLEST_RECORD:
                continue  # less may be equal by chance
            at.setdefault(entry.start_offset, {})[log.name] = entry.epoch
            extents[entry.start_offset] = extents.get(entry.start_offset, own).meet(own)
    found = 0
    for start, epochs in sorted(at.items()):
        if len(set(epochs.values())) > 1 and extents[start].length >= SMALLEST_RECORD and found < MOST_RIVALS:
            found += 1
            yield Rival(start=start, epochs=epochs, extent=extents[start])
