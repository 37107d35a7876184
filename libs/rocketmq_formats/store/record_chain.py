"""Where records begin and end in bytes that may be torn, damaged, or left over from another history. Pure.

A record names its own place (physicalOffset), so a start can be found anywhere: a magic at p + 4, and p at p + 28. For
readers of a log that another process writes: `rocketmq_commitlog` and the verification.
Source: rocketmq-all-5.3.3: CommitLog.java.
"""

from typing import Final

from rocketmq_formats.store.message import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    Buffer,
    Record,
    RecordError,
    read_plain,
    read_record,
)
from rocketmq_formats.store.walk import MAGIC_AT, MAGIC_START, PLACE_SIZE, can_add_up, unpack_place, unpack_start

HEAD: Final = PLACE_SIZE
"""Bytes that identify a record's start."""

_MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))


def starts_at(buffer: Buffer, position: int, offset: int) -> bool:
    """Whether a record with the offset `offset` seems to start at `position`; only its head is checked."""
    if position < 0 or position + HEAD > len(buffer):
        return False
    size, magic, physical_offset = unpack_place(buffer, position)
    return magic in _MAGICS and physical_offset == offset and size > HEAD


def may_arrive(received: Buffer, offset: int, file_left: int) -> bool:
    """Whether `received`, all that is written at `offset` so far, can be the beginning of a longer record or blank: as
    far as the lengths are there, they agree. `file_left`: bytes to the file's end."""
    if len(received) < BLANK_SIZE:
        return True
    size, magic = unpack_start(received, 0)
    if magic == MAGIC_BLANK:
        return len(received) < size == file_left
    if magic not in _MAGICS or not len(received) < size <= file_left - BLANK_SIZE:
        return False
    return (len(received) < HEAD or starts_at(received, 0, offset)) and can_add_up(received, 0) is not False


def first_start(buffer: bytes | bytearray, begin: int, end: int, *, base: int) -> int | None:
    """First position from `begin` up to, not including, `end` where a record seems to start; `base` is the physical
    offset of the buffer's first byte. Heads have to be in the buffer whole, they may reach beyond `end`."""
    at = buffer.find(MAGIC_START, begin + MAGIC_AT)
    while at >= 0 and (position := at - MAGIC_AT) < end:
        if starts_at(buffer, position, base + position):
            return position
        at = buffer.find(MAGIC_START, at + 1)
    return None


def last_start(buffer: bytes | bytearray, begin: int, end: int, *, base: int) -> int | None:
    """As `first_start`, the last one."""
    limit = end - 1 + MAGIC_AT + len(MAGIC_START)
    at = buffer.rfind(MAGIC_START, begin + MAGIC_AT, limit)
    while at >= 0:
        position = at - MAGIC_AT
        if starts_at(buffer, position, base + position):
            return position
        at = buffer.rfind(MAGIC_START, begin + MAGIC_AT, at + len(MAGIC_START) - 1)
    return None


class Chain:
    """Walks whole records, one after another, through consecutive pieces of a log.

    Attributes:
        offset: where the next record has to start.
        whole: the same, except for a last record whose end may not be written yet: new files hold zeros, and
            neither a topic nor properties end with one.
        wants: bytes from `offset` on that the next step needs at least.
    """

    def __init__(self, offset: int) -> None:
        self.offset = self.whole = offset
        self.wants = HEAD

    def walk(self, buffer: bytes | bytearray, *, base: int, limit: int, file_end: int) -> bool:
        """Walk through `buffer[:limit]`, whose first byte is at `base` <= `offset`; the file ends at `file_end`.

        Returns: Whether it can continue, with `wants` bytes from `offset`, or in the next file; False: no record
        starts there.
        """
        position, left = self.offset - base, file_end - base
        limit = min(limit, left)
        while position < left:
            plain = read_plain(buffer, position, limit)
            if plain is not None:
                size, _, _, physical_offset, _, topic, tail = plain
                torn = tail[-1] == 0 and len(tail) > len(topic) + 3
            else:
                found = self._step(buffer, position, limit, left)
                if not isinstance(found, Record):
                    return found
                size, physical_offset, topic = found.size, found.physical_offset, found.topic
                torn = found.properties.endswith(b"\0")
            if physical_offset != base + position:
                return False
            position += size
            self.offset, self.wants = base + position, HEAD
            if not torn and topic[-1:] != b"\0":
                self.whole = self.offset
        return True

    def _step(self, buffer: bytes | bytearray, position: int, limit: int, left: int) -> Record | bool:
        """The record at `position`, or what `walk` returns."""
        if position + BLANK_SIZE > limit:
            self.wants = BLANK_SIZE
            return position + BLANK_SIZE <= left
        size, magic = unpack_start(buffer, position)
        if magic == MAGIC_BLANK and position + size == left:
            self.offset = self.whole = self.offset + size
            return True
        if magic in _MAGICS and limit < position + size <= left:
            self.wants = size
            return position + HEAD > limit or starts_at(buffer, position, self.offset)
        try:
            found = read_record(buffer, position, limit, check_crc=False)
        except RecordError:
            return False
        return found if isinstance(found, Record) else False
