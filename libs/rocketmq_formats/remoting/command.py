"""One remoting command, and its frame in both header forms (JSON and ROCKETMQ).

Shells build commands with `request` and `response` and write `encode_frame`; `connection` cuts streams and calls
`decode_frame`. Everything here runs once per frame: the JSON codec objects are made once, fields are not looped over.

    off  len  field, big-endian
    0    4    int32 length = 4 + header length + body length
    4    4    int32 serialize type << 24 | header length
    8    hl   header
    8+hl      body
"""

import struct
from typing import Annotated, Final

import msgspec

from rocketmq_formats.codes import VERSION_5_3_3, LanguageCode, SerializeType
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting import binary_header
from rocketmq_formats.remoting.headers import Header, encode_header

MAX_FRAME: Final = 16 * 1024 * 1024
"""Largest length word accepted and written: Java's default `com.rocketmq.remoting.frameMaxLength`."""
MAX_HEADER: Final = 1024 * 1024
"""Largest header accepted. Java has no such bound; a million tiny ext fields would cost us hundreds of MiB."""

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

_HEADER_LENGTH_MASK: Final = 0x00FFFFFF
_ONE_WORD = struct.Struct(">i")
_TWO_WORDS = struct.Struct(">ii")
_LANGUAGES = frozenset(LanguageCode.__members__)
_LANGUAGE_NAMES = tuple(language.name for language in LanguageCode)
_OTHER = LanguageCode.OTHER.name


class RemotingCommand(msgspec.Struct, gc=False):
    """A request or a response.

    `code` stays a plain int: unknown ones are legal. `opaque` pairs a response with its request on one connection.
    `language` is a name of `LanguageCode` (decoding turns anything else into OTHER). `ext_fields` None means "no custom
    header". `serialize_type` is the header form this command came in or is to be written in.
    """

    code: int
    flag: int = 0
    opaque: int = 0
    language: str = "PYTHON"
    version: int = VERSION_5_3_3
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """True where `code` is a response code."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True where no response may be written."""
        return bool(self.flag & FLAG_ONEWAY)


def request(
    code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False, opaque: int = 0
) -> RemotingCommand:
    """A request of ours; the client that sends it sets `opaque`."""
    return RemotingCommand(
        code=code,
        flag=FLAG_ONEWAY if oneway else 0,
        opaque=opaque,
        ext_fields=None if header is None else encode_header(header),
        body=body,
    )


