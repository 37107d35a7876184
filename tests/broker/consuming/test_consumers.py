"""Heartbeats, membership and offsets, at a whole broker."""

import asyncio
import json
from pathlib import Path

import msgspec

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    ConsumerConnection,
    GetConsumerConnectionListRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketmq_formats.remoting.client import (
    PULL_COMMIT_OFFSET,
    ConsumerData,
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    ProducerData,
    QueryConsumerOffsetRequestHeader,
    SubscriptionData,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame, request
from rocketmq_formats.replica_link import Following, Release
from rocketmq_formats.store.config_files import ConsumerOffsetsFile, SubscriptionGroupsFile, decode_config
from rocketmq_formats.tags import java_hash_code
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import Group, running
from tests.paths import GOLDEN_FILES

GOLDEN = GOLDEN_FILES / "remoting"
FOREIGN = GOLDEN_FILES / "foreign"


def heartbeat(client_id: str = "c1", group: str = "G", *subscriptions: SubscriptionData) -> RemotingCommand:
    consumer = ConsumerData(
        group_name=group, subscription_data_set=subscriptions or (SubscriptionData(topic="T", sub_version=1),)
    )
    return request(
        RequestCode.HEART_BEAT, None, encode_body(HeartbeatData(client_id=client_id, consumer_data_set=(consumer,)))
    )


def commit(offset: int | None, **fields: object) -> RemotingCommand:
    values = {"consumer_group": "G", "topic": "T", "queue_id": 0, "commit_offset": offset} | fields
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(**values))  # type: ignore[arg-type]  # fields of a test's choice


def query(**fields: object) -> RemotingCommand:
    values = {"consumer_group": "G", "topic": "T", "queue_id": 0} | fields
    return request(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(**values))  # type: ignore[arg-type]  # fields of a test's choice


