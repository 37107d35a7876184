"""What more than one kind of resource has. Names in JSON are camelCase; defaults are those of crds/*.yaml.

Parts of Kubernetes' own API (affinity, resources, tolerations, ...) stay JSON: they are handed on, not understood.
"""

from collections.abc import Mapping
from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.decoding import SpecError, decode, mapping
from rocketmq_operator.domain.spec.quantity import QuantityError, parse_quantity

Json = Mapping[str, object]
"""A JSON object of Kubernetes' own API."""

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
ReclaimPolicy = Literal["Retain", "Delete"]
AntiAffinity = Literal["preferred", "required", "none"]
Millis = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


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


class Reference(msgspec.Struct, frozen=True, rename="camel"):
    """Another of our resources by name."""

    name: str
    namespace: str | None = None
    """None: the namespace of who refers."""


class Scheduling(msgspec.Struct, frozen=True, rename="camel"):
    """Where the pods run."""

    anti_affinity: AntiAffinity = "preferred"
    topology_key: str = "kubernetes.io/hostname"
    affinity: Json = {}
    topology_spread_constraints: tuple[Json, ...] = ()
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Json, ...] = ()
    priority_class_name: str | None = None


class PodTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """What is added to every pod."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    env: tuple[Json, ...] = ()
    service_account_name: str | None = None


class Pulling(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How images are pulled. Each kind adds its containers' own; None: of the operator's repository and version."""

    pull_policy: PullPolicy = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


class Spec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What every kind's spec has."""

    image: Pulling = Pulling()
    config: Mapping[str, str] = {}
    """RocketMQ's own keys, but for those that other fields stand for."""
    scheduling: Scheduling = Scheduling()
    pod_template: PodTemplate = PodTemplate()
    paused: bool = False


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
        raise SpecError(path, f"{text!r} is no room for anything")
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
