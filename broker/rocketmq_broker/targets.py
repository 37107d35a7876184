"""Where sends go: Java's `msgCheck` for topics, the topics that a send may make, and the retry topics' dead letters.

What an ordinary topic needs to know on the hot path is kept per topic until the table changes. A topic is made only
once its message is stored: a send that is refused, for whatever reason, leaves nothing behind. Used by `send.py`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from rocketmq_broker.consumer_seams import GroupTable
from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.topics import TopicTable, forbidden_to_producers, name_problem
from rocketmq_broker.host import now_ms
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.send import SendMessageRequestHeader
from rocketmq_formats.store.message import SysFlag
from rocketmq_formats.topics import DLQ_PREFIX, MAX_TOPIC_LENGTH, PERM_WRITE, RETRY_PREFIX, TopicConfig

log = structlog.get_logger(__name__)

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Target(msgspec.Struct, frozen=True):
    """What the path needs to know of a topic."""

    topic: bytes
    queue_limit: int
    """Queue ids are below it."""
    write_queues: int
    flags: int
    """Of sysFlag, added to the message's."""
    missing: tuple[TopicConfig, ...] = ()
    """Topics to `make` once the message is stored."""


class Targets:
    """`known`: ordinary topics that were found before."""

    def __init__(self, *, settings: BrokerSettings, role: ReplicaRole, topics: TopicTable, groups: GroupTable) -> None:
        self._settings = settings
        self._role = role
        self._topics = topics
        self._groups = groups
        self._known: dict[str, Target] = {}
        topics.on_change(self._known.clear)

    @property
    def known(self) -> Mapping[str, Target]:
        """The same object for ever."""
        return self._known

    def find(self, header: SendMessageRequestHeader) -> Target:
        """Where a send goes that is not `known`. Raises `RefusedError`."""
        name = header.topic
        config = self._topics.get(name)
        if not self._settings.broker_permission & PERM_WRITE and config is not None and config.order:
            remark = f"the broker[{self._settings.broker_ip1}] sending message is forbidden"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        problem = name_problem(name)
        if problem is None and len(name) > MAX_TOPIC_LENGTH and not self._settings.allow_long_group_names:
            # a record of the V2 layout, which an official broker in controller mode cannot load again
            problem = "The specified topic is longer than topic max length."
        if problem is not None:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, problem)
        if forbidden_to_producers(name):
            raise RefusedError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        missing: tuple[TopicConfig, ...] = ()
        if config is None:
            config = self._planned(header)
            missing = (config,)
        if name.startswith(RETRY_PREFIX) and (dead_letter := self._dead_letter(header)) is not None:
            config = dead_letter
            if self._topics.get(dead_letter.topic_name) is None:
                missing = (*missing, dead_letter)
        target = _target(config, missing)
        if not (missing or name.startswith(RETRY_PREFIX)):
            self._known[name] = target
        return target

    def make(self, target: Target) -> None:
        """Put its missing topics into the table; its message is stored."""
        for config in target.missing:
            self._topics.put(config, state_version=self._role.epoch, now_ms=now_ms())
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
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return planned

    def _dead_letter(self, header: SendMessageRequestHeader) -> TopicConfig | None:
        """The dead letter topic if this retry was one too many."""
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._groups.find(group)
        if config is None:
            remark = f"subscription group not exist, {group}{FAQ}"
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        longest = config.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        if (header.reconsume_times or 0) <= longest:
            return None
        return self._topics.planned(DLQ_PREFIX + group, 1)


def _target(config: TopicConfig, missing: tuple[TopicConfig, ...]) -> Target:
    return Target(
        config.topic_name.encode(),
        max(config.read_queue_nums, config.write_queue_nums),
        config.write_queue_nums,
        int(SysFlag.MULTI_TAGS) if config.topic_filter_type == "MULTI_TAG" else 0,
        missing,
    )
