"""What the API server would drop from a resource, or refuse in it, by the schemas of crds/: for tests of what we write.

A status with a field that no schema knows is stored without it, so that the next reconcile finds it missing and writes
it again, forever.
"""

import functools
from collections.abc import Iterator
from typing import Any

import yaml

from rocketmq_resources import names
from tests.paths import ROOT

CRDS = ROOT / "crds"
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}

Schema = dict[str, Any]  # YAML


@functools.cache
def _schema(kind: names.Kind) -> Schema:
    crd = yaml.safe_load((CRDS / f"{names.PLURALS[kind]}.yaml").read_text())
    schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return schema


def problems(kind: names.Kind, part: str, value: object) -> list[str]:
    """What is wrong with `value` as the `part` (spec or status) of a resource; empty: nothing."""
    return list(problems_of(part, _schema(kind)[part], value))


def problems_of(path: str, schema: Schema, value: object) -> Iterator[str]:
    """What is wrong with `value` under this schema."""
    kind = schema.get("type")
    if kind is None:
        return
    if not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        yield f"{path}: {value!r} is not of type {kind}"
    elif isinstance(value, dict):
        yield from _object(path, schema, value)
    elif isinstance(value, list | tuple):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{path}: {len(value)} items"
        for index, item in enumerate(value):
            yield from problems_of(f"{path}[{index}]", schema["items"], item)
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"


def _object(path: str, schema: Schema, value: dict[str, object]) -> Iterator[str]:
    properties = schema.get("properties", {})
    free = schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: required"
    for name, inner in value.items():
        if name in properties:
            yield from problems_of(f"{path}.{name}", properties[name], inner)
        elif free is not None:
            yield from problems_of(f"{path}.{name}", free, inner)
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}: not in the schema"
