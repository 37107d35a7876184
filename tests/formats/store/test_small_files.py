"""checkpoint, names of files, delay levels, and the broker's tables."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.json import fastjson
from rocketmq_formats.store.checkpoint import (
    SIZE,
    Checkpoint,
    CheckpointError,
    decode_checkpoint,
    encode_checkpoint,
)
from rocketmq_formats.store.config_files import (
    ActingCommit,
    ActingCommits,
    ConfigFileError,
    ConsumerOffsetsFile,
    DelayOffsetsFile,
    SubscriptionGroupsFile,
    TopicsFile,
    decode_config,
    encode_config,
    topic_at_group,
)
from rocketmq_formats.store.delay_levels import (
    DEFAULT_LEVELS,
    DelayLevelError,
    delay_level,
    parse_levels,
)
from rocketmq_formats.store.segment_names import SegmentNameError, queue_id_of, segment_name, segment_offset
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig, TopicConfig

INT64 = st.integers(-(2**63), 2**63 - 1)
FILES = (TopicsFile, ConsumerOffsetsFile, SubscriptionGroupsFile, DelayOffsetsFile)
VERSIONS = st.builds(DataVersion, state_version=INT64, counter=INT64, timestamp=INT64)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(['a{1:"b', ",7:", '"', "\\"])
QUEUES = st.dictionaries(INT64, INT64, max_size=3)


# checkpoint


@given(st.builds(Checkpoint, INT64, INT64, INT64, INT64, INT64))
def test_a_checkpoint_survives_its_bytes(checkpoint: Checkpoint) -> None:
    data = encode_checkpoint(checkpoint)
    assert len(data) == SIZE
    assert decode_checkpoint(data) == decode_checkpoint(data[:40]) == checkpoint


def test_a_checkpoint_of_too_few_bytes_or_too_large_values() -> None:
    with pytest.raises(CheckpointError):
        decode_checkpoint(bytes(39))
    with pytest.raises(CheckpointError):
        encode_checkpoint(Checkpoint(confirm_offset=2**63))


def test_recovery_starts_three_seconds_early() -> None:
    assert Checkpoint(10_000, 9_000, 5).min_timestamp == 6_000
    assert Checkpoint(10_000, 2_999).min_timestamp == 0
    assert Checkpoint().min_timestamp == 0


# names


@given(st.integers(0, 2**63 - 1))
def test_a_file_is_named_by_its_first_byte(offset: int) -> None:
    name = segment_name(offset)
    assert len(name) == 20
    assert segment_offset(name) == offset


@given(st.text(max_size=24) | st.text("0123456789٣", min_size=20, max_size=20))
def test_other_names_are_refused(name: str) -> None:
    with contextlib.suppress(SegmentNameError):
        assert segment_name(segment_offset(name)) == name
    with contextlib.suppress(SegmentNameError):
        assert str(queue_id_of(name)) == name


def test_what_is_no_file_and_no_queue() -> None:
    for offset in (-1, 2**63):
        with pytest.raises(SegmentNameError):
            segment_name(offset)
    assert segment_offset("00000000000000008192", file_size=4096) == 8192
    for name in ("00000000000000008193", "99999999999999999999", "0000000000000008192", "lost+found", ""):
        with pytest.raises(SegmentNameError):
            segment_offset(name, file_size=4096)
    assert [queue_id_of(name) for name in ("0", "15", "65535")] == [0, 15, 65535]
    for name in ("01", "-1", "65536", "999999", "", "x", "٣"):
        with pytest.raises(SegmentNameError):
            queue_id_of(name)


# delay levels


def test_delays_are_milliseconds() -> None:
    levels = parse_levels(DEFAULT_LEVELS)
    assert len(levels) == 18
    assert (levels[0], levels[4], levels[17]) == (1_000, 60_000, 7_200_000)
    assert parse_levels("  2d   1s ") == (172_800_000, 1_000)


@pytest.mark.parametrize("text", ["", "1", "s", "1w", "1s,2s", "-1s", "1.5s", "٣s", "1s " * 256])
def test_what_is_no_list_of_delays(text: str) -> None:
    with pytest.raises(DelayLevelError):
        parse_levels(text)


@pytest.mark.parametrize(
    ("properties", "level"),
    [(b"", 0), (b"DELAY\x010", 0), (b"DELAY\x01-3", 0), (b"DELAY\x012", 2), (b"DELAY\x0199", 3), (b"DELAY\x01-0", 0)],
)
def test_a_message_asks_for_a_level(properties: bytes, level: int) -> None:
    assert delay_level(properties, (1, 2, 3)) == level


@pytest.mark.parametrize("value", [b"x", b"1.0", b"--1", b"-", b"2147483648", b"1" * 40, b"1 ", "٣".encode()])
def test_a_delay_that_is_no_number_is_refused(value: bytes) -> None:
    with pytest.raises(DelayLevelError):
        delay_level(b"DELAY\x01" + value, (1, 2, 3))


# tables


def test_the_text_is_javas() -> None:
    version = DataVersion(state_version=1, counter=2, timestamp=3)
    head = '{\n\t"dataVersion":{\n\t\t"counter":2,\n\t\t"stateVersion":1,\n\t\t"timestamp":3\n\t},\n\t"offsetTable":{'
    assert encode_config(DelayOffsetsFile(version, {1: 2, 3: 4})).decode() == head + "1:2,3:4\n\t}\n}"
    assert encode_config(ConsumerOffsetsFile(version, {})).decode() == head + "}\n}"
    offsets = ConsumerOffsetsFile(version, {"T@G": {0: 7}, "T@H": {}})
    assert encode_config(offsets).decode() == head + '\n\t\t"T@G":{0:7\n\t\t},\n\t\t"T@H":{}\n\t}\n}'


COMMITS = st.lists(st.builds(ActingCommit, INT64, INT64, INT64, st.booleans()), max_size=3).map(tuple)
ACTING = st.builds(ActingCommits, base=VERSIONS, commits=st.dictionaries(NAMES, COMMITS, max_size=3))


@given(VERSIONS, st.dictionaries(NAMES, QUEUES, max_size=3), st.none() | ACTING, QUEUES)
def test_offsets_survive_their_text(
    version: DataVersion, table: dict[str, dict[int, int]], acting: ActingCommits | None, queues: dict[int, int]
) -> None:
    offsets, delays = ConsumerOffsetsFile(version, table, acting), DelayOffsetsFile(version, queues)
    assert decode_config(ConsumerOffsetsFile, encode_config(offsets)) == offsets
    assert decode_config(DelayOffsetsFile, encode_config(delays)) == delays


@given(VERSIONS, st.dictionaries(NAMES, st.dictionaries(NAMES, NAMES, max_size=2), max_size=3))
def test_topics_and_groups_survive_their_text(version: DataVersion, names: dict[str, dict[str, str]]) -> None:
    topics = TopicsFile(version, {name: TopicConfig(name, attributes=names[name]) for name in names})
    groups = SubscriptionGroupsFile(
        version,
        {name: {"T": 4} for name in names},
        {name: SubscriptionGroupConfig(name, attributes=names[name]) for name in names},
    )
    assert decode_config(TopicsFile, encode_config(topics)) == topics
    assert decode_config(SubscriptionGroupsFile, encode_config(groups)) == groups


@given(st.binary(max_size=60) | st.text('{}[]:,"\\0a- \n', max_size=60).map(str.encode))
def test_arbitrary_bytes_are_tables_or_errors(data: bytes) -> None:
    for file_type in FILES:
        with contextlib.suppress(ConfigFileError):
            decode_config(file_type, data)


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{", b'{"offsetTable":{"a@b":7}}', b"\xff", b"[" * 100_000])
def test_what_is_no_table(text: bytes) -> None:
    with pytest.raises(ConfigFileError):
        decode_config(ConsumerOffsetsFile, text)


def test_a_file_too_long_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_formats.store.config_files.MAX_LENGTH", 10)
    with pytest.raises(ConfigFileError, match="more than 10"):
        decode_config(TopicsFile, b'{"dataVersion":{}}')


@given(QUEUES)
def test_strict_json_is_read_too(queues: dict[int, int]) -> None:
    text = '{"offsetTable":{' + ",".join(f'"{key}" : {value}' for key, value in queues.items()) + '}, "new":1}'
    assert decode_config(DelayOffsetsFile, text.encode()).offset_table == queues


@given(VERSIONS, QUEUES)
def test_the_tolerant_reader_agrees(version: DataVersion, queues: dict[int, int]) -> None:
    value: Any = fastjson.loads(encode_config(DelayOffsetsFile(version, queues)))
    assert value["offsetTable"] == {str(key): offset for key, offset in queues.items()}


def test_topic_at_group() -> None:
    assert topic_at_group("T", "G") == "T@G"
