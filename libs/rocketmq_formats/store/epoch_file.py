"""Which master wrote which bytes of the commit log: the file `epochFileCheckpoint` and the list in it.

    <number of entries>
    <CRC-32 of the lines below, their line feeds included, & 0x7FFFFFFF, decimal; 0: do not check>
    <epoch>-<startOffset>            ascending by both
    ...

ASCII, each line ended by a line feed. Ends are not stored: an entry ends where the next starts, the last one nowhere.
The sidecar keeps the file (and `.bak`, the text before the last change, for when this one cannot be read) and computes
with the list when it truncates, elects and shakes hands; the list's rules stand here because they keep a text readable:
whatever `EpochList` holds, Java's `EpochFileCache` could have written.
Source: rocketmq-all-5.3.3: EpochFileCache.java, CheckpointFile.java.
"""

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, Self

import msgspec

from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.controller import EpochEntry

FILE_NAME: Final = "epochFileCheckpoint"

MAX_ENTRIES: Final = 1000
"""Most entries kept: the most that a Java master can send in a handshake."""
MAX_LENGTH: Final = 64 * 1024
"""Longest text read, in bytes; 1000 entries take at most 31 kB."""
NO_END: Final = 2**63 - 1
"""The end of the last entry, Java's Long.MAX_VALUE."""

_TEXT: Final = re.compile(rb"([0-9]{1,10})\n([0-9]{1,10})\n((?:[0-9]{1,10}-[0-9]{1,19}\n)*+)")


class EpochFileError(FormatError):
    """A text that cannot be trusted as it is: read the backup instead."""


class EpochOrderError(FormatError):
    """Entries that do not ascend by epoch and offset, are negative, or are too many."""


class EpochList(msgspec.Struct, frozen=True):
    """Entries ascending by epoch and by start, each ending where the next starts; make one with `of`."""

    entries: tuple[EpochEntry, ...] = ()

    @classmethod
    def of(cls, starts: Iterable[tuple[int, int]]) -> Self:
        """The list of these `(epoch, start_offset)`.

        Raises:
            EpochOrderError: not strictly ascending by both, negative, beyond i32 and i64, or more than MAX_ENTRIES.
        """
        pairs = list(starts)
        if len(pairs) > MAX_ENTRIES:
            raise EpochOrderError(f"{len(pairs)} epochs: more than {MAX_ENTRIES}")
        last_epoch, last_start = -1, -1
        for epoch, start in pairs:
            if not (last_epoch < epoch < 2**31 and last_start < start < NO_END):
                raise EpochOrderError(f"epoch {epoch} from {start} cannot follow epoch {last_epoch} from {last_start}")
            last_epoch, last_start = epoch, start
        return cls._ended(pairs)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last entry, -1 without any."""
        return self.entries[-1].epoch if self.entries else -1

    def admits(self, epoch: int, start_offset: int) -> bool:
        """Whether `append` takes this entry: both numbers are larger than the last entry's.

        A master elected before anything was written since the last epoch began keeps the old epoch in its list, though
        its own is higher.
        """
        if not self.entries:
            return 0 <= epoch < 2**31 and 0 <= start_offset < NO_END
        last = self.entries[-1]
        return last.epoch < epoch < 2**31 and last.start_offset < start_offset < NO_END

    def append(self, epoch: int, start_offset: int) -> Self:
        """The list with one more entry; beyond MAX_ENTRIES the oldest are dropped.

        Raises:
            EpochOrderError: `admits` returns False.
        """
        if not self.admits(epoch, start_offset):
            raise EpochOrderError(f"epoch {epoch} from {start_offset} cannot follow {self}")
        return self._ended([*self.starts(), (epoch, start_offset)][-MAX_ENTRIES:])

    def truncate_suffix(self, offset: int) -> Self:
        """Without the entries that start at or behind `offset`, where the log is being cut."""
        return self._ended([pair for pair in self.starts() if pair[1] < offset])

    def truncate_prefix(self, offset: int) -> Self:
        """Without the entries that end at or before `offset`, where the log now begins; the last entry stays."""
        return self._ended([(e.epoch, e.start_offset) for e in self.entries if e.end_offset > offset])

    def entry_at(self, offset: int) -> EpochEntry | None:
        """The entry whose range holds `offset`."""
        after = bisect_right(self.entries, offset, key=_start)
        return self.entries[after - 1] if after else None

    def find(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly `epoch`, if there is one."""
        after = bisect_right(self.entries, epoch, key=_epoch)
        return self.entries[after - 1] if after and self.entries[after - 1].epoch == epoch else None

    def after(self, epoch: int) -> EpochEntry | None:
        """The entry with the smallest epoch above `epoch`."""
        after = bisect_right(self.entries, epoch, key=_epoch)
        return self.entries[after] if after < len(self.entries) else None

    def starts(self) -> list[tuple[int, int]]:
        """`(epoch, start_offset)` of every entry."""
        return [(entry.epoch, entry.start_offset) for entry in self.entries]

    def __str__(self) -> str:
        return " ".join(f"{epoch}-{start}" for epoch, start in self.starts()) or "no epochs"

    @classmethod
    def _ended(cls, pairs: list[tuple[int, int]]) -> Self:
        ends = [start for _, start in pairs[1:]] + [NO_END]
        return cls(
            tuple(EpochEntry(epoch=e, start_offset=s, end_offset=x) for (e, s), x in zip(pairs, ends, strict=False))
        )


def encode_epochs(epochs: EpochList) -> bytes:
    """The text of the file.

    Raises:
        EpochFileError: the list is empty: RocketMQ never writes that, but leaves the file as it is.
    """
    if not epochs.entries:
        raise EpochFileError("an empty list of epochs is never written")
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs.starts()).encode()
    return b"%d\n%d\n%b" % (len(epochs.entries), _crc(lines), lines)


def decode_epochs(data: bytes) -> EpochList:
    """The list in `data`.

    Raises:
        EpochFileError: empty, too long, not these lines, another number of entries, another CRC, or out of order.
    """
    match = _TEXT.fullmatch(data) if len(data) <= MAX_LENGTH else None
    if match is None:
        raise EpochFileError(f"{len(data)} bytes are not a list of epochs: {data[:80]!r}")
    count, crc, lines = int(match[1]), int(match[2]), match[3]
    pairs = [(int(epoch), int(start)) for epoch, _, start in (line.partition(b"-") for line in lines.splitlines())]
    if not pairs or len(pairs) != count:
        raise EpochFileError(f"{len(pairs)} epochs where {count} are announced")
    if crc not in (0, _crc(lines)):
        raise EpochFileError(f"checksum {_crc(lines)}, the file says {crc}")
    try:
        return EpochList.of(pairs)
    except EpochOrderError as error:
        raise EpochFileError(str(error)) from error


def _crc(lines: bytes) -> int:
    return zlib.crc32(lines) & 0x7FFFFFFF


def _start(entry: EpochEntry) -> int:
    return entry.start_offset


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch
