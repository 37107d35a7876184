"""Frames captured from RocketMQ 5.3.3 (tests/golden/remoting): each is understood and written back byte for byte."""

import json
from typing import Any

import pytest

from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode, ResponseCode, SerializeType
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_formats.remoting.headers import decode_header, encode_header
from tests.formats.golden_types import BODIES, HEADERS
from tests.paths import GOLDEN_FILES

FOLDER = GOLDEN_FILES / "remoting"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())

PROPERTIES = {(26, "response"), (1009, "request"), (1010, "response")}
ADDED_BY_CLIENT_HOOKS = {"ReqT"}
RPC_HEADER = {"ns", "nsd", "bname", "oway", "lo"}
"""What every request of Java's client may carry and our broker has no use for."""


def read(entry: dict[str, Any]) -> bytes:
    return (FOLDER / entry["file"]).read_bytes()


def decode(entry: dict[str, Any]) -> RemotingCommand:
    [command] = RemotingConnection().receive_data(read(entry))
    return command


def kind(entry: dict[str, Any]) -> tuple[int, str]:
    return entry["code"], entry["direction"]


EACH = pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["file"])


def test_there_is_a_sample_of_everything_typed() -> None:
    assert {path.name for path in FOLDER.glob("*.bin")} == {entry["file"] for entry in INDEX}
    for serialize_type in SerializeType:
        sampled = {kind(entry) for entry in INDEX if entry["serialize_type"] == serialize_type.name}
        assert sampled >= HEADERS.keys() | BODIES.keys() | PROPERTIES


@EACH
def test_a_frame_is_read_as_captured(entry: dict[str, Any]) -> None:
    command, header = decode(entry), entry["header"]
    assert command.serialize_type.name == entry["serialize_type"]
    assert command.is_response is (entry["direction"] == "response")
    assert len(command.body) == entry["body_length"]
    assert {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "ext": command.ext_fields,
    } == header


@EACH
def test_a_frame_is_written_back_byte_for_byte(entry: dict[str, Any]) -> None:
    assert encode_frame(decode(entry)) == read(entry)


@EACH
def test_codes_have_names(entry: dict[str, Any]) -> None:
    command = decode(entry)
    if command.is_response:
        assert ResponseCode(command.code) is not None
    else:
        assert RequestCode(command.code) == entry["code"]


@pytest.mark.parametrize("entry", [e for e in INDEX if kind(e) in HEADERS], ids=lambda entry: entry["file"])
def test_a_typed_header_loses_and_adds_nothing(entry: dict[str, Any]) -> None:
    fields = decode(entry).ext_fields
    if fields is None:
        # a binary header cannot tell a header without fields from none
        assert entry["direction"] == "response"
        assert entry["header"]["code"] != ResponseCode.SUCCESS or entry["serialize_type"] == "ROCKETMQ"
        return
    expected = {key: value for key, value in fields.items() if key not in ADDED_BY_CLIENT_HOOKS | RPC_HEADER}
    assert encode_header(decode_header(HEADERS[kind(entry)], fields)) == expected


@pytest.mark.parametrize("entry", [e for e in INDEX if kind(e) in BODIES], ids=lambda entry: entry["file"])
def test_a_typed_body_loses_and_adds_nothing(entry: dict[str, Any]) -> None:
    body = decode(entry).body
    if not body:
        assert entry["header"]["code"] != ResponseCode.SUCCESS
        return
    ours, theirs = (fastjson.loads(data) for data in (encode_body(decode_body(BODIES[kind(entry)], body)), body))
    assert ours == theirs


@pytest.mark.parametrize("entry", [e for e in INDEX if kind(e) in PROPERTIES], ids=lambda entry: entry["file"])
def test_configuration_is_read_and_written_back(entry: dict[str, Any]) -> None:
    body = decode(entry).body
    parsed = properties.parse(body)
    assert len(parsed) == body.count(b"\n")
    assert properties.parse(properties.dump(parsed)) == parsed
    if b"\\" not in body and body.isascii():
        assert properties.dump(parsed) == body


def test_every_json_body_is_read_whatever_its_type() -> None:
    found = 0
    for entry in INDEX:
        body = decode(entry).body
        if body[:1] == b"{":
            found += 1
            assert isinstance(decode_body(object, body), dict)
    assert found > 40
