"""The composition root: builds one broker from its configuration, starts it in order, ends it in order.

Start: the store is recovered before anything answers; the ports are open before the sidecar hears of us, because it may
make us master at once. End: what was accepted is answered, then the group is left, then the store is closed.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

import structlog

from rocketmq_broker.clients import ClientManager
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.topics import TopicTable
from rocketmq_broker.front import Front
from rocketmq_broker.hold import HeldPulls
from rocketmq_broker.host import now_ms, numeric, own_address
from rocketmq_broker.inner_writer import InnerWriter
from rocketmq_broker.log_topics import LogTopics
from rocketmq_broker.management import Management
from rocketmq_broker.persistence import TableFile, load_table
from rocketmq_broker.pull import PullProcessor
from rocketmq_broker.queries import QueryProcessor
from rocketmq_broker.registration import Registrar
from rocketmq_broker.replica import Replica
from rocketmq_broker.replica_api import ReplicaApi
from rocketmq_broker.send import SendProcessor
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables import ConsumerTables
from rocketmq_broker.topic_admin import TopicAdmin
from rocketmq_broker.traffic import Traffic
from rocketmq_broker.waiting import WaitingSends
from rocketmq_formats.store.config_files import TOPICS_FILE, EntryTexts, TopicsFile
from rocketmq_formats.store.message_id import encode_host
from rocketmq_runtime.client import RemotingClient
from rocketmq_runtime.server import RemotingServer, ServerLimits
from rocketmq_store.flush import Flusher
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Recovered, StoreSettings

log = structlog.get_logger(__name__)


class BrokerApp:
    """One broker process."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Wire everything; nothing is opened yet. Needs a running event loop."""
        self.settings = settings
        self.stopping = asyncio.Event()
        self.fatal: OSError | None = None
        self._opened = False
        ip = settings.broker_ip1 or own_address()
        self.address = f"{ip}:{settings.listen_port}"
        ha_address = f"{settings.broker_ip2 or ip}:{settings.ha_port}"
        self.store = MessageStore(store_settings(settings))
        self.role = ReplicaRole(settings.put_ok)
        self.traffic = Traffic()
        self.topics = TopicTable(
            cluster=settings.broker_cluster_name,
            broker_name=settings.name,
            auto_create=settings.auto_create_topic_enable,
            default_queue_nums=settings.default_topic_queue_nums,
        )
        self._topic_texts = EntryTexts()
        self.topics_file = TableFile(settings.root / "config" / TOPICS_FILE, self._topics_now)
        self.waiting = WaitingSends(
            self.role,
            slave_timeout_ms=settings.slave_timeout,
            capacity=settings.send_thread_pool_queue_capacity,
            flushed_offset=(lambda: self.store.flushed_offset) if settings.flush_disk_type == "SYNC_FLUSH" else None,
            flush_timeout_ms=settings.sync_flush_timeout,
            traffic=self.traffic,
        )
        self.held = HeldPulls(settings.pull_thread_pool_queue_capacity)
        self.flusher = Flusher(
            self.store,
            interval_ms=settings.flush_interval_commit_log,
            on_flushed=self._on_flushed,
            on_deleted=self._on_deleted,
            on_failed=self._on_failed,
        )
        self.tables = ConsumerTables(settings, self.role)
        self.clients = ClientManager(groups=self.tables.groups, topics=self.topics, role=self.role)
        self.pulls = PullProcessor(
            settings=settings,
            role=self.role,
            store=self.store,
            topics=self.topics,
            groups=self.tables.groups,
            consumers=self.clients.consumers,
            offsets=self.tables.offsets,
            held=self.held,
            traffic=self.traffic,
        )
        self.replica = Replica(
            settings=settings,
            address=self.address,
            store=self.store,
            flusher=self.flusher,
            role=self.role,
            waiting=self.waiting,
            on_role_change=self._on_role_change,
            on_visible=self._on_visible,
            traffic=self.traffic,
        )
        store_host = encode_host(numeric(ip), settings.listen_port)
        self.sends = SendProcessor(
            settings=settings,
            store_host=store_host,
            role=self.role,
            store=self.store,
            topics=self.topics,
            groups=self.tables.groups,
            waiting=self.waiting,
            traffic=self.traffic,
            on_appended=self.replica.log_grew,
        )
        self.log_topics = LogTopics(settings=settings, role=self.role, store=self.store, topics=self.topics)
        self.client = RemotingClient()
        self.registrar = Registrar(
            settings=settings,
            role=self.role,
            topics=self.topics,
            client=self.client,
            address=self.address,
            ha_address=ha_address,
        )
        self.front = Front()
        self.front.on_peer_closed(self.held.peer_closed)
        self.front.register(self.sends.processors)
        self.front.register(self.pulls.processors)
        self.front.register(QueryProcessor(self.store).processors)
        self.front.register(TopicAdmin(topics=self.topics, file=self.topics_file, role=self.role).processors)
        self.front.register(
            ReplicaApi(
                role=self.role, replica=self.replica, store=self.store, address=self.address, ha_address=ha_address
            ).processors
        )
        self.management = Management(
            settings=settings,
            role=self.role,
            writer=InnerWriter(
                role=self.role,
                store=self.store,
                store_host=store_host,
                traffic=self.traffic,
                on_appended=self.replica.log_grew,
            ),
            waiting=self.waiting,
            traffic=self.traffic,
            store=self.store,
            topics=self.topics,
            topics_file=self.topics_file,
            tables=self.tables,
            clients=self.clients,
            client=self.client,
            front=self.front,
        )
        limits = ServerLimits(max_connections=settings.max_connections)
        self.servers = [
            RemotingServer(self.front, host=settings.bind_address, port=port, limits=limits)
            for port in (settings.listen_port, settings.fast_port)
        ]

    async def start(self) -> None:
        """Recover the store, open the ports, look for the sidecar.

        Raises:
            RecoveryInterruptedError: `stopping` was set before the store was recovered.
            StoreError, TableDamagedError: files that cannot be gone on with; the text names the way out.
            OSError: the disk, or a port that cannot be bound.
        """
        (self.settings.root / "config").mkdir(parents=True, exist_ok=True)
        self._load_topics()
        self.tables.load()
        recovered = await self._recover()
        log.info(
            "store recovered",
            min_offset=recovered.min_offset,
            max_offset=recovered.max_offset,
            confirm_offset=recovered.confirm_offset,
            clean=recovered.clean,
        )
        self._opened = True
        self.flusher.start()
        self.management.start()
        for server in self.servers:
            await server.start()
        self.replica.start()
        self.registrar.start()
        log.info("broker started", name=self.settings.name, address=self.address)

    async def stop(self) -> None:
        """Refuse new sends, answer the waiting ones, leave, close; to be called after `start` returned or failed.
        Only the first call does anything."""
        if self.sends.stopping:
            return
        self.sends.stopping = True
        if not await self.waiting.drained(self.settings.shutdown_wait_ms):
            log.warning("sends still wait for their copies, they are refused", count=len(self.waiting))
        await self.registrar.stop()
        await self.replica.stop()
        for server in self.servers:
            await server.stop()
        await self.management.stop()
        await self.topics_file.close()
        await self.client.close()
        await self.flusher.stop()
        if self._opened:
            self._close_store()
        log.info("broker stopped")

    async def _recover(self) -> Recovered:
        """In a thread: it may take minutes, in which a signal shall be obeyed."""
        self.store.writer.acquire()
        opening = asyncio.get_running_loop().run_in_executor(None, self.store.open, self.stopping.is_set)
        try:
            return await asyncio.shield(opening)
        finally:
            if not opening.done():
                self.stopping.set()
                await asyncio.wait([opening])
            self.store.writer.release()

    def _close_store(self) -> None:
        try:
            self.store.close()
        except OSError as error:
            log.error("store not closed in order: the next start recovers it as after a crash", reason=str(error))

    def _on_role_change(self) -> None:
        if self.role.role is Role.MASTER:
            self.log_topics.take_over()
            # the name servers let the table with the higher state version win
            self.topics.next_version(self.role.epoch, now_ms())
        self.management.on_role_change()
        self.registrar.say()
        self.pulls.on_role_change()

    def _on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        if self.role.role is Role.MASTER:
            self.log_topics.on_visible(queues)
        self.pulls.on_visible(queues)
        self.management.on_visible(queues)

    def _on_flushed(self, offset: int) -> None:
        self.replica.on_flushed(offset)

    def _on_deleted(self, min_offset: int) -> None:
        self.replica.on_deleted(min_offset)

    def _on_failed(self, error: OSError) -> None:
        """Only a new start can tell what is on disk."""
        self.fatal = error
        self.stopping.set()

    def _load_topics(self) -> None:
        file = load_table(self.settings.root / "config" / TOPICS_FILE, TopicsFile)
        if file is not None:
            self.topics.load(file.data_version, file.topic_config_table.values())
        self.topics.on_change(self.topics_file.changed)

    def _topics_now(self) -> Callable[[], bytes]:
        frame = TopicsFile(data_version=self.topics.version)
        return partial(self._topic_texts.encode, frame, dict(self.topics.table))


def store_settings(settings: BrokerSettings) -> StoreSettings:
    """The store's part of the settings."""
    return StoreSettings(
        root=settings.root,
        commit_log=settings.commit_log_path,
        file_size=settings.mapped_file_size_commit_log,
        consume_queue_file_size=-(-settings.mapped_file_size_consume_queue // 20) * 20,
        max_message_size=settings.max_message_size,
        delay_levels=settings.message_delay_level,
        file_reserved_hours=settings.file_reserved_time,
        delete_when=settings.delete_when,
        disk_max_used_ratio=settings.disk_max_used_space_ratio,
        disk_refuse_ratio=settings.disk_space_warning_level_ratio,
        disk_clean_ratio=settings.disk_space_clean_forcibly_ratio,
        in_memory_ratio=settings.access_message_in_memory_max_ratio,
        max_bytes_in_memory=settings.max_transfer_bytes_on_message_in_memory,
        max_count_in_memory=settings.max_transfer_count_on_message_in_memory,
        max_bytes_on_disk=settings.max_transfer_bytes_on_message_in_disk,
        max_count_on_disk=settings.max_transfer_count_on_message_in_disk,
    )
