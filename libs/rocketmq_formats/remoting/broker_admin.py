"""Headers and bodies of requests of tools and slave brokers to a broker: topics, groups, statistics, tables.

The broker answers them; mqadmin, our own tools and a slave's synchronization send them. Codes answered with nothing but
success or with a body defined elsewhere: 25 (text k=v), 28 (`nameserver.KVTable`), 1007 (`controller.EpochEntryCache`),
38 (`client`), 906-908 (`ha_info`). Most structs have the names of their Java classes.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, SlaveSynchronize.java.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import field

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import ANSWER_LIMIT, Body, Int32, Int64, decode_body, encode_body
from rocketmq_formats.remoting.client import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig, TopicName

# 17 UPDATE_AND_CREATE_TOPIC, 215 DELETE_TOPIC_IN_BROKER, 351 GET_TOPIC_CONFIG


class CreateTopicRequestHeader(Header, frozen=True):
    """`attributes` are changes `+name=value,-name`; `force` false refuses to overwrite a topic of another type."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class TopicRequestHeader(Header, frozen=True):
    """Of 202, 215, 300 and 351."""

    topic: TopicName


# 21 GET_ALL_TOPIC_CONFIG: the body of the answer is `registration.TopicConfigSerializeWrapper`

# 200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: the body is a `topics.SubscriptionGroupConfig`
# 201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 207 DELETE_SUBSCRIPTIONGROUP, 352 GET_SUBSCRIPTIONGROUP_CONFIG


class SubscriptionGroupWrapper(Body, frozen=True):
    """Body of the answer to 201; `forbidden_table` is group -> topic -> bits."""

    subscription_group_table: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: Mapping[str, Mapping[str, Int32]] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()


class DeleteSubscriptionGroupRequestHeader(Header, frozen=True):
    group_name: str
    clean_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(Header, frozen=True):
    group: str


# 26 GET_BROKER_CONFIG; the body of the answer is text k=v


class GetBrokerConfigResponseHeader(Header, frozen=True):
    """`version` is a `DataVersion` as JSON."""

    version: str


# 43 GET_ALL_CONSUMER_OFFSET, 45 GET_ALL_DELAY_OFFSET, 402 GET_ALL_MESSAGE_REQUEST_MODE


class ConsumerOffsetWrapper(Body, frozen=True):
    """Body of the answer to 43: `topic@group` -> queue id -> offset."""

    offset_table: Mapping[str, Mapping[int, Int64]] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    # an index that only Java's console needs; always empty from us
    group_topic_map: Mapping[str, Sequence[str]] = field(default_factory=dict)


class DelayOffsetWrapper(Body, frozen=True):
    """Body of the answer to 45: delay level -> offset in that level's queue."""

    offset_table: Mapping[int, Int64] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()


class MessageRequestModeWrapper(Body, frozen=True):
    """Body of the answer to 402: topic -> group -> mode; we keep none."""

    message_request_mode_map: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


# 60 GET_TIMER_CHECK_POINT, 61 GET_TIMER_METRICS

_TIMER_CHECKPOINT: Final = struct.Struct(">7q")


class TimerCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Body of the answer to 60: seven longs, the last three a `DataVersion`."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    data_version: DataVersion = DataVersion()

    def encode(self) -> bytes:
        version = self.data_version
        return _TIMER_CHECKPOINT.pack(
            self.last_read_time_ms,
            self.last_timer_log_flush_pos,
            self.last_timer_queue_offset,
            self.master_timer_queue_offset,
            version.state_version,
            version.timestamp,
            version.counter,
        )

    @classmethod
    def decode(cls, data: bytes) -> "TimerCheckpoint":
        """What `encode` wrote; before 5.0 the version was missing.

        Raises:
            BodyError: neither 32 nor 56 bytes.
        """
        if len(data) not in (32, _TIMER_CHECKPOINT.size):
            raise BodyError(f"timer checkpoint of {len(data)} bytes, {_TIMER_CHECKPOINT.size} expected")
        read, flushed, queue, master, state_version, timestamp, counter = _TIMER_CHECKPOINT.unpack(
            data.ljust(56, b"\0")
        )
        return cls(
            last_read_time_ms=read,
            last_timer_log_flush_pos=flushed,
            last_timer_queue_offset=queue,
            master_timer_queue_offset=master,
            data_version=DataVersion(state_version=state_version, timestamp=timestamp, counter=counter),
        )


