"""What every resource has, and sizes in bytes."""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from rocketmq_resources import names
from rocketmq_resources.decoding import Json, SpecError, decode, mapping
from rocketmq_resources.quantity import QuantityError, parse_quantity
from rocketmq_resources.schema.common import Spec


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of any object; `generation` counts changes of the spec, `deletion_timestamp` is RFC 3339."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None


S_co = TypeVar("S_co", bound=Spec, covariant=True)


class Resource(msgspec.Struct, Generic[S_co], frozen=True):
    """One resource as the API server has it. `status` is what was last written there, as JSON."""

    metadata: Metadata
    spec: S_co
    status: Json = {}

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def restarted_at(self) -> str | None:
        """Copied to the pods: a new value restarts them."""
        return self.metadata.annotations.get(names.ANNOTATION_RESTARTED_AT)


def parse_metadata(body: Json) -> Metadata:
    """The metadata of any object.

    Raises:
        SpecError: no name, no namespace, or a value of the wrong type.
    """
    return decode(mapping(body, "metadata"), Metadata, "metadata")


def size_in_bytes(text: str, path: str) -> int:
    """A size of the spec.

    Raises:
        SpecError: not a quantity, or nothing.
    """
    try:
        size = parse_quantity(text)
    except QuantityError as error:
        raise SpecError(path, str(error)) from error
    if size == 0:
        raise SpecError(path, f"{text!r} is too small")
    return size


def memory_promised(resources: Json, path: str) -> int | None:
    """Bytes of `limits.memory`, else `requests.memory`, of ResourceRequirements; None where neither is set.

    Raises:
        SpecError: not a quantity.
    """
    for part in ("limits", "requests"):
        amounts = resources.get(part)
        value = amounts.get("memory") if isinstance(amounts, Mapping) else None
        if value is not None:
            try:
                return parse_quantity(value)
            except QuantityError as error:
                raise SpecError(f"{path}.{part}.memory", str(error)) from error
    return None
