"""The two ids of a message, and hosts as records hold them.

    offset id   hex of storeHost and physicalOffset: where the message is; the broker makes it, queries by id take it
    unique id   hex of ip (4 | 16), pid (2), class loader (4), ms since the month began (4), counter (2): UNIQ_KEY,
                made by the producer, opaque to the broker, which makes one only for a single send that lacks it

Both 32 characters with IPv4 hosts; with IPv6 the offset id has 56, the unique id too. Upper case.
Source: rocketmq-all-5.3.3: MessageDecoder.java, MessageClientIDSetter.java.
"""

import binascii
import ipaddress
import struct
from typing import Final

from rocketmq_formats.errors import FormatError

_V4_LENGTH: Final = 32
_V6_LENGTH: Final = 56
_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_UNIQUE: Final = struct.Struct(">HIIH")


class MessageIdError(FormatError):
    """No message id, or no host."""


def encode_host(ip: str, port: int) -> bytes:
    """`ip` (4 or 16 bytes, no zone) and port as a record has them.

    Raises:
        MessageIdError: not an IP address, or no port.
    """
    try:
        packed = ipaddress.ip_address(ip.partition("%")[0]).packed
    except ValueError as error:
        raise MessageIdError(str(error)) from error
    if not 0 <= port <= 65535:
        raise MessageIdError(f"no port: {port}")
    return packed + _PORT.pack(port)


def decode_host(host: bytes) -> tuple[str, int]:
    """IP address and port; the port as it was stored, whatever it is.

    Raises:
        MessageIdError: neither 8 nor 20 bytes.
    """
    if len(host) not in (8, 20):
        raise MessageIdError(f"a host of {len(host)} bytes")
    (port,) = _PORT.unpack_from(host, len(host) - 4)
    return str(ipaddress.ip_address(host[:-4])), port


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """The offset id; `store_host` as in the record.

    Raises:
        MessageIdError: a negative offset or one beyond i64.
    """
    try:
        return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()
    except OverflowError as error:
        raise MessageIdError(f"no physical offset: {physical_offset}") from error


def decode_message_id(text: str) -> tuple[bytes, int]:
    """Store host, as in the record, and physical offset.

    Raises:
        MessageIdError: neither 32 nor 56 hex digits, or a negative offset.
    """
    if len(text) not in (_V4_LENGTH, _V6_LENGTH):
        raise MessageIdError(f"a message id has 32 or 56 characters, not {len(text)}: {text[:80]!r}")
    try:
        data = binascii.unhexlify(text)
    except ValueError as error:
        raise MessageIdError(f"a message id is hexadecimal: {text!r}") from error
    (physical_offset,) = _OFFSET.unpack_from(data, len(data) - 8)
    if physical_offset < 0:
        raise MessageIdError(f"a message id with a negative offset: {text!r}")
    return data[:-8], physical_offset


def encode_unique_id(*, ip: bytes, pid: int, loader: int, since_month_ms: int, counter: int) -> str:
    """A unique id; numbers too large for their bytes are cut as Java cuts them.

    `ip` is 4 or 16 bytes, `loader` any number that tells clients of one process apart, `counter` counts up.
    """
    tail = _UNIQUE.pack(pid & 0xFFFF, loader & 0xFFFFFFFF, since_month_ms & 0xFFFFFFFF, counter & 0xFFFF)
    return (ip + tail).hex().upper()
