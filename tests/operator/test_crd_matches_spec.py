"""crds/*.yaml and the structs of domain/spec say the same: names, types, bounds, enums, defaults, what is required."""

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec import reserved_keys
from rocketmq_operator.domain.spec.broker_group import BrokerGroupSpec
from rocketmq_operator.domain.spec.controller_cluster import ControllerClusterSpec
from rocketmq_operator.domain.spec.name_server import NameServerSpec

CRDS = Path(__file__).parents[2] / "crds"

Schema = dict[str, Any]  # YAML


class Kind(NamedTuple):
    name: names.Kind
    spec: type[msgspec.Struct]
    reserved: Mapping[str, str]
    longest_name: int
    scale: bool


KINDS = (
    Kind("BrokerGroup", BrokerGroupSpec, reserved_keys.BROKER, names.MAX_GROUP_NAME, scale=True),
    Kind(
        "ControllerCluster",
        ControllerClusterSpec,
        reserved_keys.CONTROLLER,
        names.MAX_CONTROLLER_CLUSTER_NAME,
        scale=False,
    ),
    Kind("NameServer", NameServerSpec, reserved_keys.NAME_SERVER, names.MAX_NAME_SERVER_NAME, scale=True),
)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


@functools.cache
def load(plural: str) -> Schema:
    """Parsed once: no test may change it."""
    loaded: Schema = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    return loaded


def crd(kind: Kind) -> Schema:
    return load(names.PLURALS[kind.name])


def version(kind: Kind) -> Schema:
    only: Schema
    [only] = crd(kind)["spec"]["versions"]
    return only


def root(kind: Kind) -> Schema:
    schema: Schema = version(kind)["schema"]["openAPIV3Schema"]
    return schema


def spec_schema(kind: Kind) -> Schema:
    schema: Schema = root(kind)["properties"]["spec"]
    return schema


def differences(path: str, schema: Schema, kind: msgspec.inspect.Type) -> Iterator[str]:
    """What a schema and a type do not agree about, as `path: problem`."""
    match kind:
        case msgspec.inspect.StructType():
            yield from _struct(path, schema, kind)
        case msgspec.inspect.UnionType():
            [inner] = [part for part in kind.types if not isinstance(part, msgspec.inspect.NoneType)]
            yield from differences(path, schema, inner)
        case msgspec.inspect.IntType():
            yield from _equal(path, "type", schema.get("type"), "integer")
            yield from _equal(path, "minimum", schema.get("minimum"), kind.ge)
            yield from _equal(path, "maximum", schema.get("maximum"), kind.le)
        case msgspec.inspect.FloatType():
            yield from _equal(path, "type", schema.get("type"), "number")
            yield from _equal(path, "minimum", schema.get("minimum"), kind.ge)
            yield from _equal(path, "maximum", schema.get("maximum"), kind.le)
        case msgspec.inspect.StrType():
            yield from _text(path, schema, kind)
        case msgspec.inspect.LiteralType():
            yield from _equal(path, "enum", set(schema.get("enum", ())), set(kind.values))
        case msgspec.inspect.BoolType():
            yield from _equal(path, "type", schema.get("type"), "boolean")
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            yield from _equal(path, "type", schema.get("type"), "array")
            yield from differences(f"{path}[]", schema["items"], kind.item_type)
        case msgspec.inspect.DictType(value_type=msgspec.inspect.StrType()):
            yield from _equal(path, "values", schema.get("additionalProperties", {}).get("type"), "string")
        case msgspec.inspect.DictType():  # Json: whatever Kubernetes takes
            yield from _equal(path, "type", schema.get("type"), "object")
        case _:
            yield f"{path}: no rule for {kind}"


def _text(path: str, schema: Schema, kind: msgspec.inspect.StrType) -> Iterator[str]:
    """Only what the struct says is compared: the API server checks the rest before the operator sees it."""
    yield from _equal(path, "type", schema.get("type"), "string")
    if kind.pattern is not None:
        yield from _equal(path, "pattern", schema.get("pattern"), kind.pattern)
    if kind.max_length is not None:
        yield from _equal(path, "maxLength", schema.get("maxLength"), kind.max_length)
    if "enum" in schema:
        yield f"{path}: an enum in the schema, any text in the struct"


