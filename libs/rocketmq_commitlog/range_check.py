"""Checks a range of a log where it is: its structure, and the consume queues and index files that lead to it. For the
sidecar, which answers with results instead of bytes.

The range is read once, in small pieces with a rest after each one: the caller replicates in the same process.
"""

from collections.abc import Callable, Iterator
from itertools import tee
from pathlib import Path
from typing import Final, NamedTuple

from rocketmq_commitlog.errors import AbsentError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.index_files import RecordsSeen, check_indexes
from rocketmq_commitlog.queue_files import check_queues
from rocketmq_formats.soundness.indexes import IndexCheck
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queue_states import QueueState
from rocketmq_formats.soundness.rows import pieces_batches
from rocketmq_formats.soundness.structure import Structure
from rocketmq_formats.soundness.structure_check import StructureCheck

PIECE: Final = 64 << 10
"""Bytes between two rests: about a millisecond of work that holds the interpreter."""
OVERHANG: Final = 8 << 20
"""How far a record that starts in the range may reach behind it. A larger one is neither sound nor a fault."""
_SELF: Final = "self"


class RangeResult(NamedTuple):
    """None: not requested; of queues also if the log does not have all bytes of the range (any longer)."""

    structure: Structure | None
    queues: tuple[QueueState, ...] | None
    indexes: IndexCheck | None = None
    """None also without index files."""


def check_range(
    log: LogFolder,
    extent: Extent,
    until: int,
    *,
    structure: bool,
    queues_in: Path | None,
    rest: Callable[[int], None],
    sleep: Callable[[float], None],
) -> RangeResult:
    """
    Args:
        until: nothing is read from here on, or from `OVERHANG` behind the extent.
        queues_in: the storePathRootDir with the consume queues and index files; None: they are not checked.
        rest: called with the bytes just read, after each piece, each queue and each index file.
        sleep: between two reads of queues that seem wrong, in seconds.

    Raises:
        UnreadableError: a broken disk.
    """
    until = min(until, extent.end + OVERHANG)
    whole = True

    def pieces() -> Iterator[bytes]:
        nonlocal whole
        at = extent.start
        while at < until:
            size = log.segment_size or PIECE
            length = min(PIECE, until - at, size - at % size)  # up to a file that is not there
            try:
                piece = log.read(at, length)
            except AbsentError:
                whole = False
                return
            rest(length)
            yield piece
            at += length

    for_structure, for_queues = tee(pieces())
    found: Structure | None = None
    if structure:
        check = StructureCheck(extent, log.segment_size or PIECE, aligned=False)
        check.feed_until_done(for_structure)
        found = check.finish()
    del for_structure  # or `tee` would keep all pieces for it
    if queues_in is None:
        return RangeResult(found, None)
    stores = {_SELF: queues_in}
    seen = RecordsSeen(pieces_batches(for_queues, extent, until, log.segment_size or PIECE), stores.values())
    states = check_queues(seen, extent, stores, sleep=sleep, rest=rest)
    if not whole:
        return RangeResult(found, None)
    indexes = check_indexes(seen, extent, stores, sleep=sleep, rest=rest)
    return RangeResult(found, tuple(states[_SELF]), indexes.get(_SELF))
