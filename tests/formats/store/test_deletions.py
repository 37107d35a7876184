"""What a record of a deletion says."""

import pytest

from rocketmq_formats.store.deletions import Deleted, decode_deletion, encode_deletion
from rocketmq_formats.store.message_properties import format_properties
from rocketmq_formats.topics import DataVersion


@pytest.mark.parametrize("group", [None, "G", "a|b%c"])
def test_it_is_read_as_it_was_written(group: str | None) -> None:
    versions = [DataVersion(state_version=number, counter=number + 1, timestamp=number + 2) for number in (1, 20, 300)]
    deleted = Deleted(group, *versions)
    assert decode_deletion(encode_deletion(deleted)) == deleted


@pytest.mark.parametrize(
    "versions", ["", "x", "1,2,3;1,2,3", "1,2,3;1,2,3;1,2", "1,2,3;1,2,3;1,2,x", "1,2,3;1,2,3;1,2,3,4"]
)
def test_others_say_nothing(versions: str) -> None:
    assert decode_deletion(format_properties({"VERSIONS": versions} if versions else {})) is None
    assert decode_deletion(b"\xff") is None
