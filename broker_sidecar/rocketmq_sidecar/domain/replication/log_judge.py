"""Finds where two replicas' logs differ, and whose bytes are wrong. Pure; for `log_audit`.

A record is whole if its lengths, the offset that it carries, and its body's CRC are right. That covers neither topic
nor properties: if both records are whole and differ, neither counts as right, unless all that differs is zero in one.
"""

import enum
from collections.abc import Callable
from typing import Final

from rocketmq_formats.store.message import BLANK_SIZE, MAGIC_BLANK, Blank, Buffer, RecordError, read_record
from rocketmq_formats.store.record_chain import HEAD, Chain, starts_at
from rocketmq_formats.store.walk import unpack_place, unpack_start
from rocketmq_sidecar.domain.replication.truncate import TruncationError

PIECE: Final = 16 << 20
"""Bytes of the log that are compared by one digest."""
FINEST: Final = 64 << 10
"""Ranges that differ are halved down to this size; then their bytes are compared."""
MAX_RECORD: Final = 64 << 20
"""Longer ones count as damage."""
_WINDOW: Final = 1 << 20


class LogsDivergedError(TruncationError):
    """Two records of the same place are whole by their checksums, and differ: nothing is cut or copied."""


class Verdict(enum.Enum):
    EQUAL = "equal"
    OURS = "our record is not whole, the other one is"
    THEIRS = "the other record is not whole, ours is"
    BOTH = "neither record is whole"
    DIVERGED = "both records are whole and differ"


def claimed_size(head: bytes, offset: int, file_left: int) -> int:
    """How many bytes are needed to judge what begins with `head` at `offset`: a whole record, or the beginning of a
    blank; 0 if neither begins there. `head`: up to `HEAD` bytes; `file_left`: bytes to the file's end."""
    if len(head) >= BLANK_SIZE:
        size, magic = unpack_start(head, 0)
        if magic == MAGIC_BLANK and size == file_left:
            return BLANK_SIZE
    if starts_at(head, 0, offset) and (size := unpack_place(head, 0)[0]) <= min(file_left, MAX_RECORD):
        return size
    return 0


def whole_size(data: Buffer, offset: int, file_left: int) -> int:
    """The size of the whole record or blank at the beginning of `data`; 0 if there is neither."""
    if claimed_size(bytes(data[:HEAD]), offset, file_left) == BLANK_SIZE:
        return file_left
    try:
        record = read_record(data, 0, min(len(data), file_left), check_crc=True)
    except RecordError:
        return 0
    return 0 if isinstance(record, Blank) or record.physical_offset != offset else record.size


def judge(ours: Buffer, theirs: Buffer, offset: int, file_left: int) -> Verdict:
    """Compares what begins at `offset`; both have the longer one's `claimed_size`."""
    our_size, their_size = whole_size(ours, offset, file_left), whole_size(theirs, offset, file_left)
    if our_size and their_size:
        unused = our_size == their_size == file_left  # blanks: what follows their beginning has no meaning
        if unused or bytes(ours[:our_size]) == bytes(theirs[:their_size]):
            return Verdict.EQUAL
        return (
            Verdict.OURS if our_size == their_size and _has_lost_sectors(ours, theirs, our_size) else Verdict.DIVERGED
        )
    if their_size:
        return Verdict.OURS
    return Verdict.THEIRS if our_size else Verdict.BOTH


def _has_lost_sectors(ours: Buffer, theirs: Buffer, size: int) -> bool:
    """A power cut left zeros where the other record has its topic or properties, which hold no zeros, and nothing else
    differs."""
    record = read_record(theirs, 0, size, check_crc=False)
    if isinstance(record, Blank):
        return False
    names = record.body_start + record.body_length
    pairs = zip(bytes(ours[names:size]), bytes(theirs[names:size]), strict=True)
    same_before = bytes(ours[:names]) == bytes(theirs[:names])
    return same_before and all(our == their or (not our and their) for our, their in pairs)


def record_at(read: Callable[[int, int], bytes], start: int, place: int, file_end: int) -> int | None:
    """Where the record that contains the byte at `place` begins; None if there is no chain of records from `start`, the
    beginning of a record in the same file, to there. `read(offset, size)`."""
    chain = Chain(start)
    while (available := place - chain.offset) >= chain.wants:
        base, wanted = chain.offset, chain.wants
        data = read(base, min(max(_WINDOW, wanted), available))
        if not chain.walk(data, base=base, limit=len(data), file_end=file_end):
            return None
        if (chain.offset, chain.wants) == (base, wanted):
            return base
    return chain.offset


class Comparison:
    """Chooses the ranges to compare by digests, from large ones down to the first that differs."""

    def __init__(self, start: int, end: int) -> None:
        self.found: tuple[int, int] | None = None
        """(offset, length) of a small range that differs."""
        self._end = end
        self._next = start
        self._halves: list[tuple[int, int]] = []

    def next(self) -> tuple[int, int] | None:
        """(offset, length) to compare, then call `on_compared`; None: all equal, or `found`."""
        if self.found is None and not self._halves and self._next < self._end:
            length = min(PIECE, self._end - self._next)
            self._halves.append((self._next, length))
            self._next += length
        return self._halves[-1] if self.found is None and self._halves else None

    def on_compared(self, *, equal: bool) -> None:
        """Whether the range from `next` has the same digest on both sides."""
        offset, length = self._halves.pop()
        if equal:
            return
        if length <= FINEST:
            self.found = (offset, length)
            return
        half = length // 2
        self._halves = [(offset + half, length - half), (offset, half)]
