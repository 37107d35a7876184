"""One message as a record of the commit log: the bytes that are stored, replicated, and sent to consumers unchanged.

    offset (IPv4)   size     field
     0               4       totalSize, of the whole record
     4               4       magic: V1 0xDAA320A7, V2 0xDAA320AB (the topic's length has two bytes)
     8               4       bodyCRC: CRC-32 of the body & 0x7FFFFFFF, 0 for no body
    12               4       queueId
    16               4       flag, the user's
    20               8       queueOffset
    28               8       physicalOffset, the record's own place in the log
    36               4       sysFlag, see SysFlag
    40               8       bornTimestamp, ms
    48               8 | 20  bornHost: ip (4 | 16), port i32
    56               8       storeTimestamp, ms
    64               8 | 20  storeHost
    72               4       reconsumeTimes
    76               8       preparedTransactionOffset
    84               4 + n   bodyLength, body
    88 + n           1 + t   topicLength, topic (V2: 2 + t)
    89 + n + t       2 + p   propertiesLength, properties

A blank record fills the end of a file: totalSize = the bytes left, magic 0xCBD43194, anything. All big-endian, signed.

The store writes and scans these, the client reads what it pulled; so all of it is made for speed: one struct call for
everything in front of the body, text stays bytes.
Source: rocketmq-all-5.3.3: MessageExtEncoder.java, CommitLog.java, MessageSysFlag.java.
"""

import enum
import struct
import zlib
from typing import Final, TypeAlias

import msgspec

from rocketmq_formats.errors import FormatError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What is read from; a memoryview has to be one of single bytes."""

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
_MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))

QUEUE_OFFSET_AT: Final = 20
"""Where in a record its i64 queueOffset is."""
PHYSICAL_OFFSET_AT: Final = 28
"""Where in a record its i64 physicalOffset is."""

SMALLEST_RECORD: Final = 91
BLANK_SIZE: Final = 8
"""Bytes that must stay free behind the last record of a file, for the head of a blank."""
MAX_TOPIC_V1: Final = 127
MAX_PROPERTIES: Final = 32767
"""Longest properties, in bytes."""


class SysFlag(enum.IntFlag):
    """Bits of a record's sysFlag; `TRANSACTION_*` are values of a two-bit field."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    """Also the mask of the transaction type."""
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_TYPE = 0x700
    """Mask: 0 and 0x300 are ZLIB, 0x100 LZ4, 0x200 ZSTD."""


# Plain integers: every send and every record read comes by, and an operation on an enum.IntFlag takes a microsecond.
HOSTS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_TRANSACTION: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)
NOT_PLAIN: Final = HOSTS | _TRANSACTION | _INNER_BATCH
"""Records without these bits have short addresses and a unit in their queue."""


def has_unit(sys_flag: int) -> bool:
    """Whether a message with this sysFlag gets a unit of its queue. The master that appends it, slaves and recovery
    must agree, or they number later messages differently. Without one: half a transaction or one rolled back,
    and several messages in one record, which only Java's queues of type BatchCQ can hold."""
    return sys_flag & _TRANSACTION in (0, _COMMIT) and not sys_flag & _INNER_BATCH


class RecordFault(enum.Enum):
    """Why bytes are no record."""

    INCOMPLETE = "fewer bytes are left than the record needs"
    MAGIC = "no record starts here"
    """Also where nothing was written yet: new files hold zeros."""
    LENGTHS = "the lengths in the record do not add up"
    CRC = "the checksum is wrong"
    UNENCODABLE = "a value does not fit its field"


class RecordError(FormatError):
    """No record at this place, or values that make none; `fault` is for programs, the text for people."""

    def __init__(self, fault: RecordFault, detail: str) -> None:
        super().__init__(f"{fault.value}: {detail}")
        self.fault = fault


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record that was read; `body` is left where it is, topic and properties are copied out."""

    position: int
    """Where in the buffer it was read from."""
    size: int
    """The whole record, in bytes."""
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    """As in the record; not compared with the record's actual place."""
    sys_flag: int
    born_timestamp: int
    """Milliseconds since 1970, as `store_timestamp`."""
    born_host: bytes
    """ip (4 or 16 bytes) and port (i32)."""
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_start: int
    """Where in the buffer the body starts."""
    body_length: int
    topic: bytes
    properties: bytes
    """See `message_properties`."""

    def body(self, buffer: Buffer) -> memoryview:
        """The body, not copied, out of the buffer that the record was read from."""
        return memoryview(buffer)[self.body_start : self.body_start + self.body_length]


class Blank(msgspec.Struct, frozen=True, gc=False):
    """The end of a file: the next record is at the start of the next one."""

    position: int
    size: int
    """Bytes left in the file, these included."""


PlainRecord: TypeAlias = tuple[int, int, int, int, int, bytes, bytes]
"""size, queueId, queueOffset, physicalOffset, storeTimestamp, topic, and everything behind the body (the properties are
its end). A tuple, because a slave makes one for every message."""

