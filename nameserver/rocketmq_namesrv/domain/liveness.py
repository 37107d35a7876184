"""Which registered brokers were heard of lately; fed by registrations, version queries and heartbeats.

Called by `routes` and the shell. A broker is gone when its connection closes or after its time-out without a word;
versions and heartbeats (322, 904) only refresh who is here already. Source: name server reference, section 4.

Differs from 5.3.3: all brokers that registered over a connection end with it; Java finds one of them, and leaves those
whose id was taken by another address to no end at all.
"""

from collections.abc import Iterator

from rocketmq_formats.topics import DataVersion
from rocketmq_namesrv.domain.model import LiveBroker

Key = tuple[str, str]
"""Cluster name and address."""


class LiveTable:
    """Live brokers by cluster and address, and by connection."""

    def __init__(self) -> None:
        self._brokers: dict[Key, LiveBroker] = {}
        self._by_connection: dict[int, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def __iter__(self) -> Iterator[LiveBroker]:
        return iter(self._brokers.values())

    def get(self, cluster_name: str, address: str) -> LiveBroker | None:
        return self._brokers.get((cluster_name, address))

    def put(self, broker: LiveBroker) -> None:
        """Take in `broker`, in place of what was known of its address."""
        key = (broker.cluster_name, broker.address)
        self._forget_connection(key)
        self._brokers[key] = broker
        self._by_connection.setdefault(broker.connection_id, {})[key] = None

    def remove(self, cluster_name: str, address: str) -> LiveBroker | None:
        """Forget an address; what was known of it."""
        key = (cluster_name, address)
        self._forget_connection(key)
        return self._brokers.pop(key, None)

    def refresh(self, cluster_name: str, address: str, now: float) -> None:
        """A broker was heard of at `now`; nothing happens if it is not registered."""
        broker = self._brokers.get((cluster_name, address))
        if broker is not None:
            broker.last_update = now

    def version(self, cluster_name: str, address: str) -> DataVersion | None:
        """The version of what a broker registered."""
        broker = self._brokers.get((cluster_name, address))
        return None if broker is None else broker.data_version

    def filter_servers(self, cluster_name: str, address: str) -> tuple[str, ...]:
        """The filter servers that a broker registered."""
        broker = self._brokers.get((cluster_name, address))
        return () if broker is None else broker.filter_servers

    def of_connection(self, connection_id: int) -> tuple[LiveBroker, ...]:
        """The brokers whose latest registration came over this connection."""
        return tuple(self._brokers[key] for key in self._by_connection.get(connection_id, ()))

    def expired(self, now: float) -> tuple[LiveBroker, ...]:
        """The brokers that have been silent for longer than they declared."""
        return tuple(broker for broker in self._brokers.values() if broker.last_update + broker.timeout < now)

    def _forget_connection(self, key: Key) -> None:
        known = self._brokers.get(key)
        if known is not None:
            keys = self._by_connection[known.connection_id]
            del keys[key]
            if not keys:
                del self._by_connection[known.connection_id]
