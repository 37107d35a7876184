"""The ROCKETMQ form of a command's header (serialize type 1); `command` is its only user.

    int16 code | int8 language | int16 version | int32 opaque | int32 flag
    int32 remark length | remark, UTF-8                                       (length 0: no remark)
    int32 ext length    | repeated: int16 key length | key | int32 value length | value

Java reads an empty ext value as null; we keep it, as JSON headers do.
Source: rocketmq-all-5.3.3: RocketMQSerializable.java.
"""

import struct
from collections.abc import Mapping
from typing import Protocol, TypeAlias

from rocketmq_formats.codes import LanguageCode
from rocketmq_formats.errors import FrameError

Fields: TypeAlias = tuple[int, int, int, int, int, str | None, dict[str, str] | None]
"""code, flag, opaque, language number, version, remark, ext fields."""

_FIXED = struct.Struct(">hbhiii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LANGUAGE_NUMBERS = {language.name: int(language) for language in LanguageCode}
_MAX_INT16 = 2**15 - 1


class Command(Protocol):
    """What a header says of a command."""

    code: int
    language: str
    version: int
    opaque: int
    flag: int
    remark: str | None

    @property
    def ext_fields(self) -> Mapping[str, str] | None:
        """Field names and values."""


def encode(command: Command) -> bytes | None:
    """The header's bytes; None where this form cannot hold the command (code, version or a key's length over int16)."""
    remark = command.remark.encode() if command.remark else b""
    parts: list[bytes] = []
    for key, value in (command.ext_fields or {}).items():
        raw_key, raw_value = key.encode(), value.encode()
        if len(raw_key) > _MAX_INT16:
            return None
        parts += (_INT16.pack(len(raw_key)), raw_key, _INT32.pack(len(raw_value)), raw_value)
    ext = b"".join(parts)
    code, version = command.code, command.version
    if not (-_MAX_INT16 <= code <= _MAX_INT16 and -_MAX_INT16 <= version <= _MAX_INT16):
        return None
    language = _LANGUAGE_NUMBERS.get(command.language, LanguageCode.OTHER)
    fixed = _FIXED.pack(code, language, version, command.opaque, command.flag, len(remark))
    return fixed + remark + _INT32.pack(len(ext)) + ext


def decode(header: bytes) -> Fields:
    """The header's fields; every byte of `header` must belong to one.

    Raises:
        FrameError: a length is negative or points outside, bytes are left over, or text is not UTF-8.
    """
    size = len(header)
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
        ext_at = _FIXED.size + remark_length
        if remark_length < 0 or ext_at + 4 != size - _INT32.unpack_from(header, ext_at)[0]:
            raise FrameError(f"remark of {remark_length} bytes and ext fields do not fill a header of {size}")
        remark = header[_FIXED.size : ext_at].decode() if remark_length else None
        fields = _decode_ext(header, ext_at + 4) if ext_at + 4 < size else None
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"binary header of {size} bytes: {error}") from error
    return code, flag, opaque, language, version, remark, fields


def _decode_ext(header: bytes, at: int) -> dict[str, str]:
    size = len(header)
    read_int16, read_int32 = _INT16.unpack_from, _INT32.unpack_from
    fields = {}
    while at < size:
        key_at = at + 2
        key_end = key_at + read_int16(header, at)[0]
        # unpack_from counts negative offsets from the end: a lying length must not get there
        if key_end < key_at:
            raise FrameError("negative key length in ext fields")
        value_at = key_end + 4
        at = value_at + read_int32(header, key_end)[0]
        if at < value_at or at > size:
            raise FrameError("value length in ext fields points outside the header")
        fields[header[key_at:key_end].decode()] = header[value_at:at].decode()
    return fields
