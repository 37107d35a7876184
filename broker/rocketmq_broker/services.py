"""Builds the processors for producers, consumers, tools and other brokers, and the services behind them.

One place that shows all of them; each lives in the module of its subject. `app.py` starts and ends them.
"""

from collections.abc import Callable, Collection

import structlog

from rocketmq_broker.consuming.delay_service import DelayService
from rocketmq_broker.consuming.level_ages import LevelAges
from rocketmq_broker.consuming.lock_api import LockApi
from rocketmq_broker.consuming.lock_members import LockMembers
from rocketmq_broker.consuming.offset_api import OffsetApi
from rocketmq_broker.consuming.pull import PullProcessor
from rocketmq_broker.consuming.queue_queries import QueryProcessor
from rocketmq_broker.consuming.send_back import SendBack
from rocketmq_broker.core import BrokerCore
from rocketmq_broker.replica.replica import Replica
from rocketmq_broker.replica.replica_api import ReplicaApi
from rocketmq_broker.sending.escape import RemoteEscape
from rocketmq_broker.sending.inner_writer import InnerWriter
from rocketmq_broker.sending.reply import ReplyProcessor
from rocketmq_broker.sending.send import SendProcessor
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_broker.tables.escaped_sync import EscapedSync
from rocketmq_broker.tables.reverse_sync import PATIENCE_ALONE_SECONDS, PATIENCE_SECONDS, ReverseSync
from rocketmq_broker.tables.slave_sync import SlaveSync
from rocketmq_broker.tables.slave_tables import SlaveTables
from rocketmq_broker.tables.table_copies import TableCopies
from rocketmq_broker.tools.consume_info import ConsumeInfo
from rocketmq_broker.tools.consumer_calls import ConsumerCalls
from rocketmq_broker.tools.flows import Flows
from rocketmq_broker.tools.group_admin import GroupAdmin
from rocketmq_broker.tools.offset_reset import OffsetReset
from rocketmq_broker.tools.runtime_info import RuntimeInfo
from rocketmq_broker.tools.stats import TrafficStats
from rocketmq_broker.tools.topic_admin import TopicAdmin
from rocketmq_broker.tools.topic_deletion import TopicDeletion
from rocketmq_broker.tools.topic_info import TopicInfo
from rocketmq_formats.addresses import parse_address
from rocketmq_formats.store.delay_levels import parse_levels

log = structlog.get_logger(__name__)


