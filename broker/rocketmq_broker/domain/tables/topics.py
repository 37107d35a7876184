"""The topics of this broker: the table, which topics are created automatically, and the table's version.

The send path looks topics up and creates them from a template, admin requests change them, a slave takes its master's
table, the registration sends it to the name servers. It does no I/O: a shell saves the table, notified by `on_change`.
Source: rocketmq-all-5.3.3: TopicConfigManager.java, TopicValidator.java.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import structs

from rocketmq_broker.domain.tables.change_order import ChangeOrder
from rocketmq_formats.topics import (
    AUTO_CREATE_TOPIC,
    DELETED_TOPICS,
    DLQ_PREFIX,
    MAX_TABLE_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_MEMBER_PREFIX,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    DataVersion,
    TopicConfig,
)

DELAY_LEVELS: Final = 18
READ_WRITE: Final = PERM_READ | PERM_WRITE
MAX_TOPICS: Final = 40_000
"""A client that makes up names must not fill the memory: above it nothing is created. With names of 127 characters so
many still fit the frames of a registration (103) and of a slave's copy (21); with more, the name servers would lose
the broker."""

LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
"""Characters of names of topics and groups."""
_FORBIDDEN: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        SELF_TEST_TOPIC,
        "OFFSET_MOVED_EVENT",
        DELETED_TOPICS,
    }
)
_SYSTEM: Final = _FORBIDDEN | {AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}
_SYSTEM_PREFIX: Final = "rmq_sys_"


def name_problem(topic: str) -> str | None:
    """What is wrong with a topic's name, in Java's words; None if it is legal."""
    if not topic.strip():
        return "The specified topic is blank."
    if not LEGAL.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    longest = MAX_TABLE_TOPIC_LENGTH if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else MAX_TOPIC_LENGTH
    if len(topic) > longest:
        return "The specified topic is longer than topic max length."
    return None


def forbidden_to_producers(topic: str) -> bool:
    """Topics that only the broker itself writes to."""
    return topic in _FORBIDDEN


class TopicTable:
    """Topics by name with their version; changed only through its methods.

    `state_version` of a change is the master epoch, so that at the name servers the newer master's table wins.
    """

    def __init__(
        self,
        *,
        cluster: str,
        broker_name: str,
        auto_create: bool,
        default_queue_nums: int,
        cluster_topic: bool = True,
        broker_topic: bool = True,
        trace_topic: str | None = None,
    ) -> None:
        """`cluster_topic`, `broker_topic`: whether the topics with these names may be read and written. `trace_topic`:
        name of the topic for clients' traces; None: it is not made."""
        self._auto_create = auto_create
        self._listeners: list[Callable[[], None]] = []
        self._on_removed: list[Callable[[AbstractSet[str]], None]] = []
        self._table: dict[str, TopicConfig] = {}
        self.order = ChangeOrder()
        self._named: set[str] | None = None
        """As `SubscriptionGroups._named`."""
        self.version = DataVersion()
        topics = _built_in(cluster, broker_name, auto_create=auto_create, default_queue_nums=default_queue_nums)
        of_names = {cluster: cluster_topic, broker_name: broker_topic}
        topics = [
            topic if of_names.get(topic.topic_name, True) else structs.replace(topic, perm=PERM_INHERIT)
            for topic in topics
        ]
        if trace_topic is not None:
            topics.append(TopicConfig(topic_name=trace_topic, read_queue_nums=1, write_queue_nums=1))
        self._built_in = {topic.topic_name: topic for topic in topics}
        self._system = frozenset(self._built_in) | _SYSTEM
        self._table.update(self._built_in)
        self.order.replaced(self._table)

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called after every change of the table or its version."""
        self._listeners.append(listener)

    def on_removed(self, listener: Callable[[AbstractSet[str]], None]) -> None:
        """`listener` is called with the topics that the table has lost, also to a master's copy: what this replica
        keeps about them by itself goes too."""
        self._on_removed.append(listener)

    # reading

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        """All topics by name."""
        return self._table

    def get(self, topic: str) -> TopicConfig | None:
        return self._table.get(topic)

    def is_system(self, topic: str) -> bool:
        """Topics that no tool may change."""
        return topic in self._system or topic.startswith(_SYSTEM_PREFIX)

    @property
    def system(self) -> frozenset[str]:
        """Names of the system topics."""
        return self._system

    def is_built_in(self, topic: str) -> bool:
        """Topics that every broker of the group makes; the names of cluster and broker may be no legal topics."""
        return topic in self._built_in

    # changing

    def load(self, version: DataVersion, topics: Mapping[str, TopicConfig]) -> None:
        """Take over what a file kept; it goes over the built-in topics. As in Java the table's key is the name."""
        self.version = version
        self._table.update(
            (name, structs.replace(topic, topic_name=name).bounded()) for name, topic in topics.items() if name
        )
        self.order.replaced(self._table)
        self._changed()

    def replace(self, version: DataVersion, topics: Mapping[str, TopicConfig]) -> None:
        """A slave's table becomes its master's."""
        removed = {name for name in self._table if name not in topics}
        self.version = version
        self._table = {name: topic.bounded() for name, topic in topics.items()}
        self._named = None
        self.order.replaced(self._table)
        self._removed(removed)
        self._changed()

    def take_changes(
        self,
        version: DataVersion,
        topics: Mapping[str, TopicConfig],
        removed: Iterable[str],
        *,
        begins: bool,
        ends: bool,
    ) -> None:
        """A slave takes over its master's changes, as `SubscriptionGroups.take_changes`."""
        if begins:
            self._named = set()
        gone = {name for name in removed if name in self._table} - topics.keys()
        whole = self._named is not None
        if self._named is not None:
            self._named |= topics.keys()
            if ends:
                named, self._named = self._named, None
                gone |= {name for name in self._table if name not in named}
        for name in gone:
            del self._table[name]
            self.order.removed(name)
        for name, topic in topics.items():
            self._table[name] = topic.bounded()
            self.order.mark(name)
        self._removed(gone)
        if ends:
            self.version = version
        if ends or not whole:
            self._changed()

    def add_built_in(self) -> None:
        """Those that this broker makes and its table lacks: a new master's table may be a copy of one that was
        configured in another way, or from before a restart. The caller makes a new version."""
        for name in self._built_in.keys() - self._table.keys():
            self._table[name] = self._built_in[name]
            self.order.mark(name)

    def put(self, topic: TopicConfig, *, state_version: int, now_ms: int) -> bool:
        """Create or change one; False if nothing changed (then the version stays too)."""
        if self._table.get(topic.topic_name) == topic:
            return False
        self._table[topic.topic_name] = topic
        self.order.mark(topic.topic_name)
        self.next_version(state_version, now_ms)
        return True

    def delete(self, topic: str, *, state_version: int, now_ms: int) -> bool:
        """Delete one; False if it did not exist."""
        if self._table.pop(topic, None) is None:
            return False
        self.order.removed(topic)
        self._removed({topic})
        self.next_version(state_version, now_ms)
        return True

    def next_version(self, state_version: int, now_ms: int) -> None:
        """Something changed, or this broker's role did."""
        self.order.touch()
        self.version = self.version.next(state_version, now_ms)
        self._changed()

    def create_plain(
        self, topic: str, queue_nums: int, *, perm: int = READ_WRITE, sys_flag: int = 0, state_version: int, now_ms: int
    ) -> TopicConfig | None:
        """The topic as it is, or made (retry and dead letter topics); None if the table is full."""
        config = self.planned(topic, queue_nums, perm=perm, sys_flag=sys_flag)
        if config is not None:
            self.put(config, state_version=state_version, now_ms=now_ms)
        return config

    # topics that may be created: the caller `put`s them if it stores a message

    def planned(self, topic: str, queue_nums: int, *, perm: int = READ_WRITE, sys_flag: int = 0) -> TopicConfig | None:
        """The topic as it is, or as `create_plain` would make it, with at most `MAX_QUEUES`; None if the table is
        full."""
        existing = self._table.get(topic)
        if existing is not None or len(self._table) >= MAX_TOPICS:
            return existing
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_sys_flag=sys_flag,
        ).bounded()

    def planned_from_template(
        self, topic: str, template: str, client_queue_nums: int, *, sys_flag: int
    ) -> TopicConfig | None:
        """The topic that a send asks for, as `template` says; None if the template is missing or not to be inherited
        from, or the table is full."""
        source = self._table.get(template)
        if source is None or not source.inherited or len(self._table) >= MAX_TOPICS:
            return None
        if template == AUTO_CREATE_TOPIC and not self._auto_create:
            return None
        queue_nums = max(min(client_queue_nums, source.write_queue_nums), 1)
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=source.perm & ~PERM_INHERIT,
            topic_filter_type=source.topic_filter_type,
            topic_sys_flag=sys_flag,
        )

    def _removed(self, topics: AbstractSet[str]) -> None:
        if topics:
            for listener in self._on_removed:
                listener(topics)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def _built_in(cluster: str, broker_name: str, *, auto_create: bool, default_queue_nums: int) -> list[TopicConfig]:
    def topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    topics = [topic(AUTO_CREATE_TOPIC, default_queue_nums, READ_WRITE | PERM_INHERIT)] if auto_create else []
    return [
        *topics,
        topic(cluster, 16, READ_WRITE | PERM_INHERIT),
        topic(broker_name, 1, READ_WRITE | PERM_INHERIT),
        topic(SELF_TEST_TOPIC, 1),
        topic("BenchmarkTest", 1024),
        topic("OFFSET_MOVED_EVENT", 1),
        topic(SCHEDULE_TOPIC, DELAY_LEVELS),
        topic(f"{cluster}_REPLY_TOPIC", 1),
        topic(f"{SYNC_MEMBER_PREFIX}{broker_name}", 1, PERM_INHERIT),
        topic(TRANS_HALF_TOPIC, 1),
        topic(TRANS_OP_HALF_TOPIC, 1),
    ]
