"""Reads tables from files that people edit: an entry that cannot be read is left out and named, all others count.

Brokers and name servers read their tables with it at a start. A text is read as fastjson reads it (trailing commas,
single quotes, comments, bare keys, numbers in quotes). Bodies of requests are read by `bodies`, all or nothing.
"""

import types
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import Body
from rocketmq_formats.json.coercion import coerce
from rocketmq_formats.json.fastjson import Value

MAX_LOOSE: Final = 16 * 1024 * 1024
"""Largest text that is taken apart in Python, in bytes: that takes some 5 s."""

F = TypeVar("F", bound=Body)
_Table = Mapping[Any, Any]


class Unread(NamedTuple):
    """An entry that cannot be read."""

    field: str
    """Of the file."""
    entry: str
    """The keys that lead to it; `field` if that is no mapping."""
    problem: str
    replaced: bool
    """It was taken from the spare table."""

    def __str__(self) -> str:
        return f"{self.entry}: {self.problem}"


def read_table(file_type: type[F], data: bytes, spare: F | None = None) -> tuple[F, list[Unread]]:
    """The table in `data`, and what of it cannot be read.

    Entries are those of the mappings in `file_type`, and of mappings within them. Unknown fields are ignored, as Java
    ignores them.

    Args:
        spare: an older state of the table. What cannot be read is taken from there.

    Raises:
        BodyError: not JSON even by fastjson's lights, or no table.
    """
    quoted = fastjson.quote_keys(fastjson.without_mark(data), limit=0)
    for strict in (True, False):
        try:
            return msgspec.json.decode(quoted, type=file_type, strict=strict), []
        except msgspec.ValidationError:
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            break
    value = _loads(quoted)
    if not isinstance(value, dict):
        raise BodyError("not an object")
    reader = _Reader()
    fields = {
        field.name: part
        for field in msgspec.structs.fields(file_type)
        if (part := reader.field(field, value.get(field.encode_name), spare)) is not None
    }
    return file_type(**fields), reader.left_out


def _loads(data: bytes) -> Value:
    try:
        value: Value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(data) > MAX_LOOSE:
            raise BodyError(f"not JSON: {error}") from error
        return fastjson.loads(data, max_tokens=MAX_LOOSE)
    return value


class _Reader:
    def __init__(self) -> None:
        self.left_out: list[Unread] = []
        self._field = ""

    def field(self, field: msgspec.structs.FieldInfo, value: Value, spare: Body | None) -> object:
        """None: the default counts."""
        if value is None or value == "":
            return None
        self._field = field.encode_name
        older = None if spare is None else getattr(spare, field.name)
        table = _kinds(field.type)
        if table is None:
            if older == field.default:
                older = None  # as good as not there
            return self._entry(field.encode_name, value, field.type, older)
        if not isinstance(value, dict):
            raise BodyError(f"{field.encode_name} is no table")
        return self._table("", value, table, older)

    def _table(
        self, where: str, entries: dict[str, Value], kinds: tuple[object, object], older: _Table | None
    ) -> _Table:
        """`where`: the keys that lead to it."""
        key_kind, kind = kinds
        inner = _kinds(kind)
        table: dict[Any, Any] = {}
        for text, value in entries.items():
            name = where + text
            try:
                key: Any = msgspec.convert(text, key_kind, strict=False)
            except msgspec.ValidationError as error:
                self._leave_out(name, error, replaced=False)
                continue
            before = None if older is None else older.get(key)
            if inner is not None and isinstance(value, dict):
                table[key] = self._table(f"{name} ", value, inner, before)
            elif (entry := self._entry(name, value, kind, before)) is not None:
                table[key] = entry
        return table

    def _entry(self, name: str, value: Value, kind: object, older: object) -> object:
        try:
            return msgspec.convert(coerce(value, kind), kind, strict=False, str_keys=True)
        except msgspec.ValidationError as error:
            self._leave_out(name, error, replaced=older is not None)
            return older

    def _leave_out(self, name: str, error: msgspec.ValidationError, *, replaced: bool) -> None:
        self.left_out.append(Unread(self._field, name[:200], str(error), replaced))


def _kinds(kind: Any) -> tuple[object, object] | None:
    """The types of keys and values if it is a mapping, perhaps an optional one."""
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [_kinds(part) for part in get_args(kind)]
        return next((found for found in kinds if found is not None), None)
    if get_origin(kind) is Mapping:
        key_kind, value_kind = get_args(kind)
        return key_kind, value_kind
    return None
