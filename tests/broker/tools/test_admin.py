"""What tools and slaves ask a broker, against what official brokers answered."""

import asyncio
import json
import re
from pathlib import Path

import msgspec
import pytest

from rocketmq_broker.tools.stats import Totals, TrafficStats
from rocketmq_broker.traffic import Traffic
from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    ConsumeStats,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GroupList,
    SubscriptionGroupWrapper,
    TimerCheckpoint,
    TopicRequestHeader,
    TopicStatsTable,
)
from rocketmq_formats.remoting.client import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    QueryMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame, request
from rocketmq_formats.remoting.nameserver import KVTable
from rocketmq_formats.remoting.registration import TopicConfigSerializeWrapper
from rocketmq_formats.topics import SubscriptionGroupConfig, TopicConfig
from tests.broker.broker_kit import Group, running
from tests.paths import GOLDEN_FILES

GOLDEN = GOLDEN_FILES / "remoting"

CLUSTER_LIST_KEYS = {
    "brokerVersionDesc",
    "putTps",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "getTransferredTps",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "commitLogDiskRatio",
    "brokerActive",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
}
"""What clusterList reads, with -m too."""
PREFIXES = ("commitLogDiskRatio_", "scheduleMessageOffset_")


def golden(name: str) -> RemotingCommand:
    return decode_frame((GOLDEN / name).read_bytes()[4:])


def shape(body: bytes) -> str:
    """The body with every version's numbers as 0."""
    return re.sub(r'"(counter|stateVersion|timestamp)":\d+', r'"\1":0', body.decode())


async def ask(group: Group, code: int, body: bytes = b"") -> RemotingCommand:
    answer = await group.call(request(code, None, body))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


