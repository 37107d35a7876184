"""A registration's two forms, the topics in it, and what is refused."""

import json
import struct
import tracemalloc
import zlib
from itertools import islice

import pytest

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting import registration
from rocketmq_formats.remoting.nameserver import TopicQueueMappingInfo
from rocketmq_formats.remoting.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
    decode_registration,
    encode_registration,
    registration_steps,
)
from rocketmq_formats.topics import DataVersion, TopicConfig

VERSION = DataVersion(state_version=3, counter=7, timestamp=1_700_000_000_000)
TOPICS = {
    "t": TopicConfig(topic_name="t", read_queue_nums=4, write_queue_nums=2, perm=6),
    "ü": TopicConfig(topic_name="ü", perm=4, topic_filter_type="MULTI_TAG", attributes={"message.type": "a b"}),
}
BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        topic_config_table=TOPICS,
        data_version=VERSION,
        topic_queue_mapping_info_map={"s": TopicQueueMappingInfo(topic="s", total_queues=2, curr_id_map={0: 1})},
    ),
    filter_server_list=["f:1"],
)


@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_written_is_read(compressed: bool) -> None:
    assert decode_registration(encode_registration(BODY, compressed=compressed), compressed=compressed) == BODY


def test_an_empty_body_is_the_empty_version() -> None:
    wrapper = decode_registration(b"", compressed=False).topic_config_serialize_wrapper
    assert (wrapper.data_version, wrapper.topic_config_table) == (DataVersion(), {})


def test_old_senders() -> None:
    wrapper = BODY.topic_config_serialize_wrapper
    old = decode_registration(encode_body(wrapper), compressed=False, version=36)
    assert old.topic_config_serialize_wrapper == wrapper


def test_senders_before_5_have_no_mappings() -> None:
    parts = zlib.decompress(encode_registration(RegisterBrokerBody(), compressed=True))
    assert parts[-4:] == bytes(4)
    body = zlib.compress(parts[:-4])
    assert not decode_registration(body, compressed=True, version=412).filter_server_list
    with pytest.raises(BodyError, match="ends at byte"):
        decode_registration(body, compressed=True, version=413)


def test_unused_keys_of_java_and_nulls() -> None:
    text = {
        "filterServerList": None,
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 7, "stateVersion": 3, "timestamp": 1_700_000_000_000},
            "topicConfigTable": {},
            "topicQueueMappingDetailMap": {"s": {"hostedQueues": {"0": []}}},
            "unknown": 1,
        },
    }
    body = decode_registration(json.dumps(text).encode(), compressed=False)
    assert body.topic_config_serialize_wrapper.data_version == VERSION


def test_the_checksum_has_no_sign() -> None:
    assert body_crc32(b"") == 0
    assert all(body_crc32(bytes([i])) == zlib.crc32(bytes([i])) & 0x7FFFFFFF for i in range(256))


def _packed(*parts: bytes) -> bytes:
    return zlib.compress(b"".join(struct.pack(">i", len(part)) + part for part in parts))


def _twice() -> bytes:
    topic = TOPICS["t"].to_text().encode()
    packed = struct.pack(">i", len(topic)) + topic
    return zlib.compress(struct.pack(">i2si", 2, b"{}", 2) + packed + packed)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"no zlib", "compressed registration"),
        (zlib.compress(b"x" * 100), "length 2021161080"),
        (zlib.compress(b"x" * 100)[:-8], "ends at byte 1"),
        (encode_registration(BODY, compressed=True)[:-1], "ends at byte"),
        (encode_registration(BODY, compressed=True)[:-40], "ends at byte"),
        (encode_registration(BODY, compressed=True)[:-4] + b"sum!", "incorrect data check"),
        (zlib.compress(b"\xff\xff\xff\xff"), "length -1"),
        (zlib.compress(b"\x00\x00\x00\x09{}"), "ends at byte 6"),
        (zlib.compress(b"\x00\x10\x00\x01{}"), "length 1048577"),
        (zlib.compress(zlib.decompress(_packed(b"{}")) + struct.pack(">i2i3s", 2, 18, 18, b"t ")), "ends at byte"),
        (_packed(b"[]"), "DataVersion"),
        (zlib.compress(struct.pack(">i2si", 2, b"{}", 1)), "ends at byte"),
        (zlib.compress(struct.pack(">i2si3x", 2, b"{}", 3)), "ends at byte"),
        (_twice(), "topic t is in it twice"),
        (zlib.compress(struct.pack(">i2sii2s", 2, b"{}", 1, 2, b"\xff\xff")), "UTF-8"),
        (zlib.compress(struct.pack(">i2sii3s", 2, b"{}", 1, 3, b"t 4")), "2 parts"),
    ],
)
def test_what_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(BodyError, match=why):
        decode_registration(body, compressed=True)


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MAX_INFLATED", 1000)
    with pytest.raises(BodyError, match="more than 1000 bytes"):
        decode_registration(_packed(b"{}" + b" " * 2000), compressed=True)


def test_what_follows_the_parts_is_skipped_but_bounded() -> None:
    whole = zlib.decompress(encode_registration(BODY, compressed=True))
    assert decode_registration(zlib.compress(whole + bytes(100_000)), compressed=True) == BODY
    with pytest.raises(BodyError, match="behind its parts"):
        decode_registration(zlib.compress(whole + bytes(10_000_000)), compressed=True)


