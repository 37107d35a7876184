"""The optional checksum over a whole record, kept as its last property.

    __CRC32# 0x01 <10 decimal digits, least significant first> 0x02         20 bytes, the record's last

CRC-32 & 0x7FFFFFFF of all bytes in front of it, with the final offsets. Java writes it with enabledAppendPropCRC and
checks it with forceVerifyPropCRC, both off by default; without it only the body is protected. The store decides.
Source: rocketmq-all-5.3.3: MessageDecoder.java.
"""

import zlib
from typing import Final

from rocketmq_formats.store.message import Buffer, Record, RecordError, RecordFault
from rocketmq_formats.store.message_properties import CRC32, join_properties

RECORD_CRC_SIZE: Final = 20
_PREFIX: Final = f"{CRC32}\x01".encode()
_PLACEHOLDER: Final = _PREFIX + b"0000000000\x02"


def reserve_record_crc(properties: bytes) -> bytes:
    """The properties with room for the checksum at their end; call it before `encode_record`.

    Raises:
        PropertiesError: more than MAX_PROPERTIES bytes with it.
    """
    return join_properties(properties, _PLACEHOLDER)


def seal_record(record: bytes) -> bytes:
    """The record with its checksum filled in; its properties come from `reserve_record_crc`."""
    return record[:-RECORD_CRC_SIZE] + _seal(memoryview(record))


def check_record_crc(buffer: Buffer, record: Record) -> bool:
    """Whether the record, read from `buffer`, carries a checksum at all.

    Raises:
        RecordError: CRC, it carries a wrong one.
    """
    if record.properties[-RECORD_CRC_SIZE:-11] != _PREFIX:
        return False
    if record.properties[-RECORD_CRC_SIZE:] != _seal(memoryview(buffer)[record.position :][: record.size]):
        raise RecordError(RecordFault.CRC, f"record of {record.size} bytes at {record.position}")
    return True


def _seal(record: memoryview) -> bytes:
    crc = zlib.crc32(record[:-RECORD_CRC_SIZE]) & 0x7FFFFFFF
    return _PREFIX + (b"%010d" % crc)[::-1] + b"\x02"