def response(
    request: RemotingCommand, code: int, remark: str | None = None, header: Header | None = None, body: bytes = b""
) -> RemotingCommand:
    """The answer to `request`: its opaque and its header form. Never write one to a oneway request."""
    return RemotingCommand(
        code=code,
        flag=FLAG_RESPONSE,
        opaque=request.opaque,
        remark=remark,
        ext_fields=None if header is None else encode_header(header),
        body=body,
        serialize_type=request.serialize_type,
    )


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _JsonHeader(msgspec.Struct, gc=False):
    """What is written: fastjson's spelling and order; UNSET keys are left out, as Java leaves out nulls."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815 - the key on the wire
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815 - the key on the wire
    version: int


class _ReadJsonHeader(msgspec.Struct, gc=False):
    """What is read, and needed."""

    code: _Int32
    flag: _Int32 = 0
    opaque: _Int32 = 0
    language: str | int | None = None
    version: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the key on the wire


class _LooseJsonHeader(msgspec.Struct, gc=False):
    """What fastjson would also take: numbers in quotes, nulls for zero, ext values that are not strings."""

    code: _Int32
    flag: _Int32 | None = 0
    opaque: _Int32 | None = 0
    language: str | int | None = None
    version: _Int32 | None = 0
    remark: str | None = None
    extFields: dict[str, msgspec.Raw] | None = None  # noqa: N815 - the key on the wire


_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder(_ReadJsonHeader).decode
_decode_loose_json = msgspec.json.Decoder(_LooseJsonHeader, strict=False).decode
_decode_string = msgspec.json.Decoder(str).decode
_UNSET: Final = msgspec.UNSET
_JSON: Final = SerializeType.JSON
_ROCKETMQ: Final = SerializeType.ROCKETMQ


def encode_frame(command: RemotingCommand) -> bytes:
    """The whole frame, length word included.

    A ROCKETMQ header cannot hold every command (codes above 32767, say); such a command is written as JSON, which
    every peer reads because the frame names its form.

    Raises:
        ValueError: the frame would be larger than any peer accepts; a bug of the caller.
    """
    kind = 0
    header = binary_header.encode(command) if command.serialize_type is _ROCKETMQ else None
    if header is None:
        remark, fields = command.remark, command.ext_fields
        header = _encode_json(
            _JsonHeader(
                command.code,
                _UNSET if fields is None else fields,
                command.flag,
                command.language,
                command.opaque,
                _UNSET if remark is None else remark,
                "JSON",
                command.version,
            )
        )
    else:
        kind = 0x01000000
    header_length = len(header)
    length = 4 + header_length + len(command.body)
    if length > MAX_FRAME or header_length > MAX_HEADER:
        raise ValueError(f"frame of {length} bytes with a header of {header_length}: larger than peers accept")
    return _TWO_WORDS.pack(length, kind | header_length) + header + command.body


def decode_frame(payload: bytes) -> RemotingCommand:
    """The command of one frame; `payload` is the frame without its 4 length bytes.

    Raises:
        FrameError: anything about the framing or the header is wrong; the connection has to be closed.
    """
    size = len(payload)
    if size < 4:
        raise FrameError(f"frame of {size} bytes: too short for a header length")
    (word,) = _ONE_WORD.unpack_from(payload)
    header_length = word & _HEADER_LENGTH_MASK
    if header_length > size - 4:
        raise FrameError(f"header length {header_length} exceeds its frame of {size} bytes")
    if header_length > MAX_HEADER:
        raise FrameError(f"header length {header_length} exceeds {MAX_HEADER}")
    end = 4 + header_length
    body = payload[end:]
    kind = word >> 24
    if kind == 0:
        return _from_json(payload[4:end], body)
    if kind == 1:
        code, flag, opaque, language, version, remark, fields = binary_header.decode(payload[4:end])
        name = _LANGUAGE_NAMES[language] if 0 <= language < len(_LANGUAGE_NAMES) else _OTHER
        return RemotingCommand(code, flag, opaque, name, version, remark, fields, body, _ROCKETMQ)
    raise FrameError(f"unknown serialize type {kind & 0xFF}")


def _from_json(raw: bytes, body: bytes) -> RemotingCommand:
    try:
        header = _decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _from_loose_json(raw, body, error)
    language = header.language
    return RemotingCommand(
        header.code,
        header.flag,
        header.opaque,
        language if language in _LANGUAGES else _language_name(language),
        header.version,
        header.remark,
        header.extFields,
        body,
        _JSON,
    )


def _from_loose_json(raw: bytes, body: bytes, strict_error: Exception) -> RemotingCommand:
    """Second chance for sloppy clients, at their own cost; the error reported is the strict reader's."""
    try:
        header = _decode_loose_json(raw)
        fields = None if header.extFields is None else _stringify(header.extFields)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"header is not a command in JSON: {strict_error}") from error
    return RemotingCommand(
        header.code,
        header.flag or 0,
        header.opaque or 0,
        _language_name(header.language),
        header.version or 0,
        header.remark,
        fields,
        body,
        _JSON,
    )


def _stringify(raw_fields: dict[str, msgspec.Raw]) -> dict[str, str]:
    """Ext values as fastjson puts them into a String map: scalars keep their literal text, null counts as absent.

    fastjson would also take objects and arrays, as JSON text; no header has a use for them, so they are refused.
    """
    fields = {}
    for key, raw in raw_fields.items():
        text = bytes(raw)
        if text[:1] == b'"':
            fields[key] = _decode_string(text)
        elif text[:1] in (b"{", b"["):
            raise FrameError(f"ext field {key[:64]!r} is not a scalar")
        elif text != b"null":
            fields[key] = text.decode("ascii")
    return fields


def _language_name(language: str | int | None) -> str:
    """The name a JSON header means: names and Java's ordinals; bounded, because it ends up in metrics."""
    if isinstance(language, int):
        return _LANGUAGE_NAMES[language] if 0 <= language < len(_LANGUAGE_NAMES) else _OTHER
    return language if language in _LANGUAGES else _OTHER
