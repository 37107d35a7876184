"""Frames between Java's clients, tools, broker and name server (tests/golden/client): read, typed, written back.

`test_golden` does the same for the high-availability side.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketmq_formats import properties, topics
from rocketmq_formats.remoting import broker_admin, client, fastjson, ha_info, nameserver, registration, send
from rocketmq_formats.remoting.bodies import decode_body, encode_body
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_formats.remoting.headers import Header, decode_header, encode_header
from rocketmq_formats.store.batch import decode_batch
from rocketmq_formats.store.message import read_records

FOLDER = Path(__file__).parents[1] / "golden" / "client"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())
IGNORED = {"ReqT", "ns", "nsd", "bname", "oway", "lo"}
"""What Java's client adds to any request and our broker has no use for."""

HEADERS: dict[tuple[int, str], type[Header]] = {
    (11, "request"): client.PullMessageRequestHeader,
    (11, "response"): client.PullMessageResponseHeader,
    (12, "request"): client.QueryMessageRequestHeader,
    (12, "response"): client.QueryMessageResponseHeader,
    (14, "request"): client.QueryConsumerOffsetRequestHeader,
    (14, "response"): client.OffsetResponseHeader,
    (15, "request"): client.UpdateConsumerOffsetRequestHeader,
    (17, "request"): broker_admin.CreateTopicRequestHeader,
    (26, "response"): broker_admin.GetBrokerConfigResponseHeader,
    (29, "response"): client.OffsetResponseHeader,
    (30, "request"): client.GetMaxOffsetRequestHeader,
    (30, "response"): client.OffsetResponseHeader,
    (31, "request"): client.TopicQueueRequestHeader,
    (31, "response"): client.OffsetResponseHeader,
    (32, "response"): client.GetEarliestMsgStoretimeResponseHeader,
    (33, "request"): client.ViewMessageRequestHeader,
    (34, "response"): client.HeartbeatResponseHeader,
    (35, "request"): client.UnregisterClientRequestHeader,
    (36, "request"): client.ConsumerSendMsgBackRequestHeader,
    (37, "request"): client.EndTransactionRequestHeader,
    (38, "request"): client.GetConsumerListByGroupRequestHeader,
    (39, "request"): client.CheckTransactionStateRequestHeader,
    (40, "request"): client.NotifyConsumerIdsChangedRequestHeader,
    (100, "request"): nameserver.PutKVConfigRequestHeader,
    (102, "request"): nameserver.KVConfigRequestHeader,
    (103, "request"): nameserver.RegisterBrokerRequestHeader,
    (103, "response"): nameserver.RegisterBrokerResponseHeader,
    (104, "request"): nameserver.UnregisterBrokerRequestHeader,
    (105, "request"): nameserver.GetRouteInfoRequestHeader,
    (202, "request"): broker_admin.TopicRequestHeader,
    (203, "request"): broker_admin.GetConsumerConnectionListRequestHeader,
    (204, "request"): broker_admin.GetProducerConnectionListRequestHeader,
    (205, "request"): nameserver.WritePermRequestHeader,
    (205, "response"): nameserver.WipeWritePermResponseHeader,
    (207, "request"): broker_admin.DeleteSubscriptionGroupRequestHeader,
    (208, "request"): broker_admin.GetConsumeStatsRequestHeader,
    (215, "request"): broker_admin.TopicRequestHeader,
    (216, "request"): nameserver.DeleteTopicFromNamesrvRequestHeader,
    (222, "request"): broker_admin.ResetOffsetRequestHeader,
    (300, "request"): broker_admin.TopicRequestHeader,
    (351, "request"): broker_admin.TopicRequestHeader,
    (310, "request"): send.SendMessageRequestHeaderV2,
    (310, "response"): send.SendMessageResponseHeader,
    (320, "request"): send.SendMessageRequestHeaderV2,
    (320, "response"): send.SendMessageResponseHeader,
    (322, "response"): nameserver.QueryDataVersionResponseHeader,
    (327, "request"): nameserver.WritePermRequestHeader,
    (327, "response"): nameserver.AddWritePermResponseHeader,
    (906, "response"): ha_info.ExchangeHAInfoHeader,
}
BODIES: dict[tuple[int, str], type[object]] = {
    (28, "response"): nameserver.KVTable,
    (34, "request"): client.HeartbeatData,
    (38, "response"): client.GetConsumerListByGroupResponseBody,
    (41, "request"): client.LockBatchRequestBody,
    (41, "response"): client.LockBatchResponseBody,
    (42, "request"): client.LockBatchRequestBody,
    (103, "request"): registration.RegisterBrokerBody,
    (103, "response"): nameserver.KVTable,
    (105, "response"): nameserver.TopicRouteData,
    (106, "response"): nameserver.ClusterInfo,
    (200, "request"): topics.SubscriptionGroupConfig,
    (203, "response"): broker_admin.ConsumerConnection,
    (204, "response"): broker_admin.ProducerConnection,
    (206, "response"): nameserver.TopicList,
    (224, "response"): nameserver.TopicList,
    (300, "response"): broker_admin.GroupList,
    (304, "response"): nameserver.TopicList,
    (901, "response"): nameserver.GetBrokerMemberGroupResponseBody,
    (907, "response"): ha_info.HARuntimeInfo,
}
TABLES = {
    202: broker_admin.TopicStatsTable,
    208: broker_admin.ConsumeStats,
    222: broker_admin.ResetOffsetBody,
}
RECORDS = {(11, "response"), (12, "response"), (33, "response"), (39, "request")}
PROPERTIES = {(25, "request"), (26, "response"), (319, "response")}


