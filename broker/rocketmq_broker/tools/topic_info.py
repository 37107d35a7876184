"""Tools and slaves at the topics: the table (21, 351, 305), what is in the queues (202), who consumes (300), how far
(208).

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java.
"""

from rocketmq_broker.domain.consuming.members import Consumers
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.flow_stats import FlowStats
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.subscription_groups import SubscriptionGroups
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_broker.tables.table_body import TableBody
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import (
    GetConsumeStatsRequestHeader,
    GroupList,
    OffsetWrapper,
    TopicOffset,
    TopicRequestHeader,
    encode_offsets,
    offsets_entry,
)
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import TopicList
from rocketmq_formats.remoting.registration import TopicConfigSerializeWrapper
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace
from rocketmq_store.message_store import MessageStore

MAX_QUEUES_ANSWERED = 100_000
"""In one answer to 208: it has to fit a frame."""


class TopicInfo:
    """Reads the topics, their queues and where groups are in them."""

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        consumers: Consumers[Peer],
        lane: SlowLane,
        flows: FlowStats,
    ) -> None:
        self._flows = flows
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._lane = lane
        self.all = TableBody(
            lane,
            b"topicConfigTable",
            name="topics",
            version=lambda: topics.version,
            table=lambda: topics.table,
            around=lambda: TopicConfigSerializeWrapper(data_version=topics.version),
        )

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all.answer,
            RequestCode.GET_TOPIC_CONFIG: self._get,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumed_by,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
        }

    def _get(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(topic))

    def _system_topics(self, request: RemotingCommand, _peer: Peer) -> Answer:
        body = TopicList(topic_list=sorted(self._topics.system), broker_addr=None)
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(body))

    def _stats(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        queues = max(topic.write_queue_nums, topic.read_queue_nums)

        async def make(pace: Pace) -> RemotingCommand:
            entries = []
            for queue_id in range(queues):
                if pace.over:
                    await pace.rest()
                entries.append(offsets_entry(self._queue(header.topic, queue_id), self._bounds(header.topic, queue_id)))
            return response(request, ResponseCode.SUCCESS, None, None, encode_offsets(entries, topicPutTps=0.0))

        return self._lane.answer(request, peer, make)

    def _bounds(self, topic: str, queue_id: int) -> bytes:
        smallest, largest = self._store.queue_bounds(topic, queue_id)
        newest = self._store.store_time(topic, queue_id, largest - 1) if largest > smallest else 0
        return encode_body(TopicOffset(min_offset=smallest, max_offset=largest, last_update_timestamp=max(newest, 0)))

    def _consumed_by(self, request: RemotingCommand, _peer: Peer) -> Answer:
        """300: consumers that are there, and groups with offsets. Offsets of a deleted group may be kept for one of its
        name, but tools would report a backlog that no one consumes."""
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        known = (group for group in self._offsets.groups_of(header.topic) if self._groups.get(group) is not None)
        groups = {*self._consumers.groups_of(header.topic), *known}
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(GroupList(group_list=frozenset(groups))))

    def _consume_stats(self, request: RemotingCommand, peer: Peer) -> Answer:
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
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(queues)} topics with more than {MAX_QUEUES_ANSWERED} queues: ask for fewer at a time",
            )

        async def make(pace: Pace) -> RemotingCommand:
            entries, tps = [], 0.0
            for name, count in sorted(queues.items()):
                tps += self._flows.consume_tps(name, header.consumer_group)
                for queue_id in range(count):
                    if pace.over:
                        await pace.rest()
                    progress = self.progress(header.consumer_group, name, queue_id)
                    entries.append(offsets_entry(self._queue(name, queue_id), encode_body(progress)))
            return response(request, ResponseCode.SUCCESS, None, None, encode_offsets(entries, consumeTps=tps))

        return self._lane.answer(request, peer, make)

    def progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        """Where a group is in a queue."""
        consumed = self._offsets.find(group, topic, queue_id) or 0
        last = self._store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return OffsetWrapper(
            broker_offset=self._store.queue_bounds(topic, queue_id)[1],
            consumer_offset=consumed,
            pull_offset=max(self._offsets.pull_offset(group, topic, queue_id) or 0, consumed),
            last_timestamp=max(last, 0),
        )

    def _queue(self, topic: str, queue_id: int) -> bytes:
        return encode_body(MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id))
