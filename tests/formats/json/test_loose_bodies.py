"""Bodies whose values are of other types than declared, as clients that are not Java's send them.

All of it is what fastjson 1.2.83 makes of it with the classes of 5.3.3, except for nulls, which are defaults here.
"""

import pytest

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.json.coercion import coerce
from rocketmq_formats.remoting.client import ConsumerData, HeartbeatData, LockBatchRequestBody, MessageQueue
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.remoting.nameserver import TopicRouteData
from rocketmq_formats.topics import DataVersion, GroupRetryPolicy, SubscriptionGroupConfig, TopicConfig


def of_group(field: str) -> ConsumerData:
    text = f'{{"clientID":"c","consumerDataSet":[{{"groupName":"g",{field}}}]}}'
    return decode_body(HeartbeatData, text.encode()).consumer_data_set[0]


def of_subscription(field: str, name: str) -> object:
    return getattr(of_group(f'"subscriptionDataSet":[{{"topic":"t",{field}}}]').subscription_data_set[0], name)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ('"consumeType":0', ("CONSUME_ACTIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")),
        ('"consumeType":1,"messageModel":1,"consumeFromWhere":0', ("CONSUME_PASSIVELY", "CLUSTERING", 0)),
        ('"messageModel":0,"consumeFromWhere":4', ("CONSUME_PASSIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET")),
        ('"consumeFromWhere":5', ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_TIMESTAMP")),
        ('"consumeType":null,"messageModel":"","consumeFromWhere":"LATER"', ("CONSUME_PASSIVELY", "CLUSTERING", 0)),
    ],
)
def test_enums_by_their_place(field: str, expected: tuple[object, ...]) -> None:
    group = of_group(field)
    expected = tuple("CONSUME_FROM_LAST_OFFSET" if one == 0 else one for one in expected)
    assert (group.consume_type, group.message_model, group.consume_from_where) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(('"true"', True), ('"TRUE"', True), ('"1"', True), ('"Y"', True), ('"T"', True), ("1", True), ("1.0", True)),
        *(('"false"', False), ('"0"', False), ('"N"', False), ('"F"', False), ("0", False), ("2", False)),
        *(('""', False), ("null", False), ('"null"', False)),
    ],
)
def test_booleans(text: str, value: bool) -> None:
    assert of_group(f'"unitMode":{text}').unit_mode is value


NUMBERS = [
    *(("7", 7), ('"7"', 7), ('"-7"', -7), ('"+7"', 7), ('"007"', 7), ('"1,000"', 1000), ("7.0", 7), ('"7.0"', 7)),
    *(
        ("1e3", 1000),
        ("true", 1),
        ("false", 0),
        ('""', 0),
        ("null", 0),
        ('"null"', 0),
        ('"9223372036854775807"', 2**63 - 1),
    ),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_numbers(text: str, value: int) -> None:
    assert of_subscription(f'"subVersion":{text}', "sub_version") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("[65]", {65}), ('["65",66]', {65, 66}), ('["-65",null,"",true]', {-65, 1}), ("null", set()), ('""', set())),
        *(("[]", set()), ("[65.0]", {65})),
    ],
)
def test_sets_of_numbers(text: str, value: set[int]) -> None:
    assert of_subscription(f'"codeSet":{text}', "code_set") == value


@pytest.mark.parametrize(("text", "value"), [("5", "5"), ("true", "true"), ("null", "*"), ("1.5", "1.5"), ('""', "")])
def test_texts(text: str, value: str) -> None:
    assert of_subscription(f'"subString":{text}', "sub_string") == value


def test_lists_that_are_null() -> None:
    body = decode_body(HeartbeatData, b'{"clientID":1,"producerDataSet":null,"consumerDataSet":[null,{"groupName":2}]}')
    assert (body.client_id, body.producer_data_set) == ("1", ())
    assert body.consumer_data_set == [ConsumerData(group_name="2")]
    assert of_group('"subscriptionDataSet":null').subscription_data_set == ()


def test_queues_to_lock() -> None:
    queue = b'{"brokerName":"b","queueId":"0","topic":"t"}'
    text = b'{"clientId":5,"consumerGroup":"g","mqSet":[%b],"onlyThisBroker":"1"}' % queue
    assert decode_body(LockBatchRequestBody, text) == LockBatchRequestBody(
        client_id="5",
        consumer_group="g",
        mq_set=frozenset({MessageQueue(broker_name="b", queue_id=0, topic="t")}),
        only_this_broker=True,
    )