class TimerMetric(Body, frozen=True):
    count: Int64 = 0
    timestamp: Int64 = 0


class TimerMetricsWrapper(Body, frozen=True):
    """Body of the answer to 61: topic -> messages that wait for their time."""

    timing_count: Mapping[str, TimerMetric] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()


# 202 GET_TOPIC_STATS_INFO, 208 GET_CONSUME_STATS: tables whose keys are queues, which no strict JSON can have


class TopicOffset(Body, frozen=True):
    """A queue's logical offsets; `last_update_timestamp` is the newest message's store time in ms, 0 for none."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(msgspec.Struct, frozen=True, kw_only=True):
    """Body of the answer to 202."""

    offset_table: Mapping[MessageQueue, TopicOffset]
    topic_put_tps: float = 0.0

    def encode(self) -> bytes:
        return _encode_table(self.offset_table, topicPutTps=self.topic_put_tps)

    @classmethod
    def decode(cls, data: bytes) -> "TopicStatsTable":
        """What `encode` or Java wrote.

        Raises:
            BodyError: not that.
        """
        body = decode_body(_TopicStats, data, loose_limit=ANSWER_LIMIT)
        return cls(offset_table=_decode_keys(body.offset_table), topic_put_tps=body.topic_put_tps)


class GetConsumeStatsRequestHeader(Header, frozen=True):
    """`topic_list` are names joined with `;`; it goes before `topic`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class OffsetWrapper(Body, frozen=True):
    """Where a group is in a queue; `last_timestamp` is the store time in ms of the last message it took, 0 for none."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(msgspec.Struct, frozen=True, kw_only=True):
    """Body of the answer to 208."""

    offset_table: Mapping[MessageQueue, OffsetWrapper]
    consume_tps: float = 0.0

    def encode(self) -> bytes:
        return _encode_table(self.offset_table, consumeTps=self.consume_tps)

    @classmethod
    def decode(cls, data: bytes) -> "ConsumeStats":
        """What `encode` or Java wrote.

        Raises:
            BodyError: not that.
        """
        body = decode_body(_ConsumeStats, data, loose_limit=ANSWER_LIMIT)
        return cls(offset_table=_decode_keys(body.offset_table), consume_tps=body.consume_tps)


class ViewBrokerStatsDataRequestHeader(Header, frozen=True):
    """Of 315, such as TOPIC_PUT_NUMS of a topic, GROUP_GET_NUMS of `topic@group`."""

    stats_name: str
    stats_key: str


class BrokerStatsItem(Body, frozen=True):
    """`avgpt`: of one operation."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True):
    """Body of the answer to 315: of the last minute, hour and day."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class _TopicStats(Body, frozen=True):
    offset_table: Mapping[str, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class _ConsumeStats(Body, frozen=True):
    offset_table: Mapping[str, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


class _ResetOffset(Body, frozen=True):
    offset_table: Mapping[str, Int64] = field(default_factory=dict)


V = TypeVar("V")


def _encode_table(table: Mapping[MessageQueue, object], **rates: float) -> bytes:
    return encode_offsets(
        (offsets_entry(encode_body(queue), encode_body(table[queue])) for queue in sorted(table)), **rates
    )


def offsets_entry(queue: bytes, said: bytes) -> bytes:
    """A `MessageQueue` and what is said of it, both as JSON."""
    return b"%b:%b" % (queue, said)


def encode_offsets(entries: Iterable[bytes], **rates: float) -> bytes:
    """The body of `TopicStatsTable` or `ConsumeStats`, for those that encode it in steps. `entries`: `offsets_entry` of
    each queue, in order; `rates` are the other keys."""
    parts = {
        "offsetTable": b"{%b}" % b",".join(entries),
        **{name: encode_body(float(rate)) for name, rate in rates.items()},
    }
    return fastjson.dumps_pairs((b'"%b"' % name.encode(), parts[name]) for name in sorted(parts))


def _decode_keys(table: Mapping[str, V]) -> dict[MessageQueue, V]:
    return {decode_body(MessageQueue, key.encode()): value for key, value in table.items()}


# 222 INVOKE_BROKER_TO_RESET_OFFSET, 220 RESET_CONSUMER_CLIENT_OFFSET

ALL_QUEUES: Final = -1
NO_OFFSET: Final = -1
"""How tools say that they give no offset."""


class ResetOffsetRequestHeader(Header, frozen=True):
    """`timestamp` in ms, below 0 for the end of each queue. Without `is_force` a group only goes back.

    `queue_id` below 0 means all queues. Of one queue `offset` counts, where there is one that is not -1.
    """

    topic: TopicName
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 = ALL_QUEUES
    offset: Int64 | None = None

    @property
    def one_queue(self) -> bool:
        return self.queue_id >= 0

    @property
    def named_offset(self) -> int | None:
        """The offset that the request gives for its one queue."""
        return self.offset if self.one_queue and self.offset != NO_OFFSET else None


class ResetOffsetBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of the answer to 222 where no client is connected, and of the broker's 220 to clients: the new offsets."""

    offset_table: Mapping[MessageQueue, int]

    def encode(self) -> bytes:
        return _encode_table(self.offset_table)

    @classmethod
    def decode(cls, data: bytes) -> "ResetOffsetBody":
        """What `encode` or Java wrote.

        Raises:
            BodyError: not that.
        """
        return cls(offset_table=_decode_keys(decode_body(_ResetOffset, data, loose_limit=ANSWER_LIMIT).offset_table))


