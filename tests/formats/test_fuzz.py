"""Generated input: round trips in both header forms, lying lengths, arbitrary bytes. Only FormatErrors may come out."""

import contextlib
import itertools
import struct
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rocketmq_formats import properties
from rocketmq_formats.codes import LanguageCode, SerializeType
from rocketmq_formats.errors import BodyError, FormatError, FrameError
from rocketmq_formats.json import bodies, fastjson
from rocketmq_formats.remoting import controller, nameserver
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_formats.remoting.headers import Header, decode_header, encode_header

INT16 = st.integers(-(2**15) + 1, 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=40)
HEADER_TYPES = sorted(
    (t for t in vars(controller).values() if isinstance(t, type) and issubclass(t, Header) and t is not Header),
    key=lambda t: t.__name__,
)
BODY_TYPES = [
    controller.SyncStateSet,
    controller.ElectMasterResponseBody,
    controller.BrokerReplicasInfo,
    controller.EpochEntryCache,
    nameserver.ClusterInfo,
    nameserver.TopicRouteData,
]


def commands(kind: SerializeType) -> st.SearchStrategy[RemotingCommand]:
    """Commands that `kind` carries without loss: binary headers know no empty remark and no empty ext map."""
    binary = kind is SerializeType.ROCKETMQ
    return st.builds(
        RemotingCommand,
        code=INT16 if binary else INT32,
        flag=INT32,
        opaque=INT32,
        language=st.sampled_from([language.name for language in LanguageCode]),
        version=INT16 if binary else INT32,
        remark=st.none() | st.text(min_size=1 if binary else 0, max_size=40),
        ext_fields=st.none() | st.dictionaries(TEXT, TEXT, min_size=1 if binary else 0, max_size=8),
        body=st.binary(max_size=64),
        serialize_type=st.just(kind),
    )


def values_of(kind: msgspec.inspect.Type) -> st.SearchStrategy[object]:  # noqa: PLR0911 - a table of types
    """Every legal value of a msgspec type, bounds included (Hypothesis' own `from_type` does not know them)."""
    match kind:
        case msgspec.inspect.IntType(ge=low, le=high):
            return st.integers(-(2**63) if low is None else low, 2**63 - 1 if high is None else high)
        case msgspec.inspect.StrType(min_length=shortest, max_length=longest):
            return st.text(min_size=shortest or 0, max_size=min(longest or 40, 40))
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*map(values_of, types))
        case msgspec.inspect.FrozenSetType(item_type=item):
            return st.frozensets(values_of(item), max_size=4)
        case msgspec.inspect.CollectionType(item_type=item):
            return st.lists(values_of(item), max_size=3)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=3)
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values_of(field.type) for field in fields})
        case _:
            raise TypeError(kind)


ANY_COMMAND = st.one_of(*(commands(kind) for kind in SerializeType))


@given(ANY_COMMAND)
def test_a_command_survives_its_frame(command: RemotingCommand) -> None:
    frame = encode_frame(command)
    assert decode_frame(frame[4:]) == command
    assert encode_frame(decode_frame(frame[4:])) == frame


@given(st.lists(ANY_COMMAND, max_size=6), st.lists(st.integers(0, 2000), max_size=12))
def test_cutting_a_stream_anywhere_changes_nothing(sent: list[RemotingCommand], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, sent))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    connection = RemotingConnection()
    received = []
    for start, end in itertools.pairwise(edges):
        received += connection.receive_data(stream[start:end])
    assert received == sent
    assert connection.buffered == 0


@given(st.binary(max_size=200))
def test_arbitrary_bytes_break_a_connection_only_with_frame_errors(data: bytes) -> None:
    connection = RemotingConnection()
    with contextlib.suppress(FrameError):
        connection.receive_data(data)


@given(st.integers(0, 255), st.binary(max_size=120), st.binary(max_size=20))
def test_arbitrary_headers_are_commands_or_frame_errors(kind: int, header: bytes, body: bytes) -> None:
    try:
        command = decode_frame(struct.pack(">I", kind << 24 | len(header)) + header + body)
    except FrameError:
        return
    assert command.body == body


