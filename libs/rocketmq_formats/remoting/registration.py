"""The body of REGISTER_BROKER (103) in its two forms: JSON, and one zlib stream of counted parts.

Brokers write it (plain, as stock brokers do), the name server reads both.
Source: rocketmq-all-5.3.3: RegisterBrokerBody.java.

    the inflated stream: i32 length + DataVersion as JSON | i32 topics, each i32 length + `TopicConfig.to_text` |
    i32 length + filter servers as JSON | from V5_0_0 on: i32 mappings, each i32 length + JSON
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import field

from rocketmq_formats.codes import VERSION_5_3_3
from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import Body, decode_body, encode_body
from rocketmq_formats.remoting.nameserver import TopicQueueMappingInfo
from rocketmq_formats.steps import Steps, finish
from rocketmq_formats.topics import DataVersion, TopicConfig

T = TypeVar("T")

MAX_INFLATED: Final = 64 * 1024 * 1024
"""Largest compressed body accepted once inflated, in bytes: some 500,000 topics."""
MAX_PART: Final = 1024 * 1024
"""Largest part of it, in bytes: a topic, the filter servers, a static topic's queues."""
MAX_TOPICS: Final = 50_000
"""Topics in one registration, and static topics: a broker with more has to say splitRegistration."""
MAX_NAME: Final = 127
"""Characters of a topic's name that an error says."""
ALL_AT_ONCE: Final = 512 * 1024
"""Largest JSON body that is read in one step, and loosely if need be, in bytes: some 3,000 topics."""
LOOSE_TOPIC: Final = 4096
"""Largest topic of a larger body that is read loosely, in bytes."""
BRACES: Final = 2
"""Objects in what brokers say of a topic: itself and its attributes."""
STEP: Final = 64 * 1024
"""Bytes that are inflated at a time."""
VERSION_3_0_11: Final = 37
"""Senders before it put the bare wrapper into the body."""
VERSION_5_0_0: Final = 413
"""Senders from it on end the compressed form with mappings."""
NULL: Final = msgspec.Raw(b"null")
_LENGTH: Final = struct.Struct(">i")


class TopicConfigSerializeWrapper(Body, frozen=True):
    """A broker's topics and how new they are; also the body of GET_ALL_TOPIC_CONFIG's answer (21)."""

    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: Mapping[str, TopicQueueMappingInfo] | None = field(default_factory=dict)
    # details of static topics: Java's brokers send it, no one reads it
    topic_queue_mapping_detail_map: Mapping[str, object] | None = field(default_factory=dict)


class RegisterBrokerBody(Body, frozen=True):
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()
    filter_server_list: Sequence[str] | None = ()


class _Outer(Body, frozen=True):
    """A large body whose parts are read one by one."""

    topic_config_serialize_wrapper: msgspec.Raw = msgspec.Raw(b"{}")
    filter_server_list: msgspec.Raw = msgspec.Raw(b"[]")


class _Wrapper(Body, frozen=True):
    topic_config_table: msgspec.Raw = msgspec.Raw(b"{}")
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: msgspec.Raw = msgspec.Raw(b"{}")


class _Anything(msgspec.Struct, frozen=True):
    """An object of which nothing is read."""


def _part(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """Strict JSON only: the second chances of `decode_body` take too long for so much."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError(f"registration: {error}") from error


def _table(kind: type[T], data: msgspec.Raw) -> Steps[dict[str, T]]:
    """Name to `kind`."""
    # One call cannot be interrupted. Braces bound how many objects it finds, and it ends at the first other value.
    if bytes(data).count(b"{") > BRACES * MAX_TOPICS + 1:
        raise BodyError(f"registration: more than {MAX_TOPICS} topics")
    yield
    if len(_part(dict[str, _Anything], data)) > MAX_TOPICS:
        raise BodyError(f"registration: more than {MAX_TOPICS} topics")
    yield
    table: dict[str, T] = {}
    for name, value in _part(dict[str, msgspec.Raw], data).items():
        yield
        table[name] = decode_body(kind, bytes(value), loose_limit=LOOSE_TOPIC)
    return table


def body_crc32(body: bytes) -> int:
    """What `RegisterBrokerRequestHeader.body_crc32` says of `body` as it is sent."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_registration(body: bytes, *, compressed: bool, version: int = VERSION_5_3_3) -> RegisterBrokerBody:
    """What a broker whose `version` field is this registers; an empty body is the empty version (0, 0, 0).

    Raises:
        BodyError: not JSON or not zlib, of another shape, or larger than `MAX_INFLATED`, or of more than `MAX_TOPICS`.
    """
    return finish(registration_steps(body, compressed=compressed, version=version))


def registration_steps(body: bytes, *, compressed: bool, version: int = VERSION_5_3_3) -> Steps[RegisterBrokerBody]:
    """As `decode_registration`, in steps of at most about 50 ms, whatever the body is."""
    if not body:
        return RegisterBrokerBody()
    if compressed:
        return (yield from _from_parts(_Parts(body), version))
    bare = version < VERSION_3_0_11
    if len(body) <= ALL_AT_ONCE:
        if bare:
            wrapper = decode_body(TopicConfigSerializeWrapper, body, loose_limit=0)
            return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        return decode_body(RegisterBrokerBody, body)
    outer = _Outer(topic_config_serialize_wrapper=msgspec.Raw(body)) if bare else _part(_Outer, body)
    yield
    wrapper_parts = _part(_Wrapper, outer.topic_config_serialize_wrapper)
    yield
    servers: list[str] | None = None
    if outer.filter_server_list != NULL:
        if len(bytes(outer.filter_server_list)) > MAX_PART:
            raise BodyError(f"registration: more than {MAX_PART} bytes of filter servers")
        servers = _part(list[str], outer.filter_server_list)
    topics = yield from _table(TopicConfig, wrapper_parts.topic_config_table)
    mappings: Mapping[str, TopicQueueMappingInfo] | None = None
    if wrapper_parts.topic_queue_mapping_info_map != NULL:
        mappings = yield from _table(TopicQueueMappingInfo, wrapper_parts.topic_queue_mapping_info_map)
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table=topics,
        data_version=wrapper_parts.data_version,
        mapping_data_version=wrapper_parts.mapping_data_version,
        topic_queue_mapping_info_map=mappings,
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)