class Services:
    """Everything between the ports and the core; registers every processor at `core.processor_table`, and those
    that take the replica's events at `replica`."""

    def __init__(self, core: BrokerCore, replica: Replica) -> None:
        self._core = core
        self.lane = SlowLane(core.processor_table.unreadable)
        writer = InnerWriter(
            role=core.role,
            store=core.store,
            store_host=core.store_host,
            traffic=core.traffic,
            on_appended=replica.log_grew,
        )
        locks = LockApi(core.settings.name, self._lock_members())
        core.clients.on_scan = locks.expire
        self._serve_producers(replica, locks)
        self._serve_consumers(writer, locks)
        self._serve_tools(replica, writer, locks)
        self._forget_deleted()
        core.processor_table.register(
            ReplicaApi(
                settings=core.settings,
                role=core.role,
                replica=replica,
                store=core.store,
                address=core.address,
                ha_address=core.ha_address,
            ).processors
        )

    def _forget_deleted(self) -> None:
        """What only this process keeps about a topic or a group goes when the tables lose it, at slaves too. Not locks:
        a slave's table may also be an older one, without a group that has them."""
        flows, tables = self._core.traffic.flows, self._core.tables
        self._core.topics.on_removed(flows.forget_topics)
        self._core.topics.on_removed(lambda topics: tables.offsets.forget_pulls(topics=topics))
        tables.groups.on_removed(flows.forget_groups)
        tables.groups.on_removed(lambda groups: tables.offsets.forget_pulls(groups=groups))

    def _lock_members(self) -> LockMembers | None:
        core = self._core
        if not core.settings.lock_in_strict_mode:
            return None
        if core.settings.total_replicas == 1:
            log.warning(
                "lockInStrictMode has no effect until name servers name other members",
                totalReplicas=1,
                advice="set totalReplicas to the number of replicas of the group",
            )
        return LockMembers(
            replicas=core.settings.total_replicas,
            members=lambda: core.members.others(core.address),
            client=core.client,
        )

    def _serve_producers(self, replica: Replica, locks: LockApi) -> None:
        core = self._core
        self.sends = SendProcessor(
            settings=core.settings,
            store_host=core.store_host,
            role=core.role,
            permission=core.permission,
            store=core.store,
            topics=core.topics,
            new_topics=core.new_topics,
            groups=core.tables.groups,
            waiting=core.waiting,
            traffic=core.traffic,
            in_order=locks.any_held,
            on_appended=replica.log_grew,
        )
        replies = ReplyProcessor(
            settings=core.settings,
            address=core.address,
            sends=self.sends,
            find_producer=core.clients.producers.find,
        )
        core.processor_table.register(self.sends.processors)
        core.processor_table.register(replies.processors)

    def _serve_consumers(self, writer: InnerWriter, locks: LockApi) -> None:
        core = self._core
        levels = parse_levels(core.settings.message_delay_level)
        escaped = self._escaped = EscapedSync(core.tables.delays, core.client)
        self._ages = LevelAges(levels=levels, role=core.role, store=core.store)
        self._delay = DelayService(
            ages=self._ages,
            role=core.role,
            store=core.store,
            writer=writer,
            delays=core.tables.delays,
            counts=core.traffic.counts,
            escape=self._remote_escape(),
            saved=core.tables.delays_saved,
            ask_members=lambda: escaped.ask_all(core.members.others(core.address).values()),
        )
        core.tables.settle_delays, core.tables.delay_ages = self._delay.settle, self._ages.of_levels
        self.pulls = PullProcessor(
            settings=core.settings,
            role=core.role,
            permission=core.permission,
            store=core.store,
            topics=core.topics,
            groups=core.tables.groups,
            consumers=core.clients.consumers,
            offsets=core.tables.offsets,
            resets=core.tables.offsets.pending_resets,
            held=core.held,
            traffic=core.traffic,
        )
        core.processor_table.on_peer_closed(core.held.peer_closed)
        core.processor_table.on_peer_closed(core.clients.peer_closed)
        self._offset_api = OffsetApi(
            role=core.role, offsets=core.tables.offsets, groups=core.tables.groups, topics=core.topics, store=core.store
        )
        send_back = SendBack(
            role=core.role,
            permission=core.permission,
            store=core.store,
            topics=core.topics,
            new_topics=core.new_topics,
            groups=core.tables.groups,
            writer=writer,
            waiting=core.waiting,
            delay_levels=len(levels),
            flows=core.traffic.flows,
            host=parse_address(core.address)[0],
        )
        queries = QueryProcessor(role=core.role, store=core.store)
        for api in (self.pulls, queries, core.clients, locks, self._offset_api, send_back):
            core.processor_table.register(api.processors)

    def _remote_escape(self) -> RemoteEscape | None:
        core, settings = self._core, self._core.settings
        if not settings.escapes:
            return None
        return RemoteEscape(
            broker_name=settings.name, role=core.role, name_servers=settings.name_servers, client=core.client
        )

    def _serve_tools(self, replica: Replica, writer: InnerWriter, locks: LockApi) -> None:
        core, tables, lane = self._core, self._core.tables, self.lane
        topic_info = TopicInfo(
            broker_name=core.settings.name,
            store=core.store,
            topics=core.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            consumers=core.clients.consumers,
            lane=lane,
            flows=core.traffic.flows,
        )
        consume_info = ConsumeInfo(
            broker_name=core.settings.name,
            address=core.address,
            store=core.store,
            topics=core.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            consumers=core.clients.consumers,
            lane=lane,
            flows=core.traffic.flows,
            progress=topic_info.progress,
        )
        consumer_calls = ConsumerCalls(
            broker_name=core.settings.name,
            role=core.role,
            store=core.store,
            topics=core.topics,
            groups=tables.groups,
            consumers=core.clients.consumers,
        )
        topic_admin = TopicAdmin(topics=core.topics, file=core.topics_file, role=core.role)
        topic_deletion = TopicDeletion(
            role=core.role,
            store=core.store,
            writer=writer,
            topics=core.topics,
            topics_file=core.topics_file,
            tables=tables,
            forget_locks=locks.forget_topics,
        )
        group_admin = GroupAdmin(
            role=core.role,
            groups=tables.groups,
            file=tables.groups_file,
            lane=lane,
            topic_deletion=topic_deletion,
            forget_locks=locks.forget_groups,
        )
        self._copies = TableCopies(
            role=core.role,
            topics=core.topics,
            tables=tables,
            topics_body=topic_info.all.steps,
            groups_body=group_admin.all.steps,
            ended_queues=core.store.ended_queues,
            on_copied=replica.copied,
        )
        replica.on_members, replica.on_hold = self._copies.on_members, self._copies.hand_over
        offset_reset = OffsetReset(
            settings=core.settings,
            role=core.role,
            store=core.store,
            topics=core.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            consumers=core.clients.consumers,
            lane=lane,
            on_reset=self.pulls.on_reset,
        )
        # what is changed is answered when the slaves that may become master have it too
        for change in (group_admin, topic_admin, topic_deletion, offset_reset, core.new_topics):
            change.replication_barrier = self._copies.replication_barrier
        self._offset_api.commit_answer = self._copies.commit_answer
        self._stats = TrafficStats(core.traffic)
        self._flows = Flows(core.traffic, core.settings.broker_cluster_name)
        runtime_info = RuntimeInfo(
            settings=core.settings,
            role=core.role,
            permission=core.permission,
            permission_file=core.permission_file,
            topics=core.topics,
            store=core.store,
            waiting=core.waiting,
            traffic=core.traffic,
            stats=self._stats,
            delays=tables.delays,
        )
        slave_tables = SlaveTables(tables, lane, self._delay.before_next_master)
        for api in (group_admin, topic_info, topic_admin, topic_deletion, self._copies, offset_reset, slave_tables):
            core.processor_table.register(api.processors)
        for statistics in (self._flows, runtime_info, consume_info, consumer_calls):
            core.processor_table.register(statistics.processors)
        reverse_sync = ReverseSync(
            offsets=tables.offsets,
            client=core.client,
            escaped=self._escaped if core.settings.escapes else None,
            patience=PATIENCE_SECONDS if core.settings.enable_controller_mode else PATIENCE_ALONE_SECONDS,
        )
        replica.on_others = reverse_sync.on_others
        if not core.settings.skip_pre_online:
            replica.on_prepared = reverse_sync.run
        self._sync = SlaveSync(
            role=core.role,
            store=core.store,
            topics=core.topics,
            topics_file=core.topics_file,
            tables=tables,
            client=core.client,
            on_ages=self._ages.merge,
        )
        replica.on_copy_from = self._sync.on_role_change

    def on_due(self, listener: Callable[[str, int, int], None]) -> None:
        """`listener` is called as `DelayService.on_due`."""
        self._delay.on_due = listener

    def start(self) -> None:
        """The store is open."""
        self._core.tables.start()
        self._core.clients.start()
        self._sync.start()
        self._stats.start()
        self._flows.start()

    async def stop(self) -> None:
        """Deliver and copy nothing any longer; save what is new. The ports are closed."""
        await self._sync.stop()
        self._core.clients.stop()
        self._stats.stop()
        self._flows.stop()
        self._delay.stop()
        await self._delay.sent()
        await self._core.tables.stop()

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch."""
        self._core.tables.on_role_change()
        self._core.clients.on_role_change()
        self._delay.on_role_change()
        self._copies.on_role_change()
        self._sync.on_role_change()

    def on_acting(self) -> None:
        """This slave begins or ceases to act as master."""
        self._delay.on_role_change()

    async def log_cut(self, end: int) -> None:
        """The log is going to be cut at `end`. Raises as `ConsumerTables.log_cut`."""
        self._ages.log_cut()
        await self._core.tables.log_cut(end)

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """Consumers may see new messages in `queues`."""
        self.pulls.on_visible(queues)
        self._delay.on_visible(queues)
