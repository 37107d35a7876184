"""crds/*.yaml: bounds, descriptions and rules of every field, whichever declaration it came from."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.api.crd_cases import RULES
from rocketmq_resources import names
from rocketmq_resources.reserved_keys import BROKER
from rocketmq_resources.schema import crd
from tests.operator.resources.schema_check import problems_of
from tests.paths import ROOT

Schema = dict[str, Any]  # YAML

KINDS: dict[names.Kind, Schema] = {
    kind: yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text()) for kind, plural in names.PLURALS.items()
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def root(kind: names.Kind) -> Schema:
    [version] = KINDS[kind]["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def walk(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Every schema below, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(f"{path}.{name}", inner)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from walk(path + suffix, schema[key])


def rules(kind: names.Kind) -> Iterator[tuple[str, dict[str, str]]]:
    """Every CEL rule, with its path."""
    for path, schema in walk("", root(kind)):
        for rule in schema.get("x-kubernetes-validations", ()):
            yield path, rule


def test_the_files_are_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "hack" / "crds.py", "--check"], check=True)


@each_kind
def test_defaults_fit_their_schema(kind: names.Kind) -> None:
    """The API server refuses the whole CRD otherwise."""
    found = [
        problem
        for path, schema in walk("", root(kind))
        if "default" in schema
        for problem in problems_of(path, schema, schema["default"])
    ]
    assert found == []


@each_kind
def test_the_longest_name_leaves_room_for_what_is_made_of_it(kind: names.Kind) -> None:
    longest = {
        "BrokerGroup": "x" * names.MAX_GROUP_NAME,
        "ControllerCluster": names.controller("x" * names.MAX_CONTROLLER_CLUSTER_NAME),
        "NameServer": names.namesrv("x" * names.MAX_NAME_SERVER_NAME),
    }
    assert len(f"{longest[kind]}-1234567890") <= 63, "label controller-revision-hash: name and hash of 10"


@each_kind
def test_every_field_has_a_description(kind: names.Kind) -> None:
    without = [
        path
        for path, schema in walk("", root(kind))
        if not schema.get("description") and path != ".metadata" and not path.endswith(("[]", "{}"))
    ]
    assert without == []


@each_kind
def test_what_a_user_writes_is_bounded(kind: names.Kind) -> None:
    """Without bounds the API server assumes the worst for the cost of each rule, and refuses the CRD."""
    unbounded = []
    for path, schema in walk("spec", root(kind)["properties"]["spec"]):
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
def test_every_rule_has_a_message_on_one_line(kind: names.Kind) -> None:
    for path, rule in rules(kind):
        assert rule["message"], f"{path}: {rule['rule']}"
        assert "\n" not in rule["message"]


@each_kind
def test_no_rule_is_without_a_case(kind: names.Kind) -> None:
    """An API server tries the cases (e2e/api/test_crds.py); that none is missing is known without one."""
    untried = [
        f"{path}: {rule['message']}"
        for path, rule in rules(kind)
        if not rule["rule"].startswith("!('")  # reserved keys, which are tried all at once
        and not any(case.kind == kind and case.because in rule["message"] for case in RULES)
    ]
    assert untried == []


@each_kind
def test_no_case_is_without_a_rule(kind: names.Kind) -> None:
    """A case that expects the words of an older rule."""
    messages = [rule["message"] for _, rule in rules(kind)]
    cases = [case for case in RULES if case.kind == kind]
    assert [case for case in cases if not any(case.because in message for message in messages)] == []


@each_kind
def test_columns_show_fields_of_the_schema(kind: names.Kind) -> None:
    [version] = KINDS[kind]["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        if column["name"] != "Age":
            part, field = column["jsonPath"].split("[")[0].split(".")[1:]
            assert field in root(kind)["properties"][part]["properties"], column


def test_a_reserved_key_is_refused_with_the_field_to_set_instead() -> None:
    rules = root("BrokerGroup")["properties"]["spec"]["properties"]["config"]["x-kubernetes-validations"]
    messages = {rule["rule"]: rule["message"] for rule in rules}
    assert BROKER["brokerName"] == "spec.brokerName"
    assert messages["!('brokerName' in self)"] == "config.brokerName cannot be set: set spec.brokerName instead"
    assert messages["!('brokerRole' in self)"] == "config.brokerRole cannot be set: the operator sets it"


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="has no schema"):
        crd.schema(bytes)
