"""Frames between Java's clients, tools, broker and name server (tests/golden/client): read, typed, written back.

`test_golden` does the same for the high-availability side.
"""

import json
from typing import Any

import pytest

from rocketmq_formats import properties
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting import broker_admin, nameserver
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_formats.remoting.headers import decode_header, encode_header
from rocketmq_formats.store.batch import decode_batch
from rocketmq_formats.store.message import read_records
from tests.formats.golden_types import CLIENT_BODIES as BODIES
from tests.formats.golden_types import CLIENT_HEADERS as HEADERS
from tests.paths import GOLDEN_FILES

FOLDER = GOLDEN_FILES / "client"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())
IGNORED = {"ReqT", "ns", "nsd", "bname", "oway", "lo"}
"""What Java's client adds to any request and our broker has no use for."""

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
