"""The declarations read back, one row per key."""

from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec

from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.declare import OTHER_NAMES, Change, Settings
from rocketmq_settings.replica import JAVA_SWITCHES
from rocketmq_settings.sidecar import SidecarKeys


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one process."""

    key: str
    """As Java spells it; the operator's are variables of the environment."""
    value: bool | int | float | str
    """Without the key."""
    default: str | None = None
    """What stands for an empty value or 0, in words."""
    unit: str | None = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    meaning: str
    set_by: str | None = None
    creation_only: bool = False
    change: Change | None = None
    without_effect: bool = False
    group_wide: bool = False
    zero_is_one: bool = False
    path: bool = False


@cache
def rows(spec: type[Settings]) -> tuple[Row, ...]:
    """The keys of a settings class, in the order of their declaration.

    Raises:
        TypeError: a field is not declared with `key`.
    """
    info = msgspec.inspect.type_info(spec)
    assert isinstance(info, msgspec.inspect.StructType), "a settings class is a struct"
    return tuple(_row(spec.__name__, field) for field in info.fields)


def _row(owner: str, field: msgspec.inspect.Field) -> Row:
    declared = field.type
    if not isinstance(declared, msgspec.inspect.Metadata) or not declared.extra_json_schema:
        raise TypeError(f"{owner}: {field.encode_name} has no meaning")
    kind = declared.type
    facts = {
        **(declared.extra or {}),
        "key": field.encode_name,
        "meaning": declared.extra_json_schema["description"],
        "value": field.default,
        "least": getattr(kind, "ge", None),
        "most": getattr(kind, "le", None),
        "choices": getattr(kind, "values", ()),
    }
    return msgspec.convert(facts, Row)


def keys(spec: type[Settings]) -> frozenset[str]:
    """The names of a settings class's keys."""
    return frozenset(spec.__struct_encode_fields__)


def _names(spec: type[Settings]) -> frozenset[str]:
    own = keys(spec)
    return own | {name for name, key in OTHER_NAMES.items() if key in own}


OF_THE_SIDECAR: Final = (_names(SidecarKeys) | JAVA_SWITCHES) - _names(BrokerKeys)
"""In a replica's file, of no concern to the broker."""
OF_THE_BROKER: Final = (_names(BrokerKeys) | JAVA_SWITCHES) - _names(SidecarKeys)
"""In a replica's file, of no concern to the sidecar."""


def without_effect(settings: Settings) -> Mapping[str, str]:
    """Key -> its meaning, of those that are set and switch nothing; none beside an official broker, which reads them.

    Raises:
        TypeError: as `rows`.
    """
    if settings.beside_java_broker:
        return {}
    spec = type(settings)
    fields = dict(zip(spec.__struct_encode_fields__, spec.__struct_fields__, strict=True))
    idle = (row for row in rows(spec) if row.without_effect)
    return {row.key: row.meaning for row in idle if getattr(settings, fields[row.key]) != row.value}


def set_elsewhere(*specs: type[Settings]) -> Mapping[str, str]:
    """Key -> who sets it on Kubernetes instead of spec.config."""
    return {row.key: row.set_by for spec in specs for row in rows(spec) if row.set_by is not None}


def creation_only(*specs: type[Settings]) -> frozenset[str]:
    """Keys that spec.config has from the beginning or not at all."""
    return frozenset(row.key for spec in specs for row in rows(spec) if row.creation_only)


def group_wide(*specs: type[Settings]) -> frozenset[str]:
    """Keys that are equal on all replicas of a group."""
    return frozenset(row.key for spec in specs for row in rows(spec) if row.group_wide)
