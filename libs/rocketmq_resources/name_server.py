"""A NameServer as a value."""

from rocketmq_resources import names
from rocketmq_resources.acting import shows_acting_masters
from rocketmq_resources.common import Resource, parse_metadata
from rocketmq_resources.decoding import Json, SpecError, decode, mapping
from rocketmq_resources.reserved_keys import NAME_SERVER, check_promises
from rocketmq_resources.schema.name_server import NameServerSpec


class NameServer(Resource[NameServerSpec], frozen=True):
    """A NameServer resource."""

    @property
    def namesrv_addr(self) -> str:
        """`host:port;...` of all replicas."""
        return names.namesrv_addr(self.name, self.namespace, self.spec.replicas)

    @property
    def shows_acting_masters(self) -> bool:
        return shows_acting_masters(self.spec.config)


def parse_name_server(body: Json) -> NameServer:
    """The resource `body` (metadata, spec, status as the API server sends them).

    Raises:
        SpecError: it cannot be carried out; the path says which field.
    """
    spec = decode(mapping(body, "spec"), NameServerSpec, "spec")
    for key in spec.config:
        if key in NAME_SERVER:
            raise SpecError(f"spec.config.{key}", f"is set by {NAME_SERVER[key]}")
    check_promises(spec.config)
    return NameServer(parse_metadata(body), spec, mapping(body, "status"))
