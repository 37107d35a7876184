"""JSON bodies: ours are strict JSON; received ones may be anything that fastjson reads as the same.

Every process uses these two functions; the shapes are the `Body` structs of `controller` and `nameserver`.
"""

import contextlib
from typing import Annotated, Final, TypeVar

import msgspec

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.coercion import coerce

T = TypeVar("T")

# Java's int and long
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

LOOSE_LIMIT: Final = 64 * 1024
"""Largest body that is taken apart in Python, in bytes: that takes 50 ms at most."""
BARE_KEYS_LIMIT: Final = 512 * 1024
"""Largest body that is read a second time in C, bare integer keys quoted, in bytes: that takes 50 ms at most."""
ANSWER_LIMIT: Final = 1024 * 1024
"""The same for tools, whose answers (202, 208, 220) hold tables with queues as keys and do not block a server."""
REQUEST_LIMIT: Final = 512 * 1024
"""Largest body of a client's or a tool's request, in bytes; a heartbeat with some 3,000 subscriptions."""
_NOT_READ: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Body(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of the JSON bodies: keyword-only, immutable, camelCase on the wire."""


def encode_body(value: object) -> bytes:
    """`value` (a body struct or builtins) as JSON with sorted keys; sets are sorted, integer keys quoted."""
    try:
        return _encode_sorted(value)
    except TypeError:
        pass  # it cannot sort tables with integer keys; the other way takes ten times as long
    return _encode(msgspec.to_builtins(value, str_keys=True, order="sorted"))


def decode_body(body_type: type[T], data: bytes, *, loose_limit: int = LOOSE_LIMIT) -> T:
    """The body of type `body_type`; unknown keys are ignored as Java ignores them.

    Strict JSON of the right types is read at once, numbers and booleans in quotes at the second try, up to
    `BARE_KEYS_LIMIT`. Only what is neither, of at most `loose_limit` bytes, is read as fastjson reads it
    (`fastjson.loads`, `coercion`).

    Raises:
        BodyError: empty, not JSON, or JSON of another shape.
    """
    try:
        return msgspec.json.decode(data, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        strict_error = error
    except RecursionError as error:
        raise BodyError(f"{_name(body_type)}: nested too deep") from error
    if loose_limit:
        try:
            return _decode_loosely(body_type, data, strict_error, loose_limit)
        except msgspec.ValidationError as error:
            strict_error = error
    raise BodyError(f"{_name(body_type)}: {strict_error}") from strict_error


def decode_request_body(body_type: type[T], data: bytes) -> T:
    """`decode_body` for what clients and tools send.

    Raises:
        BodyError: more than `REQUEST_LIMIT` bytes, or as `decode_body`.
    """
    if len(data) > REQUEST_LIMIT:
        raise BodyError(f"{_name(body_type)}: {len(data)} bytes, more than {REQUEST_LIMIT}")
    return decode_body(body_type, data)


def _decode_loosely(body_type: type[T], data: bytes, strict_error: Exception, loose_limit: int) -> T:
    """Second chances, the quick ones first.

    Raises:
        BodyError: it is not even loose JSON.
        ValidationError: it is of another shape.
    """
    quoted = data
    if len(data) <= max(BARE_KEYS_LIMIT, loose_limit):
        if not isinstance(strict_error, msgspec.ValidationError):
            quoted = fastjson.quote_keys(data)
        with contextlib.suppress(*_NOT_READ):
            return msgspec.json.decode(quoted, type=body_type, strict=False)
    if len(data) > loose_limit:
        raise BodyError(f"{_name(body_type)}: {strict_error} (a body of more than {loose_limit} bytes has to be exact)")
    return msgspec.convert(coerce(_loads(quoted, loose_limit), body_type), body_type, str_keys=True, strict=False)


def _loads(data: bytes, loose_limit: int) -> fastjson.Value:
    try:
        value: fastjson.Value = msgspec.json.decode(data)
    except _NOT_READ:
        return fastjson.loads(data, max_tokens=fastjson.MAX_TOKENS * max(1, loose_limit // LOOSE_LIMIT))
    return value


def _name(body_type: type[object]) -> str:
    return getattr(body_type, "__name__", str(body_type))
