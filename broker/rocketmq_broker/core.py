"""What the broker's processors share: store, role, tables, connected clients, and the requests that wait.

`app.py` starts and ends it; `services.py` builds the processors on it.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from rocketmq_broker.consuming.clients import ClientManager
from rocketmq_broker.consuming.long_polling import HeldPulls
from rocketmq_broker.domain.member_group import MemberGroup
from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.host import numeric
from rocketmq_broker.processor_table import ProcessorTable
from rocketmq_broker.sending.new_topics import NewTopics
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.consumer_tables import ConsumerTables
from rocketmq_broker.tables.table_file import TableDamagedError, TableFile, load_table
from rocketmq_broker.tables.topic_bounds import report_bounded
from rocketmq_broker.traffic import Traffic
from rocketmq_formats import properties
from rocketmq_formats.addresses import format_address, parse_host
from rocketmq_formats.errors import BodyError
from rocketmq_formats.store.config_files import TOPICS_FILE, EntryTexts, TopicsFile
from rocketmq_formats.store.message_id import encode_host
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_runtime.sockets import own_address
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import StoreSettings

PERMISSION_FILE: Final = "brokerPermission.properties"


class BrokerCore:
    """Made from the settings alone; nothing is opened yet. Needs a running event loop."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        ip = parse_host(settings.broker_ip1) if settings.broker_ip1 else own_address()
        ha_ip = parse_host(settings.broker_ip2) if settings.broker_ip2 else ip
        self.address = format_address(ip, settings.listen_port)
        self.ha_address = format_address(ha_ip, settings.ha_port)
        self.store_host = encode_host(numeric(ip), settings.listen_port)
        """As records have it."""
        self.store = MessageStore(store_settings(settings))
        self.role = ReplicaRole(settings.put_ok)
        self.permission = BrokerPermission(settings.broker_permission)
        self.permission_file = TableFile(settings.root / "config" / PERMISSION_FILE, self._permission_snapshot)
        self.members = MemberGroup()
        self.traffic = Traffic()
        self.topics = TopicTable(
            cluster=settings.broker_cluster_name,
            broker_name=settings.name,
            auto_create=settings.auto_create_topic_enable,
            default_queue_nums=settings.default_topic_queue_nums,
            cluster_topic=settings.cluster_topic_enable,
            broker_topic=settings.broker_topic_enable,
            trace_topic=settings.msg_trace_topic_name if settings.trace_topic_enable else None,
        )
        self._topic_texts = EntryTexts()
        self.topics_file = TableFile(settings.root / "config" / TOPICS_FILE, self._topics_snapshot)
        self.tables = ConsumerTables(settings, self.role)
        self.clients = ClientManager(groups=self.tables.groups, topics=self.topics, role=self.role)
        self.waiting = WaitingSends(
            self.role,
            slave_timeout_ms=settings.slave_timeout,
            capacity=settings.send_thread_pool_queue_capacity,
            flushed_offset=(lambda: self.store.flushed_offset) if settings.flush_disk_type == "SYNC_FLUSH" else None,
            flush_timeout_ms=settings.sync_flush_timeout,
            traffic=self.traffic,
        )
        self.new_topics = NewTopics(strict=settings.durability == "strict")
        self.held = HeldPulls(settings.pull_thread_pool_queue_capacity)
        self.client = RemotingClient()
        self.processor_table = ProcessorTable()
        self.without_tables = False
        """The store had no topics.json, which every broker with a message has."""

    def load_tables(self) -> None:
        """Read topics, groups, offsets and what a tool has set brokerPermission to. `without_tables` is known then.

        Raises:
            TableDamagedError, OSError: see `load_table`.
        """
        file = load_table(self.settings.root / "config" / TOPICS_FILE, TopicsFile)
        self.without_tables = file is None
        if file is not None:
            report_bounded(file.topic_config_table)
            self.topics.load(file.data_version, file.topic_config_table)
        self.topics.on_change(self.topics_file.changed)
        self.tables.load()
        path = self.settings.root / "config" / PERMISSION_FILE
        if path.exists():
            try:
                self.permission.take(properties.parse(path.read_bytes()))
            except (BodyError, ValueError) as error:
                raise TableDamagedError(f"{path}: {error}; delete it, and brokerPermission counts") from error
        self.permission.on_change(self.permission_file.changed)

    def _permission_snapshot(self) -> Callable[[], bytes]:
        return partial(properties.dump, self.permission.kept())

    def _topics_snapshot(self) -> Callable[[], bytes]:
        frame = TopicsFile(data_version=self.topics.version)
        return partial(self._topic_texts.encode, frame, dict(self.topics.table))


def store_settings(settings: BrokerSettings) -> StoreSettings:
    """The store's part of the settings.

    The bounds of what part of the disk may be used are MessageStoreConfig.java's and DefaultMessageStore.java's.
    """
    return StoreSettings(
        root=settings.root,
        commit_log=settings.commit_log_path,
        file_size=settings.mapped_file_size_commit_log,
        consume_queue_file_size=-(-settings.mapped_file_size_consume_queue // 20) * 20,
        max_message_size=settings.max_message_size,
        delay_levels=settings.message_delay_level,
        file_reserved_hours=settings.file_reserved_time,
        delete_when=settings.delete_when,
        disk_max_used_ratio=min(max(settings.disk_max_used_space_ratio, 10), 95),
        disk_refuse_ratio=min(max(settings.disk_space_warning_level_ratio, 35), 90) / 100,
        disk_clean_ratio=min(max(settings.disk_space_clean_forcibly_ratio, 30), 85) / 100,
        in_memory_ratio=settings.access_message_in_memory_max_ratio,
        max_bytes_in_memory=settings.max_transfer_bytes_on_message_in_memory,
        max_count_in_memory=settings.max_transfer_count_on_message_in_memory,
        max_bytes_on_disk=settings.max_transfer_bytes_on_message_in_disk,
        max_count_on_disk=settings.max_transfer_count_on_message_in_disk,
    )
