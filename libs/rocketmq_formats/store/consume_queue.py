"""Units of a consume queue: which record of the commit log is message n of a queue. Written and read by the store.

    offset  size  field
     0       8    physical offset of the record; negative: no unit
     8       4    size of the record in bytes; 0 (as in a file not written yet): no unit
    12       8    tagsCode: `tags.tags_code` of the TAGS property, 0 without; in the queues of delayed messages the time
                  of delivery in ms

Big-endian, signed. Message n is unit n: it starts 20 n bytes from the start of the queue, files are named by bytes.
A queue whose first message has a queueOffset above 0 is filled up with `PRE_BLANK` units in front of it.
Source: rocketmq-all-5.3.3: ConsumeQueue.java.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.message import Buffer

Unit: TypeAlias = tuple[int, int, int]
"""Physical offset, size, tagsCode."""

UNIT_SIZE: Final = 20
_UNIT: Final = struct.Struct(">qiq")
_LARGEST_PACK: Final = 1024  # units per struct call

pack_unit = _UNIT.pack
"""`(physical_offset, size, tags_code)` as 20 bytes; struct.error for values beyond the fields, which are our own."""

DISPATCH_SPAN: Final = 1 << 20
"""Bytes of the log whose units a broker may write in another order than the log's: ours writes queue by queue what it
dispatches at once. Java's writes them in order."""

_BLANK: Final = (0, 0x7FFFFFFF, 0)
PRE_BLANK: Final = pack_unit(*_BLANK)
"""Stands where a queue has no message: units are counted, so none may be left out."""


class UnitsError(FormatError):
    """Bytes that are no whole number of units."""


def pack_units(units: Sequence[Unit]) -> bytes:
    """The units one after another."""
    return b"".join(
        struct.pack(">" + "qiq" * len(part), *itertools.chain.from_iterable(part))
        for part in (units[start : start + _LARGEST_PACK] for start in range(0, len(units), _LARGEST_PACK))
    )


def unpack_unit(buffer: Buffer, position: int) -> Unit:
    """The unit that starts at `position`.

    Raises:
        UnitsError: fewer than 20 bytes are left.
    """
    if position < 0 or len(buffer) - position < UNIT_SIZE:
        raise UnitsError(f"no unit at {position} of {len(buffer)} bytes")
    physical_offset, size, tags_code = _UNIT.unpack_from(buffer, position)
    return physical_offset, size, tags_code


def iter_units(buffer: Buffer) -> Iterator[Unit]:
    """Every unit of `buffer`, real or not (see `is_unit`), at the speed of struct.

    Raises:
        UnitsError: not a multiple of 20 bytes.
    """
    if len(buffer) % UNIT_SIZE:
        raise UnitsError(f"{len(buffer)} bytes are not a whole number of units")
    return _UNIT.iter_unpack(buffer)


def is_unit(unit: Unit) -> bool:
    """Whether something was written here; the end of a queue's last file is filled with zeros."""
    return unit[0] >= 0 and unit[1] > 0


def is_pre_blank(unit: Unit) -> bool:
    """Whether it stands for no message: see `PRE_BLANK`. Its third field says nothing."""
    return unit[:2] == _BLANK[:2]
