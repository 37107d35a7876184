"""What tools ask of consumers, through the broker: 223, 307 and 309."""

from pathlib import Path

import pytest

from rocketmq_broker.tools import consumer_calls
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client_calls import ConsumerCallRequestHeader, GetConsumerStatusRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.store.message import read_records
from tests.broker.broker_kit import running
from tests.broker.raw_client import RawClient, connected

INFO, DIRECTLY = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS, STATUS_OF_CLIENT = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT


def running_info(client_id: str = "c1") -> RemotingCommand:
    asked = request(INFO, ConsumerCallRequestHeader(consumer_group="G", client_id=client_id))
    (asked.ext_fields or {})["jstackEnable"] = "true"
    return asked


def status(client_id: str | None = None) -> RemotingCommand:
    return request(STATUS, GetConsumerStatusRequestHeader(topic="T", group="G", client_addr=client_id))


async def test_a_consumers_running_info_is_its_own_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as group, connected(group) as tool, connected(group) as consumer:
        await consumer.joins("c1", consumer="G")
        opaque = tool.ask(running_info())
        asked = await consumer.asked(INFO)
        assert asked.ext_fields == {"clientId": "c1", "consumerGroup": "G", "jstackEnable": "true"}
        consumer.answer(asked, ResponseCode.SUCCESS, b'{"jstack":"main"}')
        answer = await tool.answered(opaque)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b'{"jstack":"main"}')

        opaque = tool.ask(running_info())
        consumer.answer(
            await consumer.asked(INFO), ResponseCode.SYSTEM_ERROR, remark="The Consumer Group <G> not exist"
        )
        answer = await tool.answered(opaque)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer Group <G> not exist")


async def test_consumers_that_cannot_be_asked_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as group, connected(group) as tool, connected(group) as consumer:
        answer = await tool.call(running_info())
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <G> <c1> not online")

        await consumer.joins("c1", consumer="G", version=consumer_calls.V3_1_8_SNAPSHOT - 1)
        answer = await tool.call(running_info())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "too low to finish" in (answer.remark or "")

        await consumer.joins("c1", consumer="G")
        monkeypatch.setattr(consumer_calls, "CALL_SECONDS", 0.0)
        answer = await tool.call(running_info())
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert (answer.remark or "").startswith("consumer <G> <c1> Timeout: ")

        monkeypatch.setattr(consumer_calls, "CALL_SECONDS", 20.0)
        opaque = tool.ask(running_info())
        await consumer.asked(INFO)
        consumer.close()
        answer = await tool.answered(opaque)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("invoke consumer <G> <c1> Exception: ")


async def test_a_consumer_is_given_a_message_to_consume(tmp_path: Path) -> None:
    async with running(tmp_path, durability="relaxed") as group, connected(group) as tool, connected(group) as consumer:
        await consumer.joins("c1", consumer="G")
        sent = await group.send(b"again")
        header = ConsumerCallRequestHeader(
            consumer_group="G", client_id="c1", msg_id=(sent.ext_fields or {})["msgId"], topic="T"
        )
        opaque = tool.ask(request(DIRECTLY, header))
        asked = await consumer.asked(DIRECTLY)
        assert [one.body(asked.body) for one in read_records(asked.body, check_crc=True)] == [b"again"]
        fields = asked.ext_fields or {}
        assert (fields["brokerName"], fields["topicSysFlag"], fields["groupSysFlag"]) == ("broker-a", "0", "0")
        consumer.answer(asked, ResponseCode.SUCCESS, b'{"consumeResult":"CR_SUCCESS"}')
        assert (await tool.answered(opaque)).body == b'{"consumeResult":"CR_SUCCESS"}'

        nowhere = request(
            DIRECTLY,
            ConsumerCallRequestHeader(consumer_group="G", client_id="c1", msg_id="7F00000100002A9F" + "0" * 14 + "FF"),
        )
        answer = await tool.call(nowhere)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 255")
        (nowhere.ext_fields or {})["msgId"] = "no id"
        assert (await tool.call(nowhere)).code == ResponseCode.SYSTEM_ERROR


async def test_the_offsets_of_all_members_or_of_one(tmp_path: Path) -> None:
    queue = b'{"brokerName":"broker-a","queueId":0,"topic":"T"}'
    async with (
        running(tmp_path) as group,
        connected(group) as tool,
        connected(group) as one,
        connected(group) as two,
        connected(group) as three,
    ):
        answer = await tool.call(status())
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "No Any Consumer online in the consumer group: [G]",
        )
        for client_id, consumer in {"c1": one, "c2": two, "c3": three}.items():
            await consumer.joins(client_id, consumer="G")
        opaque = tool.ask(status())
        await _tells(one, b'{"consumerTable":{},"messageQueueTable":{%b:5}}' % queue)
        await _tells(two, b'{"messageQueueTable":{}}')
        await _tells(three, b"no JSON")
        answer = await tool.answered(opaque)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.body == b'{"consumerTable":{"c1":{%b:5},"c2":{}},"messageQueueTable":{}}' % queue

        opaque = tool.ask(status("c2"))
        await _tells(two, b'{"messageQueueTable":{%b:7}}' % queue)
        answer = await tool.answered(opaque)
        assert answer.body == b'{"consumerTable":{"c2":{%b:7}},"messageQueueTable":{}}' % queue


async def test_tools_that_wait_for_consumers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_calls, "MAX_RUNNING", 1)
    async with running(tmp_path) as group, connected(group) as tool, connected(group) as consumer:
        await consumer.joins("c1", consumer="G")
        opaque = tool.ask(running_info())
        asked = await consumer.asked(INFO)
        assert (await tool.call(running_info())).code == ResponseCode.SYSTEM_BUSY
        consumer.answer(asked)
        assert (await tool.answered(opaque)).code == ResponseCode.SUCCESS


async def _tells(consumer: RawClient, body: bytes) -> None:
    asked = await consumer.asked(STATUS_OF_CLIENT)
    assert asked.ext_fields == {"topic": "T", "group": "G"}
    consumer.answer(asked, ResponseCode.SUCCESS, body)
