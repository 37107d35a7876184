"""Route tables and registrations as tests of the name server make them."""

from rocketmq_formats.steps import finish
from rocketmq_formats.topics import DataVersion, TopicConfig
from rocketmq_namesrv.domain import routes
from rocketmq_namesrv.domain.model import Registered, Registration, Unregistered
from rocketmq_namesrv.domain.tables import RouteTables

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def tables(**options: object) -> RouteTables:
    return RouteTables(**options)  # type: ignore[arg-type] # passed through


def topics(*names: str, perm: int = 6, queues: int = 4) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(topic_name=name, perm=perm, read_queue_nums=queues, write_queue_nums=queues) for name in names
    }


def registration(
    address: str = A,
    broker_id: int = 0,
    *,
    name: str = "g",
    cluster: str = "c",
    version: tuple[int, int] = (0, 1),
    table: dict[str, TopicConfig] | None = None,
    acting: bool | None = False,
    **more: object,
) -> Registration:
    state, counter = version
    return Registration(
        cluster_name=cluster,
        broker_name=name,
        broker_id=broker_id,
        address=address,
        ha_server_addr=address.replace("911", "912"),
        enable_acting_master=acting,
        data_version=DataVersion(state_version=state, counter=counter),
        topics=topics("T", "U") if table is None else table,
        **more,  # type: ignore[arg-type] # passed through
    )


def register(
    known: RouteTables, *arguments: object, now: float = 0.0, over: int = 1, host: str = "a", **more: object
) -> Registered:
    new = registration(*arguments, **more)  # type: ignore[arg-type]
    return finish(routes.register(known, new, now=now, connection_id=over, host=host))


def connection_closed(known: RouteTables, connection_id: int) -> tuple[Unregistered, ...]:
    """Every broker that registered over this connection last leaves."""
    return tuple(routes.expire(known, broker) for broker in known.live.of_connection(connection_id))


def perms(known: RouteTables, topic: str) -> dict[str, int]:
    return {name: queue.perm for name, queue in known.topics.get(topic, {}).items()}
