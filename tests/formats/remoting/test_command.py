"""One frame at a time: what is written, what is read, and every bound a stranger's frame can break."""

import json
import struct

import pytest

from rocketmq_formats.codes import VERSION_5_3_3, LanguageCode, RequestCode, ResponseCode, SerializeType
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import (
    MAX_FRAME,
    MAX_HEADER,
    RemotingCommand,
    decode_frame,
    encode_frame,
    request,
    response,
)
from rocketmq_formats.remoting.controller import GetReplicaInfoRequestHeader

BOTH = pytest.mark.parametrize("serialize_type", list(SerializeType), ids=lambda kind: kind.name)
FIXED = struct.Struct(">hbhii")


def payload(header: bytes, body: bytes = b"", *, kind: int = 0, length: int | None = None) -> bytes:
    """A frame without its length word; `length` lies about the header's."""
    word = (kind << 24) | (len(header) if length is None else length)
    return struct.pack(">I", word) + header + body


def binary(
    remark: bytes = b"", ext: bytes = b"", *, remark_length: int | None = None, ext_length: int | None = None
) -> bytes:
    """A binary header of code 904, its lengths honest unless given."""
    return (
        FIXED.pack(904, 0, 479, 7, 0)
        + struct.pack(">i", len(remark) if remark_length is None else remark_length)
        + remark
        + struct.pack(">i", len(ext) if ext_length is None else ext_length)
        + ext
    )


def field(key: bytes, value: bytes, *, key_length: int | None = None, value_length: int | None = None) -> bytes:
    """One ext field of a binary header, its lengths honest unless given."""
    return (
        struct.pack(">h", len(key) if key_length is None else key_length)
        + key
        + struct.pack(">i", len(value) if value_length is None else value_length)
        + value
    )


# what goes out


def test_json_header_is_written_with_fastjsons_keys_in_fastjsons_order() -> None:
    frame = encode_frame(request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name="b")))
    expected = (
        b'{"code":1004,"extFields":{"brokerName":"b"},"flag":0,"language":"PYTHON","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert frame == struct.pack(">ii", 4 + len(expected), len(expected)) + expected


def test_absent_remark_and_header_leave_no_key_but_zeros_do() -> None:
    header = json.loads(encode_frame(RemotingCommand(0))[8:])
    assert header == {
        "code": 0,
        "flag": 0,
        "language": "PYTHON",
        "opaque": 0,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION_5_3_3,
    }


def test_binary_header_follows_the_layout_table() -> None:
    command = RemotingCommand(
        code=-2,
        flag=3,
        opaque=-5,
        language="GO",
        version=479,
        remark="né",
        ext_fields={"k": "", "ключ": "v"},
        body=b"body",
        serialize_type=SerializeType.ROCKETMQ,
    )
    ext = field(b"k", b"") + field("ключ".encode(), b"v")
    header = struct.pack(">hbhiii", -2, 9, 479, -5, 3, 3) + "né".encode() + struct.pack(">i", len(ext)) + ext
    assert encode_frame(command) == struct.pack(">i", 8 + len(header)) + payload(header, b"body", kind=1)


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(RequestCode.POP_MESSAGE),
        RemotingCommand(1, version=40_000),
        RemotingCommand(1, ext_fields={"k" * 32_768: "v"}),
    ],
    ids=["code", "version", "key"],
)
def test_what_the_binary_form_cannot_hold_is_written_as_json(command: RemotingCommand) -> None:
    command.serialize_type = SerializeType.ROCKETMQ
    decoded = decode_frame(encode_frame(command)[4:])
    assert decoded.serialize_type is SerializeType.JSON
    assert (decoded.code, decoded.version, decoded.ext_fields) == (command.code, command.version, command.ext_fields)


@BOTH
def test_frames_larger_than_peers_accept_are_our_bug(serialize_type: SerializeType) -> None:
    for command in (RemotingCommand(1, body=bytes(MAX_FRAME)), RemotingCommand(1, remark="x" * MAX_HEADER)):
        command.serialize_type = serialize_type
        with pytest.raises(ValueError, match="larger than peers accept"):
            encode_frame(command)


