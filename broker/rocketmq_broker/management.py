"""Builds the services around consumers and for tools: everything that `app.py` adds to sending and pulling.

One place to see what there is; each service is in the module of its subject.
"""

from rocketmq_broker.clients import ClientManager
from rocketmq_broker.domain.topics import TopicTable
from rocketmq_broker.front import Front
from rocketmq_broker.lock_api import LockApi
from rocketmq_broker.offset_api import OffsetApi
from rocketmq_broker.tables import ConsumerTables
from rocketmq_store.message_store import MessageStore


class Management:
    """The services, from the first request to the last."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        tables: ConsumerTables,
        clients: ClientManager,
        front: Front,
    ) -> None:
        """Registers every processor at `front`."""
        self._tables = tables
        self._clients = clients
        locks = LockApi()
        clients.on_scan = locks.expire
        front.on_peer_closed(clients.peer_closed)
        front.register(clients.processors)
        front.register(locks.processors)
        front.register(OffsetApi(offsets=tables.offsets, groups=tables.groups, topics=topics, store=store).processors)

    def start(self) -> None:
        """The store is open."""
        self._tables.start()
        self._clients.start()

    async def stop(self) -> None:
        """Nothing is delivered or copied any more; what is new is saved. The ports are closed."""
        self._clients.stop()
        await self._tables.stop()

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch."""
        self._clients.on_role_change()
