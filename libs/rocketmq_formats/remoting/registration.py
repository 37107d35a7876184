"""The body of REGISTER_BROKER (103) in its two forms: JSON, and one zlib stream of counted parts.

Brokers write it (plain, as stock brokers do), the name server reads both. Source: name server reference, section 2;
`remoting/protocol/body/RegisterBrokerBody.java`.

    the inflated stream: i32 length + DataVersion as JSON | i32 topics, each i32 length + `TopicConfig.to_text` |
    i32 length + filter servers as JSON | from V5_0_0 on: i32 mappings, each i32 length + JSON
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import field

from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.bodies import Body, decode_body, encode_body
from rocketmq_formats.remoting.codes import VERSION_5_3_3
from rocketmq_formats.remoting.nameserver import TopicQueueMappingInfo
from rocketmq_formats.topics import DataVersion, TopicConfig

MAX_INFLATED: Final = 64 * 1024 * 1024
"""Largest compressed body accepted once inflated, in bytes: some 500,000 topics."""
VERSION_3_0_11: Final = 37
"""Senders before it put the bare wrapper into the body."""
VERSION_5_0_0: Final = 413
"""Senders from it on end the compressed form with mappings."""
_LENGTH: Final = struct.Struct(">i")


class TopicConfigSerializeWrapper(Body, frozen=True):
    """A broker's topics and how new they are; also the body of GET_ALL_TOPIC_CONFIG's answer (21)."""

    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: Mapping[str, TopicQueueMappingInfo] | None = field(default_factory=dict)
    # Java's brokers send it, nobody reads it: the details of static topics
    topic_queue_mapping_detail_map: Mapping[str, object] | None = field(default_factory=dict)


class RegisterBrokerBody(Body, frozen=True):
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()
    filter_server_list: Sequence[str] | None = ()


def body_crc32(body: bytes) -> int:
    """What `RegisterBrokerRequestHeader.body_crc32` says of `body` as it is sent."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_registration(body: bytes, *, compressed: bool, version: int = VERSION_5_3_3) -> RegisterBrokerBody:
    """What a broker whose `version` field is this registers; an empty body is the empty version (0, 0, 0).

    Raises:
        BodyError: not JSON or not zlib, of another shape, or larger than `MAX_INFLATED`.
    """
    if not body:
        return RegisterBrokerBody()
    if compressed:
        return _from_parts(_Parts(_inflate(body)), version)
    if version < VERSION_3_0_11:
        wrapper = decode_body(TopicConfigSerializeWrapper, body, loose_limit=0)
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    return decode_body(RegisterBrokerBody, body)


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


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_INFLATED)
    except zlib.error as error:
        raise BodyError(f"compressed registration: {error}") from error
    if not inflater.eof:
        raise BodyError(f"compressed registration: cut short, or more than {MAX_INFLATED} bytes")
    return data


class _Parts:
    """Takes counted parts off the front of `data`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        end = self._at + _LENGTH.size
        if end > len(self._data):
            raise BodyError("compressed registration ends where a length should be")
        (count,) = _LENGTH.unpack_from(self._data, self._at)
        if not 0 <= count <= len(self._data) - end:
            raise BodyError(f"compressed registration: length {count} at byte {self._at} exceeds it")
        self._at = end
        return int(count)

    def part(self) -> bytes:
        size = self.count()
        self._at += size
        return self._data[self._at - size : self._at]


def _from_parts(parts: _Parts, version: int) -> RegisterBrokerBody:
    data_version = decode_body(DataVersion, parts.part())
    topics: dict[str, TopicConfig] = {}
    for _ in range(parts.count()):
        try:
            topic = TopicConfig.from_text(parts.part().decode())
        except UnicodeDecodeError as error:
            raise BodyError(f"topic in a registration is not UTF-8: {error}") from error
        topics[topic.topic_name] = topic
    filter_servers = decode_body(list[str], parts.part())
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if version >= VERSION_5_0_0:
        for _ in range(parts.count()):
            mapping = decode_body(TopicQueueMappingInfo, parts.part())
            mappings[mapping.topic or ""] = mapping
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table=topics, data_version=data_version, topic_queue_mapping_info_map=mappings
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=filter_servers)
