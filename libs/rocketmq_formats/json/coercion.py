"""How fastjson converts a value that does not have its field's type: `"65"` for a number, 1 for an enum, null for a
list.

`bodies.decode_body` uses it for JSON bodies of other types than declared, which several clients send. `coerce` converts
only values of another type and leaves validation (ranges, lengths, required fields) to msgspec.

| field | also taken |
|---|---|
| number | text of a number (`"65"`, `"+65"`, `"1,000"`, `"65.0"`), true and false as 1 and 0 |
| text | number, true, false |
| boolean | `"true"`, `"1"`, `"Y"`, `"T"` and their opposites; 1 is true, every other number false |
| enum | its position in the Java enum; an unknown name counts as null |
| any | null (and `""` where no text is wanted): the field's default; within lists and maps the item is left out |

Stricter than fastjson: numbers beyond their type's range (it wraps longs), fractions (it cuts them), objects and lists
for texts, an object for a list of one. Source: fastjson-1.2.83: TypeUtils.java, EnumDeserializer.java.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from rocketmq_formats.json.fastjson import Value

_ABSENT: Final = msgspec.UNSET
_Coerced: TypeAlias = "Value | msgspec.UnsetType"
_Coercion: TypeAlias = Callable[[Value], _Coerced]

_NUMBER = re.compile(r"[-+]?[0-9]{1,20}+(?:\.0{0,20}+)?", re.ASCII)
_NULLS: Final = frozenset({"", "null", "NULL"})
_BOOLEANS: Final = {"1": True, "y": True, "T": True, "0": False, "f": False, "N": False, "true": True, "false": False}


def coerce(value: Value, body_type: object) -> Value:
    """`value` with parts of another type than `body_type` declares converted as above, where possible."""
    coerced = _coercion(body_type)(value)
    return None if coerced is _ABSENT else coerced


@cache
def _coercion(kind: Any) -> _Coercion:  # noqa: PLR0911 - a table of types
    """How values of a field of this type are changed; there is one per type in the code."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _coercion(arguments[0])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _enum(arguments)
    if origin in (list, frozenset, Sequence):
        return _items(_coercion(arguments[0]))
    if origin in (dict, Mapping):
        return _entries(_coercion(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    return _SCALARS.get(kind, _as_it_is)


def _union(kinds: tuple[object, ...]) -> _Coercion:
    rest = [kind for kind in kinds if kind not in (types.NoneType, msgspec.UnsetType)]
    inner = _coercion(rest[0]) if len(rest) == 1 else _as_it_is
    if types.NoneType not in kinds:
        return inner

    def coerce_nullable(value: Value) -> _Coerced:
        coerced = None if value is None else inner(value)
        return None if coerced is _ABSENT else coerced

    return coerce_nullable


def _enum(names: tuple[str, ...]) -> _Coercion:
    """The names stand in the order of the Java enum's constants."""

    def coerce_enum(value: Value) -> _Coerced:
        if type(value) is int and 0 <= value < len(names):
            return names[value]
        return _ABSENT if value is None or (isinstance(value, str) and value not in names) else value

    return coerce_enum


def _items(coerce_item: _Coercion) -> _Coercion:
    def coerce_items(value: Value) -> _Coerced:
        if isinstance(value, list):
            coerced = [coerce_item(item) for item in value]
            return [item for item in coerced if item is not None and item is not _ABSENT]
        return _or_absent(value)

    return coerce_items


def _entries(coerce_value: _Coercion) -> _Coercion:
    """Keys are texts already; msgspec reads numbers from them."""

    def coerce_entries(value: Value) -> _Coerced:
        if not isinstance(value, dict):
            return _or_absent(value)
        coerced = {key: coerce_value(item) for key, item in value.items()}
        return {key: item for key, item in coerced.items() if item is not None and item is not _ABSENT}

    return coerce_entries


def _struct(kind: type[msgspec.Struct]) -> _Coercion:
    fields = {field.encode_name: _coercion(field.type) for field in msgspec.structs.fields(kind)}

    def coerce_struct(value: Value) -> _Coerced:
        if not isinstance(value, dict):
            return _or_absent(value)
        coerced = {key: fields[key](item) for key, item in value.items() if key in fields}
        return {key: item for key, item in coerced.items() if item is not _ABSENT}

    return coerce_struct


def _number(value: Value) -> _Coerced:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        if value in _NULLS:
            return _ABSENT
        text = value.replace(",", "")
        return int(text.partition(".")[0]) if _NUMBER.fullmatch(text) else value
    return _ABSENT if value is None else value


def _real(value: Value) -> _Coerced:
    return _or_absent(value)  # msgspec reads numbers from text


def _text(value: Value) -> _Coerced:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return _ABSENT if value is None else value


def _boolean(value: Value) -> _Coerced:
    if isinstance(value, (int, float)):
        return value == 1
    if isinstance(value, str):
        return _ABSENT if value in _NULLS else _BOOLEANS.get(value, _BOOLEANS.get(value.lower(), value))
    return _ABSENT if value is None else value


def _or_absent(value: Value) -> _Coerced:
    return _ABSENT if value is None or value == "" else value


def _as_it_is(value: Value) -> _Coerced:
    return value


_SCALARS: Final[Mapping[object, _Coercion]] = {int: _number, float: _real, str: _text, bool: _boolean}