@BOTH
def test_a_response_takes_opaque_and_form_from_its_request(serialize_type: SerializeType) -> None:
    asked = RemotingCommand(1004, opaque=77, serialize_type=serialize_type, language="JAVA", version=0)
    answer = response(asked, ResponseCode.CONTROLLER_NOT_LEADER, "why")
    assert (answer.opaque, answer.serialize_type, answer.code, answer.remark) == (77, serialize_type, 2007, "why")
    assert answer.is_response
    assert not answer.is_oneway
    assert (answer.language, answer.version) == ("PYTHON", VERSION_5_3_3)


def test_oneway_requests_say_so() -> None:
    assert request(1, oneway=True).is_oneway
    assert not request(1).is_oneway
    assert not request(1, oneway=True).is_response


# what comes in


@BOTH
def test_unknown_codes_stay_plain_ints(serialize_type: SerializeType) -> None:
    decoded = decode_frame(encode_frame(RemotingCommand(31_999, flag=1, serialize_type=serialize_type))[4:])
    assert decoded.code == 31_999
    assert type(decoded.code) is int


def test_json_scalars_in_ext_fields_keep_their_text_and_nulls_vanish() -> None:
    header = b'{"code":1,"extFields":{"a":1,"b":true,"c":1.50,"d":null,"e":"s","f":-0,"g":"\\u00e9"}}'
    assert decode_frame(payload(header)).ext_fields == {
        "a": "1",
        "b": "true",
        "c": "1.50",
        "e": "s",
        "f": "-0",
        "g": "é",
    }


def test_what_fastjson_tolerates_in_a_header_is_tolerated() -> None:
    header = b'{"code":"34","flag":null,"opaque":"7","version":null,"language":null,"extFields":null,"x":[{}]}'
    assert decode_frame(payload(header)) == RemotingCommand(34, opaque=7, language="OTHER", version=0)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ('"GO"', "GO"),
        ("0", "JAVA"),
        ("13", "NODE_JS"),
        ("14", "OTHER"),
        ("-1", "OTHER"),
        ('"KLINGON"', "OTHER"),
        ("null", "OTHER"),
    ],
)
def test_languages_in_json_are_known_names_or_other(sent: str, read: str) -> None:
    assert decode_frame(payload(b'{"code":1,"language":%s}' % sent.encode())).language == read


@pytest.mark.parametrize(("sent", "read"), [(0, "JAVA"), (13, "NODE_JS"), (14, "OTHER"), (-1, "OTHER"), (127, "OTHER")])
def test_languages_in_binary_are_known_names_or_other(sent: int, read: str) -> None:
    header = bytearray(binary())
    header[2:3] = struct.pack(">b", sent)
    assert decode_frame(payload(bytes(header), kind=1)).language == read
    assert set(LanguageCode.__members__) >= {read}


def test_the_frames_byte_decides_the_form_not_the_headers_word() -> None:
    assert (
        decode_frame(payload(b'{"code":1,"serializeTypeCurrentRPC":"ROCKETMQ"}')).serialize_type is SerializeType.JSON
    )


def test_an_empty_remark_or_field_of_a_binary_header() -> None:
    decoded = decode_frame(payload(binary(ext=field(b"k", b"")), kind=1))
    assert decoded.remark is None
    assert decoded.ext_fields == {"k": ""}
    assert decode_frame(payload(binary(), kind=1)).ext_fields is None


def test_a_header_of_the_largest_size_is_read() -> None:
    padding = MAX_HEADER - len(b'{"code":1,"x":""}')
    assert decode_frame(payload(b'{"code":1,"x":"%s"}' % (b"x" * padding), b"b")).body == b"b"


