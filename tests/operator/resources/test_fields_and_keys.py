"""A field that sets a key has the key's default and bounds, or a reason not to."""

import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
import pytest

from rocketmq_resources.schema.broker_group import BrokerGroupSpec
from rocketmq_resources.schema.controller_cluster import ControllerClusterSpec
from rocketmq_resources.schema.differences import DIFFERENCES, Part
from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.declare import Settings
from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_settings.table import rows
from rocketmq_settings.verify import VerifyKeys

Hint = Any  # a type, or what `typing` makes of one

RESOURCES: dict[type[Settings], type[msgspec.Struct]] = {
    BrokerKeys: BrokerGroupSpec,
    SidecarKeys: BrokerGroupSpec,
    VerifyKeys: BrokerGroupSpec,
    ControllerKeys: ControllerClusterSpec,
}


class Pair(NamedTuple):
    """A field of a resource and the key that it sets."""

    path: str
    field: msgspec.structs.FieldInfo
    key: msgspec.structs.FieldInfo


def pairs() -> Iterator[Pair]:
    for settings, resource in RESOURCES.items():
        by_name = _fields(settings)
        for row in rows(settings):
            if row.set_by and re.fullmatch(r"spec(\.\w+)+", row.set_by):
                yield Pair(row.set_by, _field(resource, row.set_by.split(".")[1:]), by_name[row.key])


def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _field(kind: type[msgspec.Struct], path: list[str]) -> msgspec.structs.FieldInfo:
    field = _fields(kind)[path[0]]
    return field if len(path) == 1 else _field(_bare(field.type), path[1:])


def _bare(hint: Hint) -> Hint:
    """Without metadata, None, and the list around it."""
    origin = get_origin(hint)
    if origin in (Annotated, tuple):
        return _bare(get_args(hint)[0])
    if origin in (Union, UnionType):
        return _bare(next(part for part in get_args(hint) if part is not NoneType))
    return hint


def _bounds(hint: Hint) -> Hint:
    """Least and most of a number, the choices of a text, or None."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        own = [meta for meta in arguments[1:] if meta.ge is not None or meta.le is not None]
        return (own[0].ge, own[0].le) if own else _bounds(arguments[0])
    if origin in (Union, UnionType, tuple):
        return _bounds(arguments[0])
    return hint if origin is Literal else None


def differences(pair: Pair) -> Iterator[Part]:
    if _bounds(pair.field.type) != _bounds(pair.key.type):
        yield "bounds"
    if pair.field.default not in (msgspec.NODEFAULT, None, (), pair.key.default):
        yield "default"


def test_fields_have_the_defaults_and_bounds_of_their_keys() -> None:
    found = {(pair.path, part) for pair in pairs() for part in differences(pair)}
    assert found == set(DIFFERENCES), "declare them once, in rocketmq_settings, or say why not in differences.py"


@pytest.mark.parametrize(
    "path",
    [
        "spec.failover.leaseTimeoutMs",
        "spec.durability",
        "spec.priorities",
        "spec.tuning.raftElectionTimeoutMs",
        "spec.verification.rereadDays",
    ],
)
def test_fields_are_compared(path: str) -> None:
    pair = next(pair for pair in pairs() if pair.path == path)
    assert _bounds(pair.field.type) is not None


def test_a_difference_is_found() -> None:
    class Keys(msgspec.Struct):
        one: Annotated[int, msgspec.Meta(ge=1, le=9)] = 5

    class Resource(msgspec.Struct):
        one: Annotated[int, msgspec.Meta(ge=1, le=10)] | None = 4

    pair = Pair("spec.one", _fields(Resource)["one"], _fields(Keys)["one"])
    assert list(differences(pair)) == ["bounds", "default"]