async def members(group: Group) -> tuple[str, ...]:
    header = GetConsumerListByGroupRequestHeader(consumer_group="G")
    answer = await group.call(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
    if answer.code == ResponseCode.SYSTEM_ERROR:
        assert answer.remark == "no consumer for this group, G"
        return ()
    return tuple(decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list)


async def test_a_heartbeat_makes_group_and_retry_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        answer = await group.call(heartbeat())

        golden = decode_frame((GOLDEN / "34-heart-beat-response.bin").read_bytes()[4:])
        assert (answer.code, answer.ext_fields, answer.body) == (golden.code, golden.ext_fields, golden.body)
        retry = group.app.topics.get("%RETRY%G")
        assert retry is not None
        assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
        assert group.app.tables.groups.get("G") is not None
        assert await members(group) == ("c1",)
        await group.app.tables.groups_file.saved()
        file = decode_config(SubscriptionGroupsFile, (tmp_path / "config" / "subscriptionGroup.json").read_bytes())
        assert file.subscription_group_table["G"].group_name == "G"
        assert file.data_version.state_version == 1


async def test_heartbeats_of_official_clients(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for name in ("34-heart-beat-request.bin", "34-heart-beat-request-2.bin", "34-heart-beat-request-rocketmq.bin"):
            golden = decode_frame((GOLDEN / name).read_bytes()[4:])
            assert (await group.call(golden)).code == ResponseCode.SUCCESS
        assert group.app.tables.groups.get("ledger-reader-15914") is not None


async def test_heartbeats_and_locks_of_other_clients(tmp_path: Path) -> None:
    """Go, C++, Node and Java 4; numbers in quotes, enums by their place."""
    async with running(tmp_path) as group:
        for file in sorted(FOREIGN.glob("*.bin")):
            answer = await group.call(decode_frame(file.read_bytes()[4:]))
            assert answer.code == ResponseCode.SUCCESS, (file.name, answer.remark)
        tagged = group.app.core.clients.consumers.get("golden-group-go-cluster")
        assert tagged is not None
        assert tagged.subscriptions["golden-topic"].code_set == {java_hash_code("TagA"), java_hash_code("TagB")}


async def test_members_are_notified_when_others_join_and_leave(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        pushes: asyncio.Queue[str] = asyncio.Queue()

        def on_push(command: RemotingCommand, _address: str) -> None:
            assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert command.is_oneway
            pushes.put_nowait((command.ext_fields or {})["consumerGroup"])

        group.client.on_push = on_push
        await group.call(heartbeat("c1"))
        assert await pushes.get() == "G"
        await group.call(heartbeat("c1"))
        other = RemotingClient()
        await other.call(group.address, heartbeat("c2"))
        assert await pushes.get() == "G"
        assert await members(group) == ("c1", "c2")

        await other.close()
        assert await pushes.get() == "G"
        assert await members(group) == ("c1",)
        assert pushes.empty()

        farewell = UnregisterClientRequestHeader(client_id="c1", producer_group="P", consumer_group="G")
        assert (await group.call(request(RequestCode.UNREGISTER_CLIENT, farewell))).code == ResponseCode.SUCCESS
        assert await members(group) == ()


async def test_connections_of_a_group_for_tools(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        ask = request(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader(consumer_group="G")
        )
        assert (await group.call(ask)).code == ResponseCode.CONSUMER_NOT_ONLINE
        await group.call(heartbeat())
        body = decode_body(ConsumerConnection, (await group.call(ask)).body)
        (connection,) = body.connection_set
        assert (connection.client_id, connection.language) == ("c1", "PYTHON")
        assert body.subscription_table["T"].sub_version == 1


async def test_a_pull_uses_the_subscription_of_the_heartbeat(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send()
        assert (await group.pull(0, sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        wants_a = SubscriptionData(
            topic="T", sub_string="TagA", code_set=frozenset({java_hash_code("TagA")}), sub_version=5
        )
        await group.call(heartbeat("c1", "G", wants_a))
        assert (await group.pull(0, sys_flag=0, sub_version=6)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert (await group.pull(0, sys_flag=0, sub_version=5)).code == ResponseCode.SUCCESS
        wants_b = SubscriptionData(
            topic="T", sub_string="TagB", code_set=frozenset({java_hash_code("TagB")}), sub_version=7
        )
        await group.call(heartbeat("c1", "G", wants_b))
        assert (await group.pull(0, sys_flag=0, sub_version=7)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_offsets_are_kept_over_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send()
        assert (await group.call(query())).ext_fields == {"offset": "0"}
        assert (await group.call(query(set_zero_if_not_found=False))).code == ResponseCode.QUERY_NOT_FOUND
        assert (await group.call(commit(7))).code == ResponseCode.SUCCESS
        await group.pull(0, sys_flag=PULL_COMMIT_OFFSET | 4, queue_id=1, commit_offset=3)
        assert (await group.call(query())).ext_fields == {"offset": "7"}
    text = (tmp_path / "config" / "consumerOffset.json").read_bytes()
    file = decode_config(ConsumerOffsetsFile, text)
    assert file.offset_table == {"T@G": {0: 7, 1: 3}}
    assert file.data_version.counter == 1
    assert b'\n\t"offsetTable":{\n\t\t"T@G":{0:7,1:3\n\t\t}\n\t}\n}' in text
    async with running(tmp_path) as group:
        assert (await group.call(query())).ext_fields == {"offset": "7"}
        assert (await group.call(query(queue_id=1))).ext_fields == {"offset": "3"}


async def test_commits_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, autoCreateSubscriptionGroup=False) as group:
        assert (await group.call(commit(1))).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    async with running(tmp_path) as group:
        assert (await group.call(commit(1))).code == ResponseCode.TOPIC_NOT_EXIST
        await group.send()
        for bad in (commit(-1), commit(None), commit(1, queue_id=None), commit(1, queue_id=70_000)):
            assert (await group.call(bad)).code == ResponseCode.INVALID_PARAMETER
        assert (await group.call(commit(1, consumer_group="g" * 121))).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_bad_heartbeats_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for body in (b"", b"{", b'{"clientID":""}', json.dumps({"clientID": "c", "consumerDataSet": [{}]}).encode()):
            assert (await group.call(request(RequestCode.HEART_BEAT, None, body))).code == ResponseCode.SYSTEM_ERROR
        producers = tuple(ProducerData(group_name=f"p{n}") for n in range(1001))
        many = encode_body(HeartbeatData(client_id="c", producer_data_set=producers))
        assert (await group.call(request(RequestCode.HEART_BEAT, None, many))).code == ResponseCode.SYSTEM_ERROR
        await group.call(heartbeat("c1", "no@group"))
        assert group.app.tables.groups.get("no@group") is None


async def test_consumers_are_moved_back(tmp_path: Path) -> None:
    async with running(tmp_path, useServerSideResetOffset=False) as group:
        for _ in range(3):
            await group.send(default_topic_queue_nums=1)
        header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True)
        reset = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert (await group.call(reset)).code == ResponseCode.SYSTEM_ERROR  # it never committed
        await group.call(commit(3))
        assert (await group.call(reset)).code == ResponseCode.CONSUMER_NOT_ONLINE
        pushes: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        group.client.on_push = lambda command, _address: pushes.put_nowait(command)
        await group.call(heartbeat())
        answer = await group.call(reset)
        assert answer.body == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0}}'
        assert (await pushes.get()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        push = await pushes.get()
        assert (push.code, push.body) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, answer.body)


async def test_one_queue_is_moved_and_no_other(tmp_path: Path) -> None:
    """resetOffsetByTime -b -q -o sends timestamp 0 with the queue and its offset."""

    def reset(queue_id: int, offset: int | None = None, timestamp: int = 0) -> RemotingCommand:
        header = ResetOffsetRequestHeader(
            topic="T", group="G", timestamp=timestamp, queue_id=queue_id, offset=offset, is_force=True
        )
        return request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async with running(tmp_path, useServerSideResetOffset=False) as group:
        for queue_id in (0, 0, 0, 1, 1):
            await group.send(queue_id=queue_id, default_topic_queue_nums=2)
        await group.call(commit(3))
        await group.call(commit(2, queue_id=1))
        moved = b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:%d}}'
        assert (await group.call(reset(1, 1))).body == moved % 1, "nobody is online: it is moved at the broker"
        assert (await group.call(query(queue_id=1))).ext_fields == {"offset": "1"}
        pushes: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        group.client.on_push = lambda command, _address: pushes.put_nowait(command)
        await group.call(heartbeat())
        assert (await group.call(reset(1, 2))).body == moved % 2
        assert (await pushes.get()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert (await pushes.get()).body == moved % 2
        assert (await group.call(reset(1, -1))).body == moved % 0, "-1 is no offset: the time counts"
        assert (await group.call(reset(1, timestamp=-1))).body == moved % 2
        assert (await group.call(reset(1, 3))).remark == "Target offset 3 not in consume queue range [0-2]"
        assert (await group.call(reset(2, 0))).code == ResponseCode.INVALID_PARAMETER
        assert (await group.call(query())).ext_fields == {"offset": "3"}


async def test_a_slave_moves_no_queue_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send(default_topic_queue_nums=1)
        await group.call(commit(1))
        group.sidecar.send(Release())
        group.sidecar.send(Following(2, 2, "127.0.0.1:1"))
        while (await group.send()).code == ResponseCode.SUCCESS:
            pass
        header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, queue_id=0, offset=0)
        answer = await group.call(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
        assert answer.remark == "Can not reset offset in slave broker"
        assert group.app.tables.offsets.find("G", "T", 0) == 1


async def test_a_topic_that_is_drained_can_be_reset(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send(default_topic_queue_nums=1)
        await group.call(commit(1))
        await group.call(heartbeat())
        topic = group.app.topics.get("T")
        assert topic is not None
        group.app.topics.put(msgspec.structs.replace(topic, write_queue_nums=0), state_version=1, now_ms=1)
        header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True)
        answer = await group.call(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
        assert answer.body == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0}}'


async def test_a_minimal_heartbeat_keeps_the_subscriptions(tmp_path: Path) -> None:
    """RIP-64: a client leaves its subscriptions out when the broker at this address has them already."""
    async with running(tmp_path) as group:
        await group.send()
        await group.call(heartbeat())
        for subscriptions in ({"subscriptionDataSet": []}, {"subscriptionDataSet": None}, {}):
            consumer = {"groupName": "G", "consumeType": "CONSUME_PASSIVELY"} | subscriptions
            minimal = {"clientID": "c1", "heartbeatFingerprint": 7, "withoutSub": True, "consumerDataSet": [consumer]}
            answer = await group.call(request(RequestCode.HEART_BEAT, None, json.dumps(minimal).encode()))
            assert (answer.ext_fields or {})["IS_SUB_CHANGE"] == "true", "please send them all next time"
            assert (await group.pull(0, sys_flag=0, sub_version=1)).code == ResponseCode.SUCCESS


async def test_a_client_that_connected_again_counts_once(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.call(heartbeat("c1"))
        again = RemotingClient()
        await again.call(group.address, heartbeat("c1"))
        await again.call(group.address, heartbeat("c1"))
        assert await members(group) == ("c1",)
        await again.close()


async def test_names_that_official_brokers_cannot_load_are_refused(tmp_path: Path) -> None:
    long_topic = "%RETRY%" + "g" * 121
    async with running(tmp_path / "strict") as group:
        assert (await group.send(topic=long_topic)).code == ResponseCode.INVALID_PARAMETER
        assert group.app.topics.get(long_topic) is None
    async with running(tmp_path / "allowed", allowLongGroupNames=True) as group:
        assert (await group.send(topic=long_topic)).code == ResponseCode.SUCCESS