def _struct(path: str, schema: Schema, kind: msgspec.inspect.StructType) -> Iterator[str]:
    yield from _equal(path, "type", schema.get("type"), "object")
    properties = schema.get("properties", {})
    fields = {field.encode_name: field for field in kind.fields}
    yield from _equal(path, "fields", sorted(properties), sorted(fields))
    required = sorted(name for name, field in fields.items() if field.required)
    yield from _equal(path, "required", sorted(schema.get("required", ())), required)
    for name in fields.keys() & properties.keys():
        where = f"{path}.{name}"
        yield from _equal(where, "default", schema_default(properties[name]), struct_default(fields[name]))
        yield from differences(where, properties[name], fields[name].type)


def schema_default(schema: Schema) -> object:
    """What the API server puts where the field is absent; None: nothing, or nothing that says anything."""
    if "default" not in schema:
        return None
    value = schema["default"]
    if not isinstance(value, dict):
        return value
    filled = {name: schema_default(inner) for name, inner in schema.get("properties", {}).items()} | value
    return {name: inner for name, inner in filled.items() if inner is not None} or None


def struct_default(field: msgspec.inspect.Field) -> object:
    """The same of a struct's field."""
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        value = field.default
    else:
        return None
    return _said(msgspec.to_builtins(value))


def _said(value: object) -> object:
    """Without what is absent or empty."""
    if isinstance(value, dict):
        return {name: inner for name, inner in ((n, _said(v)) for n, v in value.items()) if inner is not None} or None
    return None if value in ((), []) else value


def _equal(path: str, what: str, schema: object, struct: object) -> Iterator[str]:
    if schema != struct:
        yield f"{path}: {what} is {schema!r} in the schema, {struct!r} in the struct"


