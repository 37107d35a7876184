"""From the declarations to a CustomResourceDefinition, as a structural schema of Kubernetes."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from rocketmq_resources import names
from rocketmq_resources.schema.declare import Column, CustomResource, Rule, Schema

Hint = Any  # a type, or what `typing` makes of one

_SCALARS: Mapping[Hint, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    str: {"type": "string"},
}
_LENGTH = {"string": "Length", "array": "Items", "object": "Properties"}
_LAST = ("properties", "items", "additionalProperties")
_SCALE: Schema = {
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
}


def definition(resource: CustomResource) -> Schema:
    """The manifest of a kind."""
    plural = names.PLURALS[resource.kind]
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, **(_SCALE if resource.scale else {})},
        "additionalPrinterColumns": [_column(column) for column in resource.columns],
        "schema": {"openAPIV3Schema": _root(resource)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}", "labels": {"app.kubernetes.io/part-of": "rocketmq-ha"}},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short_name],
                "categories": [names.CATEGORY],
            },
            "versions": [version],
        },
    }


def _column(column: Column) -> Schema:
    wide: Schema = {"priority": 1} if column.wide else {}
    described: Schema = {"description": column.description} if column.description else {}
    return {"name": column.name, "type": column.type, **wide, "jsonPath": column.path, **described}


def _root(resource: CustomResource) -> Schema:
    name_rule = Rule(
        f"size(self.metadata.name) <= {resource.longest_name} "
        "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        f"metadata.name: at most {resource.longest_name} of a-z, 0-9 and '-', beginning with a letter and ending with "
        "a letter or digit",
    )
    return {
        "description": resource.description,
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": [rule.schema() for rule in (name_rule, *resource.rules)],
        "properties": {
            "apiVersion": {"description": names.API_VERSION, "type": "string"},
            "kind": {"description": resource.kind, "type": "string"},
            "metadata": {"type": "object"},
            "spec": {"description": "The desired state.", **schema(resource.spec)},
            "status": {"description": resource.status_description, **schema(resource.status)},
        },
    }


def schema(hint: Hint) -> Schema:
    """The schema of values of a type.

    Raises:
        TypeError: a type that no schema stands for.
    """
    origin: Hint = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        made = _annotated(arguments[0], arguments[1:])
    elif origin is Required:
        made = schema(arguments[0])
    elif origin in (Union, UnionType):
        parts = [schema(argument) for argument in arguments if argument is not NoneType]
        made = parts[0] if len(parts) == 1 else {"anyOf": [{"type": part["type"]} for part in parts]}
    elif origin is Literal:
        made = {"type": "string", "enum": list(arguments)}
    elif origin is tuple:
        made = {"type": "array", "x-kubernetes-list-type": "atomic", "items": schema(arguments[0])}
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        values = arguments[1]
        free: Schema = {"x-kubernetes-preserve-unknown-fields": True}
        made = {"type": "object", **(free if values is object else {"additionalProperties": schema(values)})}
    elif hint in _SCALARS:
        made = dict(_SCALARS[hint])
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        made = _struct(hint)
    elif is_typeddict(hint):
        made = _typed_dict(hint)
    else:
        raise TypeError(f"{hint} has no schema")
    return made


def _annotated(hint: Hint, metas: tuple[msgspec.Meta, ...]) -> Schema:
    shapes = [meta.extra["shape"] for meta in metas if meta.extra and "shape" in meta.extra]
    made = schema(shapes[0] if shapes else hint)
    for meta in metas:
        made |= _keywords(meta, str(made.get("type")))
    return _ordered(made)


def _keywords(meta: msgspec.Meta, kind: str) -> Schema:
    length = _LENGTH.get(kind, "")
    keywords = {
        "description": meta.description,
        "format": "int32" if kind == "integer" and meta.le is not None and meta.le < 2**31 else None,
        "minimum": meta.ge,
        "maximum": meta.le,
        f"min{length}": meta.min_length,
        f"max{length}": meta.max_length,
        "pattern": meta.pattern,
    }
    return {name: value for name, value in keywords.items() if value is not None} | (meta.extra_json_schema or {})


def _typed_dict(kind: Hint) -> Schema:
    fields = {name: schema(field) for name, field in get_type_hints(kind, include_extras=True).items()}
    return _object(fields, required=[name for name in fields if name in kind.__required_keys__])


def _struct(kind: type[msgspec.Struct]) -> Schema:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    own = [name for name in kind.__annotations__ if name in fields]
    inherited = [name for name in fields if name not in own]
    properties: dict[str, Schema] = {}
    for field in (fields[name] for name in (*own, *inherited)):
        default = _default(field)
        given: Schema = {} if default is None else {"default": default}
        properties[field.encode_name] = _ordered(schema(field.type) | given)
    required = [field.encode_name for field in fields.values() if field.required]
    return _object(properties, required, getattr(kind, "RULES", ()))


def _object(properties: Mapping[str, Schema], required: list[str], rules: tuple[Rule, ...] = ()) -> Schema:
    validations = [rule.schema() for rule in rules]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        **({"x-kubernetes-validations": validations} if validations else {}),
        "properties": dict(properties),
    }


def _default(field: msgspec.structs.FieldInfo) -> object:
    """What the API server stores for an absent field; None: nothing."""
    value = field.default
    if isinstance(value, msgspec.Struct):
        # The API server checks this default with the rules of the struct before it fills in the defaults of the
        # struct's fields: only what a rule reads has to be here.
        rules: tuple[Rule, ...] = getattr(value, "RULES", ())
        return {
            name: inner
            for name, inner in msgspec.to_builtins(value).items()
            if inner not in (None, (), []) and any(f"self.{name}" in rule.rule for rule in rules)
        }
    return None if value in (msgspec.NODEFAULT, None, ()) else value


def _ordered(made: Schema) -> Schema:
    """The description first, nested fields last, as people read a schema."""
    return dict(sorted(made.items(), key=lambda item: (item[0] in _LAST, item[0] != "description")))
