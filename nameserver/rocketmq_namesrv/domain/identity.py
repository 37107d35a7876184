"""Whether a broker that is to be removed by its word (104) is the one that is registered at its address.

Cluster, brokerName, brokerId and address are compared before anything is removed. Java (5.3.3) looks at name and
address only, so that what a broker of another cluster or with an old id says takes a living one out of the routes.
"""

from rocketmq_namesrv.domain.tables import RouteTables


def other_broker(
    tables: RouteTables, *, cluster_name: str, broker_name: str, broker_id: int, address: str
) -> str | None:
    """Who is registered at the address instead, with both; None if it is this one, or no one is."""
    named = cluster_name, broker_name, broker_id
    known = _registered(tables, broker_name, address)
    if known is None or known == named:
        return None
    return f"{address} is registered as {_text(known)}, not as {_text(named)}: nothing is removed"


def _registered(tables: RouteTables, broker_name: str, address: str) -> tuple[str, str, int] | None:
    broker = tables.live.get(address)
    if broker is not None:
        return broker.cluster_name, broker.broker_name, broker.broker_id
    group = tables.groups.get(broker_name)
    ids = [] if group is None else [broker_id for broker_id, its in group.addresses.items() if its == address]
    return None if group is None or not ids else (group.cluster, broker_name, ids[0])


def _text(broker: tuple[str, str, int]) -> str:
    cluster, name, broker_id = broker
    return f"cluster {cluster}, brokerName {name}, brokerId {broker_id}"