JSON_DAMAGE = {
    "empty header": b"",
    "not JSON": b"hello",
    "truncated": b'{"code":1',
    "trailing": b'{"code":1}}',
    "a list": b"[1]",
    "a number": b"1",
    "null": b"null",
    "no code": b"{}",
    "code null": b'{"code":null}',
    "code not a number": b'{"code":"x"}',
    "code a fraction": b'{"code":1.5}',
    "code above int32": b'{"code":2147483648}',
    "code below int32": b'{"code":-2147483649}',
    "code of a million digits": b'{"code":%s}' % (b"9" * 1_000_000),
    "opaque above int32": b'{"code":1,"opaque":2147483648}',
    "flag an object": b'{"code":1,"flag":{}}',
    "remark a number": b'{"code":1,"remark":1}',
    "ext a list": b'{"code":1,"extFields":[]}',
    "ext holds an object": b'{"code":1,"extFields":{"a":{}}}',
    "ext holds a list": b'{"code":1,"extFields":{"a":[1]}}',
    "unquoted key": b"{code:1}",
    "deep bomb": b'{"code":1,"x":' + b"[" * 500_000,
    "deep bomb in ext": b'{"code":1,"extFields":{"a":' + b'{"a":' * 150_000,
    "not UTF-8": b'{"code":1,"remark":"\xff"}',
    "not UTF-8 in ext": b'{"code":1,"extFields":{"a":"\xc0\x80"}}',
    "not UTF-8 in an ext key": b'{"code":1,"extFields":{"\xff":"a"}}',
    "not UTF-8 beside a number": b'{"code":1,"extFields":{"a":1,"b":"\xff"}}',
    "lone surrogate": b'{"code":1,"remark":"\\ud800"}',
}


@pytest.mark.parametrize("header", JSON_DAMAGE.values(), ids=JSON_DAMAGE.keys())
def test_damaged_json_headers_are_refused(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(payload(header))


INT32 = (-(2**31), -1, 2**31 - 1)
# Negative lengths that would fit if offsets were allowed to run backwards; the first two would loop forever.
BACKWARDS = {
    "a key that ends before itself": binary(ext=field(b"k", b"\0\0\0\0") + struct.pack(">h", -6) + bytes(4)),
    "a value that ends at its key": binary(ext=field(b"k", b"", value_length=-7)),
    "a remark that ends in the ext fields": FIXED.pack(904, 0, 479, 7, 0)
    + struct.pack(">i", -117)
    + bytes(3)
    + struct.pack(">hi", 0, 102)
    + bytes(74)
    + struct.pack(">ihi", 296, 0, 110)
    + bytes(90),
}
BINARY_DAMAGE = {
    **BACKWARDS,
    "empty header": b"",
    "fixed part cut": binary()[:16],
    "no ext length": binary()[:-4],
    "ext length cut": binary()[:-1],
    "byte left over": binary() + b"\0",
    "remark not UTF-8": binary(remark=b"\xff"),
    "key not UTF-8": binary(ext=field(b"\xff", b"v")),
    "value not UTF-8": binary(ext=field(b"k", b"\xff")),
    "half a field": binary(ext=b"\0"),
    "key without value": binary(ext=b"\0\x01k"),
    **{f"remark length {n}": binary(remark=b"re", remark_length=n) for n in (*INT32, 1, 3, 6, 7)},
    **{f"ext length {n}": binary(ext=field(b"k", b"v"), ext_length=n) for n in (*INT32, 0, 7, 9)},
    **{f"key length {n}": binary(ext=field(b"k", b"v", key_length=n)) for n in (-(2**15), -1, -2, 0, 2, 2**15 - 1)},
    **{f"value length {n}": binary(ext=field(b"k", b"v", value_length=n)) for n in (*INT32, -8, -7, 0, 2)},
}


@pytest.mark.parametrize("header", BINARY_DAMAGE.values(), ids=BINARY_DAMAGE.keys())
def test_damaged_binary_headers_are_refused(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(payload(header, kind=1))


FRAME_DAMAGE = {
    "no bytes": b"",
    "no header length": b"\0\0\0",
    "header longer than the frame": payload(b'{"code":1}', length=11),
    "largest header length": payload(b'{"code":1}', length=0xFFFFFF),
    "header above the bound": payload(b'{"code":1,"x":"' + b"x" * MAX_HEADER + b'"}'),
    "binary header above the bound": payload(binary(remark=b"x" * MAX_HEADER), kind=1),
    "serialize type 2": payload(b'{"code":1}', kind=2),
    "serialize type 127": payload(b'{"code":1}', kind=127),
    "serialize type 255": payload(b'{"code":1}', kind=255),
}


@pytest.mark.parametrize("frame", FRAME_DAMAGE.values(), ids=FRAME_DAMAGE.keys())
def test_damaged_frames_are_refused(frame: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(frame)


def test_refusals_do_not_repeat_what_the_stranger_sent() -> None:
    secret = "x" * 10_000
    with pytest.raises(FrameError) as refusal:
        decode_frame(payload(b'{"code":1,"extFields":{"%s":{}}}' % secret.encode()))
    assert len(str(refusal.value)) < 200
