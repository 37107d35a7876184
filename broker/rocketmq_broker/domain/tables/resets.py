"""Which queues went back because an operator reset their groups, as far as this process has seen it. Pure.

A master that takes over an acting slave's commits must not undo a reset that the slave had not copied
(`acting_commits.py`). The versions of their tables say which came first. What went back before this process began, or
in the table that a whole copy took the place of, is not known: there an offset that is not what the slave had copied
may be one that has gone on since a reset. Rather messages that come again than messages that never come.
"""

from typing import Final

from rocketmq_formats.store.config_files import TOPIC_GROUP_SEPARATOR, ActingCommit, topic_at_group
from rocketmq_formats.topics import DataVersion

MAX_RESETS: Final = 10_000
"""Queues that went back and are remembered. Of others a reset may be undone if it went back to what an acting slave
had copied before, or later."""

ALL_QUEUES: Final = -1


class Resets:
    def __init__(self) -> None:
        self._versions: dict[tuple[str, int], DataVersion] = {}
        """By key and id, the version of the table before the queue went back."""
        self._since = DataVersion()
        """Of the tables before this version it is not known here which queues went back."""
        self._replaced = False
        """The table is another one than `_since` is about, and its version is still to come."""

    def note(self, key: str, queue_id: int, version: DataVersion) -> None:
        """A queue went back, in a table of `version`."""
        self._versions.pop((key, queue_id), None)
        self._versions[key, queue_id] = version
        if len(self._versions) > MAX_RESETS:
            del self._versions[next(iter(self._versions))]

    def note_removal(self, name: str, version: DataVersion) -> None:
        """A key was removed, or all of a topic (`topic@`) or group (`@group`), in a table of `version`."""
        self.note(name, ALL_QUEUES, version)

    def removed_since(self, base: DataVersion, key: str) -> bool:
        """Whether the key was removed after a table of version `base` was copied."""
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        for name in (key, topic_at_group(topic, ""), topic_at_group("", group)):
            version = self._versions.get((name, ALL_QUEUES))
            if version is not None and base <= version:
                return True
        return False

    def table_replaced(self) -> None:
        """A file's or another broker's table was taken over as a whole: a queue that went back there may be further now
        than it was here."""
        self._replaced = True

    def copied(self, version: DataVersion) -> None:
        """What was taken over last has this version."""
        if self._replaced:
            self._replaced, self._since = False, version

    def may_follow(self, base: DataVersion, key: str, commit: ActingCommit, own: int | None) -> bool:
        """Whether the commit's queue, which is at `own`, went back after a table of version `base` was copied, or may
        have."""
        version = self._versions.get((key, commit.queue_id))
        if version is not None and base <= version:
            return True  # a table of a later version than the one before the reset has the reset
        return base < self._since and own != commit.before
