"""Topics and groups are changed at a master: anywhere else the change would not last, and its answer says where to."""

from pathlib import Path

import pytest

from rocketmq_broker.domain.role import Role
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import DeleteSubscriptionGroupRequestHeader, TopicRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.replica_link import Following, Hello, MasterKnown, Release, Welcome
from rocketmq_formats.topics import SubscriptionGroupConfig
from tests.broker.broker_kit import Group, running
from tests.topic_requests import topic_request

MASTER = "10.0.0.1:10911"
DELETIONS = (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP)


def edits() -> list[RemotingCommand]:
    body = encode_body(SubscriptionGroupConfig(group_name="New"))
    header = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
    return [
        topic_request("New"),
        request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic="T")),
        request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body),
        request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header),
    ]


async def become(group: Group, state: str) -> None:
    """From master to this."""
    role = group.app.role
    group.sidecar.send(Release())
    if state != "no role":
        group.sidecar.send(Following(2, 2, MASTER))
    if state == "acting":
        group.sidecar.send(MasterKnown(False))
    expected = Role.NONE if state == "no role" else Role.SLAVE
    while role.role is not expected or role.master_known is not (state == "slave"):
        await group.call(topic_request("T"))
    if state == "acting":
        role.least_registered = role.broker_id
        assert role.acting


@pytest.mark.parametrize(
    ("state", "says"),
    [("slave", MASTER), ("acting", "the group has no master now"), ("no role", "this broker is not master")],
)
async def test_refused_and_nothing_is_changed(tmp_path: Path, state: str, says: str) -> None:
    async with running(tmp_path, enableSlaveActingMaster=True) as group:
        await group.send()
        await group.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"G"}'))
        await become(group, state)
        before = dict(group.app.topics.table), dict(group.app.tables.groups.table)
        for edit in edits():
            answer = await group.call(edit)
            if state == "slave" and edit.code in DELETIONS:  # mqadmin asks slaves too; the master's deletion comes here
                assert answer.code == ResponseCode.SUCCESS
            else:
                assert (answer.code, says in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True), answer.remark
        assert (dict(group.app.topics.table), dict(group.app.tables.groups.table)) == before


async def test_a_replica_that_was_never_master_refuses(tmp_path: Path) -> None:
    async with running(tmp_path, master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(2))
        for edit in edits():
            answer = await group.call(edit)
            assert (answer.code, "not master" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
