"""Tables that people have edited, or that a crash has left behind.

What is read is what fastjson 1.2.83 reads with the classes of 5.3.3, and more: fastjson refuses a whole file for one
entry.
"""

import msgspec
import pytest

from rocketmq_formats.json.bodies import Body
from rocketmq_formats.store.config_files import (
    ConfigFileError,
    ConsumerOffsetsFile,
    SubscriptionGroupsFile,
    TopicsFile,
    read_config,
)
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig, TopicConfig

TOPICS = b'{"topicConfigTable":{"T":{"topicName":"T","readQueueNums":8}}}'


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + TOPICS,
        TOPICS.replace(b"8", b'"8"'),
        TOPICS.replace(b'"readQueueNums":8', b'"readQueueNums" : 8 ,\r\n\t"added": null'),
        TOPICS + b"\r\n",
    ],
    ids=["mark", "quotes", "blanks", "line end"],
)
def test_what_editors_leave_changes_nothing(text: bytes) -> None:
    assert read_config(TopicsFile, text)[0].topic_config_table == {"T": TopicConfig(topic_name="T", read_queue_nums=8)}


def test_offsets_in_quotes() -> None:
    text = b'\xef\xbb\xbf{"offsetTable":{"T@G":{0:"5","1":6}}}'
    assert read_config(ConsumerOffsetsFile, text)[0].offset_table == {"T@G": {0: 5, 1: 6}}


@pytest.mark.parametrize(
    "text",
    [b"", b"\0" * 300, b"\xff\xfe", TOPICS[:-1], TOPICS + b'"}}', TOPICS[:20] + b"\0" * 40, b"[]", b"null"],
    ids=["empty", "zeros", "no text", "cut off", "longer before", "zeros behind", "a list", "nothing"],
)
def test_what_a_crash_leaves_is_no_table(text: bytes) -> None:
    """So the copy beside it is read."""
    for kind in (TopicsFile, SubscriptionGroupsFile):
        with pytest.raises(ConfigFileError):
            read_config(kind, text)


@pytest.mark.parametrize(
    "text",
    [
        b"{'topicConfigTable':{'T':{topicName:'T',readQueueNums:8}}}",
        TOPICS.replace(b"8}", b"8},"),
        b"/* by hand */" + TOPICS.replace(b"{", b"{ // T\n", 1),
        TOPICS.replace(b"}}", b',"perm":null,"order":0,"topicFilterType":"OTHER","attributes":{"a":null}}}'),
        b'{"dataVersion":null,' + TOPICS[1:],
    ],
    ids=["single quotes", "a comma more", "comments", "nulls and unknown names", "no version"],
)
def test_what_java_takes_is_taken(text: bytes) -> None:
    expected = TopicConfig(topic_name="T", read_queue_nums=8)
    assert read_config(TopicsFile, text) == (TopicsFile(topic_config_table={"T": expected}), [])


@pytest.mark.parametrize(
    ("kind", "table", "bad", "rest", "named"),
    [
        *(
            (TopicsFile, "topicConfigTable", b'"U":%b' % entry, {"T": TopicConfig(topic_name="T")}, "U")
            for entry in (
                b'{"perm":"RW"}',
                b'{"readQueueNums":[]}',
                b'{"order":"yes"}',
                b"null",
                b"5",
                b'{"perm":1e99}',
            )
        ),
        *(
            (SubscriptionGroupsFile, "subscriptionGroupTable", entry, {"T": SubscriptionGroupConfig()}, "U")
            for entry in (b'"U":{"consumeEnable":"no"}', b'"U":{"groupRetryPolicy":"x"}', b'"U":[]')
        ),
        (SubscriptionGroupsFile, "forbiddenTable", b'"G":{"U":"x","V":1}', {"T": {}, "G": {"V": 1}}, "G U"),
        *(
            (ConsumerOffsetsFile, "offsetTable", b'"U@G":{%b,2:7}' % entry, {"T": {}, "U@G": {2: 7}}, name)
            for entry, name in ((b'0:"x"', "U@G 0"), (b"0:null", "U@G 0"), (b'"a":1', "U@G a"), (b"0:1e99", "U@G 0"))
        ),
        (ConsumerOffsetsFile, "offsetTable", b'"U@G":{0:9223372036854775808}', {"T": {}, "U@G": {}}, "U@G 0"),
        (ConsumerOffsetsFile, "offsetTable", b'"U@G":[1]', {"T": {}}, "U@G"),
    ],
)
def test_an_entry_that_cannot_be_read_is_left_out_and_named(
    kind: type[Body], table: str, bad: bytes, rest: object, named: str
) -> None:
    good = b'"T":{"topicName":"T"}' if kind is TopicsFile else b'"T":{}'
    read, left_out = read_config(kind, b'{"dataVersion":{"counter":7},"%b":{%b,%b}}' % (table.encode(), good, bad))
    (found,) = (field.name for field in msgspec.structs.fields(kind) if field.encode_name == table)
    assert getattr(read, found) == rest
    assert [one.entry for one in left_out] == [named]
    assert read.data_version == DataVersion(counter=7)  # type: ignore[attr-defined]


def test_it_is_taken_from_an_older_table() -> None:
    older = ConsumerOffsetsFile(offset_table={"T@G": {0: 3, 1: 4, 2: 5}, "U@G": {0: 9}})
    read, left_out = read_config(ConsumerOffsetsFile, b'{"offsetTable":{"T@G":{0:"x",1:6},"U@G":"y"}}', older)
    assert read.offset_table == {"T@G": {0: 3, 1: 6}, "U@G": {0: 9}}
    assert [(one.entry, one.replaced) for one in left_out] == [("T@G 0", True), ("U@G", True)]


def test_a_version_that_cannot_be_read_is_named_too() -> None:
    read, left_out = read_config(TopicsFile, b'{"dataVersion":7,' + TOPICS[1:])
    assert (read.data_version, list(read.topic_config_table)) == (DataVersion(), ["T"])
    assert str(left_out[0]).startswith("dataVersion: ")
