"""How far consumer groups are: the next offset to consume of every queue, by `topic@group`.

Clients commit and ask, pulls commit on the way, tools look, slaves copy. Each key's numbers are kept as text beside
the numbers until they change, because the whole table is written to its file and sent to slaves every few seconds.
Source: client reference, section 3; commit log reference, section 13 (`ConsumerOffsetManager`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rocketmq_formats.store.config_files import TOPIC_GROUP_SEPARATOR, topic_at_group
from rocketmq_formats.topics import DataVersion

MAX_OFFSETS: Final = 1_000_000
"""Queues times groups; above it commits for new ones are refused."""
MAX_QUEUE_ID: Final = 65_535


class ConsumerOffsets:
    """Committed offsets; implements `consumer_seams.OffsetTable`.

    `changes` counts what changed, so that others see whether they have the present state.
    """

    def __init__(self) -> None:
        self._table: dict[str, dict[int, int]] = {}
        self._texts: dict[str, bytes] = {}
        """Of keys that did not change since it was asked for: `0:12,1:7`."""
        self._count = 0
        self.version = DataVersion()
        self.changes = 0

    def __len__(self) -> int:
        """Queues with an offset."""
        return self._count

    # reading

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group goes on in the queue; None if it never committed."""
        queues = self._table.get(topic_at_group(topic, group))
        return None if queues is None else queues.get(queue_id)

    def topics_of(self, group: str) -> list[str]:
        """Topics of which the group has committed offsets."""
        suffix = TOPIC_GROUP_SEPARATOR + group
        return [key.removesuffix(suffix) for key in self._table if key.endswith(suffix)]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of the topic."""
        prefix = topic + TOPIC_GROUP_SEPARATOR
        return [key.removeprefix(prefix) for key in self._table if key.startswith(prefix)]

    def texts(self) -> Iterator[tuple[str, bytes]]:
        """Every key with its numbers, `0:12,1:7`: the inside of a fastjson map with bare integer keys."""
        texts = self._texts
        for key, queues in self._table.items():
            text = texts.get(key)
            if text is None:
                text = texts[key] = b",".join([b"%d:%d" % item for item in sorted(queues.items())])
            yield key, text

    # changing

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take over an offset, also one that is lower than before: operators reset groups. False: no such queue can
        be, or the table is full."""
        return self._put(topic_at_group(topic, group), queue_id, offset)

    def merge(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """A slave takes what its master has (Java's putAll): the master's numbers hold, higher or lower; what the
        master does not know stays."""
        for key, queues in table.items():
            topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if topic and separator and group and TOPIC_GROUP_SEPARATOR not in group:
                for queue_id, offset in queues.items():
                    self._put(key, queue_id, offset)

    def load(self, version: DataVersion, table: Mapping[str, Mapping[int, int]]) -> None:
        """Take over what a file kept."""
        self.merge(table)
        self.version = version

    def remove_group(self, group: str) -> None:
        """Forget where a group is in every topic."""
        self._remove(lambda key: key.endswith(TOPIC_GROUP_SEPARATOR + group))

    def remove_topic(self, topic: str) -> None:
        """Forget where groups are in a topic."""
        self._remove(lambda key: key.startswith(topic + TOPIC_GROUP_SEPARATOR))

    def _put(self, key: str, queue_id: int, offset: int) -> bool:
        if not 0 <= queue_id <= MAX_QUEUE_ID or not 0 <= offset < 2**63:
            return False
        queues = self._table.get(key)
        before = None if queues is None else queues.get(queue_id)
        if before == offset:
            return True
        if before is None:
            if self._count >= MAX_OFFSETS:
                return False
            self._count += 1
        if queues is None:
            queues = self._table[key] = {}
        queues[queue_id] = offset
        self._texts.pop(key, None)
        self.changes += 1
        return True

    def _remove(self, wanted: Callable[[str], bool]) -> None:
        for key in [key for key in self._table if wanted(key)]:
            self._count -= len(self._table.pop(key))
            self._texts.pop(key, None)
            self.changes += 1
