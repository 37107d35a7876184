"""What consumers have still to do, as tools and dashboards ask: 303, 305, 317, 321, 328, 343, 345."""

from pathlib import Path

import pytest

from rocketmq_broker.consuming import clients
from rocketmq_broker.host import now_ms
from rocketmq_broker.tools import consume_info
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.broker_admin import (
    GetConsumeStatsInBrokerHeader,
    ProducerTableInfo,
    QueryConsumeQueueRequestHeader,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QuerySubscriptionResponseBody,
    QueryTopicsByConsumerRequestHeader,
    QueueTimeSpan,
)
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.nameserver import TopicList
from rocketmq_formats.tags import java_hash_code
from tests.broker.broker_kit import Group, running
from tests.broker.raw_client import connected


async def filled(group: Group) -> None:
    """Three messages in queue 0 of T; group G has consumed one."""
    for number in range(3):
        assert (await group.send()).code == ResponseCode.SUCCESS
        assert (await group.pull(number, suspend_ms=20_000)).code == ResponseCode.SUCCESS, "visible"
    assert group.app.tables.offsets.commit("G", "T", 0, 1)
    group.app.tables.offsets.pulled("G", "T", 0, 2)


def units(index: int, count: int = 10, *, queue_id: int = 0, group: str | None = None) -> RemotingCommand:
    header = QueryConsumeQueueRequestHeader(
        topic="T", queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    return request(RequestCode.QUERY_CONSUME_QUEUE, header)


async def test_the_ages_of_a_topics_queues(tmp_path: Path) -> None:
    async with running(tmp_path, durability="relaxed") as group:
        began = now_ms()
        await filled(group)

        async def spans(consumers: str) -> list[QueueTimeSpan]:
            header = QueryConsumeTimeSpanRequestHeader(topic="T", group=consumers)
            answer = await group.call(request(RequestCode.QUERY_CONSUME_TIME_SPAN, header))
            assert answer.code == ResponseCode.SUCCESS
            return list(decode_body(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set)

        first, *empty = await spans("G")
        assert began <= first.min_time_stamp <= first.consume_time_stamp <= first.max_time_stamp <= now_ms()
        assert 0 <= first.delay_time <= now_ms() - began
        assert len(empty) == 3
        assert {(one.min_time_stamp, one.max_time_stamp, one.delay_time) for one in empty} == {(-1, -1, 0)}
        new, *_ = await spans("new")
        assert 0 <= new.delay_time <= now_ms() - began, "not since 1970"

        group.app.tables.offsets.commit("G", "T", 0, 3)
        done, *_ = await spans("G")
        assert (done.delay_time, done.consume_time_stamp) == (0, done.max_time_stamp)
        header = QueryConsumeTimeSpanRequestHeader(topic="none", group="G")
        answer = await group.call(request(RequestCode.QUERY_CONSUME_TIME_SPAN, header))
        assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[none] not exist")


async def test_how_far_all_groups_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, durability="relaxed", defaultTopicQueueNums=1) as group:
        await filled(group)
        group.app.tables.offsets.commit("G", "gone", 0, 1)

        async def stats(*, in_order: bool = False) -> RemotingCommand:
            header = GetConsumeStatsInBrokerHeader(is_order=in_order)
            return await group.call(request(RequestCode.GET_BROKER_CONSUME_STATS, header))

        queue = b'{"brokerName":"broker-a","queueId":0,"topic":"T"}'
        answer = (await stats()).body
        assert answer.startswith(b'{"brokerAddr":"%b","consumeStatsList":[' % group.address.encode())
        assert answer.count(b'"offsetTable"') == 1
        assert b'{"G":[{"consumeTps":0.0,"offsetTable":{%b:{"brokerOffset":3,"consumerOffset":1,' % queue in answer
        assert answer.endswith(b'],"totalDiff":%d,"totalInflightDiff":1}' % 2)
        assert (await stats(in_order=True)).body.endswith(b'],"totalDiff":0,"totalInflightDiff":0}')

        monkeypatch.setattr(consume_info, "MAX_QUEUES_ANSWERED", 0)
        assert (await stats()).code == ResponseCode.INVALID_PARAMETER


async def test_the_units_of_a_queue(tmp_path: Path) -> None:
    async with running(tmp_path, durability="relaxed") as group, connected(group) as consumer:
        await filled(group)
        body = decode_body(QueryConsumeQueueResponseBody, (await group.call(units(1, group="G"))).body)
        assert (body.min_queue_index, body.max_queue_index) == (0, 3)
        size = body.queue_data[0].physic_size
        assert [(one.physic_offset, one.tags_code) for one in body.queue_data] == [
            (size, java_hash_code("TagA")),
            (2 * size, java_hash_code("TagA")),
        ]
        assert (body.subscription_data, body.filter_data) == (None, "G@T is not online!")

        await consumer.joins("c1", consumer="G")
        body = decode_body(QueryConsumeQueueResponseBody, (await group.call(units(0, 1, group="G"))).body)
        assert len(body.queue_data) == 1
        assert body.subscription_data is not None
        behind = await group.call(units(4))
        assert (behind.code, behind.remark, behind.body) == (0, "Index 4 of 0@T is not exist!", b"")
        missing = await group.call(units(0, queue_id=9))
        assert (missing.code, missing.remark) == (ResponseCode.SYSTEM_ERROR, "9@T is not exist!")
        many = await group.call(units(0, consume_info.MAX_UNITS_ANSWERED + 1))
        assert many.code == ResponseCode.INVALID_PARAMETER


async def test_what_a_group_consumes(tmp_path: Path) -> None:
    async with running(tmp_path, durability="relaxed") as group, connected(group) as consumer:
        await filled(group)
        answer = await group.call(
            request(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader(group="G"))
        )
        topics = decode_body(TopicList, answer.body)
        assert (topics.topic_list, topics.broker_addr) == (["T"], group.address)

        asked = request(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionByConsumerRequestHeader(group="G", topic="T")
        )
        offline = decode_body(QuerySubscriptionResponseBody, (await group.call(asked)).body)
        assert (offline.group, offline.topic, offline.subscription_data) == ("G", "T", None)
        await consumer.joins("c1", consumer="G")
        online = decode_body(QuerySubscriptionResponseBody, (await group.call(asked)).body)
        assert online.subscription_data is not None
        assert online.subscription_data.sub_string == "*"


async def test_all_producers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(RequestCode.GET_ALL_PRODUCER_INFO)
    async with running(tmp_path) as group, connected(group) as one, connected(group) as two:
        assert decode_body(ProducerTableInfo, (await group.call(asked)).body).data == {}
        began = now_ms()
        await one.joins("p1", producer="P")
        await two.joins("p2", producer="P")
        producers = decode_body(ProducerTableInfo, (await group.call(asked)).body).data["P"]
        assert [one.client_id for one in producers] == ["p1", "p2"]
        assert all(one.remote_ip.startswith("/127.0.0.1:") and one.version == 479 for one in producers)
        assert all(began - 1 <= one.last_update_timestamp <= now_ms() + 1 for one in producers)

        monkeypatch.setattr(clients, "MAX_PRODUCERS_ANSWERED", 1)
        assert (await group.call(asked)).code == ResponseCode.INVALID_PARAMETER


async def test_the_system_topics(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        answer = await group.call(request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "C_REPLY_TOPIC"} <= set(decode_body(TopicList, answer.body).topic_list)
