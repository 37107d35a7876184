"""From a resource's JSON to its struct, with the path of what is wrong.

The API server has checked the schema and the CEL rules of crds/ before the operator sees a resource. A resource that is
refused here was stored before a rule existed, or breaks a rule that no schema can express.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

T = TypeVar("T")

Json = Mapping[str, object]
"""A JSON object of Kubernetes' own API."""


class SpecError(ValueError):
    """A resource that cannot be carried out. `path` names the field as users write it: `spec.storage.size`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def decode(value: object, kind: type[T], path: str) -> T:
    """`value` as a `kind`; unknown fields are ignored, because an operator may be older than the schema.

    Raises:
        SpecError: a value of the wrong type or out of its bounds.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$")
        raise SpecError(path + where.rstrip("`"), problem) from error


def mapping(body: Mapping[str, object], key: str) -> dict[str, object]:
    """The object under `key`; empty where it is absent.

    Raises:
        SpecError: the value is not an object.
    """
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SpecError(key, f"Expected `object`, got {type(value).__name__}")
    return dict(value)
