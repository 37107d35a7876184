"""NameServer: where clients and brokers look for routes. Schema: crds/nameservers.yaml."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.common import Json, Metadata, PodTemplate, PullPolicy, Scheduling, parse_metadata
from rocketmq_operator.domain.spec.decoding import SpecError, decode, mapping
from rocketmq_operator.domain.spec.reserved_keys import NAME_SERVER


class NameServerImages(msgspec.Struct, frozen=True, rename="camel"):
    """None: the operator's own repository and version."""

    namesrv: str | None = None
    pull_policy: PullPolicy = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


class NameServerSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Every field of spec."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=9)] = 2
    image: NameServerImages = NameServerImages()
    resources: Json = {}
    config: Mapping[str, str] = {}
    scheduling: Scheduling = Scheduling()
    pod_template: PodTemplate = PodTemplate()
    paused: bool = False


class NameServer(msgspec.Struct, frozen=True):
    """One resource as the API server has it. `status` is what was last written there, as JSON."""

    metadata: Metadata
    spec: NameServerSpec
    status: Json = {}

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def namesrv_addr(self) -> str:
        """`host:port;...` of all replicas."""
        return names.namesrv_addr(self.name, self.namespace, self.spec.replicas)

    @property
    def restarted_at(self) -> str | None:
        """Copied to the pods: a new value restarts them."""
        return self.metadata.annotations.get(names.ANNOTATION_RESTARTED_AT)


def parse_name_server(body: Json) -> NameServer:
    """The resource `body` (metadata, spec, status as the API server sends them).

    Raises:
        SpecError: it cannot be carried out; the path says which field.
    """
    spec = decode(mapping(body, "spec"), NameServerSpec, "spec")
    for key in spec.config:
        if key in NAME_SERVER:
            raise SpecError(f"spec.config.{key}", f"is set by {NAME_SERVER[key]}")
    return NameServer(parse_metadata(body), spec, mapping(body, "status"))