@given(ANY_COMMAND, st.data())
def test_a_damaged_frame_is_a_command_or_a_frame_error(command: RemotingCommand, data: st.DataObject) -> None:
    frame = bytearray(encode_frame(command)[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_frame(bytes(frame))
    except FrameError:
        return
    encode_frame(decoded)


EXTREMES = [-(2**31), -(2**15), -1, 0, 1, 2, 2**15 - 1, 2**24 - 1, 2**24, 2**31 - 1]


def length_fields(frame: bytes) -> list[tuple[int, str]]:
    """Offset and format of every length in a binary frame, walked by the layout table."""
    found = [(0, ">i"), (4, ">i"), (21, ">i")]
    (remark,) = struct.unpack_from(">i", frame, 21)
    at = 25 + remark
    found.append((at, ">i"))
    end = at + 4 + struct.unpack_from(">i", frame, at)[0]
    at += 4
    while at < end:
        (key,) = struct.unpack_from(">h", frame, at)
        (value,) = struct.unpack_from(">i", frame, at + 2 + key)
        found += [(at, ">h"), (at + 2 + key, ">i")]
        at += 6 + key + value
    return found


@given(commands(SerializeType.ROCKETMQ), st.data(), st.sampled_from(EXTREMES))
def test_one_lying_length_never_passes_for_another_command(
    command: RemotingCommand, data: st.DataObject, lie: int
) -> None:
    frame = bytearray(encode_frame(command))
    offset, form = data.draw(st.sampled_from(length_fields(bytes(frame))))
    low = -(2 ** (8 * struct.calcsize(form) - 1))
    assume(low <= lie < -low)
    assume(struct.unpack_from(form, frame, offset)[0] != lie)
    struct.pack_into(form, frame, offset, lie)
    connection = RemotingConnection()
    try:
        received = connection.receive_data(bytes(frame))
    except FrameError:
        return
    # a longer frame is waited for; no other lie may go unnoticed
    assert received == []
    assert connection.buffered == len(frame)
    assert offset == 0


# headers


@pytest.mark.parametrize("header_type", HEADER_TYPES, ids=lambda t: t.__name__)
def test_typed_headers_survive_their_strings(header_type: type[Header]) -> None:
    @given(values_of(msgspec.inspect.type_info(header_type)))
    def check(header: Header) -> None:
        fields = encode_header(header)
        assert all(type(key) is str and type(value) is str for key, value in fields.items())
        assert decode_header(header_type, fields) == header

    check()


@pytest.mark.parametrize("header_type", HEADER_TYPES, ids=lambda t: t.__name__)
def test_arbitrary_strings_are_headers_or_format_errors(header_type: type[Header]) -> None:
    values = TEXT | INT32.map(str) | st.sampled_from(["true", "null", "1e9", "-1", "9" * 5000, "nan"])

    @given(st.dictionaries(st.sampled_from(header_type.__struct_encode_fields__) | TEXT, values, max_size=10))
    def check(fields: dict[str, str]) -> None:
        with contextlib.suppress(FormatError):
            decode_header(header_type, fields)

    check()


# bodies

KEYS = st.text(max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
SHREDS = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ":", ",", '"', '"a"', "0", "1.5", "true", "null", "\\", " ", "-", "é", '"\\u12', "$ref"]
    ),
    max_size=30,
).map("".join)


@given(JSON)
def test_the_tolerant_reader_agrees_with_strict_json(value: object) -> None:
    assert fastjson.loads(bodies.encode_body(value)) == value


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), KEYS, max_size=5))
def test_unquoted_integer_keys_are_integers_again(table: dict[int, str]) -> None:
    quote: Callable[[str], str] = lambda text: bodies.encode_body(text).decode()  # noqa: E731 - reads best inline
    data = "{" + ",".join(f"{key}:{quote(value)}" for key, value in table.items()) + "}"
    assert bodies.decode_body(dict[int, str], data.encode()) == table


@given(st.binary(max_size=100) | SHREDS.map(str.encode))
def test_arbitrary_bytes_are_bodies_or_body_errors(data: bytes) -> None:
    for body_type in (object, *BODY_TYPES):
        with contextlib.suppress(BodyError):
            bodies.decode_body(body_type, data)


@pytest.mark.parametrize("body_type", BODY_TYPES, ids=lambda t: t.__name__)
def test_typed_bodies_survive_their_json(body_type: type[bodies.Body]) -> None:
    @given(values_of(msgspec.inspect.type_info(body_type)))
    def check(body: bodies.Body) -> None:
        data = bodies.encode_body(body)
        again = bodies.decode_body(body_type, data)
        assert bodies.encode_body(again) == data

    check()


# properties


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=6))
def test_properties_survive_their_text(values: dict[str, str]) -> None:
    assert properties.parse(properties.dump(values)) == values


@given(st.binary(max_size=100) | st.text("a=: \t\f\\\r\n#!u0é", max_size=60).map(str.encode))
def test_arbitrary_bytes_are_properties_or_body_errors(data: bytes) -> None:
    try:
        parsed = properties.parse(data)
    except BodyError:
        return
    assert properties.parse(properties.dump(parsed)) == parsed
