"""Resolves the topic of a send: Java's `msgCheck`, topics that a send may create, and dead letters of retry topics.

What the hot path needs of an ordinary topic is cached until the table changes. A topic is created only after its
message is stored, so a refused send leaves nothing behind. Used by `send.py`.
"""

from collections.abc import Callable, Mapping

import msgspec
import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable, forbidden_to_producers, name_problem
from rocketmq_broker.host import now_ms
from rocketmq_broker.sending.new_topics import NewTopics
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.consumer_protocols import GroupTable
from rocketmq_formats.codes import FAQ, ResponseCode
from rocketmq_formats.remoting.send import SendMessageRequestHeader
from rocketmq_formats.store.message import SysFlag
from rocketmq_formats.topics import DLQ_PREFIX, MAX_TOPIC_LENGTH, RETRY_PREFIX, TopicConfig

log = structlog.get_logger(__name__)


class Target(msgspec.Struct, frozen=True):
    """What the hot path needs of a topic."""

    topic: bytes
    queue_limit: int
    """Queue ids are below it; for a dead letter, the ids of the retry topic that the producer named."""
    write_queues: int
    flags: int
    """Of sysFlag, added to the message's."""
    missing: tuple[TopicConfig, ...] = ()
    """Topics to `make` after the message is stored."""
    dead: bool = False
    """A dead letter: delivered at once, to any queue of its topic."""
    new: tuple[str, ...] = ()
    """Its topics that `NewTopics` may have."""


class Targets:
    """`known`: ordinary topics, cached by `find`."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        permission: BrokerPermission,
        topics: TopicTable,
        new_topics: NewTopics,
        groups: GroupTable,
        in_order: Callable[[str], bool],
    ) -> None:
        """`in_order`: whether a group consumes in order."""
        self._in_order = in_order
        self._settings = settings
        self._role = role
        self._permission = permission
        self._topics = topics
        self._new = new_topics
        self._groups = groups
        self._known: dict[str, Target] = {}
        topics.on_change(self._known.clear)
        permission.on_change(self._known.clear)

    @property
    def known(self) -> Mapping[str, Target]:
        """Always the same object: the hot path keeps a reference."""
        return self._known

    def find(self, header: SendMessageRequestHeader) -> Target:
        """The target of a send whose topic is not in `known`. Raises `RequestRefusedError`."""
        name = header.topic
        config = self._topics.get(name)
        if not self._permission.writable:
            # Java refuses ordered topics only; its other sends end when the clients' routes have followed
            remark = f"the broker[{self._settings.broker_ip1}] sending message is forbidden"
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)
        problem = name_problem(name)
        if problem is None and len(name) > MAX_TOPIC_LENGTH and not self._settings.allow_long_group_names:
            # a record of the V2 layout, which an official broker in controller mode cannot load again
            problem = "The specified topic is longer than topic max length."
        if problem is not None:
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, problem)
        if forbidden_to_producers(name):
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        missing: tuple[TopicConfig, ...] = ()
        if config is None:
            config = self._planned(header)
            missing = (config,)
        queue_limit = max(config.read_queue_nums, config.write_queue_nums)
        dead = self._is_dead_letter(header)
        if dead:
            config = self._dead_letters_of(name.removeprefix(RETRY_PREFIX))
            if self._topics.get(config.topic_name) is None:
                missing = (*missing, config)
        made = {topic.topic_name for topic in missing}
        new = tuple(topic for topic in {name, config.topic_name} if topic in made or topic in self._new)
        target = Target(
            config.topic_name.encode(),
            queue_limit,
            config.write_queue_nums,
            int(SysFlag.MULTI_TAGS) if config.topic_filter_type == "MULTI_TAG" else 0,
            missing,
            dead,
            new,
        )
        if not (new or name.startswith(RETRY_PREFIX)):
            self._known[name] = target
        return target

    def make(self, target: Target) -> None:
        """Put its missing topics into the table, after its message is stored."""
        for config in target.missing:
            self._topics.put(config, state_version=self._role.epoch, now_ms=now_ms())
            self._new.made(config.topic_name)
            log.info("topic created by a send", topic=config.topic_name, queues=config.write_queue_nums)

    def _planned(self, header: SendMessageRequestHeader) -> TopicConfig:
        sys_flag = 1 if header.unit_mode else 0
        planned = self._topics.planned_from_template(
            header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag=sys_flag
        )
        if planned is None and header.topic.startswith(RETRY_PREFIX):
            planned = self._topics.planned(header.topic, 1, sys_flag=sys_flag)
        if planned is None:
            remark = f"topic[{header.topic}] not exist, apply first please!{FAQ}"
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return planned

    def _is_dead_letter(self, header: SendMessageRequestHeader) -> bool:
        """Whether this is the group's last retry, as Java decides (rocketmq-all-5.3.3:
        SendMessageProcessor.java): one retry too many, or a group that consumes in order, which
        retries locally and sends back only what it gives up."""
        if not header.topic.startswith(RETRY_PREFIX):
            return False
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._groups.find(group)
        if config is None:
            remark = f"subscription group not exist, {group}{FAQ}"
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        longest = config.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        return (header.reconsume_times or 0) > longest or self._in_order(group)

    def _dead_letters_of(self, group: str) -> TopicConfig:
        topic = DLQ_PREFIX + group
        config = self._topics.planned(topic, 1)
        if config is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        return config
