"""Which registered brokers were heard recently; updated by registrations, version queries and heartbeats.

Called by `routes` and `registry`. A broker is removed when its connection closes or after its time-out in silence;
version queries and heartbeats (322, 904) only refresh registered brokers.
Source: rocketmq-all-5.3.3: RouteInfoManager.java, BrokerHousekeepingService.java.

Differs from 5.3.3: all brokers that registered over a connection are removed with it; Java removes one of them, and
never those whose id was taken by another address. A silent one is removed when its time is over, not up to 5 s later.
An address is one broker's: Java keeps one entry per cluster name that it ever came with.
"""

from collections.abc import Iterator
from math import inf

from rocketmq_formats.topics import DataVersion
from rocketmq_namesrv.domain.model import LiveBroker


class LiveTable:
    """Live brokers by address, and by connection."""

    def __init__(self) -> None:
        self._brokers: dict[str, LiveBroker] = {}
        self._by_connection: dict[int, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def __iter__(self) -> Iterator[LiveBroker]:
        return iter(self._brokers.values())

    def get(self, address: str) -> LiveBroker | None:
        return self._brokers.get(address)

    def put(self, broker: LiveBroker) -> None:
        """Store `broker`, in place of the one before at its address."""
        self.remove(broker.address)
        self._brokers[broker.address] = broker
        self._by_connection.setdefault(broker.connection_id, {})[broker.address] = None

    def remove(self, address: str) -> None:
        """Forget an address; nothing happens if it is not known."""
        known = self._brokers.pop(address, None)
        if known is not None:
            addresses = self._by_connection[known.connection_id]
            del addresses[address]
            if not addresses:
                del self._by_connection[known.connection_id]

    def refresh(self, cluster_name: str, address: str, now: float) -> None:
        """A broker was heard at `now`; nothing happens if it is not registered in that cluster."""
        broker = self._brokers.get(address)
        if broker is not None and broker.cluster_name == cluster_name:
            broker.last_update = now

    def version(self, cluster_name: str, address: str) -> DataVersion | None:
        """The version of what a broker registered; None if it is not registered in that cluster."""
        broker = self._brokers.get(address)
        return broker.data_version if broker is not None and broker.cluster_name == cluster_name else None

    def filter_servers(self, address: str) -> tuple[str, ...]:
        """The filter servers that a broker registered."""
        broker = self._brokers.get(address)
        return () if broker is None else broker.filter_servers

    def of_connection(self, connection_id: int) -> tuple[LiveBroker, ...]:
        """The brokers whose latest registration came over this connection."""
        return tuple(self._brokers[address] for address in self._by_connection.get(connection_id, ()))

    def expired(self, now: float) -> tuple[LiveBroker, ...]:
        """The brokers that have been silent for longer than they declared."""
        return tuple(broker for broker in self._brokers.values() if broker.last_update + broker.timeout < now)

    def next_end(self, now: float) -> float:
        """When the next of the others will have been, if it stays silent; infinity without others."""
        ends = (broker.last_update + broker.timeout for broker in self._brokers.values())
        return min((end for end in ends if end >= now), default=inf)
