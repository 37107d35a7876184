"""Topics and queues that are in a new master's log but not in its topic table. Used by `app.py`.

A slave copies its master's table now and then, but the log at once. What an earlier master stored must be readable
even if the last copy of its table lacks it.
"""

from collections.abc import Collection, Mapping

import msgspec
import structlog

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable, name_problem
from rocketmq_broker.host import now_ms
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tools.topic_admin import MAX_QUEUES
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)


class LogTopics:
    """Works while this replica is master."""

    def __init__(self, *, settings: BrokerSettings, role: ReplicaRole, store: MessageStore, topics: TopicTable) -> None:
        self._settings = settings
        self._role = role
        self._store = store
        self._topics = topics

    def take_over(self) -> None:
        """On becoming master: take over what the log has."""
        self._adopt(self._younger_than_table())
        for topic, ids in self._store.queues().items():
            self._widen(topic, max(ids) + 1)

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """Consumers may see new messages in `queues`, perhaps of an earlier master and confirmed only now."""
        table = self._topics.table
        for topic, queue_id in queues:
            config = table.get(topic)
            if config is None:
                self._adopt({topic: (queue_id,)})
            elif queue_id >= config.read_queue_nums:
                self._widen(topic, queue_id + 1)

    def _younger_than_table(self) -> dict[str, list[int]]:
        """Topics whose newest message was stored after the table last changed; one that is older and not in the table
        was deleted, and stays so."""
        store, since = self._store, self._topics.version.timestamp

        def newest(topic: str, queue_id: int) -> int:
            return store.store_time(topic, queue_id, store.queue_bounds(topic, queue_id)[1] - 1)

        return {
            topic: ids
            for topic, ids in store.queues().items()
            if topic not in self._topics.table and max(newest(topic, queue_id) for queue_id in ids) >= since
        }

    def _adopt(self, queues: Mapping[str, Collection[int]]) -> None:
        """Consumers of a topic that is younger than the last copy must not get TOPIC_NOT_EXIST."""
        for name, ids in queues.items():
            if self._topics.get(name) is None and name_problem(name) is None:
                count = min(max([*ids, self._settings.default_topic_queue_nums - 1]) + 1, MAX_QUEUES)
                self._topics.create_plain(name, count, state_version=self._role.epoch, now_ms=now_ms())
                log.warning(
                    "topic taken over from the log: its settings are the default ones", topic=name, queues=count
                )

    def _widen(self, topic: str, count: int) -> None:
        """An earlier master had more queues than our copy of its table: make them readable."""
        config = self._topics.get(topic)
        if config is not None and config.read_queue_nums < count <= MAX_QUEUES:
            wider = msgspec.structs.replace(config, read_queue_nums=count)
            self._topics.put(wider, state_version=self._role.epoch, now_ms=now_ms())
            log.warning("topic has messages in more queues than its settings say", topic=topic, read_queue_nums=count)
