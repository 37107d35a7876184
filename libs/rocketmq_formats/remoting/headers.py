"""Typed custom headers and their form on the wire: a flat map of strings under Java's field names.

A header is a frozen struct in snake_case; the wire key is its camelCase name, `rename` says where Java differs.
A field without a default is one that we cannot do without (Java's @CFNotNull and more): its absence is a `HeaderError`.
Source: rocketmq-all-5.3.3: RemotingCommand.java, CFNotNull.java.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from rocketmq_formats.errors import HeaderError


class Header(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of every custom header: keyword-only, immutable, camelCase on the wire."""


H = TypeVar("H", bound=Header)

_boolean_keys: dict[type[Header], tuple[str, ...]] = {}
"""Wire keys of each header type's boolean fields; grows by one entry per type."""


def encode_header(header: Header) -> dict[str, str]:
    """The header as extFields: None is left out, booleans become Java's `true` and `false`."""
    fields: dict[str, str] = {}
    for name, wire_name in zip(header.__struct_fields__, header.__struct_encode_fields__, strict=True):
        value = getattr(header, name)
        if value is None:
            continue
        fields[wire_name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return fields


def decode_header(header_type: type[H], fields: Mapping[str, str]) -> H:
    """The typed header of `fields`; unknown keys are ignored as Java ignores them.

    Booleans are read as Java reads them: "true" in any case is true, all else false. A number that does not parse is an
    error here; Java logs it and continues with null or 0.

    Raises:
        HeaderError: a required field is missing, or a value does not parse as the field's type.
    """
    boolean_keys = _boolean_keys.get(header_type)
    if boolean_keys is None:
        boolean_keys = _find_boolean_keys(header_type)
    for key in boolean_keys:
        value = fields.get(key)
        if value not in (None, "true", "false"):
            fields = {**fields, key: "true" if value.lower() == "true" else "false"}
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"{header_type.__name__}: {error}") from error


def _find_boolean_keys(header_type: type[Header]) -> tuple[str, ...]:
    keys = tuple(
        field.encode_name for field in msgspec.structs.fields(header_type) if field.type in (bool, bool | None)
    )
    _boolean_keys[header_type] = keys
    return keys