def encode_registration(registration: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """The body; `compressed` is what the header's field has to say."""
    if not compressed:
        return encode_body(registration)
    wrapper = registration.topic_config_serialize_wrapper
    parts: list[bytes] = []
    _put(parts, encode_body(wrapper.data_version))
    topics = wrapper.topic_config_table.values()
    parts.append(_LENGTH.pack(len(topics)))
    for topic in topics:
        _put(parts, topic.to_text().encode())
    _put(parts, encode_body(registration.filter_server_list or ()))
    mappings = (wrapper.topic_queue_mapping_info_map or {}).values()
    parts.append(_LENGTH.pack(len(mappings)))
    for mapping in mappings:
        _put(parts, encode_body(mapping))
    return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


def _put(parts: list[bytes], part: bytes) -> None:
    parts.append(_LENGTH.pack(len(part)))
    parts.append(part)


class _Parts:
    """Takes counted parts off the front of what `body` inflates to, which is never held as a whole."""

    def __init__(self, body: bytes) -> None:
        self._inflater = zlib.decompressobj()
        self._input = body
        self._data = b""
        self._at = 0
        self._before = 0
        """Bytes that were taken before `_data`."""

    def count(self) -> int:
        """How many entries follow.

        Raises:
            BodyError: not zlib, or the stream ends or is longer than any registration.
        """
        return self._number(MAX_INFLATED)

    def part(self) -> bytes:
        """The next one; raises as `count` does, or because it is longer than `MAX_PART`."""
        return self._take(self._number(MAX_PART))

    def end(self) -> None:
        """Whatever follows is of newer senders: skipped, but the stream has to be whole."""
        left = self._before + len(self._data) + MAX_PART
        self._at = len(self._data)
        while not self._inflater.eof:
            self._more(1)
            self._at = len(self._data)
            if self._before + self._at > left:
                raise BodyError(f"compressed registration: more than {MAX_PART} bytes behind its parts")

    def _number(self, limit: int) -> int:
        at = self._before + self._at
        (number,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if not 0 <= number <= limit:
            raise BodyError(f"compressed registration: length {number} at byte {at}, at most {limit} is accepted")
        return int(number)

    def _take(self, size: int) -> bytes:
        if len(self._data) - self._at < size:
            self._more(size)
        self._at += size
        return self._data[self._at - size : self._at]

    def _more(self, size: int) -> None:
        """Inflate on until `size` bytes are there."""
        pieces = [self._data[self._at :]]
        there = len(pieces[0])
        self._before += self._at
        while there < size:
            try:
                piece = self._inflater.decompress(self._input, STEP)
            except zlib.error as error:
                raise BodyError(f"compressed registration: {error}") from error
            self._input = self._inflater.unconsumed_tail
            if not piece and (self._inflater.eof or not self._input):
                raise BodyError(f"compressed registration ends at byte {self._before + there}")
            pieces.append(piece)
            there += len(piece)
            if self._before + there > MAX_INFLATED:
                raise BodyError(f"compressed registration: more than {MAX_INFLATED} bytes")
        self._data, self._at = b"".join(pieces), 0


def _from_parts(parts: _Parts, version: int) -> Steps[RegisterBrokerBody]:
    data_version = decode_body(DataVersion, parts.part())
    topics: dict[str, TopicConfig] = {}
    for number in range(parts.count()):
        yield
        if number == MAX_TOPICS:
            raise BodyError(f"compressed registration: more than {MAX_TOPICS} topics")
        try:
            topic = TopicConfig.from_text(parts.part().decode())
        except UnicodeDecodeError as error:
            raise BodyError(f"topic in a registration is not UTF-8: {error}") from error
        if topic.topic_name in topics:
            # a few bytes inflate to millions of the same
            raise BodyError(f"compressed registration: topic {topic.topic_name[:MAX_NAME]} is in it twice")
        topics[topic.topic_name] = topic
    filter_servers = decode_body(list[str], parts.part())
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if version >= VERSION_5_0_0:
        for number in range(parts.count()):
            yield
            if number == MAX_TOPICS:
                raise BodyError(f"compressed registration: more than {MAX_TOPICS} static topics")
            mapping = decode_body(TopicQueueMappingInfo, parts.part())
            mappings[mapping.topic or ""] = mapping
    parts.end()
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table=topics, data_version=data_version, topic_queue_mapping_info_map=mappings
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=filter_servers)