def walk(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Every schema below, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(f"{path}.{name}", inner)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from walk(path + suffix, schema[key])


@each_kind
def test_schema_and_struct_say_the_same(kind: Kind) -> None:
    assert list(differences("spec", spec_schema(kind), msgspec.inspect.type_info(kind.spec))) == []


def test_a_difference_is_found() -> None:
    schema = copy.deepcopy(spec_schema(KINDS[0]))
    schema["properties"]["failover"]["properties"]["leaseTimeoutMs"]["default"] = 1
    schema["properties"]["failover"]["properties"]["hangTimeoutMs"]["maximum"] = 1
    schema["properties"]["engine"]["enum"].append("other")
    schema["properties"]["storage"]["properties"]["commitLog"]["required"] = []
    schema["properties"]["extra"] = {"type": "string"}
    found = "\n".join(differences("spec", schema, msgspec.inspect.type_info(BrokerGroupSpec)))
    for path in (
        "spec: fields",
        "spec.failover: default",
        "spec.failover.leaseTimeoutMs: default",
        "spec.failover.hangTimeoutMs: maximum",
        "spec.engine: enum",
        "spec.storage.commitLog: required",
    ):
        assert path in found


@each_kind
def test_names_of_the_resource(kind: Kind) -> None:
    loaded = crd(kind)
    spec = loaded["spec"]
    assert loaded["metadata"]["name"] == f"{names.PLURALS[kind.name]}.{names.GROUP}"
    assert (spec["group"], spec["scope"]) == (names.GROUP, "Namespaced")
    assert spec["names"]["kind"] == kind.name
    assert spec["names"]["plural"] == names.PLURALS[kind.name]
    assert spec["names"]["categories"] == [names.CATEGORY]
    assert version(kind)["name"] == names.VERSION
    assert "status" in version(kind)["subresources"]
    assert ("scale" in version(kind)["subresources"]) == kind.scale


@each_kind
def test_the_longest_name_leaves_room_for_what_is_made_of_it(kind: Kind) -> None:
    [rule] = [rule["rule"] for rule in root(kind)["x-kubernetes-validations"] if rule["rule"].startswith("size(")]
    assert re.search(r"<= (\d+)", rule)[1] == str(kind.longest_name)  # type: ignore[index] # a failure is a failure
    name = "x" * kind.longest_name
    stateful_set = {
        "BrokerGroup": name,
        "ControllerCluster": names.controller(name),
        "NameServer": names.namesrv(name),
    }[kind.name]
    assert len(f"{stateful_set}-1234567890") <= 63, "label controller-revision-hash: name and hash of 10"


@each_kind
def test_reserved_keys_are_refused_by_name(kind: Kind) -> None:
    refused: dict[str, str] = {}
    for rule in spec_schema(kind)["properties"]["config"]["x-kubernetes-validations"]:
        matched = re.fullmatch(r"!\('(\w+)' in self\)", rule["rule"])
        if matched:
            refused[matched[1]] = rule["message"]
    assert sorted(refused) == sorted(kind.reserved)
    for key, decider in kind.reserved.items():
        assert refused[key].startswith(f"config.{key} cannot be set: ")
        assert decider in refused[key]


@each_kind
def test_every_field_has_a_description(kind: Kind) -> None:
    without = [
        path
        for path, schema in walk("", root(kind))
        if not schema.get("description") and path != ".metadata" and not path.endswith(("[]", "{}"))
    ]
    assert without == []


@each_kind
def test_what_a_user_writes_is_bounded(kind: Kind) -> None:
    """Without bounds the API server takes the worst for the cost of each rule, and refuses the CRD."""
    unbounded = []
    for path, schema in walk("spec", spec_schema(kind)):
        if schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields"):
            continue
        bounded = {
            "string": "maxLength" in schema or "enum" in schema,
            "array": "maxItems" in schema,
            "integer": "minimum" in schema or path.endswith("tolerationSeconds"),
            "number": "minimum" in schema and "maximum" in schema,
            "object": "properties" in schema or "maxProperties" in schema,
            "boolean": True,
        }
        if not bounded[schema["type"]]:
            unbounded.append(path)
    assert unbounded == []


@each_kind
def test_every_rule_has_a_message(kind: Kind) -> None:
    for path, schema in walk("", root(kind)):
        for rule in schema.get("x-kubernetes-validations", ()):
            assert rule.get("message"), f"{path}: {rule['rule']}"
            assert "\n" not in rule["message"]


@each_kind
def test_lists_say_how_they_are_merged(kind: Kind) -> None:
    for path, schema in walk("", root(kind)):
        if schema.get("type") == "array":
            assert schema.get("x-kubernetes-list-type") in ("atomic", "set", "map"), path


@each_kind
def test_conditions_are_kubernetes_conditions(kind: Kind) -> None:
    conditions = root(kind)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["properties"]) == {
        "type",
        "status",
        "reason",
        "message",
        "lastTransitionTime",
        "observedGeneration",
    }


def test_what_the_kinds_share_is_the_same_in_each() -> None:
    first, *others = [spec_schema(kind)["properties"] for kind in KINDS]
    for other in others:
        for name in ("scheduling", "podTemplate", "paused"):
            assert other[name] == first[name], name
        for name in ("pullPolicy", "pullSecrets"):
            assert other["image"]["properties"][name] == first["image"]["properties"][name], name
    group, cluster = first, others[0]
    assert cluster["storage"]["properties"]["storageClassName"] == group["storage"]["properties"]["storageClassName"]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (KINDS[0], ["Ready", "Master", "Epoch", "InSync", "Phase", "Age"]),
        (KINDS[1], ["Ready", "Leader", "Term", "Members", "Phase", "Age"]),
        (KINDS[2], ["Ready", "Replicas", "Phase", "Age"]),
    ],
    ids=[kind.name for kind in KINDS],
)
def test_columns_answer_whether_it_is_well(kind: Kind, columns: list[str]) -> None:
    shown = [column for column in version(kind)["additionalPrinterColumns"] if not column.get("priority")]
    assert [column["name"] for column in shown] == columns
    status = root(kind)["properties"]["status"]["properties"]
    for column in version(kind)["additionalPrinterColumns"]:
        matched = re.match(r"\.(status|spec)\.(\w+)", column["jsonPath"])
        if matched and matched[1] == "status":
            assert matched[2] in status
