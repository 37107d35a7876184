"""Tools and slaves at the topics: the table (21, 351), what is in the queues (202), who consumes (300), how far (208);
and 215, which deletes a topic.

Deleting leaves the topic's consume queues alone: all replicas go on numbering its messages where they were if it is
made again, whether or not they have heard of the deletion.
Source: client reference, section 6; broker reference, section 7 (`AdminBrokerProcessor`).
"""

import asyncio

import structlog

from rocketmq_broker.domain.members import Consumers
from rocketmq_broker.domain.offsets import ConsumerOffsets
from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.topics import TopicTable
from rocketmq_broker.front import Processor
from rocketmq_broker.host import now_ms
from rocketmq_broker.persistence import TableFile
from rocketmq_formats.remoting.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import (
    ConsumeStats,
    GetConsumeStatsRequestHeader,
    GroupList,
    OffsetWrapper,
    TopicOffset,
    TopicRequestHeader,
    TopicStatsTable,
)
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.registration import TopicConfigSerializeWrapper
from rocketmq_formats.topics import DataVersion
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.server import Answer, Peer
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)

MAX_QUEUES_ANSWERED = 100_000
"""In one answer to 208: others wait while it is made."""


class TopicInfo:
    """Reads the topics, their queues and where groups are in them; deletes topics."""

    def __init__(
        self,
        *,
        broker_name: str,
        role: ReplicaRole,
        store: MessageStore,
        topics: TopicTable,
        topics_file: TableFile,
        offsets: ConsumerOffsets,
        consumers: Consumers[Peer],
    ) -> None:
        self._broker_name = broker_name
        self._role = role
        self._store = store
        self._topics = topics
        self._file = topics_file
        self._offsets = offsets
        self._consumers = consumers
        self._body = b""
        self._body_version: DataVersion | None = None

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all,
            RequestCode.GET_TOPIC_CONFIG: self._get,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumed_by,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
        }

    def _all(self, request: RemotingCommand, _peer: Peer) -> Answer:
        """21; the body is made once per version."""
        version = self._topics.version
        if self._body_version != version:
            wrapper = TopicConfigSerializeWrapper(topic_config_table=self._topics.table, data_version=version)
            self._body = encode_body(wrapper)
            self._body_version = version
        return response(request, ResponseCode.SUCCESS, None, None, self._body)

    def _get(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(topic))

    def _stats(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        table = {}
        for queue_id in range(max(topic.write_queue_nums, topic.read_queue_nums)):
            smallest, largest = self._store.queue_bounds(header.topic, queue_id)
            newest = self._store.store_time(header.topic, queue_id, largest - 1) if largest > smallest else 0
            table[self._queue(header.topic, queue_id)] = TopicOffset(
                min_offset=smallest, max_offset=largest, last_update_timestamp=max(newest, 0)
            )
        return response(request, ResponseCode.SUCCESS, None, None, TopicStatsTable(offset_table=table).encode())

    def _consumed_by(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        groups = {*self._consumers.groups_of(header.topic), *self._offsets.groups_of(header.topic)}
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(GroupList(group_list=frozenset(groups))))

    def _consume_stats(self, request: RemotingCommand, _peer: Peer) -> Answer:
        """208: of the topics that the group has offsets of, but those that it does not subscribe to any more."""
        header = decode_header(GetConsumeStatsRequestHeader, request.ext_fields or {})
        names = (header.topic_list or header.topic or "").split(";")
        wanted = list(filter(None, names)) or self._offsets.topics_of(header.consumer_group)
        group = self._consumers.get(header.consumer_group)
        queues: dict[str, int] = {}
        for name in wanted:
            topic = self._topics.get(name)
            if topic is not None and (group is None or not group.subscriptions or name in group.subscriptions):
                queues[name] = topic.read_queue_nums
        if sum(queues.values()) > MAX_QUEUES_ANSWERED:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(queues)} topics with more than {MAX_QUEUES_ANSWERED} queues: ask for fewer at a time",
            )
        table = {
            self._queue(name, queue_id): self._progress(header.consumer_group, name, queue_id)
            for name, count in queues.items()
            for queue_id in range(count)
        }
        return response(request, ResponseCode.SUCCESS, None, None, ConsumeStats(offset_table=table).encode())

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = self._offsets.find(group, topic, queue_id) or 0
        last = self._store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return OffsetWrapper(
            broker_offset=self._store.queue_bounds(topic, queue_id)[1],
            consumer_offset=consumed,
            pull_offset=consumed,
            last_timestamp=max(last, 0),
        )

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)

    def _delete(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        if self._topics.is_system(header.topic):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{header.topic}] is conflict with system topic."
            )
        self._offsets.remove_topic(header.topic)
        if not self._topics.delete(header.topic, state_version=self._role.epoch, now_ms=now_ms()):
            return response(request, ResponseCode.SUCCESS)
        log.info("topic deleted", topic=header.topic, by=peer.address)
        return asyncio.ensure_future(self._when_saved(request))

    async def _when_saved(self, request: RemotingCommand) -> RemotingCommand:
        try:
            await self._file.saved()
        except StorageError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, f"the topic is gone until a restart only: {error}")
        return response(request, ResponseCode.SUCCESS)
