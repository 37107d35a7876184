"""Headers and bodies of requests of producers and consumers to a broker, except sending (`send`): codes 11-15, 29-36,
38-42.

The broker decodes and answers them, `rocketmq_client` sends them. Field names are Java's in snake_case; what Java only
wants (and would take as null) has a default here. Most structs have the names of their Java classes.
Source: rocketmq-all-5.3.3: PullMessageRequestHeader.java, HeartbeatData.java, LockBatchRequestBody.java.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import field

from rocketmq_formats.json.bodies import Body, Int32, Int64
from rocketmq_formats.remoting.controller import Name
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.topics import TopicName

# 11 PULL_MESSAGE, 361 LITE_PULL_MESSAGE

PULL_COMMIT_OFFSET: Final = 1
"""Bit of `PullMessageRequestHeader.sys_flag`: store `commit_offset` for the group."""
PULL_SUSPEND: Final = 2
"""The request may wait for a message, up to `suspend_timeout_millis`."""
PULL_SUBSCRIPTION: Final = 4
"""`subscription` holds; else the subscription of the group's heartbeat does."""
PULL_CLASS_FILTER: Final = 8
PULL_LITE: Final = 16
DEFAULT_MAX_MSG_BYTES: Final = 256 * 1024


class PullMessageRequestHeader(Header, frozen=True):
    consumer_group: str
    topic: TopicName
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    # Java's spelling is "Froward"
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(Header, frozen=True):
    """Java's client wants the first four; the remark names the result (`FOUND`, ...), the body is records."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


# 12 QUERY_MESSAGE; the body of the answer is records


class QueryMessageRequestHeader(Header, frozen=True):
    """`begin_timestamp` and `end_timestamp` are milliseconds; ext `_UNIQUE_KEY_QUERY` true asks for UNIQ_KEY."""

    topic: TopicName
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponseHeader(Header, frozen=True):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


# 33 VIEW_MESSAGE_BY_ID; the body of the answer is one record


class ViewMessageRequestHeader(Header, frozen=True):
    """`offset` is physical."""

    offset: Int64
    topic: str | None = None


# 14, 15 QUERY_ and UPDATE_CONSUMER_OFFSET


class QueryConsumerOffsetRequestHeader(Header, frozen=True):
    consumer_group: str
    topic: TopicName
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class OffsetResponseHeader(Header, frozen=True):
    """Of 14, 29, 30 and 31: a logical offset."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(Header, frozen=True):
    """Absent fields are answered with INVALID_PARAMETER (29), so none is required here."""

    consumer_group: str | None = None
    topic: str | None = None
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None


# 29 SEARCH_OFFSET_BY_TIMESTAMP, 30 GET_MAX_OFFSET, 31 GET_MIN_OFFSET, 32 GET_EARLIEST_MSG_STORETIME


class TopicQueueRequestHeader(Header, frozen=True):
    """Of 31 and 32."""

    topic: TopicName
    queue_id: Int32


class GetMaxOffsetRequestHeader(Header, frozen=True):
    topic: TopicName
    queue_id: Int32
    committed: bool = True


class SearchOffsetRequestHeader(Header, frozen=True):
    """`timestamp` in milliseconds; `boundary_type` LOWER or UPPER in any case, anything else means LOWER."""

    topic: TopicName
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class GetEarliestMsgStoretimeResponseHeader(Header, frozen=True):
    timestamp: Int64


# 34 HEART_BEAT

ConsumeType = Literal["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"]
MessageModel = Literal["BROADCASTING", "CLUSTERING"]
ConsumeFromWhere = Literal[
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
]
SUBSCRIBE_ALL: Final = "*"


class SubscriptionData(Body, frozen=True):
    """A group's subscription to a topic; `*` or `TagA || TagB`, with the tags' Java hash codes in `code_set`. Some
    clients compute them with more bits than Java's int."""

    topic: TopicName
    sub_string: str = SUBSCRIBE_ALL
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: Int64 = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


class ConsumerData(Body, frozen=True):
    group_name: Name
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    message_model: MessageModel = "CLUSTERING"
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: Sequence[SubscriptionData] = ()
    unit_mode: bool = False


class ProducerData(Body, frozen=True):
    group_name: Name


class HeartbeatData(Body, frozen=True):
    """Body of 34: the clients behind a connection."""

    client_id: Annotated[str, msgspec.Meta(min_length=1, max_length=512)] = field(name="clientID")
    producer_data_set: Sequence[ProducerData] = ()
    consumer_data_set: Sequence[ConsumerData] = ()
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


class HeartbeatResponseHeader(Header, frozen=True):
    """Ext fields of the answer to 34, as 5.3.3 sends them."""

    is_support_heart_beat_v2: bool = field(default=True, name="IS_SUPPORT_HEART_BEAT_V2")
    is_sub_change: bool = field(default=True, name="IS_SUB_CHANGE")


# 35 UNREGISTER_CLIENT, 38 GET_CONSUMER_LIST_BY_GROUP, 40 NOTIFY_CONSUMER_IDS_CHANGED (broker to client, oneway)


class UnregisterClientRequestHeader(Header, frozen=True):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header, frozen=True):
    consumer_group: str


class GetConsumerListByGroupResponseBody(Body, frozen=True):
    consumer_id_list: Sequence[str] = ()


class NotifyConsumerIdsChangedRequestHeader(Header, frozen=True):
    consumer_group: str


# 36 CONSUMER_SEND_MSG_BACK


class ConsumerSendMsgBackRequestHeader(Header, frozen=True):
    """`offset` is physical; `delay_level` < 0 asks for the dead letter queue, 0 for the group's own pace."""

    offset: Int64
    group: Name
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


# 37 END_TRANSACTION, 39 CHECK_TRANSACTION_STATE (broker to producer, oneway; the body is the half message's record)

TRANSACTION_COMMIT: Final = 8
TRANSACTION_ROLLBACK: Final = 12
TRANSACTION_UNKNOWN: Final = 0


class EndTransactionRequestHeader(Header, frozen=True):
    producer_group: Name
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(Header, frozen=True):
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


# 41 LOCK_BATCH_MQ, 42 UNLOCK_BATCH_MQ


class MessageQueue(Body, frozen=True, order=True, gc=False):
    """One queue of a topic at one broker."""

    topic: TopicName
    broker_name: str = ""
    queue_id: Int32 = 0


class LockBatchRequestBody(Body, frozen=True):
    """Body of 41 and 42."""

    consumer_group: Name
    client_id: str
    mq_set: frozenset[MessageQueue] = frozenset()
    only_this_broker: bool = False


class LockBatchResponseBody(Body, frozen=True):
    """Body of the answer to 41: the queues that this client holds now."""

    lock_ok_mq_set: frozenset[MessageQueue] = field(default=frozenset(), name="lockOKMQSet")
