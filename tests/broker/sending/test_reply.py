"""Request and reply: who asks by a message gets the reply at the connection of its producer."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_broker.sending import reply
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client_calls import ReplyMessageRequestHeader
from rocketmq_formats.remoting.command import FLAG_ONEWAY, RemotingCommand, request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.send import SendMessageRequestHeader
from rocketmq_formats.store.message_properties import split_properties
from tests.broker.broker_kit import Group, running
from tests.broker.raw_client import connected

REPLY_TOPIC = "C_REPLY_TOPIC"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


def reply_request(
    body: bytes = b"pong", *, to: str = "asker@1", code: int = RequestCode.SEND_REPLY_MESSAGE_V2
) -> RemotingCommand:
    properties = f"CORRELATION_ID\x01c-1\x02REPLY_TO_CLIENT\x01{to}\x02TTL\x013000\x02MSG_TYPE\x01reply\x02"
    header = SendMessageRequestHeader(
        producer_group="R",
        topic=REPLY_TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_763_712_345_678,
        flag=3,
        properties=properties if to else "CORRELATION_ID\x01c-1\x02",
        reconsume_times=0,
        unit_mode=False,
    )
    sent = request(code, header, body)
    if code == RequestCode.SEND_REPLY_MESSAGE_V2:
        long_names = dict(zip(sent.ext_fields or {}, "abcdefghijk", strict=True))
        sent.ext_fields = {long_names[name]: value for name, value in (sent.ext_fields or {}).items()}
    return sent


def stored(group: Group) -> bool:
    """Whether a reply is in the log."""
    return group.app.store.max_offset > 0


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_reaches_its_requester(tmp_path: Path, code: int) -> None:
    async with running(tmp_path, durability="relaxed") as group, connected(group) as asker, connected(group) as replier:
        await asker.joins("asker@1", producer="P")
        await replier.joins("replier@1", producer="R")
        sent = replier.ask(reply_request(code=code))
        push = await asker.asked(PUSH)
        header = decode_header(ReplyMessageRequestHeader, push.ext_fields or {})
        properties = split_properties(header.properties or "")

        assert push.body == b"pong"
        assert (header.topic, header.producer_group, header.flag) == (REPLY_TOPIC, "R", 3)
        assert header.store_host == group.address
        assert properties["CORRELATION_ID"] == "c-1"
        assert int(properties["PUSH_REPLY_TIME"]) == header.store_timestamp
        assert not stored(group), "the requester has it before the log"

        asker.answer(push)
        answer = await replier.answered(sent)
        fields = answer.ext_fields or {}
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert (fields["queueId"], fields["queueOffset"], fields["MSG_REGION"]) == ("0", "0", "DefaultRegion")
        assert len(fields["msgId"]) == 32
        assert stored(group)


async def test_a_reply_that_no_log_can_hold_reaches_its_requester(tmp_path: Path) -> None:
    async with running(tmp_path) as group, connected(group) as asker:
        await asker.joins("asker@1", producer="P")
        sent = asker.ask(reply_request(b""))
        asker.answer(await asker.asked(PUSH))
        assert (await asker.answered(sent)).code == ResponseCode.SUCCESS
        assert not stored(group)


async def test_replies_are_not_stored_where_that_is_turned_off(tmp_path: Path) -> None:
    async with running(tmp_path, storeReplyMessageEnable=False) as group, connected(group) as asker:
        await asker.joins("asker@1", producer="P")
        sent = asker.ask(reply_request())
        asker.answer(await asker.asked(PUSH))
        answer = await asker.answered(sent)
        assert answer.code == ResponseCode.SUCCESS
        assert (answer.ext_fields or {})["msgId"] == "0"
        assert not stored(group)


@pytest.mark.parametrize(
    ("to", "remark"),
    [
        ("gone@1", "push reply message fail, channel of <gone@1> not found."),
        ("", "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_a_requester_that_is_away_is_named_as_java_does(tmp_path: Path, to: str, remark: str) -> None:
    async with running(tmp_path, durability="relaxed") as group, connected(group) as replier:
        await replier.joins("asker@1", consumer="G")  # a consumer's id is no producer's
        answer = await replier.call(reply_request(to=to))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert stored(group), "as in Java"


async def test_a_requester_that_refuses_or_closes_is_an_error_to_who_replies(tmp_path: Path) -> None:
    async with running(tmp_path) as group, connected(group) as replier, connected(group) as asker:
        await asker.joins("asker@1", producer="P")
        failed = (ResponseCode.SYSTEM_ERROR, "push reply message to asker@1fail.")
        sent = replier.ask(reply_request())
        asker.answer(await asker.asked(PUSH), ResponseCode.SYSTEM_ERROR)
        answer = await replier.answered(sent)
        assert (answer.code, answer.remark) == failed

        sent = replier.ask(reply_request())
        await asker.asked(PUSH)
        asker.close()
        answer = await replier.answered(sent)
        assert (answer.code, answer.remark) == failed

        away = await replier.call(reply_request())
        assert away.remark == "push reply message fail, channel of <asker@1> not found."


async def test_a_requester_that_never_answers_is_waited_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "PUSH_SECONDS", 0.0)
    async with running(tmp_path) as group, connected(group) as asker:
        await asker.joins("asker@1", producer="P")
        sent = asker.ask(reply_request())
        push = await asker.asked(PUSH)
        answer = await asker.answered(sent)
        assert answer.remark == "push reply message to asker@1fail."
        asker.answer(push)  # too late: for no one
        assert (await asker.call(reply_request(to="gone"))).remark is not None


async def test_the_newest_connection_of_a_client_gets_the_reply(tmp_path: Path) -> None:
    async with running(tmp_path) as group, connected(group) as old, connected(group) as new:
        await old.joins("asker@1", producer="P")
        await new.joins("asker@1", producer="P")
        sent = old.ask(reply_request())
        new.answer(await new.asked(PUSH))
        assert (await old.answered(sent)).code == ResponseCode.SUCCESS

        new.close()
        await _left(group, 1)
        sent = old.ask(reply_request())
        old.answer(await old.asked(PUSH))
        assert (await old.answered(sent)).code == ResponseCode.SUCCESS


async def test_a_oneway_reply_is_pushed_without_an_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as group, connected(group) as asker:
        await asker.joins("asker@1", producer="P")
        oneway = reply_request()
        oneway.flag = FLAG_ONEWAY
        asker.ask(oneway)
        push = await asker.asked(PUSH)
        assert (push.is_oneway, push.body) == (True, b"pong")


async def test_a_reply_to_a_topic_that_cannot_be_is_refused_before_the_push(tmp_path: Path) -> None:
    async with running(tmp_path) as group, connected(group) as asker:
        await asker.joins("asker@1", producer="P")
        refused = reply_request()
        (refused.ext_fields or {})["e"] = "9"
        assert (await asker.call(refused)).code == ResponseCode.INVALID_PARAMETER


async def _left(group: Group, connections: int) -> None:
    while len(group.app.core.clients.producers.of("P")) > connections:
        await asyncio.sleep(0)
