"""How fields, rules and resources are declared."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from rocketmq_resources import names

Schema = dict[str, object]
"""A JSON schema as Kubernetes takes it."""

ListType = Literal["atomic", "map", "set"]
"""How server-side apply merges a list."""


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule of the API server."""

    rule: str
    """`self` is the value that carries the rule, `oldSelf` the value before an update."""
    message: str
    """What a user reads when the rule refuses a resource."""
    field: str | None = None
    """The field below `self` that the refusal names."""

    def schema(self) -> Schema:
        """An entry of x-kubernetes-validations."""
        where = {} if self.field is None else {"fieldPath": f".{self.field}"}
        return {"rule": self.rule, "message": self.message, **where}


def field(
    description: str,
    *,
    rules: tuple[Rule, ...] = (),
    list_type: ListType | None = None,
    list_keys: tuple[str, ...] = (),
    default: Mapping[str, object] | None = None,
) -> msgspec.Meta:
    """The metadata of one field, for `Annotated`.

    Args:
        description: one to three sentences for users (`kubectl explain`, docs/crd-reference.md).
        rules: checks of the value.
        list_type: of a list; the default is atomic.
        list_keys: fields that identify an entry of a list of type map.
        default: of a map; without it an absent map stays absent. Other defaults come from the struct.
    """
    keywords: dict[str, object] = {
        "x-kubernetes-validations": [rule.schema() for rule in rules],
        "x-kubernetes-list-type": list_type,
        "x-kubernetes-list-map-keys": list(list_keys),
    }
    extra = {name: value for name, value in keywords.items() if value}
    if default is not None:
        extra["default"] = dict(default)
    return msgspec.Meta(description=description, extra_json_schema=extra)


def checked(*rules: Rule) -> msgspec.Meta:
    """Rules of a type that several fields share."""
    return msgspec.Meta(extra_json_schema={"x-kubernetes-validations": [rule.schema() for rule in rules]})


def formatted(name: str) -> msgspec.Meta:
    """The `format` of a number or a text."""
    return msgspec.Meta(extra_json_schema={"format": name})


def shape(kind: type, *, more_fields: bool = False) -> msgspec.Meta:
    """The fields of an object that stays JSON in Python; `more_fields`: the API server keeps fields not named here."""
    kept: Schema = {"x-kubernetes-preserve-unknown-fields": True} if more_fields else {}
    return msgspec.Meta(extra={"shape": kind}, extra_json_schema=kept)


def fixed(message: str) -> Rule:
    """A field with a default that cannot change."""
    return Rule("self == oldSelf", message)


def fixed_optional(name: str, message: str) -> Rule:
    """An optional field that cannot be set, changed or removed later. A rule of the struct that has the field."""
    return Rule(
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        message,
        name,
    )


Int32 = Annotated[int, formatted("int32")]


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`."""

    name: str
    path: str
    type: Literal["string", "integer", "boolean", "date"] = "string"
    description: str | None = None
    wide: bool = False
    """Only with `-o wide`."""


class CustomResource(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of resource, as the API server has to know it."""

    kind: names.Kind
    short_name: str
    description: str
    longest_name: int
    """Characters of metadata.name: objects that the operator makes have longer names."""
    rules: tuple[Rule, ...] = ()
    """About metadata.name, beside its length and form."""
    spec: type[msgspec.Struct]
    status: type
    status_description: str = "The observed state. Written by the operator."
    columns: tuple[Column, ...]
    scale: bool
    """Whether `kubectl scale` works."""


PHASE: Final = Column("Phase", ".status.phase", description="What the operator is doing.")
AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")
