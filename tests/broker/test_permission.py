"""brokerPermission: what this broker offers, in its registrations, for sends and pulls, and while it runs."""

from pathlib import Path

import pytest

from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import ConsumerSendMsgBackRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from tests.broker.broker_kit import Group, running
from tests.broker.test_registration import name_server


async def change(group: Group, text: str) -> RemotingCommand:
    return await group.call(request(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode()))


async def send_back(group: Group) -> ResponseCode:
    header = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=3)
    return ResponseCode((await group.call(request(RequestCode.CONSUMER_SEND_MSG_BACK, header))).code)


async def codes(group: Group) -> tuple[int, int, int]:
    """Of a send, a pull and a message sent back."""
    return (await group.send()).code, (await group.pull(0)).code, await send_back(group)


OK, NO = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("value", "answers"), [("4", (NO, OK, NO)), ("2", (OK, NO, OK)), ("0", (NO, NO, NO)), ("6", (OK, OK, OK))]
)
async def test_sends_and_pulls_of_plain_topics_obey_it_at_once(
    tmp_path: Path, value: str, answers: tuple[int, int, int]
) -> None:
    async with running(tmp_path) as group:
        assert await codes(group) == (OK, OK, OK)
        assert (await change(group, f"brokerPermission={value}\n")).code == OK
        assert await codes(group) == answers
        shown = (await group.call(request(RequestCode.GET_BROKER_CONFIG))).body
        assert properties.parse(shown)["brokerPermission"] == value


async def test_registrations_have_it_at_once_and_routes_get_it_back(tmp_path: Path) -> None:
    async with (
        name_server() as (server, address),
        running(tmp_path, namesrvAddr=address, brokerPermission=4) as group,
    ):
        _, topics, first = await server.registration()
        assert {topic.perm for name, topic in topics.items() if not name.startswith("rmq_sys_")} == {4}
        assert group.app.topics.table["BenchmarkTest"].perm == 6, "the table itself keeps what it says"
        version = first
        await change(group, "brokerPermission=6")
        while topics["BenchmarkTest"].perm != 6:
            _, topics, version = await server.registration()
        assert version >= first


async def test_what_a_tool_set_stays_until_the_file_says_something_else(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await change(group, "brokerPermission=4")
    async with running(tmp_path) as group:
        assert (await group.send()).code == NO
    async with running(tmp_path, brokerPermission=2) as group:
        assert await codes(group) == (OK, NO, OK)


async def test_other_values_and_keys_change_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        assert (await change(group, "brokerPermission=0006")).code == OK
        for text in (
            "brokerPermission=8",
            "brokerPermission=",
            "brokerPermission=-1",
            "brokerPermission=read",
            "brokerPermission=0070",
        ):
            assert (await change(group, text)).code == ResponseCode.INVALID_PARAMETER
        assert (await change(group, "brokerPermission=4\nmaxMessageSize=5")).code == NO
        assert (await group.send()).code == OK


def test_a_file_that_is_none_is_refused() -> None:
    for kept in ({}, {"brokerPermission": "4"}, {"configured": "6", "brokerPermission": "9"}):
        with pytest.raises(ValueError, match="brokerPermission"):
            BrokerPermission(6).take(kept)
