"""The properties of a record of `DELETED_TOPICS`: which group was deleted with the topic, and from which tables. The
next master compares the versions with those of its copies.
"""

from typing import Final, NamedTuple

from rocketmq_formats.store.message_properties import find_property, format_properties
from rocketmq_formats.topics import DataVersion

_GROUP: Final = "GROUP"
_VERSIONS: Final = "VERSIONS"


class Deleted(NamedTuple):
    group: str | None
    """Deleted with its offsets; the topic is its retry topic."""
    topics: DataVersion
    """Of the tables before the deletion."""
    groups: DataVersion
    offsets: DataVersion


def encode_deletion(deleted: Deleted) -> bytes:
    versions = ";".join(
        f"{version.state_version},{version.counter},{version.timestamp}"
        for version in (deleted.topics, deleted.groups, deleted.offsets)
    )
    return format_properties({_VERSIONS: versions} | ({} if deleted.group is None else {_GROUP: deleted.group}))


def decode_deletion(properties: bytes) -> Deleted | None:
    """None: they say nothing."""
    try:
        topics, groups, offsets = (
            _version(*map(int, text.split(","))) for text in (find_property(properties, _VERSIONS) or "").split(";")
        )
    except (TypeError, ValueError):
        return None
    return Deleted(find_property(properties, _GROUP), topics, groups, offsets)


def _version(state_version: int, counter: int, timestamp: int) -> DataVersion:
    return DataVersion(state_version=state_version, counter=counter, timestamp=timestamp)
