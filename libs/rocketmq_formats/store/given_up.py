"""The file `.log.given-up`: acknowledged messages that a replica has lost, and that its group continues without.

    {"givenUp": [{"start": 900, "end": 1000, "epoch": 5, "atMillis": 1790000000000}],
     "missing": {"end": 1000, "epoch": 4, "since": 0}}

This project's alone. The sidecar writes it; the verification reports it until an operator deletes the file.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.epoch_file import EpochList

FILE_NAME: Final = ".log.given-up"
MAX_ENTRIES: Final = 64
"""Most losses kept; the oldest are dropped."""
MAX_LENGTH: Final = 64 << 10
"""Longest text read, in bytes; 64 entries take at most 8 kB."""

_LARGEST: Final = 2**63 - 1
_LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999."""


class GivenUpError(FormatError):
    """Not such a file, or a damaged one: losses may have been noted in it."""


class GivenUp(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Acknowledged bytes of the log, `end` exclusive, that no master has had since `epoch`, which began at `start` or
    before. Newer messages may be at the same offsets."""

    start: int
    end: int
    epoch: int
    at_millis: int
    """When this replica learned it, since 1970."""

    def __str__(self) -> str:
        seconds = min(max(self.at_millis // 1000, 0), _LAST_SECOND)
        return (
            f"the acknowledged messages from {self.start} to {self.end} were given up when epoch {self.epoch} began"
            f" without them, noted {datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )

    def left(self, epochs: EpochList, end: int) -> "GivenUp | None":
        """What of it a log with these epochs, which ends at `end`, lacks: a master that has it may have been elected
        since."""
        if not epochs.entries or epochs.entries[0].start_offset > self.start:
            return self  # that part has expired
        newer = epochs.after(self.epoch - 1)
        start = max(self.start, end if newer is None else newer.start_offset)
        return msgspec.structs.replace(self, start=start) if start < self.end else None


class Missing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A log ends before what its replica has acknowledged; whether that is given up is not decided."""

    end: int
    """Of what was acknowledged."""
    epoch: int
    """The last one before the loss; all that was acknowledged is of it or of earlier ones. -1: not known."""
    since: int
    """Where that one began."""

    def given_up(self, epochs: EpochList, end: int, epoch: int, at_millis: int) -> GivenUp | None:
        """What of it a master lacks, from this replica's log once that has all that the master has: its epochs and end.
        `epoch` is the master's, of which the log may have no bytes yet."""
        known = self.epoch, self.since
        entries = epochs.entries if self.epoch >= 0 else ()
        newer = next((one for one in entries if (one.epoch, one.start_offset) > known), None)
        start, number = (end, epoch) if newer is None else (newer.start_offset, newer.epoch)
        return GivenUp(start=start, end=self.end, epoch=number, at_millis=at_millis) if start < self.end else None


class GivenUpNotes(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    given_up: tuple[GivenUp, ...] = ()
    """In the order of time."""
    missing: Missing | None = None

    def settled(self, given_up: GivenUp | None) -> "GivenUpNotes":
        """What was missing is decided: given up, or there again."""
        more = () if given_up is None else (given_up,)
        return GivenUpNotes(given_up=(*self.given_up, *more)[-MAX_ENTRIES:])


def encode_given_up(notes: GivenUpNotes) -> bytes:
    """The file's text."""
    return msgspec.json.encode(notes) + b"\n"


def decode_given_up(data: bytes) -> GivenUpNotes:
    """Raises `GivenUpError`."""
    if len(data) > MAX_LENGTH:
        raise GivenUpError(f"{len(data)} bytes: more than {MAX_LENGTH}")
    try:
        notes = msgspec.json.decode(data, type=GivenUpNotes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GivenUpError(str(error)) from error
    if len(notes.given_up) > MAX_ENTRIES:
        raise GivenUpError(f"{len(notes.given_up)} losses: more than {MAX_ENTRIES}")
    for one in notes.given_up:
        if not (0 <= one.start < one.end <= _LARGEST and -1 <= one.epoch < 2**31 and 0 <= one.at_millis <= _LARGEST):
            raise GivenUpError(f"an impossible loss: {one}")
    return notes
