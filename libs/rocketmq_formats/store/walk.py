"""Heads of records read in part, for readers that walk whole logs or search for records among damaged bytes.

The layout is `message`'s; each of these reads only the fields that its user needs, which makes them fast. The
two long ones are for heads without IPv6 hosts: check `HOSTS` in sysFlag first, and use `read_record` for the rest.
They check only that enough bytes are there. Used by `rocketmq_verify`, and by the store for answers to consumers.
"""

import re
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from rocketmq_formats.store.message import HOSTS, MAGIC_V2, MAX_PROPERTIES, MAX_TOPIC_V1, PHYSICAL_OFFSET_AT, Buffer

CheckedHead: TypeAlias = tuple[int, int, int, int, int, int, int]
"""size, magic, bodyCRC, physicalOffset, sysFlag, storeTimestamp, bodyLength."""
RowHead: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""size, magic, bodyCRC, queueId, queueOffset, physicalOffset, sysFlag, storeTimestamp, bodyLength."""
Place: TypeAlias = tuple[int, int, int]
"""size, magic, physicalOffset: identify a record's start."""
UnitHead: TypeAlias = tuple[int, int, int, int]
"""size, queueId, queueOffset, physicalOffset: what the record's unit says of it, and where the unit is."""

_CHECKED: Final = struct.Struct(">iII16xqi16xq20xi")
_ROW: Final = struct.Struct(">iIIi4xqqi16xq20xi")
_PLACE: Final = struct.Struct(">iI20xq")
_UNIT_HEAD: Final = struct.Struct(">i8xi4xqq")
_START: Final = struct.Struct(">iI")
_NUMBER: Final = struct.Struct(">i")

V4_HEAD_SIZE: Final = _CHECKED.size
"""Bytes in front of the body, if neither host is IPv6."""
PLACE_SIZE: Final = _PLACE.size
"""Bytes that `unpack_place` needs."""
LONGEST_HEAD: Final = V4_HEAD_SIZE + 24
LONGEST_V1_TAIL: Final = 3 + MAX_TOPIC_V1 + MAX_PROPERTIES
"""Bytes behind the body: topic and properties with their lengths."""

MAGIC_AT: Final = 4
MAGIC_START: Final = bytes.fromhex("daa320")
"""Of both magics of records."""
ANY_START: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]|\xcb\xd4\x31\x94")
"""Any magic, a blank's too."""

# each `unpack_*` raises struct.error if the bytes are not there
unpack_checked: Final[Callable[[Buffer, int], CheckedHead]] = _CHECKED.unpack_from
unpack_row: Final[Callable[[Buffer, int], RowHead]] = _ROW.unpack_from
unpack_place: Final[Callable[[Buffer, int], Place]] = _PLACE.unpack_from
unpack_unit_head: Final[Callable[[Buffer, int], UnitHead]] = _UNIT_HEAD.unpack_from
unpack_start: Final[Callable[[Buffer, int], tuple[int, int]]] = _START.unpack_from
"""size, magic: of a blank, too."""
pack_start: Final[Callable[[int, int], bytes]] = _START.pack
"""Packs size and magic, to read a record as if one of them were undamaged."""
_unpack_number: Final[Callable[[Buffer, int], tuple[int]]] = _NUMBER.unpack_from

_SMALLEST_TAIL: Final = 3
_LARGEST_TAIL: Final = 4 + 0xFFFF + MAX_PROPERTIES


def body_end(buffer: Buffer, position: int) -> int | None:
    """Where the body of the record at `position` ends, if that leaves topic and properties as much of its size as they
    can have. None: it does not, or the head is not there."""
    head = _head_size(buffer, position)
    if not head:
        return None
    size, _ = unpack_start(buffer, position)
    (body_length,) = _unpack_number(buffer, position + head - 4)
    fits = body_length >= 0 and _SMALLEST_TAIL <= size - head - body_length <= _LARGEST_TAIL
    return position + head + body_length if fits else None


def can_add_up(buffer: Buffer, position: int) -> bool | None:
    """Whether the lengths in the record at `position`, as far as they are there, can make its size.

    None: too few bytes to say. For a record that is present only in part, so that a reader does not wait for its
    size forever.
    """
    end = body_end(buffer, position)
    if end is None:
        return False if _head_size(buffer, position) else None
    size, magic = unpack_start(buffer, position)
    return len(buffer) < end + 2 or _tail_adds_up(buffer, end, position + size - end, magic)


def _head_size(buffer: Buffer, position: int) -> int:
    """Bytes in front of the body; 0: they are not all there."""
    left = len(buffer) - position
    if left < PHYSICAL_OFFSET_AT + 12:
        return 0
    (sys_flag,) = _unpack_number(buffer, position + PHYSICAL_OFFSET_AT + 8)
    head = V4_HEAD_SIZE + 12 * (sys_flag & HOSTS).bit_count()
    return head if left >= head else 0


def _tail_adds_up(buffer: Buffer, start: int, length: int, magic: int) -> bool:
    """The same of topic and properties, at least two bytes of them."""
    topic_end = 1 + buffer[start]
    if magic == MAGIC_V2:
        topic_end = 2 + (buffer[start] << 8 | buffer[start + 1])
    if topic_end + 2 > length:
        return False
    at = start + topic_end
    return at + 2 > len(buffer) or topic_end + 2 + (buffer[at] << 8 | buffer[at + 1]) == length
