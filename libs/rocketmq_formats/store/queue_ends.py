"""The file `.queue.ends`: how far each consume queue reached when the log was dispatched up to an offset.

    offset  size  field
     0      16    "rocketmq-ha ends"
    16       8    position: the units of messages that end at or before this offset of the log are counted
    24       4    number of queues; for each:
     0       2    topic's length, topic
     .       4    queueId
     .       8    offset of the first unit that can be seen
     .       8    offset behind the last unit
     end     4    CRC-32 of everything in front of it

Big-endian. This project's alone: official brokers do not know the file. Consume queues have no ends of their own (files
of zeros), so without it a lost queue looks like one that never existed.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from rocketmq_formats.errors import FormatError

FILE_NAME: Final = ".queue.ends"
Key: TypeAlias = tuple[bytes, int]
"""Topic and queueId."""

_MAGIC: Final = b"rocketmq-ha ends"
_HEAD: Final = struct.Struct(">16sqI")
_LENGTH: Final = struct.Struct(">H")
_QUEUE: Final = struct.Struct(">Iqq")
_CRC: Final = struct.Struct(">I")


class QueueEndsError(FormatError):
    """Not such a file, or a damaged one: continue as without one."""


class QueueEnds(msgspec.Struct, frozen=True):
    position: int
    """Offset in the log."""
    queues: Mapping[Key, tuple[int, int]]
    """First offset that can be seen, and the offset behind the last one."""


def encode_queue_ends(ends: QueueEnds) -> bytes:
    """The file's bytes. Raises `QueueEndsError` for values that do not fit."""
    try:
        parts = [_HEAD.pack(_MAGIC, ends.position, len(ends.queues))]
        for (topic, queue_id), (first, end) in ends.queues.items():
            parts += (_LENGTH.pack(len(topic)), topic, _QUEUE.pack(queue_id, first, end))
    except struct.error as error:
        raise QueueEndsError(str(error)) from error
    data = b"".join(parts)
    return data + _CRC.pack(zlib.crc32(data))


def decode_queue_ends(data: bytes) -> QueueEnds:
    """Raises `QueueEndsError`."""
    content = memoryview(data)[: -_CRC.size]
    if len(data) < _HEAD.size + _CRC.size or data[-_CRC.size :] != _CRC.pack(zlib.crc32(content)):
        raise QueueEndsError(f"{len(data)} bytes with a wrong checksum")
    magic, position, count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise QueueEndsError(f"begins with {magic!r}")
    queues: dict[Key, tuple[int, int]] = {}
    at = _HEAD.size
    try:
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(content, at)
            at += _LENGTH.size
            topic = bytes(content[at : at + length])
            queue_id, first, end = _QUEUE.unpack_from(content, at + length)
            at += length + _QUEUE.size
            queues[topic, queue_id] = (first, end)
    except struct.error as error:
        raise QueueEndsError(str(error)) from error
    if at != len(content):
        raise QueueEndsError(f"{len(content) - at} bytes too many")
    return QueueEnds(position, queues)
