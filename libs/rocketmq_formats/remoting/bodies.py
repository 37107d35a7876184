"""JSON bodies: ours go out as strict JSON, theirs come in as strict JSON or as what fastjson makes of it.

Every process uses these two functions; the shapes are the `Body` structs of `controller` and `nameserver`.
"""

from typing import TypeVar

import msgspec

from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting import fastjson

T = TypeVar("T")

_encode = msgspec.json.Encoder(order="sorted").encode


class Body(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of the JSON bodies: keyword-only, immutable, camelCase on the wire."""


def encode_body(value: object) -> bytes:
    """`value` (a body struct or builtins) as JSON with sorted keys; sets are sorted, integer keys quoted."""
    return _encode(value)


def decode_body(body_type: type[T], data: bytes) -> T:
    """The body of type `body_type`; unknown keys are ignored as Java ignores them.

    Raises:
        BodyError: empty, not JSON, or JSON of another shape.
    """
    try:
        return msgspec.json.decode(data, type=body_type)
    except msgspec.ValidationError as error:
        raise BodyError(f"{_name(body_type)}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError as error:
        raise BodyError(f"{_name(body_type)}: nested too deep") from error
    try:
        return msgspec.convert(fastjson.loads(data), body_type, str_keys=True)
    except msgspec.ValidationError as error:
        raise BodyError(f"{_name(body_type)}: {error}") from error


def _name(body_type: type[object]) -> str:
    return getattr(body_type, "__name__", str(body_type))
