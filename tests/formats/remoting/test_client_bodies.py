"""Bodies between clients, brokers and tools that are more than a struct: tables by queue, routes, checkpoints."""

import msgspec
import pytest

from rocketmq_formats.errors import BodyError, HeaderError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    ConsumeStats,
    OffsetWrapper,
    TimerCheckpoint,
    TopicOffset,
    TopicStatsTable,
)
from rocketmq_formats.remoting.client import (
    GetMaxOffsetRequestHeader,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import (
    BrokerData,
    QueueData,
    TopicRouteData,
    encode_route,
)
from rocketmq_formats.remoting.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketmq_formats.topics import DataVersion, GroupRetryPolicy, SubscriptionGroupConfig

QUEUES = [MessageQueue(topic="t", broker_name="b", queue_id=queue_id) for queue_id in (1, 0)]


def test_topic_statistics_have_queues_as_keys() -> None:
    table = TopicStatsTable(
        offset_table={queue: TopicOffset(max_offset=9, last_update_timestamp=5) for queue in QUEUES}, topic_put_tps=1
    )
    offset = b'{"lastUpdateTimestamp":5,"maxOffset":9,"minOffset":0}'
    assert table.encode() == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:%b,{"brokerName":"b","queueId":1,"topic":"t"}:%b},'
        b'"topicPutTps":1.0}' % (offset, offset)
    )
    assert TopicStatsTable.decode(table.encode()) == table
    assert TopicStatsTable.decode(b'{"offsetTable":{}}') == TopicStatsTable(offset_table={})


def test_statistics_of_many_queues() -> None:
    queues = [MessageQueue(topic="t" * 20, broker_name="broker-a", queue_id=queue_id) for queue_id in range(4096)]
    table = TopicStatsTable(offset_table={queue: TopicOffset(max_offset=2**60) for queue in queues})
    assert TopicStatsTable.decode(table.encode()) == table


def test_consume_statistics_have_queues_as_keys() -> None:
    stats = ConsumeStats(
        offset_table={queue: OffsetWrapper(broker_offset=9, consumer_offset=4) for queue in QUEUES}, consume_tps=0.5
    )
    assert stats.encode().startswith(b'{"consumeTps":0.5,"offsetTable":{{"brokerName"')
    assert ConsumeStats.decode(stats.encode()) == stats


@pytest.mark.parametrize("data", [b"", b"[]", b'{"offsetTable":{"t":{}}}', b'{"offsetTable":{{"queueId":1}:{}}}'])
def test_statistics_that_are_none(data: bytes) -> None:
    for kind in (TopicStatsTable, ConsumeStats):
        with pytest.raises(BodyError):
            kind.decode(data)


ROUTE = TopicRouteData(
    broker_datas=[BrokerData(broker_name="ü/😀", cluster="c", broker_addrs={2: "h:2", 0: "h:0", 10: "h:10"})],
    queue_datas=[QueueData(broker_name="ü/😀", read_queue_nums=4, write_queue_nums=4, perm=6)],
    order_topic_conf="a:1",
)


def test_a_route_for_today_s_clients_is_standard_and_ascii() -> None:
    body = encode_route(ROUTE, standard=True)
    assert body.isascii()
    assert b'"\\u00FC\\/\\uD83D\\uDE00"' in body
    assert msgspec.json.decode(body, type=TopicRouteData) == ROUTE


def test_a_route_for_old_clients_has_bare_ids() -> None:
    body = encode_route(ROUTE, standard=False)
    assert b'"brokerAddrs":{0:"h:0",2:"h:2",10:"h:10"}' in body
    assert decode_body(TopicRouteData, body) == ROUTE


def test_maps_with_other_keys_are_a_bug() -> None:
    for key in (None, 1.5, True, b"x"):
        with pytest.raises(TypeError):
            fastjson.dumps({key: 1})
    assert fastjson.dumps({"b": [1, {3: None, 1: "x"}], "a": ()}) == b'{"a":[],"b":[1,{1:"x",3:null}]}'


def test_timer_checkpoints() -> None:
    checkpoint = TimerCheckpoint(
        last_read_time_ms=1,
        last_timer_log_flush_pos=2,
        last_timer_queue_offset=3,
        master_timer_queue_offset=4,
        data_version=DataVersion(state_version=5, timestamp=6, counter=7),
    )
    assert [int.from_bytes(checkpoint.encode()[at : at + 8], "big") for at in range(0, 56, 8)] == list(range(1, 8))
    assert TimerCheckpoint.decode(checkpoint.encode()) == checkpoint
    assert TimerCheckpoint.decode(checkpoint.encode()[:32]).data_version == DataVersion()
    with pytest.raises(BodyError, match="timer checkpoint of 40 bytes"):
        TimerCheckpoint.decode(bytes(40))


def test_queues_to_lock() -> None:
    body = LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=frozenset(QUEUES))
    assert decode_body(LockBatchRequestBody, encode_body(body)) == body
    assert encode_body(LockBatchResponseBody(lock_ok_mq_set=frozenset(QUEUES[:1]))) == (
        b'{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"t"}]}'
    )


def test_a_heartbeat_needs_a_client() -> None:
    with pytest.raises(BodyError, match="clientID"):
        decode_body(HeartbeatData, b'{"producerDataSet":[]}')
    with pytest.raises(BodyError):
        decode_body(HeartbeatData, b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":3}]}')
    assert decode_body(HeartbeatData, b'{"clientID":"c","heartbeatFingerprint":-5}').heartbeat_fingerprint == -5


def test_both_send_headers_have_the_same_attributes() -> None:
    assert SendMessageRequestHeader.__struct_fields__ == SendMessageRequestHeaderV2.__struct_fields__
    assert SendMessageRequestHeaderV2.__struct_encode_fields__ == tuple("abcdefghijklmn")


@pytest.mark.parametrize("missing", "abcdefgh")
def test_what_a_send_cannot_do_without(missing: str) -> None:
    fields = {**dict.fromkeys("abc", "x"), **dict.fromkeys("defgh", "1")}
    assert decode_header(SendMessageRequestHeaderV2, fields).flag == 1
    del fields[missing]
    with pytest.raises(HeaderError, match=f"`{missing}`"):
        decode_header(SendMessageRequestHeaderV2, fields)


def test_booleans_in_any_case() -> None:
    header = {"topic": "t", "queueId": "0"}
    for text, value in (("TRUE", True), ("true", True), ("false", False), ("yes", False), ("", False)):
        assert decode_header(GetMaxOffsetRequestHeader, {**header, "committed": text}).committed is value
    assert decode_header(GetMaxOffsetRequestHeader, header).committed is True


def test_a_group_as_java_writes_it() -> None:
    assert encode_body(SubscriptionGroupConfig(group_name="g")) == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},'
        b'"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        b'"whichBrokerWhenConsumeSlowly":1}'
    )
    policy = b'{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1,"max":2,"multiplier":3}}'
    retry = decode_body(GroupRetryPolicy, policy).exponential_retry_policy
    assert retry is not None
    assert (retry.initial, retry.max, retry.multiplier) == (1, 2, 3)
