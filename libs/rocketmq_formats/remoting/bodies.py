"""JSON bodies: ours go out as strict JSON, theirs come in as strict JSON or as what fastjson makes of it.

Every process uses these two functions; the shapes are the `Body` structs of `controller` and `nameserver`.
"""

from typing import Final, TypeVar

import msgspec

from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting import fastjson

T = TypeVar("T")

LOOSE_LIMIT: Final = 1024 * 1024
"""Largest body given to the fastjson reader, in bytes: it is Python and takes about half a second for so many."""

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

    Only a body that is not strict JSON, of at most `loose_limit` bytes, goes to the fastjson reader.

    Raises:
        BodyError: empty, not JSON, or JSON of another shape.
    """
    try:
        return msgspec.json.decode(data, type=body_type)
    except msgspec.ValidationError as error:
        raise BodyError(f"{_name(body_type)}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if len(data) > loose_limit:
            raise BodyError(f"{_name(body_type)}: {error}") from error
    except RecursionError as error:
        raise BodyError(f"{_name(body_type)}: nested too deep") from error
    try:
        return msgspec.convert(fastjson.loads(data), body_type, str_keys=True)
    except msgspec.ValidationError as error:
        raise BodyError(f"{_name(body_type)}: {error}") from error


def _name(body_type: type[object]) -> str:
    return getattr(body_type, "__name__", str(body_type))