# everything in front of the body, by the two IPv6 bits of sysFlag (bornHost 1, storeHost 2)
_HEADS: Final = tuple(struct.Struct(f">iIIiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20))
_HEAD_V4_SIZE: Final = _HEADS[0].size
_pack_head_v4 = _HEADS[0].pack
_unpack_head_v4 = _HEADS[0].unpack_from
_unpack_plain = struct.Struct(">iI4xi4xqqi16xq20xi").unpack_from
"""`_unpack_head_v4` without the fields that a consume queue does not need: to make objects of them takes longest."""
_BLANK: Final = struct.Struct(">iI")
_unpack_start = _BLANK.unpack_from
_LENGTH: Final = struct.Struct(">h")
_pack_length = _LENGTH.pack
_SHORT_LENGTHS: Final = tuple(bytes((length,)) for length in range(MAX_TOPIC_V1 + 1))

_LONGEST_TOPIC_END: Final = 1 + MAX_TOPIC_V1
_LONGEST_TAIL: Final = 3 + MAX_TOPIC_V1 + MAX_PROPERTIES
_crc32 = zlib.crc32


def record_size(
    topic_length: int,
    body_length: int,
    properties_length: int,
    born_host_length: int = 8,
    store_host_length: int = 8,
) -> int:
    """Size in bytes of the record that `encode_record` makes of parts of these lengths."""
    size = SMALLEST_RECORD - 16 + born_host_length + store_host_length + topic_length + body_length + properties_length
    return size if topic_length <= MAX_TOPIC_V1 else size + 1


def encode_record(
    *,
    topic: bytes,
    queue_id: int,
    flag: int,
    sys_flag: int,
    queue_offset: int,
    physical_offset: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes | memoryview,
    properties: bytes,
) -> bytes:
    """The record; V2 when the topic is longer than 127 bytes. The hosts' bits in sysFlag are set by their lengths.

    Hosts are ip (4 or 16 bytes) and port (i32); times are milliseconds.

    Raises:
        RecordError: UNENCODABLE.
    """
    topic_length = len(topic)
    if topic_length <= MAX_TOPIC_V1:
        magic = MAGIC_V1
        topic_prefix = _SHORT_LENGTHS[topic_length]
        size = SMALLEST_RECORD + topic_length + len(body) + len(properties)
    else:
        magic = MAGIC_V2
        topic_prefix = _long_length(topic_length)
        size = SMALLEST_RECORD + 1 + topic_length + len(body) + len(properties)
    sys_flag &= ~HOSTS
    pack_head = _pack_head_v4
    if len(born_host) != 8 or len(store_host) != 8:
        kind = _host_kind(born_host) + 2 * _host_kind(store_host)
        pack_head = _HEADS[kind].pack
        size += _HEADS[kind].size - _HEAD_V4_SIZE
        sys_flag |= kind << 4
    try:
        head = pack_head(
            size,
            magic,
            _crc32(body) & 0x7FFFFFFF,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
        return b"".join((head, body, topic_prefix, topic, _pack_length(len(properties)), properties))
    except struct.error as error:
        raise RecordError(RecordFault.UNENCODABLE, str(error)) from error


def encode_blank(size: int) -> bytes:
    """The 8 bytes that close a file in which `size` bytes (at least 8) are left.

    Raises:
        RecordError: UNENCODABLE.
    """
    if not BLANK_SIZE <= size <= 0x7FFFFFFF:
        raise RecordError(RecordFault.UNENCODABLE, f"a blank of {size} bytes")
    return _BLANK.pack(size, MAGIC_BLANK)


def read_record(buffer: Buffer, position: int, limit: int, *, check_crc: bool) -> Record | Blank:
    """The record that starts at `position` and ends at or before `limit`, both indexes of `buffer`.

    `0 <= position` and `limit <= len(buffer)` are up to the caller. `check_crc` compares the body with its checksum;
    nothing covers the other bytes (but see `record_crc`).

    Raises:
        RecordError: INCOMPLETE, MAGIC, LENGTHS or CRC.
    """
    try:
        (
            size,
            magic,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
        ) = _unpack_head_v4(buffer, position)
    except struct.error:
        return _blank(buffer, position, limit)
    if magic not in _MAGICS:
        return _blank(buffer, position, limit)
    body_start = position + _HEAD_V4_SIZE
    end = position + size
    if end > limit:
        raise RecordError(RecordFault.INCOMPLETE, f"{size} bytes at {position}, {limit - position} are left")
    if sys_flag & HOSTS:
        (
            body_start,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
        ) = _after_long_hosts(buffer, position, end, (sys_flag & HOSTS) >> 4)
    topic_start = body_start + body_length + 1
    # of 0 bytes each, topic and properties take 3; every index below is then within the record
    if body_length < 0 or topic_start + 2 > end:
        raise _bad_lengths(position, size)
    topic_length = buffer[topic_start - 1]
    if magic == MAGIC_V2:
        topic_length = topic_length << 8 | buffer[topic_start]
        topic_start += 1
    elif topic_length > MAX_TOPIC_V1:
        raise _bad_lengths(position, size)
    topic_end = topic_start + topic_length
    if topic_end + 2 > end:
        raise _bad_lengths(position, size)
    properties_length = buffer[topic_end] << 8 | buffer[topic_end + 1]
    if topic_end + 2 + properties_length != end or properties_length > MAX_PROPERTIES:
        raise _bad_lengths(position, size)
    if check_crc and body_length:
        found = _crc32(memoryview(buffer)[body_start : body_start + body_length]) & 0x7FFFFFFF
        if found != body_crc:
            raise RecordError(RecordFault.CRC, f"body at {body_start}: {found:#x}, the record says {body_crc:#x}")
    return Record(
        position,
        size,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_start,
        body_length,
        bytes(buffer[topic_start:topic_end]),
        bytes(buffer[topic_end + 2 : end]),
    )


def read_plain(buffer: Buffer, position: int, limit: int) -> PlainRecord | None:
    """The essentials of `read_record` for the record at `position` if it is of the most common kind: V1, IPv4 hosts, no
    special flags. None: call `read_record`, which also finds damage."""
    try:
        head = _unpack_plain(buffer, position)
    except struct.error:
        return None
    size, magic, queue_id, queue_offset, physical_offset, sys_flag, timestamp, body_length = head
    end = position + size
    body_end = position + _HEAD_V4_SIZE + body_length
    if magic != MAGIC_V1 or sys_flag & NOT_PLAIN or end > limit or body_length < 0 or body_end + 3 > end:
        return None
    length = end - body_end
    if length > _LONGEST_TAIL:
        return None
    tail = bytes(buffer[body_end:end])
    topic_end = 1 + tail[0]
    if topic_end > _LONGEST_TOPIC_END or topic_end + 2 > length:
        return None
    properties_length = tail[topic_end] << 8 | tail[topic_end + 1]
    if topic_end + 2 + properties_length != length or properties_length > MAX_PROPERTIES:
        return None
    return size, queue_id, queue_offset, physical_offset, timestamp, tail[1:topic_end], tail


def read_records(buffer: Buffer, *, check_crc: bool) -> list[Record]:
    """All records of a pull response's body, which is nothing but records.

    Raises:
        RecordError: as `read_record`; a blank is no record here.
    """
    records = []
    position, limit = 0, len(buffer)
    while position < limit:
        record = read_record(buffer, position, limit, check_crc=check_crc)
        if isinstance(record, Blank):
            raise RecordError(RecordFault.MAGIC, f"a blank at {position} between messages")
        records.append(record)
        position += record.size
    return records


def _blank(buffer: Buffer, position: int, limit: int) -> Blank:
    left = min(limit, len(buffer)) - position
    if position < 0 or left < BLANK_SIZE:
        raise RecordError(RecordFault.INCOMPLETE, f"{left} bytes at {position}")
    size, magic = _unpack_start(buffer, position)
    if magic in _MAGICS:
        raise RecordError(RecordFault.INCOMPLETE, f"{size} bytes at {position}, {left} are left")
    if magic != MAGIC_BLANK:
        raise RecordError(RecordFault.MAGIC, f"magic {magic:#010x} at {position}")
    if size < BLANK_SIZE:
        raise _bad_lengths(position, size)
    if size > left:
        raise RecordError(RecordFault.INCOMPLETE, f"a blank of {size} bytes at {position}, {left} are left")
    return Blank(position, size)


def _after_long_hosts(
    buffer: Buffer, position: int, end: int, kind: int
) -> tuple[int, bytes, int, bytes, int, int, int]:
    """Start of the body, then the fields from bornHost to bodyLength, of a record with an IPv6 host."""
    head = _HEADS[kind]
    if position + head.size > end:
        raise _bad_lengths(position, end - position)
    fields: tuple[bytes, int, bytes, int, int, int] = head.unpack_from(buffer, position)[9:]
    return position + head.size, *fields


def _bad_lengths(position: int, size: int) -> RecordError:
    return RecordError(RecordFault.LENGTHS, f"record of {size} bytes at {position}")


def _long_length(length: int) -> bytes:
    if length > 0x7FFF:
        raise RecordError(RecordFault.UNENCODABLE, f"a topic of {length} bytes")
    return _LENGTH.pack(length)


def _host_kind(host: bytes) -> int:
    """0 for IPv4, 1 for IPv6."""
    if len(host) not in (8, 20):
        raise RecordError(RecordFault.UNENCODABLE, f"a host of {len(host)} bytes")
    return len(host) // 20
