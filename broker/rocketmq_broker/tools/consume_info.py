"""What consumers have still to do, for tools and dashboards: ages (303), all groups (317), a queue's units (321), and
what a group consumes (343, 345).

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java.
"""

from collections.abc import Callable
from typing import Final

from rocketmq_broker.domain.consuming.members import Consumers
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.flow_stats import FlowStats
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.subscription_groups import SubscriptionGroups
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import (
    ConsumeQueueData,
    GetConsumeStatsInBrokerHeader,
    OffsetWrapper,
    QueryConsumeQueueRequestHeader,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QuerySubscriptionResponseBody,
    QueryTopicsByConsumerRequestHeader,
    QueueTimeSpan,
    encode_offsets,
    offsets_entry,
)
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import TopicList
from rocketmq_formats.store.config_files import TOPIC_GROUP_SEPARATOR
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace
from rocketmq_store.message_store import MessageStore

MAX_QUEUES_ANSWERED: Final = 50_000
"""In one answer to 317: it has to fit a frame."""
MAX_UNITS_ANSWERED: Final = 10_000
"""In one answer to 321."""


class ConsumeInfo:
    """Reads the tables of consumers and the queues."""

    def __init__(
        self,
        *,
        broker_name: str,
        address: str,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        consumers: Consumers[Peer],
        lane: SlowLane,
        flows: FlowStats,
        progress: Callable[[str, str, int], OffsetWrapper],
    ) -> None:
        """`progress`: where a group is in a topic's queue."""
        self._broker_name = broker_name
        self._address = address
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._lane = lane
        self._flows = flows
        self._progress = progress

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_span,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_groups,
            RequestCode.QUERY_CONSUME_QUEUE: self._units,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription_of,
        }

    def _time_span(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(QueryConsumeTimeSpanRequestHeader, request.ext_fields or {})
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        queues = max(topic.write_queue_nums, topic.read_queue_nums)

        async def make(pace: Pace) -> RemotingCommand:
            spans = []
            for queue_id in range(queues):
                if pace.over:
                    await pace.rest()
                spans.append(self._span(header, queue_id))
            body = encode_body(QueryConsumeTimeSpanBody(consume_time_span_set=spans))
            return response(request, ResponseCode.SUCCESS, None, None, body)

        return self._lane.answer(request, peer, make)

    def _span(self, header: QueryConsumeTimeSpanRequestHeader, queue_id: int) -> QueueTimeSpan:
        """Java takes a group that never committed for one that is at offset -1, and prints decades of delay; here the
        next message is the first that there is."""
        store, topic = self._store, header.topic
        smallest, largest = store.queue_bounds(topic, queue_id)
        consumed = self._offsets.find(header.group, topic, queue_id) or 0
        first = store.store_time(topic, queue_id, smallest)
        following = max(consumed, smallest)
        waiting = store.store_time(topic, queue_id, following) if following < largest else -1
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first,
            max_time_stamp=store.store_time(topic, queue_id, largest - 1),
            consume_time_stamp=store.store_time(topic, queue_id, consumed - 1) if consumed > smallest else first,
            delay_time=now_ms() - waiting if waiting >= 0 else 0,
        )

    def _all_groups(self, request: RemotingCommand, peer: Peer) -> Answer:
        """317, `ConsumeStatsList`: of every group and topic."""
        header = decode_header(GetConsumeStatsInBrokerHeader, request.ext_fields or {})

        async def make(pace: Pace) -> RemotingCommand:
            stats: dict[str, list[bytes]] = {group: [] for group in self._groups.table}
            lag = pulled = queues = 0
            for key in self._offsets.raw_keys():
                if pace.over:
                    await pace.rest()
                name, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
                topic = self._topics.get(name)
                if topic is None or group not in stats or (header.is_order and not topic.order):
                    continue
                if not self._offsets.has(group, name):
                    continue
                online = self._consumers.get(group)
                if online is not None and online.subscriptions and name not in online.subscriptions:
                    continue
                queues += topic.read_queue_nums
                if queues > MAX_QUEUES_ANSWERED:
                    remark = f"groups with more than {MAX_QUEUES_ANSWERED} queues: ask for a group at a time (208)"
                    raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
                entries = []
                for queue_id in range(topic.read_queue_nums):
                    if pace.over:
                        await pace.rest()
                    progress = self._progress(group, name, queue_id)
                    lag += progress.broker_offset - progress.consumer_offset
                    pulled += progress.pull_offset - progress.consumer_offset
                    entries.append(offsets_entry(encode_body(self._queue(name, queue_id)), encode_body(progress)))
                stats[group].append(encode_offsets(entries, consumeTps=self._flows.consume_tps(name, group)))
            groups = (
                fastjson.dumps_pairs([(encode_body(group), b"[%b]" % b",".join(each))]) for group, each in stats.items()
            )
            body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":%d}' % (
                encode_body(self._address),
                b",".join(groups),
                lag,
                pulled,
            )
            return response(request, ResponseCode.SUCCESS, None, None, body)

        return self._lane.answer(request, peer, make)

    def _units(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(QueryConsumeQueueRequestHeader, request.ext_fields or {})
        if not 0 <= header.count <= MAX_UNITS_ANSWERED:
            remark = f"count is {header.count}, not 0 to {MAX_UNITS_ANSWERED}"
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        place = f"{header.queue_id}@{header.topic}"
        units = self._store.queue_units(header.topic, header.queue_id, header.index, header.count)
        if units is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{place} is not exist!")
        smallest, largest = self._store.queue_bounds(header.topic, header.queue_id)
        if not smallest <= header.index <= largest:
            return response(request, ResponseCode.SUCCESS, f"Index {header.index} of {place} is not exist!")
        subscription, filter_data = None, None
        if header.consumer_group is not None:
            subscription = self._consumers.subscription(header.consumer_group, header.topic)
            # Java writes its filter of other languages than tags, which we do not have
            filter_data = "null" if subscription else f"{header.consumer_group}@{header.topic} is not online!"
        body = QueryConsumeQueueResponseBody(
            queue_data=[
                ConsumeQueueData(physic_offset=physical, physic_size=size, tags_code=code)
                for physical, size, code in units
            ],
            max_queue_index=largest,
            min_queue_index=smallest,
            subscription_data=subscription,
            filter_data=filter_data,
        )
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(body))

    def _topics_of(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(QueryTopicsByConsumerRequestHeader, request.ext_fields or {})
        body = TopicList(topic_list=sorted(self._offsets.topics_of(header.group)), broker_addr=self._address)
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(body))

    def _subscription_of(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(QuerySubscriptionByConsumerRequestHeader, request.ext_fields or {})
        found = self._consumers.subscription(header.group, header.topic) if header.topic else None
        body = QuerySubscriptionResponseBody(group=header.group, topic=header.topic, subscription_data=found)
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(body))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)
