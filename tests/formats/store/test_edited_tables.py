"""Tables that people have edited, or that a crash has left behind."""

import pytest

from rocketmq_formats.store.config_files import (
    ConfigFileError,
    ConsumerOffsetsFile,
    SubscriptionGroupsFile,
    TopicsFile,
    decode_config,
)
from rocketmq_formats.topics import TopicConfig

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
    assert decode_config(TopicsFile, text).topic_config_table == {"T": TopicConfig(topic_name="T", read_queue_nums=8)}


def test_offsets_in_quotes() -> None:
    text = b'\xef\xbb\xbf{"offsetTable":{"T@G":{0:"5","1":6}}}'
    assert decode_config(ConsumerOffsetsFile, text).offset_table == {"T@G": {0: 5, 1: 6}}


@pytest.mark.parametrize(
    "text",
    [b"", b"\0" * 300, b"\xff\xfe", TOPICS[:-1], TOPICS + b'"}}', TOPICS[:20] + b"\0" * 40, b"[]", b"null"],
    ids=["empty", "zeros", "no text", "cut off", "longer before", "zeros behind", "a list", "nothing"],
)
def test_what_a_crash_leaves_is_no_table(text: bytes) -> None:
    """So the copy beside it is read."""
    for kind in (TopicsFile, SubscriptionGroupsFile):
        with pytest.raises(ConfigFileError):
            decode_config(kind, text)
