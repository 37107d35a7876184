"""Sends through a whole broker: what is checked, what is stored, what is answered."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.client import LockBatchRequestBody, MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.send import SendMessageRequestHeader
from rocketmq_formats.replica_link import Appended, Release, Released, Replication
from rocketmq_formats.store.batch import BatchMessage, encode_batch
from rocketmq_formats.store.message import Record, read_record, read_records
from rocketmq_formats.store.message_properties import parse_properties
from rocketmq_formats.topics import SubscriptionGroupConfig, TopicConfig
from tests.broker.broker_kit import Group, running, send_request


def fields(answer: RemotingCommand) -> dict[str, str]:
    assert answer.ext_fields is not None
    return answer.ext_fields


async def stored(group: Group, answer: RemotingCommand) -> tuple[Record, dict[str, str]]:
    """The record behind a message id, and its properties."""
    offset = int(fields(answer)["msgId"][16:32], 16)
    view = await group.call(request(RequestCode.VIEW_MESSAGE_BY_ID).__class__(33, ext_fields={"offset": str(offset)}))
    record = read_record(view.body, 0, len(view.body), check_crc=True)
    assert isinstance(record, Record)
    return record, parse_properties(record.properties)


def batch_with(properties: bytes) -> bytes:
    """A batch whose last message has these properties."""
    return encode_batch([BatchMessage(0, b"1", b"DELAY\x010\x02"), BatchMessage(0, b"2", properties)])


async def test_the_broker_completes_the_properties(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        answer = await group.send()
        _, properties = await stored(group, answer)
    assert properties == {
        "UNIQ_KEY": "0123456789ABCDEF0123456789ABCDEF",
        "WAIT": "true",
        "TAGS": "TagA",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "C",
    }
    assert fields(answer)["transactionId"] == "0123456789ABCDEF0123456789ABCDEF"
    assert (fields(answer)["MSG_REGION"], fields(answer)["TRACE_ON"]) == ("DefaultRegion", "true")


async def test_a_missing_unique_key_is_made(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        first, second = [await group.send(properties=None) for _ in range(2)]
        _, properties = await stored(group, first)
    assert properties["UNIQ_KEY"] == fields(first)["transactionId"] != fields(second)["transactionId"]
    assert len(properties["UNIQ_KEY"]) == 32


async def test_both_headers_and_both_header_forms(tmp_path: Path) -> None:
    long = SendMessageRequestHeader(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=1,
        flag=7,
    )
    async with running(tmp_path / "store") as group:
        answer = await group.call(request(RequestCode.SEND_MESSAGE, long, b"long names"))
        assert (answer.code, fields(answer)["queueId"]) == (0, "1")
        record, _ = await stored(group, answer)
        assert record.flag == 7
        binary = send_request()
        binary.serialize_type = binary.serialize_type.ROCKETMQ
        answer = await group.call(binary)
        assert (answer.code, fields(answer)["queueOffset"]) == (0, "0")


async def test_a_batch_becomes_single_messages(tmp_path: Path) -> None:
    body = encode_batch([BatchMessage(n, b"body %d" % n, b"KEYS\x01k%d\x02" % n) for n in range(3)])
    async with running(tmp_path / "store") as group:
        answer = await group.send(body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties="WAIT\x01true")
        assert answer.code == 0, answer.remark
        assert fields(answer)["queueOffset"] == "0"
        assert len(fields(answer)["msgId"].split(",")) == 3
        pulled = await group.pull(0)
    records = read_records(pulled.body, check_crc=True)
    assert [bytes(record.body(pulled.body)) for record in records] == [b"body 0", b"body 1", b"body 2"]
    assert [record.queue_offset for record in records] == [0, 1, 2]
    assert parse_properties(records[1].properties)["KEYS"] == "k1"
    assert parse_properties(records[1].properties)["CLUSTER"] == "C"


@pytest.mark.parametrize("level", ["99", "+2147483647"])
async def test_a_delayed_message_goes_to_the_schedule_topic(tmp_path: Path, level: str) -> None:
    async with running(tmp_path / "store") as group:
        answer = await group.send(properties=f"UNIQ_KEY\x01u\x02DELAY\x01{level}\x02")
        record, properties = await stored(group, answer)
    assert (record.topic, record.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 17)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["DELAY"]) == ("T", "0", "18")
    assert fields(answer)["queueId"] == "0"


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "no spaces"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"topic": "x" * 128}, ResponseCode.INVALID_PARAMETER, "longer than topic max length"),
        ({"topic": " "}, ResponseCode.INVALID_PARAMETER, "blank"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"topic": "U", "default_topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "topic[U] not exist, apply first"),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "request queueId[4] is illegal"),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL, "message is illegal"),
        ({"body": b"x" * 200_000}, ResponseCode.MESSAGE_ILLEGAL, "message is illegal"),
        ({"properties": "K\x01" + "v" * 33_000}, ResponseCode.MESSAGE_ILLEGAL, "properties"),
        ({"properties": "K\x01a\0b\x02"}, ResponseCode.MESSAGE_ILLEGAL, "zero bytes"),
        ({"properties": "UNIQ_KEY\x01u\x02K\0\x01b\x02"}, ResponseCode.MESSAGE_ILLEGAL, "zero bytes"),
        ({"properties": "K\x01\0\x02DELAY\x013\x02"}, ResponseCode.MESSAGE_ILLEGAL, "zero bytes"),
        (
            {"body": encode_batch([BatchMessage(0, b"1", b""), BatchMessage(0, b"2", b"K\x01\0\x02")]), "batch": True},
            ResponseCode.MESSAGE_ILLEGAL,
            "zero bytes",
        ),
        ({"properties": "TRAN_MSG\x01true\x02"}, ResponseCode.NO_PERMISSION, "transaction"),
        ({"body": batch_with(b"DELAY\x013\x02"), "batch": True}, ResponseCode.MESSAGE_ILLEGAL, "delayed messages"),
        ({"body": batch_with(b"DELAY\x01x\x02"), "batch": True}, ResponseCode.MESSAGE_ILLEGAL, "not a delay level"),
        (
            {"body": batch_with(b"TIMER_DELAY_SEC\x015"), "batch": True},
            ResponseCode.MESSAGE_ILLEGAL,
            "delayed messages",
        ),
        ({"body": batch_with(b"TRAN_MSG\x01true\x02"), "batch": True}, ResponseCode.MESSAGE_ILLEGAL, "transactions"),
        ({"properties": "TIMER_DELAY_SEC\x015\x02"}, ResponseCode.SYSTEM_ERROR, "timerWheelEnable"),
        ({"body": b"xx", "batch": True}, ResponseCode.SYSTEM_ERROR, "lengths"),
        ({"body": bytes([0, 0, 0, 22]) + bytes(100_000), "batch": True}, ResponseCode.MESSAGE_ILLEGAL, "100004 bytes"),
    ],
)
async def test_refused(tmp_path: Path, changes: dict[str, object], code: int, remark: str) -> None:
    async with running(tmp_path / "store", maxMessageSize=100_000) as group:
        await group.send()
        before = group.app.store.max_offset
        body = changes.pop("body", b"hello")
        assert isinstance(body, bytes)
        answer = await group.send(body, **changes)
        assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark
        assert group.app.store.max_offset == before
        assert (await group.send()).code == 0


async def test_a_header_without_a_topic(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        answer = await group.call(RemotingCommand(310, ext_fields={"a": "P"}, body=b"x"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "missing required field" in (answer.remark or "")


async def test_topics_are_created_from_the_template(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send(topic="few", default_topic_queue_nums=2)
        await group.send(topic="many", default_topic_queue_nums=100)
        topics = group.app.topics
        few, many = topics.get("few"), topics.get("many")
        assert few is not None
        assert many is not None
        assert (few.write_queue_nums, few.perm, many.write_queue_nums) == (2, 6, 8)
        assert topics.version.state_version == 1
    async with running(tmp_path / "store", autoCreateTopicEnable=False) as group:
        assert (await group.send(topic="few")).code == 0, "kept over a restart"
        assert (await group.send(topic="new")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_refused_send_makes_no_topic(tmp_path: Path) -> None:
    async with running(tmp_path / "store", sendThreadPoolQueueCapacity=1) as group:
        topics = dict(group.app.topics.table)

        async def refused(body: bytes = b"x", **fields: object) -> None:
            assert (await group.send(body, **fields)).code != 0
            assert group.app.topics.table == topics

        for topic in ("New", "%RETRY%New"):
            await refused(b"", topic=topic)
            await refused(b"x" * (5 << 20), topic=topic)
            await refused(topic=topic, queue_id=99)
            await refused(topic=topic, properties="DELAY\x01x\x02")
            group.app.store.disk_space.refuse("a full disk")
            await refused(topic=topic)
            group.app.store.check_disk()
            group.sidecar.in_sync = 1
            group.sidecar.acknowledge(0)
            await group.pull(0)
            await refused(topic=topic)
            group.sidecar.in_sync = 3
            group.sidecar.acknowledge(0)
            await group.pull(0)
        await refused(topic="%RETRY%New", reconsume_times=17, body=b"")
        assert (await group.send(topic="New")).code == 0
        assert (await group.send(topic="%RETRY%New", reconsume_times=17)).code == 0
        assert group.app.topics.table.keys() - topics.keys() == {"New", "%RETRY%New", "%DLQ%New"}


async def test_a_negative_queue_id_leaves_the_choice(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        queues = {fields(await group.send(queue_id=-1))["queueId"] for _ in range(8)}
    assert queues == {"0", "1", "2", "3"}


async def test_the_last_retry_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        answer = await group.send(topic="%RETRY%G", reconsume_times=16, max_reconsume_times=16)
        record, _ = await stored(group, answer)
        assert record.topic == b"%RETRY%G"
        answer = await group.send(topic="%RETRY%G", reconsume_times=17, max_reconsume_times=16)
        record, _ = await stored(group, answer)
        assert record.topic == b"%DLQ%G"


async def test_a_dead_letter_waits_for_no_delay_and_needs_no_queue_of_its_retries(tmp_path: Path) -> None:
    properties = "UNIQ_KEY\x01u\x02DELAY\x015\x02TIMER_DELAY_SEC\x013\x02KEYS\x01k\x02"
    async with running(tmp_path / "store") as group:
        many = encode_body(SubscriptionGroupConfig(group_name="G", retry_queue_nums=4))
        await group.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, many))
        topic = TopicConfig(topic_name="%RETRY%G", read_queue_nums=4, write_queue_nums=4)
        group.app.topics.put(topic, state_version=1, now_ms=1)
        last = {"topic": "%RETRY%G", "reconsume_times": 17, "max_reconsume_times": 16, "properties": properties}
        for queue_id in (0, 2, -1):
            answer = await group.send(queue_id=queue_id, **last)
            assert answer.code == 0, answer.remark
            record, found = await stored(group, answer)
            assert (record.topic, record.queue_id) == (b"%DLQ%G", 0)
            assert (found["DELAY"], found["KEYS"], "TIMER_DELAY_SEC" in found) == ("-1", "k", False)
        beyond = await group.send(queue_id=4, **last)
        assert beyond.code == ResponseCode.INVALID_PARAMETER
        assert (await group.pull(0, topic="%DLQ%G")).code == 0, "at once"


async def test_what_a_group_sends_back_that_consumes_in_order_is_a_dead_letter(tmp_path: Path) -> None:
    # It has retried on the spot, and says so only when it gives up: with as many retries as allowed, not more.
    async with running(tmp_path / "store") as group:
        queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
        body = encode_body(LockBatchRequestBody(consumer_group="G", client_id="c", mq_set=frozenset({queue})))
        assert (await group.call(request(RequestCode.LOCK_BATCH_MQ, None, body))).code == 0
        properties = "UNIQ_KEY\x01u\x02DELAY\x0119\x02"
        for name, topic in (("G", b"%DLQ%G"), ("H", b"SCHEDULE_TOPIC_XXXX")):
            answer = await group.send(
                topic=f"%RETRY%{name}", reconsume_times=16, max_reconsume_times=16, properties=properties
            )
            assert (await stored(group, answer))[0].topic == topic


async def test_oneway_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.client.send_oneway(group.address, send_request(b"oneway"))
        pulled = await group.pull(0, suspend_ms=10_000)
    assert pulled.code == 0
    assert b"oneway" in pulled.body


async def test_no_answer_before_the_copies(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False) as group:
        sending = asyncio.ensure_future(group.send())
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        assert not sending.done()
        group.sidecar.acknowledge(appended.max_offset - 1)
        pulled = await group.pull(0)
        assert pulled.code == ResponseCode.PULL_NOT_FOUND, "not confirmed, not visible"
        assert not sending.done()
        group.sidecar.acknowledge(appended.max_offset)
        assert (await sending).code == 0
        assert (await group.pull(0, suspend_ms=10_000)).code == 0


async def test_progress_of_another_epoch_acknowledges_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False) as group:
        sending = asyncio.ensure_future(group.send())
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        group.sidecar.send(Replication(2, appended.max_offset, appended.max_offset, 3))
        await group.pull(0)
        assert not sending.done()
        group.sidecar.acknowledge(appended.max_offset)
        assert (await sending).code == 0


async def test_released_masters_fail_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False) as group:
        sending = asyncio.ensure_future(group.send())
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        group.sidecar.send(Release())
        assert (await sending).code == ResponseCode.SERVICE_NOT_AVAILABLE
        released = await group.sidecar.receive(Released)
        assert released.max_offset == appended.max_offset
        assert not group.app.store.writer.held
        assert (await group.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_too_few_copies_store_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        group.sidecar.in_sync = 1
        group.sidecar.acknowledge(0)
        await group.pull(0)
        answer = await group.send()
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        assert group.app.store.max_offset == 0


async def test_relaxed_durability_honours_wait_false(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False, durability="relaxed") as group:
        answer = await group.send(properties="UNIQ_KEY\x01u\x02WAIT\x01false\x02")
        assert answer.code == 0
        assert len(group.app.core.waiting) == 0


async def test_what_the_master_acknowledges_alone_does_not_wait(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False, durability="relaxed") as group:
        assert (await group.send()).code == 0
        assert len(group.app.core.waiting) == 0
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        assert appended.max_offset == group.app.store.max_offset, "slaves still get it"


async def test_what_was_acknowledged_can_be_viewed_at_once(tmp_path: Path) -> None:
    # A lone relaxed master acknowledges before it hears that anything is confirmed.
    async with running(tmp_path / "store", automatic=False, durability="relaxed") as group:
        for _ in range(5):
            record, _ = await stored(group, await group.send())
            assert record.physical_offset >= group.app.store.confirm_offset
        group.sidecar.send(Release())
        await group.sidecar.receive(Released)
        view = await group.call(RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": "0"}))
        assert view.code == ResponseCode.SYSTEM_ERROR, "nobody but a master knows what that is worth"


@pytest.mark.parametrize("key", ["allAckInSyncStateSet", "inSyncReplicas"])
async def test_relaxed_durability_waits_for_the_copies_asked_for(tmp_path: Path, key: str) -> None:
    value: object = True if key == "allAckInSyncStateSet" else 2
    async with running(tmp_path / "store", automatic=False, durability="relaxed", **{key: value}) as group:
        sending = asyncio.ensure_future(group.send())
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        await group.pull(0)
        assert not sending.done()
        group.sidecar.acknowledge(appended.max_offset)
        assert (await sending).code == 0


async def test_synchronous_flush(tmp_path: Path) -> None:
    async with running(tmp_path / "store", flushDiskType="SYNC_FLUSH", flushIntervalCommitLog=60_000) as group:
        assert (await group.send()).code == 0
        assert group.app.store.flushed_offset == group.app.store.max_offset


async def test_too_many_waiting_sends(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False, sendThreadPoolQueueCapacity=1) as group:
        first = asyncio.ensure_future(group.send())
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        assert (await group.send()).code == ResponseCode.SYSTEM_BUSY
        group.sidecar.acknowledge(appended.max_offset)
        assert (await first).code == 0


async def test_an_orderly_end_answers_what_was_accepted(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False) as group:
        sending = asyncio.ensure_future(group.send())
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        stopping = asyncio.ensure_future(group.app.stop())
        await asyncio.sleep(0)
        assert (await group.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        group.sidecar.acknowledge(appended.max_offset)
        assert (await sending).code == 0
        await stopping
