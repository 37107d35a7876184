"""What is in a new master's log but not in its tables: topics and queues, and deletions of topics. Used by `app.py`.

A slave copies its master's table now and then, but the log at once. What an earlier master stored must be readable
even if the last copy of its table lacks it, and what it deleted must not come back.

What an administrator has set stays: a queue that messages may be sent to but consumers do not read yet is one way of
giving a topic more queues. A queue that nothing could be sent to, by this table, shows that the table is older: unless
its messages were delayed, or sent back by consumers, and so may have been sent when the topic had more queues.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import structlog

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable, name_problem
from rocketmq_broker.host import now_ms
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.consumer_tables import ConsumerTables
from rocketmq_formats.store.deletions import decode_deletion
from rocketmq_formats.store.message import Record, read_record
from rocketmq_formats.store.message_properties import REAL_TOPIC, find_property
from rocketmq_formats.topics import DELETED_TOPICS, MAX_QUEUES, DataVersion
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)


_DELETIONS: Final = (DELETED_TOPICS, 0)
MOST_DELAYED: Final = 1000
"""Messages of a queue that are looked at for one that was sent and not delayed."""


class LogTopics:
    """Works while this replica is master."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        store: MessageStore,
        topics: TopicTable,
        tables: ConsumerTables,
    ) -> None:
        self._settings = settings
        self._role = role
        self._store = store
        self._topics = topics
        self._tables = tables
        self._copied = (DataVersion(),) * 3
        """Versions of topics, groups and offsets when this replica became master."""
        self._end = 0
        """Of the log then."""
        self._seen = 0
        """Deletions before this place are carried out."""
        self._looked: dict[tuple[str, int], tuple[DataVersion, int]] = {}
        """By queue that the table lacks: its end when none of its messages was found to be sent after that version."""

    def take_over(self) -> None:
        """On becoming master: take over what the log has."""
        self._looked.clear()
        self._copied = self._topics.version, self._tables.groups.version, self._tables.offsets_version()
        self._end, self._seen = self._store.max_offset, 0
        self._delete()
        younger = self._younger_than_table()
        self._adopt(younger)
        for topic, ids in younger.items():
            self._widen(topic, max(ids) + 1)

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """Consumers may see new messages in `queues`: perhaps of an earlier master and confirmed only now, or delayed
        ones that an earlier master took."""
        if _DELETIONS in queues:
            self._delete()
        for topic, queue_id in queues:
            if not self._lacks(topic, queue_id):
                continue
            first, end = self._store.queue_bounds(topic, queue_id)
            if first == end:
                continue  # the topic was deleted
            self._adopt({topic: (queue_id,)})
            if self._sent_since_table(topic, queue_id):
                self._widen(topic, queue_id + 1)

    def on_due(self, topic: str, queue_id: int, sent: int) -> None:
        """A delayed message, stored at `sent` (ms), is going to be delivered to this queue."""
        if sent >= self._topics.version.timestamp:
            self._widen(topic, queue_id + 1)

    def _delete(self) -> None:
        """Carry out what an earlier master deleted, in those copies of its tables that are of before: it may have died
        while they were copied. A topic that has messages again stays."""
        new = [(topic, last) for topic, last in self._store.deletions.items() if self._seen <= last.place < self._end]
        if not new:
            return
        topics, groups, of_topics, of_groups = set[str](), set[str](), set[str](), set[str]()
        copied_topics, copied_groups, copied_offsets = self._copied
        for topic, deletion in new:
            self._seen = max(self._seen, deletion.place + 1)
            deleted = decode_deletion(deletion.properties)
            if deleted is None:
                continue
            group = set[str]() if deleted.group is None else {deleted.group}
            if copied_topics <= deleted.topics or self._topics.get(topic) is None:
                topics.add(topic)
            if copied_groups <= deleted.groups:
                self._tables.groups.forget_topic(topic)
                groups |= group
            if copied_offsets <= deleted.offsets:
                of_topics.add(topic)
                of_groups |= group
        queues = self._store.queues() if topics else {}
        topics = {
            topic for topic in topics if not any(self._has_messages(topic, number) for number in queues.get(topic, ()))
        }
        # those of both too: a newer table that another member had was added to this one, which still had them
        self._tables.offsets.remove(topics=of_topics | topics, groups=of_groups | groups)
        for group_name in sorted(groups):
            if self._tables.groups.delete(group_name):
                log.warning("consumer group deleted: an earlier master had begun to", group=group_name)
        for topic in sorted(topics):
            if self._topics.delete(topic, state_version=self._role.epoch, now_ms=now_ms()):
                log.warning("topic deleted: an earlier master had begun to", topic=topic)

    def _has_messages(self, topic: str, queue_id: int) -> bool:
        first, end = self._store.queue_bounds(topic, queue_id)
        return first < end

    def _younger_than_table(self) -> dict[str, list[int]]:
        """Topics with the queues whose newest message was stored after the table last changed; one that is older and
        not in the table was deleted, and stays so."""
        since = self._topics.version.timestamp
        found = {
            topic: [
                number
                for number in ids
                if self._lacks(topic, number)
                and (
                    self._sent_since_table(topic, number)
                    if self._topics.get(topic) is not None
                    else self._newest(topic, number) >= since
                )
            ]
            for topic, ids in self._store.queues().items()
        }
        return {topic: ids for topic, ids in found.items() if ids}

    def _sent_since_table(self, topic: str, queue_id: int) -> bool:
        """Whether a message was sent to the queue after the table last changed, by the last `MOST_DELAYED` messages."""
        first, end = self._store.queue_bounds(topic, queue_id)
        version, looked_to = self._looked.get((topic, queue_id), (None, 0))
        first = max(first, end - MOST_DELAYED, looked_to if version == self._topics.version else 0)
        self._looked[topic, queue_id] = self._topics.version, end
        for offset in range(end - 1, first - 1, -1):
            view = self._store.record_of(topic, queue_id, offset)
            message = None if view is None else read_record(view, 0, len(view), check_crc=False)
            if not isinstance(message, Record) or message.store_timestamp < self._topics.version.timestamp:
                return False
            if find_property(message.properties, REAL_TOPIC) is None:
                return True
        return False

    def _newest(self, topic: str, queue_id: int) -> int:
        """When the queue's last message was stored, ms."""
        return self._store.store_time(topic, queue_id, self._store.queue_bounds(topic, queue_id)[1] - 1)

    def _lacks(self, topic: str, queue_id: int) -> bool:
        """By the table nothing can be sent to this queue."""
        config = self._topics.get(topic)
        return config is None or queue_id >= max(config.read_queue_nums, config.write_queue_nums)

    def _adopt(self, queues: Mapping[str, Collection[int]]) -> None:
        """Consumers of a topic that is younger than the last copy must not get TOPIC_NOT_EXIST."""
        for name, ids in queues.items():
            if self._topics.get(name) is None and name != DELETED_TOPICS and name_problem(name) is None:
                count = min(max([*ids, self._settings.default_topic_queue_nums - 1]) + 1, MAX_QUEUES)
                self._topics.create_plain(name, count, state_version=self._role.epoch, now_ms=now_ms())
                log.warning(
                    "topic taken over from the log: its settings are the default ones", topic=name, queues=count
                )

    def _widen(self, topic: str, count: int) -> None:
        """An earlier master had more queues than our copy of its table: make them readable."""
        config = self._topics.get(topic)
        if config is not None and self._lacks(topic, count - 1) and count <= MAX_QUEUES:
            wider = msgspec.structs.replace(config, read_queue_nums=count)
            self._topics.put(wider, state_version=self._role.epoch, now_ms=now_ms())
            log.warning("topic has messages in more queues than its settings say", topic=topic, read_queue_nums=count)
