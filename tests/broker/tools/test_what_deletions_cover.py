"""What is removed with a topic and with a group: the table of docs/architecture.md#what-a-deletion-removes.

Each row looks at one thing that is kept about topic T or group G. After the deletion it is what it was before there was
a T or a G: at once, after a restart, and at a master that had the tables of before the deletion.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import DeleteSubscriptionGroupRequestHeader, GroupList, TopicRequestHeader
from rocketmq_formats.remoting.client import (
    ConsumerSendMsgBackRequestHeader,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.replica_link import Hello, Hold, HoldKind, Welcome
from rocketmq_formats.store.config_files import ConsumerOffsetsFile, decode_config
from rocketmq_formats.store.message import read_records
from rocketmq_formats.topics import SubscriptionGroupConfig
from tests.broker.broker_kit import Group, running
from tests.topic_requests import topic_request

RETRY, DLQ = "%RETRY%G", "%DLQ%G"
WHENS = ("at once", "after a restart", "at another master")


async def messages(group: Group) -> list[int]:
    bounds = [group.app.store.queue_bounds(topic, queue_id) for topic in ("T", RETRY, DLQ) for queue_id in range(4)]
    return [largest - smallest for smallest, largest in bounds]


async def offsets(group: Group) -> list[int | None]:
    return [group.app.tables.offsets.find("G", topic, 0) for topic in ("T", RETRY)]


async def pull_offsets(group: Group) -> list[int | None]:
    return [group.app.tables.offsets.pull_offset("G", topic, 0) for topic in ("T", RETRY)]


async def statistics(group: Group) -> list[object]:
    flows = group.app.core.traffic.flows
    keys = [("TOPIC_PUT_NUMS", RETRY), ("GROUP_GET_NUMS", "T@G"), ("SNDBCK_PUT_NUMS", "T@G")]
    return [flows.stats(name, key) for name, key in keys]


async def sent(group: Group) -> object:
    return group.app.core.traffic.flows.stats("TOPIC_PUT_NUMS", "T")


async def forbidden(group: Group) -> list[int | None]:
    return [group.app.tables.groups.forbidden.get(name, {}).get("T") for name in ("G", "H")]


async def forbidden_to_group(group: Group) -> object:
    return group.app.tables.groups.forbidden.get("G")


async def lock(group: Group, client: str) -> int:
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    body = LockBatchRequestBody(consumer_group="G", client_id=client, mq_set=frozenset({queue}))
    answer = await group.call(request(RequestCode.LOCK_BATCH_MQ, None, encode_body(body)))
    return len(decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set)


async def locks(group: Group) -> int:
    """How many queues another client gets."""
    return await lock(group, "other")


Look = Callable[[Group], Awaitable[object]]


class Row(NamedTuple):
    what: str
    look: Look
    of_this_process: bool = False
    """Gone after every restart."""


TOPIC = (
    Row("visible messages", lambda group: _first(messages(group), 4)),
    Row("consumer offsets", lambda group: _first(offsets(group), 1)),
    Row("pull offsets", lambda group: _first(pull_offsets(group), 1), of_this_process=True),
    Row("messages sent", sent, of_this_process=True),
    Row("messages pulled and sent back", lambda group: _rest(statistics(group), 1), of_this_process=True),
    Row("forbidden topics", forbidden),
    Row("locks", locks, of_this_process=True),
)
GROUP = (
    Row("retry and dead letter topics", lambda group: _rest(messages(group), 4)),
    Row("consumer offsets", offsets),
    Row("pull offsets", pull_offsets, of_this_process=True),
    Row("statistics", statistics, of_this_process=True),
    Row("forbidden topics", forbidden_to_group),
    Row("locks", locks, of_this_process=True),
)


async def _first(values: Awaitable[Sequence[object]], count: int) -> object:
    return (await values)[:count]


async def _rest(values: Awaitable[Sequence[object]], start: int) -> object:
    return (await values)[start:]


def delete_topic(topic: str = "T") -> RemotingCommand:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic=topic))


def delete_group(*, clean_offset: bool = True) -> RemotingCommand:
    header = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=clean_offset)
    return request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


async def make(group: Group) -> None:
    assert (await group.call(topic_request(queues=4))).code == 0
    body = encode_body(SubscriptionGroupConfig(group_name="G"))
    assert (await group.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body))).code == 0


async def commit(group: Group, topic: str = "T") -> None:
    header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic=topic, queue_id=0, commit_offset=1)
    assert (await group.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, header))).code == 0


async def use(group: Group) -> None:
    """Leave something for every row."""
    await make(group)
    group.app.tables.groups._forbidden = {"G": {"T": 1}, "H": {"T": 1, "U": 2}}
    assert await lock(group, "first") == 1
    for body in (b"old 0", b"old 1"):
        await group.send(body)
    pulled = await group.pull(0)
    place = read_records(pulled.body, check_crc=True)[0].physical_offset
    back = ConsumerSendMsgBackRequestHeader(
        offset=place, group="G", delay_level=-1, origin_msg_id="0", origin_topic="T", max_reconsume_times=16
    )
    assert (await group.call(request(RequestCode.CONSUMER_SEND_MSG_BACK, back))).code == 0
    assert (await group.send(b"retry", topic=RETRY)).code == 0
    await group.pull(0, topic=RETRY)
    await commit(group)
    await commit(group, RETRY)


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize(
    ("deletion", "row"),
    [pytest.param(delete_topic, row, id=f"topic: {row.what}") for row in TOPIC]
    + [pytest.param(delete_group, row, id=f"group: {row.what}") for row in GROUP],
)
async def test_is_removed(tmp_path: Path, deletion: Callable[[], RemotingCommand], row: Row, when: str) -> None:
    async with running(tmp_path / "new") as group:
        new = await row.look(group)
    root = tmp_path / "used"
    async with running(root) as group:
        await use(group)
        await group.app.tables.offsets_saved()
        if row.look is not locks:
            assert await row.look(group) != new
        else:
            assert await row.look(group) == 0
        tables = {path: path.read_bytes() for path in (root / "config").iterdir() if path.suffix == ".json"}
        assert (await group.call(deletion())).code == 0
        if when == "at once":
            await make(group)
            assert await row.look(group) == new
            return
    if when == "at another master":  # which has the log; the tables are copied before the answer
        for path, content in tables.items():
            path.write_bytes(content)
    async with running(root, master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        await make(group)
        assert await row.look(group) == new


@pytest.mark.parametrize(
    "copied",
    [(), ("subscriptionGroup.json",), ("consumerOffset.json",), ("subscriptionGroup.json", "consumerOffset.json")],
)
async def test_a_failover_in_the_middle_leaves_no_half_of_a_group(tmp_path: Path, copied: tuple[str, ...]) -> None:
    """The next master has the deletion in its log and `copied` of the tables. The group has no retry topic."""
    async with running(tmp_path) as group:
        await make(group)
        await commit(group)
        await group.app.tables.offsets_saved()
        tables = {path: path.read_bytes() for path in (tmp_path / "config").iterdir() if path.suffix == ".json"}
        assert (await group.call(delete_group())).code == 0
    for path, content in tables.items():
        if path.name not in copied:
            path.write_bytes(content)
    for epoch in (2, 3):
        async with running(tmp_path, master=False) as group:
            await group.sidecar.receive(Hello)
            group.sidecar.send(Welcome(1))
            await group.sidecar.make_master(epoch, hello=False)
            if epoch == 2:
                assert (group.app.tables.groups.get("G"), await offsets(group)) == (None, [None, None])
                await make(group)
                assert await offsets(group) == [None, None]
                await commit(group)
            else:
                assert group.app.tables.groups.get("G") is not None, "it was made again"
                assert await offsets(group) == [1, None]


@pytest.mark.parametrize("deletion", [delete_topic, delete_group])
async def test_removed_offsets_are_on_disk_before_the_answer(
    tmp_path: Path, deletion: Callable[[], RemotingCommand]
) -> None:
    path = tmp_path / "config" / "consumerOffset.json"
    async with running(tmp_path) as group:
        await make(group)
        await commit(group)
        await group.app.tables.offsets_saved()
        assert "T@G" in decode_config(ConsumerOffsetsFile, path.read_bytes()).offset_table
        assert (await group.call(deletion())).code == 0
        assert "T@G" not in decode_config(ConsumerOffsetsFile, path.read_bytes()).offset_table


async def test_a_group_that_is_deleted_without_its_offsets_continues_there(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await use(group)
        before = await offsets(group), await messages(group)
        assert (await group.call(delete_group(clean_offset=False))).code == 0
        await make(group)
        assert (await offsets(group), await messages(group)) == before


@pytest.mark.parametrize("clean_offset", [True, False])
async def test_a_deleted_group_is_none_of_those_that_consume_a_topic(tmp_path: Path, clean_offset: bool) -> None:
    """Tools and exporters ask for these, and would report its backlog without end."""
    who = request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic="T"))
    async with running(tmp_path) as group:
        await use(group)
        assert decode_body(GroupList, (await group.call(who)).body).group_list == {"G"}
        assert (await group.call(delete_group(clean_offset=clean_offset))).code == 0
        assert decode_body(GroupList, (await group.call(who)).body).group_list == frozenset()
        await make(group)
        shown = frozenset() if clean_offset else {"G"}
        assert decode_body(GroupList, (await group.call(who)).body).group_list == shown


async def test_a_slave_forgets_with_its_table(tmp_path: Path) -> None:
    """What it counted as master, or while it acted."""
    async with running(tmp_path) as group:
        await use(group)
        topics, groups = group.app.topics, group.app.tables.groups
        rest = {name: topic for name, topic in topics.table.items() if name != "T"}
        topics.replace(topics.version, rest)
        assert (await sent(group), (await pull_offsets(group))[0]) == (None, None)
        assert (await pull_offsets(group))[1] is not None
        groups.replace(groups.version, {name: of for name, of in groups.table.items() if name != "G"}, {})
        assert await pull_offsets(group) == [None, None]
        assert await lock(group, "other") == 0, "its table may also be an older one"


async def test_a_sample_that_is_under_way_survives(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await use(group)
        samplers = group.app.core.traffic.flows.samplers(1000.0)
        assert (await group.call(delete_topic())).code == 0
        for sampler in samplers:
            sampler()
        assert await sent(group) is None


async def test_a_group_is_deleted_whole_or_not(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await use(group)
        group.sidecar.send(Hold(1, HoldKind.FENCED, "for a test"))
        while group.app.role.held is None:
            await lock(group, "first")
        before = await offsets(group), await messages(group), group.app.tables.groups.get("G")
        assert (await group.call(delete_group())).code == ResponseCode.SYSTEM_BUSY
        assert (await offsets(group), await messages(group), group.app.tables.groups.get("G")) == before