def test_a_group_of_a_tool() -> None:
    text = (
        b'{"groupName":"g","retryMaxTimes":"3","consumeEnable":"false","brokerId":"0","attributes":{"a":1,"b":null},'
        b'"groupRetryPolicy":{"type":0,"exponentialRetryPolicy":{"initial":"5"}},"subscriptionDataSet":null}'
    )
    group = decode_body(SubscriptionGroupConfig, text)
    assert (group.retry_max_times, group.consume_enable, group.attributes) == (3, False, {"a": "1"})
    assert group.group_retry_policy.type == "EXPONENTIAL"
    assert group.group_retry_policy.exponential_retry_policy is not None
    assert group.group_retry_policy.exponential_retry_policy.initial == 5
    assert group.subscription_data_set is None
    assert decode_body(SubscriptionGroupConfig, b'{"groupRetryPolicy":null}') == SubscriptionGroupConfig()
    assert decode_body(SubscriptionGroupConfig, b'{"attributes":null}').attributes is None


def test_what_brokers_say() -> None:
    assert decode_body(DataVersion, b'{"counter":"1","stateVersion":null}') == DataVersion(counter=1)
    assert decode_body(SyncStateSet, b'{"syncStateSet":["1",2],"syncStateSetEpoch":"3"}') == SyncStateSet(
        sync_state_set=frozenset({1, 2}), sync_state_set_epoch=3
    )
    topic = decode_body(TopicConfig, b'{"topicName":"t","perm":"4","topicFilterType":1,"order":"true"}')
    assert topic == TopicConfig(topic_name="t", perm=4, topic_filter_type="MULTI_TAG", order=True)
    assert decode_body(GroupRetryPolicy, b'{"type":"OTHER"}') == GroupRetryPolicy()


def test_a_route_by_hand() -> None:
    brokers = b"{'brokerName':'b','brokerAddrs':{0:'h:1',\"2\":5,4:null}}"
    text = b"{brokerDatas:[%b],queueDatas:[{brokerName:'b',perm:'6'}]}" % brokers
    route = decode_body(TopicRouteData, text)
    assert route.broker_datas[0].broker_addrs == {0: "h:1", 2: "5"}
    assert (route.queue_datas[0].perm, route.queue_datas[0].read_queue_nums) == (6, 0)


@pytest.mark.parametrize(
    "field",
    [
        *('"consumeType":3', '"consumeType":-1', '"consumeType":true', '"consumeType":1.0', '"consumeType":[]'),
        *('"unitMode":"yes"', '"unitMode":[]', '"unitMode":{}', '"subscriptionDataSet":5', '"subscriptionDataSet":{}'),
        '"subscriptionDataSet":"x"',
        '"groupName":""',
        '"groupName":null',
        '"groupName":{}',
    ],
)
def test_groups_that_are_none(field: str) -> None:
    with pytest.raises(BodyError):
        of_group(field)


@pytest.mark.parametrize(
    "field",
    [
        *('"subVersion":"x"', '"subVersion":" 7"', '"subVersion":7.5', '"subVersion":"7.5"', '"subVersion":[]'),
        *('"subVersion":"9223372036854775808"', '"subVersion":9223372036854775808', '"subVersion":"0x10"'),
        *('"codeSet":5', '"codeSet":[[]]', '"codeSet":{"a":1}'),
        *('"subString":{}', '"subString":[]', '"topic":null', '"tagsSet":[{}]', '"subVersion":"' + "1" * 5000 + '"'),
        '"subVersion":' + "1" * 5000,
    ],
)
def test_subscriptions_that_are_none(field: str) -> None:
    with pytest.raises(BodyError):
        of_subscription(field, "topic")


def test_values_of_no_declared_type_stay() -> None:
    assert coerce({"a": [None, 1]}, object) == {"a": [None, 1]}
    assert coerce({"a": "1", "b": None}, dict[str, float]) == {"a": "1"}
    assert coerce([None, "1"], list[str | int]) == ["1"]
    assert coerce(None, list[int]) is None


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 65_537, 2**31 - 1])
def test_numbers_of_queues_that_java_takes(count: int) -> None:
    """In a request, a copy of an official master's tables, a registration, a route."""
    assert decode_body(SubscriptionGroupConfig, b'{"retryQueueNums":%d}' % count).retry_queue_nums == count
    assert decode_body(TopicConfig, b'{"readQueueNums":%d}' % count).read_queue_nums == count
    assert TopicConfig.from_text(f"t {count} 4 6 SINGLE_TAG {{}}").read_queue_nums == count
    route = decode_body(TopicRouteData, b'{"queueDatas":[{"writeQueueNums":%d}]}' % count)
    assert route.queue_datas[0].write_queue_nums == count
