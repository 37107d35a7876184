"""Builds the services around consumers and for tools: everything that `app.py` adds to sending and pulling.

One place to see what there is; each service is in the module of its subject.
"""

from collections.abc import Collection

from rocketmq_broker.clients import ClientManager
from rocketmq_broker.delay import DelayService
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.topics import TopicTable
from rocketmq_broker.front import Front
from rocketmq_broker.group_admin import GroupAdmin
from rocketmq_broker.inner_writer import InnerWriter
from rocketmq_broker.lock_api import LockApi
from rocketmq_broker.offset_api import OffsetApi
from rocketmq_broker.offset_reset import OffsetReset
from rocketmq_broker.persistence import TableFile
from rocketmq_broker.runtime_info import RuntimeInfo
from rocketmq_broker.send_back import SendBack
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.slave_sync import SlaveSync
from rocketmq_broker.slave_tables import SlaveTables
from rocketmq_broker.stats import TrafficStats
from rocketmq_broker.tables import ConsumerTables
from rocketmq_broker.topic_info import TopicInfo
from rocketmq_broker.traffic import Traffic
from rocketmq_broker.waiting import WaitingSends
from rocketmq_formats.store.delay_levels import parse_levels
from rocketmq_runtime.client import RemotingClient
from rocketmq_store.message_store import MessageStore


class Management:
    """The services, from the first request to the last."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        store: MessageStore,
        writer: InnerWriter,
        waiting: WaitingSends,
        traffic: Traffic,
        topics: TopicTable,
        topics_file: TableFile,
        tables: ConsumerTables,
        clients: ClientManager,
        client: RemotingClient,
        front: Front,
    ) -> None:
        """Registers every processor at `front`."""
        self._tables = tables
        self._clients = clients
        levels = parse_levels(settings.message_delay_level)
        self._delay = DelayService(levels=levels, role=role, store=store, writer=writer, delays=tables.delays)
        tables.settle_delays = self._delay.settle
        locks = LockApi()
        clients.on_scan = locks.expire
        front.on_peer_closed(clients.peer_closed)
        front.register(clients.processors)
        front.register(locks.processors)
        front.register(OffsetApi(offsets=tables.offsets, groups=tables.groups, topics=topics, store=store).processors)
        send_back = SendBack(
            role=role,
            store=store,
            topics=topics,
            groups=tables.groups,
            writer=writer,
            waiting=waiting,
            delay_levels=len(levels),
        )
        front.register(send_back.processors)
        front.register(GroupAdmin(groups=tables.groups, offsets=tables.offsets, file=tables.groups_file).processors)
        topic_info = TopicInfo(
            broker_name=settings.name,
            role=role,
            store=store,
            topics=topics,
            topics_file=topics_file,
            offsets=tables.offsets,
            consumers=clients.consumers,
        )
        front.register(topic_info.processors)
        offset_reset = OffsetReset(
            broker_name=settings.name,
            store=store,
            topics=topics,
            offsets=tables.offsets,
            consumers=clients.consumers,
        )
        front.register(offset_reset.processors)
        front.register(SlaveTables(tables).processors)
        self._stats = TrafficStats(traffic)
        runtime_info = RuntimeInfo(
            settings=settings, role=role, store=store, waiting=waiting, traffic=traffic, stats=self._stats
        )
        front.register(runtime_info.processors)
        self._sync = SlaveSync(role=role, topics=topics, tables=tables, client=client)

    def start(self) -> None:
        """The store is open."""
        self._tables.start()
        self._clients.start()
        self._sync.start()
        self._stats.start()

    async def stop(self) -> None:
        """Nothing is delivered or copied any more; what is new is saved. The ports are closed."""
        await self._sync.stop()
        self._clients.stop()
        self._stats.stop()
        self._delay.stop()
        await self._tables.stop()

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch."""
        self._clients.on_role_change()
        self._delay.on_role_change()
        self._sync.on_role_change()

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """Consumers may see new messages in `queues`."""
        self._delay.on_visible(queues)