def test_a_bomb_takes_no_more_memory_than_a_part() -> None:
    huge = struct.pack(">i", 60_000_000)
    bombs = [
        zlib.compress(huge + bytes(60_000_000)),
        zlib.compress(struct.pack(">i2si", 2, b"{}", 1) + huge + bytes(60_000_000)),
        zlib.compress(_of_many_topics()),
    ]
    for bomb in bombs:
        assert len(bomb) < 1_000_000
        tracemalloc.start()
        try:
            with pytest.raises(BodyError):
                decode_registration(bomb, compressed=True)
            assert tracemalloc.get_traced_memory()[1] < 5 * registration.MAX_PART
        finally:
            tracemalloc.stop()


def _of_many_topics() -> bytes:
    topic = struct.pack(">i", 20) + b"t 4 4 6 SINGLE_TAG {}"[:20]
    return struct.pack(">i2si", 2, b"{}", 1_000_000) + topic * 1_000_000


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_steps_make_no_difference(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "STEP", step)
    assert decode_registration(encode_registration(BODY, compressed=True), compressed=True) == BODY


@pytest.mark.parametrize(
    "text",
    [
        "t 4 4 6",
        "t x 4 6 SINGLE_TAG",
        "t 4 4 6 OTHER",
        "t 4 99999999999 6 SINGLE_TAG",
        "t 4 4 6 SINGLE_TAG {",
        "t 4 4 6 SINGLE_TAG [1]",
    ],
)
def test_a_topic_s_text_that_is_none(text: str) -> None:
    with pytest.raises(BodyError, match="topic in a registration"):
        TopicConfig.from_text(text)


def test_a_topic_s_text() -> None:
    assert TOPICS["t"].to_text() == "t 4 2 6 SINGLE_TAG {}"
    assert TopicConfig.from_text("t 4 2 6 SINGLE_TAG") == TOPICS["t"]
    assert TopicConfig.from_text("t 4 2 6 SINGLE_TAG ") == TOPICS["t"]
    assert TopicConfig.from_text(TOPICS["ü"].to_text()) == TOPICS["ü"]


def version(state: int, counter: int, time: int) -> DataVersion:
    return DataVersion(state_version=state, counter=counter, timestamp=time)


def test_versions_are_compared_as_java_compares_them() -> None:
    ordered = [version(0, 0, 0), version(0, 0, 9), version(0, 1, 5), version(1, 0, 0), version(1, 0, 1)]
    assert sorted(ordered[i] for i in (3, 0, 4, 2, 1)) == ordered


@pytest.mark.parametrize(
    ("epoch", "now_ms", "after"),
    [(3, 78, version(3, 5, 78)), (2, 78, version(2, 5, 78)), (0, 78, version(2, 5, 78)), (2, 76, version(2, 5, 76))],
    ids=["next epoch", "same epoch", "earlier epoch", "clock set back"],
)
def test_a_version_is_followed_by_a_greater_one(epoch: int, now_ms: int, after: DataVersion) -> None:
    before = version(2, 4, 77)
    assert before.next(epoch, now_ms) == after
    assert after > before


def test_what_a_topic_allows() -> None:
    topic = TopicConfig(topic_name="t", perm=5)
    assert (topic.readable, topic.writable, topic.inherited) == (True, False, True)


def big(*topics: bytes) -> bytes:
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}}}' % b",".join(topics)


def test_a_large_registration_is_read_in_steps_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = encode_registration(BODY)
    monkeypatch.setattr(registration, "ALL_AT_ONCE", 0)
    assert decode_registration(body, compressed=False) == BODY
    bare = encode_body(BODY.topic_config_serialize_wrapper)
    assert (
        decode_registration(bare, compressed=False, version=36).topic_config_serialize_wrapper
        == BODY.topic_config_serialize_wrapper
    )
    nothing = b'{"filterServerList":null,"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":null}}'
    read = decode_registration(nothing, compressed=False)
    assert read.filter_server_list is None
    assert read.topic_config_serialize_wrapper.topic_queue_mapping_info_map is None


@pytest.mark.parametrize(
    "entry", [b'"%d":1', b'"%d":{}', b'"%d":{"perm":6}', b'"{%d":""'], ids=["number", "empty", "topic", "braces"]
)
def test_registrations_with_too_many_topics_are_refused_before_they_are_taken_apart(
    monkeypatch: pytest.MonkeyPatch, entry: bytes
) -> None:
    monkeypatch.setattr(registration, "ALL_AT_ONCE", 0)
    monkeypatch.setattr(registration, "MAX_TOPICS", 10)
    steps = registration_steps(big(*(entry % number for number in range(11))), compressed=False)
    with pytest.raises(BodyError):
        list(islice(steps, 4))


def test_as_many_topics_as_are_allowed_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "ALL_AT_ONCE", 0)
    monkeypatch.setattr(registration, "MAX_TOPICS", 10)
    topics = (b'"%d":{"topicName":"%d","attributes":{}}' % (number, number) for number in range(10))
    read = decode_registration(big(*topics), compressed=False)
    assert len(read.topic_config_serialize_wrapper.topic_config_table) == 10


def test_compressed_registrations_have_so_many_topics_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = encode_registration(BODY, compressed=True)
    monkeypatch.setattr(registration, "MAX_TOPICS", len(BODY.topic_config_serialize_wrapper.topic_config_table) - 1)
    with pytest.raises(BodyError, match="topics"):
        decode_registration(packed, compressed=True)


def test_many_filter_servers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "ALL_AT_ONCE", 0)
    monkeypatch.setattr(registration, "MAX_PART", 10)
    with pytest.raises(BodyError, match="filter servers"):
        decode_registration(b'{"filterServerList":["","","",""]}', compressed=False)