def decode(entry: dict[str, Any]) -> RemotingCommand:
    [command] = RemotingConnection().receive_data((FOLDER / entry["file"]).read_bytes())
    return command


def kind(entry: dict[str, Any]) -> tuple[int, str]:
    return entry["code"], entry["direction"]


def each(kinds: "set[tuple[int, str]]") -> pytest.MarkDecorator:
    chosen = [entry for entry in INDEX if kind(entry) in kinds]
    return pytest.mark.parametrize("entry", chosen, ids=lambda entry: entry["file"])


def normal(value: Any) -> Any:  # the order of Java's sets means nothing
    if isinstance(value, dict):
        return {key: normal(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((normal(item) for item in value), key=repr)
    return value


def test_there_is_a_sample_of_everything_typed() -> None:
    assert {path.name for path in FOLDER.glob("*.bin")} == {entry["file"] for entry in INDEX}
    for serialize_type in ("JSON", "ROCKETMQ"):
        sampled = {kind(entry) for entry in INDEX if entry["serialize_type"] == serialize_type}
        assert sampled >= HEADERS.keys() | BODIES.keys() | RECORDS | PROPERTIES


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["file"])
def test_a_frame_is_read_and_written_back(entry: dict[str, Any]) -> None:
    command, header = decode(entry), entry["header"]
    assert (command.code, command.flag, command.remark) == (header["code"], header["flag"], header["remark"])
    assert (command.ext_fields, len(command.body)) == (header["ext"], entry["body_length"])
    assert encode_frame(command) == (FOLDER / entry["file"]).read_bytes()


@each(set(HEADERS))
def test_a_typed_header_loses_and_adds_nothing(entry: dict[str, Any]) -> None:
    fields = decode(entry).ext_fields
    expected = {key: value for key, value in (fields or {}).items() if key not in IGNORED}
    if entry["direction"] == "response" and not expected:
        return  # refusals have no fields
    assert encode_header(decode_header(HEADERS[kind(entry)], expected)) == expected


@each(set(BODIES))
def test_a_typed_body_loses_and_adds_nothing(entry: dict[str, Any]) -> None:
    body = decode(entry).body
    if not body:
        return
    typed = decode_body(BODIES[kind(entry)], body)
    assert normal(fastjson.loads(encode_body(typed))) == normal(fastjson.loads(body))


@each({(code, "response") for code in TABLES})
def test_tables_by_queue(entry: dict[str, Any]) -> None:
    body = decode(entry).body
    if not body:
        assert entry["header"]["code"] != ResponseCode.SUCCESS
        return
    table = TABLES[entry["code"]].decode(body)
    assert fastjson.loads(table.encode()) == fastjson.loads(body)


@each({(105, "response")})
def test_routes_are_ours_byte_for_byte(entry: dict[str, Any]) -> None:
    body = decode(entry).body
    if body:
        route = decode_body(nameserver.TopicRouteData, body)
        standard = b'"brokerAddrs":{"' in body
        assert nameserver.encode_route(route, standard=standard) == body


@each(RECORDS)
def test_records(entry: dict[str, Any]) -> None:
    body = decode(entry).body
    assert [record.size for record in read_records(body, check_crc=True)] or not body


@each({(320, "request")})
def test_batches(entry: dict[str, Any]) -> None:
    assert [message.body for message in decode_batch(decode(entry).body)] == [b"one", b"two"]


@each(PROPERTIES)
def test_configurations(entry: dict[str, Any]) -> None:
    assert properties.parse(decode(entry).body)
