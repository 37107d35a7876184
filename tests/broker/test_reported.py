"""What users of official brokers reported, tried at a whole broker (docs/field-reports.md names the reports)."""

import json
from pathlib import Path

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.client import ConsumerData, HeartbeatData, SubscriptionData
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.store.batch import BatchMessage, encode_batch
from rocketmq_formats.tags import java_hash_code
from rocketmq_formats.topics import SubscriptionGroupConfig
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import Group, running, send_request
from tests.topic_requests import topic_request


def asked(code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
    """A request whose header is not checked on this side."""
    return RemotingCommand(code, ext_fields={name: str(value) for name, value in fields.items()}, body=body)


async def offset_of(group: Group, code: int, **fields: object) -> int:
    answer = await group.call(asked(code, **({"topic": "T", "queueId": 0} | fields)))
    assert answer.ext_fields is not None, answer.remark
    return int(answer.ext_fields.get("offset") or answer.ext_fields["timestamp"])


async def test_the_last_property_of_a_batched_message_keeps_its_value(tmp_path: Path) -> None:
    """Clients since 4.9.1 leave out the last separator."""
    async with running(tmp_path) as group:
        batch = encode_batch([BatchMessage(0, b"first", b"TAGS\x01TagA"), BatchMessage(0, b"second", b"TAGS\x01TagB")])
        sent = await group.send(batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties="WAIT\x01true")
        assert sent.code == ResponseCode.SUCCESS
        found = await group.pull(0, subscription="TagB")
        assert (b"first" in found.body, b"second" in found.body) == (False, True)


async def test_a_delay_level_that_another_layer_spoiled_is_refused_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        spoiled = await group.send(properties="UNIQ_KEY\x01u\x02DELAY\x014Pinpoint-Flags\x01A0")
        assert (spoiled.code, "DELAY is not a delay level" in (spoiled.remark or "")) == (13, True)
        assert (await group.send()).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("topic", ["x/y", "..", "a.b", "a b", "", "x" * 128, "\u4e2d\u6587"], ids=ascii)
async def test_a_name_is_refused_by_tools_and_sends_alike(tmp_path: Path, topic: str) -> None:
    async with running(tmp_path) as group:
        assert (await group.call(topic_request(topic, queues=1))).code == ResponseCode.INVALID_PARAMETER
        assert (await group.send(topic=topic)).code == ResponseCode.INVALID_PARAMETER
        assert not (tmp_path / "consumequeue").exists() or not list((tmp_path / "consumequeue").iterdir())


async def test_the_longest_names_of_topics_and_groups(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        topic = "x" * 127
        assert (await group.call(topic_request(topic, queues=1))).code == ResponseCode.SUCCESS
        assert (await group.send(topic=topic)).code == ResponseCode.SUCCESS
        for length, code in ((120, ResponseCode.SUCCESS), (121, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)):
            assert (await group.pull(0, topic=topic, consumer_group="g" * length)).code == code
        deletion = asked(RequestCode.DELETE_TOPIC_IN_BROKER, topic="%RETRY%" + "g" * 200)
        assert (await group.call(deletion)).code == ResponseCode.SUCCESS, "whatever its length"


async def test_of_messages_of_one_millisecond_the_first_or_the_last_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        batch = encode_batch([BatchMessage(0, b"%d" % number, b"") for number in range(5)])
        await group.send(batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties="")
        stored = await offset_of(group, RequestCode.GET_EARLIEST_MSG_STORETIME)
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        assert await offset_of(group, search, timestamp=stored) == 0
        assert await offset_of(group, search, timestamp=stored, boundaryType="upper") == 4
        assert await offset_of(group, search, timestamp=stored + 1) == 5, "after the last one, not one short"


async def test_the_latest_heartbeat_says_what_a_group_subscribes_to(tmp_path: Path) -> None:
    """Two processes of one group must subscribe alike, as with official brokers."""

    def heartbeat(client: str, topic: str) -> RemotingCommand:
        consumer = ConsumerData(group_name="G", subscription_data_set=(SubscriptionData(topic=topic, sub_version=1),))
        return request(
            RequestCode.HEART_BEAT, None, encode_body(HeartbeatData(client_id=client, consumer_data_set=(consumer,)))
        )

    async with running(tmp_path) as group:
        await group.send()
        await group.send(topic="U")
        await group.call(heartbeat("c1", "T"))
        other = RemotingClient()
        await other.call(group.address, heartbeat("c2", "U"))
        assert (await group.pull(0, sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (await group.pull(0, topic="U", sys_flag=0)).code == ResponseCode.SUCCESS
        await other.close()


async def test_a_change_of_the_configuration_over_the_network_is_refused_in_words(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for text in (b"brokerConfigPath=/tmp/x", b"namesrvAddr=127.0.0.1:9876", b"maxMessageSize=-1"):
            answer = await group.call(asked(RequestCode.UPDATE_BROKER_CONFIG, text))
            assert (answer.code, "change it there" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)


@pytest.mark.parametrize("missing", ["b", "f", "g"])
async def test_a_header_that_lacks_a_field_names_it(tmp_path: Path, missing: str) -> None:
    async with running(tmp_path) as group:
        command = send_request()
        assert command.ext_fields is not None
        del command.ext_fields[missing]
        answer = await group.call(command)
        assert answer.code != ResponseCode.SUCCESS
        assert f"`{missing}`" in (answer.remark or "")
        assert group.app.store.max_offset == 0


TAG_A, TAG_B = java_hash_code("TagA"), java_hash_code("TagB")


@pytest.mark.parametrize(
    ("subscription", "found"),
    [
        ({"subString": "TagA"}, True),
        ({"subString": "TagB"}, False),
        ({"subString": "TagB||  TagA ", "tagsSet": [], "codeSet": []}, True),
        ({"subString": "TagB", "tagsSet": ["TagB"], "codeSet": None}, False),
        ({"subString": "TagA", "tagsSet": ["TagA"], "codeSet": [2**32 + TAG_A]}, True),
        ({"subString": "TagA", "tagsSet": ["TagA"], "codeSet": ["-9223372036854775808"]}, True),
        ({"subString": "TagA", "tagsSet": ["TagA"], "codeSet": [TAG_B]}, True),
        ({"subString": "*", "codeSet": [TAG_B]}, True),
        ({"subString": ""}, True),
        ({"subString": None, "codeSet": []}, True),
        ({"subString": "", "codeSet": [TAG_B]}, False),
        ({"subString": None, "codeSet": [TAG_A]}, True),
        ({"subString": "", "tagsSet": ["TagB"], "codeSet": [TAG_A]}, False),
        ({"subString": "||", "codeSet": [TAG_B]}, False),
        ({"subString": "TagA", "expressionType": None}, True),
    ],
    ids=str,
)
async def test_tags_count_whatever_codes_a_client_computes(
    tmp_path: Path, subscription: dict[str, object], found: bool
) -> None:
    """Clients leave the codes out, or compute them with 64 bits."""
    consumer = {
        "groupName": "G",
        "consumeType": "PUSH",
        "subscriptionDataSet": [{"topic": "T", "subVersion": 1, **subscription}],
    }
    beat = json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    async with running(tmp_path) as group:
        await group.send()
        assert (await group.call(RemotingCommand(RequestCode.HEART_BEAT, body=beat))).code == ResponseCode.SUCCESS
        pulled = await group.pull(0, sys_flag=0)
        assert (pulled.code == ResponseCode.SUCCESS) is found


async def test_a_change_of_a_groups_attributes_is_not_taken_literally(tmp_path: Path) -> None:
    def change(**fields: object) -> RemotingCommand:
        body = json.dumps({"groupName": "G", **fields}).encode()
        return RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async with running(tmp_path) as group:
        answer = await group.call(change(attributes={"+priority.factor": "0"}))
        assert (answer.code, answer.remark) == (29, "unsupported attribute: +priority.factor")
        group.app.core.tables.groups.put(SubscriptionGroupConfig(group_name="G", attributes={"of.java": "1"}))
        assert (await group.call(change(retryMaxTimes=3))).code == ResponseCode.SUCCESS
        kept = group.app.core.tables.groups.get("G")
        assert kept is not None
        assert (kept.attributes, kept.retry_max_times) == ({"of.java": "1"}, 3)


async def test_a_producer_that_sends_to_a_retry_topic_itself_is_served(tmp_path: Path) -> None:
    """Without maxReconsumeTimes, which only consumers send."""
    async with running(tmp_path) as group:
        await group.send()
        await group.pull(0)  # makes the group
        sent = await group.send(b"again", topic="%RETRY%G")
        assert sent.code == ResponseCode.SUCCESS
        assert b"again" in (await group.pull(0, topic="%RETRY%G")).body


@pytest.mark.parametrize("host", ["fd00::7", "[fd00::7]", "fe80::7%eth0", "[fe80::7%eth0]", "::ffff:10.0.0.7"])
async def test_a_message_of_a_broker_with_an_ipv6_address_is_found_by_its_id(tmp_path: Path, host: str) -> None:
    """A zone means something on this machine only, so it is no part of the id."""
    async with running(tmp_path, brokerIP1=host) as group:
        port = int(group.address.rpartition(":")[2])
        sent = await group.call(send_request(), port=port)
        assert sent.ext_fields is not None
        offset = int(sent.ext_fields["msgId"][-16:], 16)
        assert len(sent.ext_fields["msgId"]) == 2 * (16 + 4 + 8)
        found = await group.call(asked(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset), port=port)
        assert b"hello" in found.body
        asks = asked(RequestCode.GET_EARLIEST_MSG_STORETIME, topic="T", queueId=0)
        assert int(((await group.call(asks, port=port)).ext_fields or {})["timestamp"]) > 0


async def test_a_change_of_a_topic_without_attributes_keeps_them(tmp_path: Path) -> None:
    fields = {"topic": "T", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "perm": 6}
    async with running(tmp_path) as group:
        for queues, more in ((2, {"attributes": "+message.type=FIFO"}), (4, {})):
            change = asked(17, **fields, readQueueNums=queues, writeQueueNums=queues, order="false", **more)
            assert (await group.call(change)).code == ResponseCode.SUCCESS
        topic = group.app.topics.get("T")
        assert topic is not None
        assert (topic.read_queue_nums, topic.attributes) == (4, {"message.type": "FIFO"})


@pytest.mark.parametrize("name", ["TOPIC_PUT_NUMS", "BROKER_PUT_NUMS", "GROUP_GET_NUMS"])
async def test_what_was_never_counted_is_not_shown_as_zero(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as group:
        answer = await group.call(asked(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey="T"))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <T> not exist")


async def test_a_file_that_a_kill_left_empty_does_not_stop_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send(b"kept")
    (tmp_path / "commitlog" / f"{1024 * 1024:020d}").touch()
    async with running(tmp_path) as group:
        assert b"kept" in (await group.pull(0)).body
        assert (await group.send()).code == ResponseCode.SUCCESS