# 203 GET_CONSUMER_CONNECTION_LIST, 204 GET_PRODUCER_CONNECTION_LIST, 300 QUERY_TOPIC_CONSUME_BY_WHO


class GetConsumerConnectionListRequestHeader(Header, frozen=True):
    consumer_group: str


class GetProducerConnectionListRequestHeader(Header, frozen=True):
    producer_group: str


class Connection(Body, frozen=True):
    client_id: str
    client_addr: str
    language: str
    version: Int32


class ConsumerConnection(Body, frozen=True):
    """Body of the answer to 203; topic -> subscription."""

    connection_set: Sequence[Connection] = ()
    subscription_table: Mapping[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    message_model: MessageModel = "CLUSTERING"
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"


class ProducerConnection(Body, frozen=True):
    connection_set: Sequence[Connection] = ()


class GroupList(Body, frozen=True):
    group_list: frozenset[str] = frozenset()


# 303 QUERY_CONSUME_TIME_SPAN, 317 GET_BROKER_CONSUME_STATS, 321 QUERY_CONSUME_QUEUE


class QueryConsumeTimeSpanRequestHeader(Header, frozen=True):
    topic: TopicName
    group: str


class QueueTimeSpan(Body, frozen=True):
    """Store times in ms of a queue's first and last message and of the last one consumed, -1 without one;
    `delay_time` is the age in ms of the next one to consume, 0 without one."""

    message_queue: MessageQueue
    min_time_stamp: Int64
    max_time_stamp: Int64
    consume_time_stamp: Int64
    delay_time: Int64 = 0


class QueryConsumeTimeSpanBody(Body, frozen=True):
    consume_time_span_set: Sequence[QueueTimeSpan] = ()


class GetConsumeStatsInBrokerHeader(Header, frozen=True):
    """`is_order`: only of topics that are consumed in order."""

    is_order: bool = False


class QueryConsumeQueueRequestHeader(Header, frozen=True):
    """`count` units from `index` on."""

    topic: TopicName
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class ConsumeQueueData(Body, frozen=True):
    """One unit; Java's other keys are about extensions, which we do not have."""

    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64
    eval: bool = False


class QueryConsumeQueueResponseBody(Body, frozen=True):
    """`filter_data` is text for people."""

    queue_data: Sequence[ConsumeQueueData]
    max_queue_index: Int64
    min_queue_index: Int64
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


# 328 GET_ALL_PRODUCER_INFO, 343 QUERY_TOPICS_BY_CONSUMER (answered with a `nameserver.TopicList`),
# 345 QUERY_SUBSCRIPTION_BY_CONSUMER


class ProducerInfo(Body, frozen=True):
    """`remote_ip` is `/ip:port`, as Java prints addresses; `last_update_timestamp` is ms."""

    client_id: str
    remote_ip: str = field(name="remoteIP")
    language: str
    version: Int32
    last_update_timestamp: Int64


class ProducerTableInfo(Body, frozen=True):
    """Body of the answer to 328, by group."""

    data: Mapping[str, Sequence[ProducerInfo]] = field(default_factory=dict)


class QueryTopicsByConsumerRequestHeader(Header, frozen=True):
    group: str


class QuerySubscriptionByConsumerRequestHeader(Header, frozen=True):
    group: str
    topic: str | None = None


class QuerySubscriptionResponseBody(Body, frozen=True):
    """`subscription_data` is null where the group is not online, or does not subscribe."""

    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None
