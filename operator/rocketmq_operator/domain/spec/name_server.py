"""NameServer: where clients and brokers look for routes. Schema: crds/nameservers.yaml."""

from typing import Annotated

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.common import Json, Pulling, Resource, Spec, parse_metadata
from rocketmq_operator.domain.spec.decoding import SpecError, decode, mapping
from rocketmq_operator.domain.spec.reserved_keys import NAME_SERVER


class NameServerImages(Pulling, frozen=True, rename="camel", kw_only=True):
    """Of the containers."""

    namesrv: str | None = None


class NameServerSpec(Spec, frozen=True, rename="camel", kw_only=True):
    """Every field of spec."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=9)] = 2
    image: NameServerImages = NameServerImages()
    resources: Json = msgspec.field(default_factory=dict)


class NameServer(Resource[NameServerSpec], frozen=True):
    """Replicas of the name server."""

    @property
    def namesrv_addr(self) -> str:
        """`host:port;...` of all replicas."""
        return names.namesrv_addr(self.name, self.namespace, self.spec.replicas)


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