async def test_runtime_info_has_what_official_tools_read(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        before = decode_body(KVTable, (await ask(group, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert before["earliestMessageTimeStamp"] == "-1"
        await group.send()
        await group.pull(0)
        group.app.tables.delays.record(group.app.store.max_offset, {3: 0})
        table = decode_body(KVTable, (await ask(group, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    official = decode_body(KVTable, golden("28-get-broker-runtime-info-response.bin").body).table
    assert table.keys() >= CLUSTER_LIST_KEYS
    assert {key for key in table.keys() - official.keys() if not key.startswith(PREFIXES)} == {"getTransferedTps"}
    assert not {key for key in official.keys() - table.keys() if not key.startswith(PREFIXES)}
    assert sum(int(part.split(":")[1]) for part in table["putMessageDistributeTime"].split()) == 1
    assert (table["scheduleMessageOffset_3"], table["putMessageFailedTimes"]) == ("0,0", "0")
    assert float(table["putLatency99"]) <= int(table["putMessageEntireTimeMax"]) + 1
    assert (table["brokerVersionDesc"], table["brokerVersion"], table["brokerActive"]) == ("V5_3_3", "479", "true")
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("1", "1")
    assert float(table["putTps"].split()[0]) > 0
    assert len(table["getTransferredTps"].split()) == 3
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    assert abs(int(table["earliestMessageTimeStamp"]) - int(table["bootTimestamp"])) < 60_000


async def test_tables_for_slaves(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for code, name in (
            (RequestCode.GET_ALL_CONSUMER_OFFSET, "43-get-all-consumer-offset-response.bin"),
            (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, "402-get-all-message-request-mode-response.bin"),
            (RequestCode.GET_TIMER_METRICS, "61-get-timer-metrics-response.bin"),
        ):
            assert shape((await ask(group, code)).body) == shape(golden(name).body)
        ours = fastjson.loads((await ask(group, RequestCode.GET_ALL_DELAY_OFFSET)).body)
        assert isinstance(ours, dict)
        assert {"history", "ages"} <= ours.keys(), "for slaves of ours; Java's reader passes over them"
        theirs = shape(golden("45-get-all-delay-offset-response.bin").body)
        assert shape(encode_body({key: ours[key] for key in ("dataVersion", "offsetTable")})) == theirs
        checkpoint = (await ask(group, RequestCode.GET_TIMER_CHECK_POINT)).body
        assert len(checkpoint) == len(golden("60-get-timer-check-point-response.bin").body)
        assert TimerCheckpoint.decode(checkpoint).last_read_time_ms > 0

        await group.send()
        header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=3, commit_offset=5)
        await group.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        body = (await ask(group, RequestCode.GET_ALL_CONSUMER_OFFSET)).body
        assert b'"offsetTable":{"T@G":{3:5}}}' in body
        # only changes make versions
        assert (await ask(group, RequestCode.GET_ALL_CONSUMER_OFFSET)).body == body


async def test_groups_and_topics_for_slaves_on_the_vip_port(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        port = group.app.settings.fast_port
        topics = await group.call(request(RequestCode.GET_ALL_TOPIC_CONFIG), port=port)
        wrapper = decode_body(TopicConfigSerializeWrapper, topics.body)
        assert wrapper.data_version == group.app.topics.version
        assert wrapper.topic_config_table == dict(group.app.topics.table)
        official_topics = json.loads(golden("21-get-all-topic-config-response.bin").body)
        assert json.loads(topics.body).keys() == official_topics.keys()
        ours = decode_body(SubscriptionGroupWrapper, (await ask(group, 201)).body)
        official = decode_body(
            SubscriptionGroupWrapper, golden("201-get-all-subscription-group-config-response.bin").body
        )
        assert ours.subscription_group_table == official.subscription_group_table


async def test_groups_by_tools(tmp_path: Path) -> None:
    config = SubscriptionGroupConfig(group_name="G", retry_max_times=3)
    async with running(tmp_path) as group:
        await ask(group, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, encode_body(config))
    async with running(tmp_path) as group:
        get = GetSubscriptionGroupConfigRequestHeader(group="G")
        answer = await group.call(request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, get))
        assert decode_body(SubscriptionGroupConfig, answer.body) == config
        delete = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
        for _ in range(2):
            gone = await group.call(request(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete))
            assert gone.code == ResponseCode.SUCCESS
        answer = await group.call(request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, get))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        for name in ("", "a b", "g" * 121):
            bad = encode_body(SubscriptionGroupConfig(group_name=name))
            answer = await group.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, bad))
            assert answer.code == ResponseCode.INVALID_PARAMETER
    async with running(tmp_path / "long", allowLongGroupNames=True) as group:
        long_name = encode_body(SubscriptionGroupConfig(group_name="g" * 121))
        await ask(group, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, long_name)


async def test_topics_by_tools(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        create = CreateTopicRequestHeader(
            topic="T", default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6
        )
        assert (await group.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, create))).code == 0
        await group.send(queue_id=1)
        header = TopicRequestHeader(topic="T")
        stats = TopicStatsTable.decode((await group.call(request(RequestCode.GET_TOPIC_STATS_INFO, header))).body)
        queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)
        assert {queue.queue_id: offset.max_offset for queue, offset in stats.offset_table.items()} == {0: 0, 1: 1}
        assert stats.offset_table[queue].last_update_timestamp > 0

        commit = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=1, commit_offset=1)
        await group.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        ask_stats = GetConsumeStatsRequestHeader(consumer_group="G")
        progress = ConsumeStats.decode((await group.call(request(RequestCode.GET_CONSUME_STATS, ask_stats))).body)
        assert (progress.offset_table[queue].broker_offset, progress.offset_table[queue].consumer_offset) == (1, 1)
        assert progress.offset_table[queue].last_timestamp == stats.offset_table[queue].last_update_timestamp
        who = await group.call(request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header))
        assert decode_body(GroupList, who.body).group_list == {"G"}

        config = await group.call(request(RequestCode.GET_TOPIC_CONFIG, header))
        assert decode_body(TopicConfig, config.body).write_queue_nums == 2
        for _ in range(2):
            assert (await group.call(request(RequestCode.DELETE_TOPIC_IN_BROKER, header))).code == 0
        for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO):
            assert (await group.call(request(code, header))).code == ResponseCode.TOPIC_NOT_EXIST
        for attribute, says in (
            ("+message.type=TRANSACTION", "DELAY, FIFO, MIXED, NORMAL"),
            ("+queue.type=BatchCQ", ""),
        ):
            unable = msgspec.structs.replace(create, attributes=attribute)
            refused = await group.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, unable))
            assert (refused.code, says in (refused.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)
        system = TopicRequestHeader(topic="TBW102")
        refused = await group.call(request(RequestCode.DELETE_TOPIC_IN_BROKER, system))
        assert refused.code == ResponseCode.INVALID_PARAMETER


async def test_configuration_is_shown_and_not_changed(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        answer = await ask(group, RequestCode.GET_BROKER_CONFIG)
        values = properties.parse(answer.body)
        assert (values["brokerName"], values["brokerId"], values["brokerRole"]) == ("broker-a", "0", "SYNC_MASTER")
        official = golden("26-get-broker-config-response.bin")
        assert (answer.ext_fields or {}).keys() == (official.ext_fields or {}).keys()
        assert json.loads((answer.ext_fields or {})["version"]).keys() == {"counter", "stateVersion", "timestamp"}
        refused = await group.call(request(RequestCode.UPDATE_BROKER_CONFIG, None, b"maxMessageSize=4\n"))
        assert refused.code == ResponseCode.NO_PERMISSION


async def test_queues_are_locked_for_one_client(tmp_path: Path) -> None:
    queues = frozenset(MessageQueue(topic="T", broker_name="broker-a", queue_id=n) for n in (0, 1))

    def body(client_id: str) -> bytes:
        return encode_body(LockBatchRequestBody(consumer_group="G", client_id=client_id, mq_set=queues))

    async def lock(group: Group, client_id: str) -> frozenset[MessageQueue]:
        answer = await ask(group, RequestCode.LOCK_BATCH_MQ, body(client_id))
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    async with running(tmp_path) as group:
        assert await lock(group, "c1") == queues
        assert await lock(group, "c1") == queues
        assert await lock(group, "c2") == frozenset()
        await ask(group, RequestCode.UNLOCK_BATCH_MQ, body("c2"))
        assert await lock(group, "c2") == frozenset()
        await ask(group, RequestCode.UNLOCK_BATCH_MQ, body("c1"))
        assert await lock(group, "c2") == queues
        bad = await group.call(request(RequestCode.LOCK_BATCH_MQ, None, b"{}"))
        assert bad.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.looptime
async def test_rates_and_days() -> None:
    traffic, day = Traffic(), [1]
    stats = TrafficStats(traffic, today=lambda: day[0])
    assert stats.rates(lambda sample: sample.put) == "0.00 0.00 0.00"
    stats.start()
    traffic.counts.put_messages = 100
    await asyncio.sleep(20)
    assert stats.rates(lambda sample: sample.put) == "0.00 5.00 5.00"
    day[0] = 2
    await asyncio.sleep(1)
    traffic.counts.put_messages = 150
    assert (stats.yesterday_morning, stats.today_morning, stats.now) == (Totals(), Totals(100, 0), Totals(150, 0))
    stats.stop()


async def test_a_query_by_key_is_refused(tmp_path: Path) -> None:
    """Java's tools print "no message" then; there is no index yet."""
    header = QueryMessageRequestHeader(topic="T", key="k", max_num=32, begin_timestamp=0, end_timestamp=2**62)
    async with running(tmp_path) as group:
        answer = await group.call(request(RequestCode.QUERY_MESSAGE, header))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 12 not supported"
