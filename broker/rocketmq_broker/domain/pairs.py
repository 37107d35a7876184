"""A table by topic and group of which all that belongs to one topic, or to one group, goes at once. Pure.

A topic can have a million groups, and a group as many topics: to pass over them takes seconds. So each value is in two
dictionaries, one by topic and one by group, and is there as long as both have it. A removal takes one of them away as a
whole. What it leaves in the others is not found any more; `sweep` frees it in steps. Between the steps nothing is half
removed, and a topic or group of the same name begins empty.

Used by the tables of offsets and of locks.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Generic, TypeVar

from rocketmq_formats.steps import Steps

SLICE: Final = 1000
"""Values freed in one step; 2 to 5 ms."""

V = TypeVar("V")
_Parts = dict[str, dict[str, V]]


class Pairs(Generic[V]):
    """The same value is put only once."""

    def __init__(self, freed: Callable[[str, str, V], None] | None = None) -> None:
        """`freed`: called with topic, group and each value that has left, when its memory is freed."""
        self._freed = freed
        self._by_topic: _Parts[V] = {}
        self._by_group: _Parts[V] = {}
        self._removed: list[tuple[str, dict[str, V], bool]] = []
        """Parts that were taken away: the name, what it had, whether the name is a topic's."""

    def get(self, topic: str, group: str) -> V | None:
        groups = self._by_topic.get(topic)
        value = None if groups is None else groups.get(group)
        if value is None or not self._removed:
            return value
        topics = self._by_group.get(group)
        return value if topics is not None and topics.get(topic) is value else None

    def put(self, topic: str, group: str, value: V) -> None:
        """`get` finds nothing of this topic and group."""
        groups = self._by_topic.setdefault(topic, {})
        left = groups.get(group)
        groups[group] = value
        self._by_group.setdefault(group, {})[topic] = value
        if left is not None and self._freed is not None:
            self._freed(topic, group, left)

    def remove(self, topic: str, group: str) -> bool:
        """The value of both; False: it has no such value."""
        value = self.get(topic, group)
        if value is None:
            return False
        _take(self._by_group, group, topic)
        self._free(topic, group, value)
        return True

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have a value of the topic."""
        groups = list(self._by_topic.get(topic, ()))
        return [group for group in groups if self.get(topic, group) is not None] if self._removed else groups

    def topics_of(self, group: str) -> list[str]:
        """Topics of which the group has a value."""
        topics = list(self._by_group.get(group, ()))
        return [topic for topic in topics if self.get(topic, group) is not None] if self._removed else topics

    def groups(self) -> list[str]:
        """Those that have values, and perhaps some that had."""
        return list(self._by_group)

    def remove_topic(self, topic: str) -> bool:
        """All values of the topic; False: it had none."""
        return self._remove_part(self._by_topic, topic, of_topic=True)

    def remove_group(self, group: str) -> bool:
        """Likewise."""
        return self._remove_part(self._by_group, group, of_topic=False)

    def remove_all(self, *, topics: AbstractSet[str] = frozenset(), groups: AbstractSet[str] = frozenset()) -> None:
        """Of these topics, and of these groups."""
        for topic in topics:
            self.remove_topic(topic)
        for group in groups:
            self.remove_group(group)

    def clear(self) -> None:
        """Forget everything; `freed` is not called for it."""
        self._by_topic.clear()
        self._by_group.clear()
        self._removed.clear()

    @property
    def to_sweep(self) -> bool:
        return bool(self._removed)

    def sweep(self) -> Steps[None]:
        """Free what was removed. More may be removed between the steps, and is freed too."""
        while self._removed:
            name, rest, of_topic = self._removed[-1]
            for _ in range(min(SLICE, len(rest))):
                other, value = rest.popitem()
                topic, group = (name, other) if of_topic else (other, name)
                if of_topic:
                    if self._by_group.get(group, {}).get(topic) is value:
                        _take(self._by_group, group, topic)
                    if self._freed is not None:
                        self._freed(topic, group, value)
                elif self._by_topic.get(topic, {}).get(group) is value:  # else its topic's part, or `put`, frees it
                    self._free(topic, group, value)
            if not rest:
                self._removed.pop()
            yield

    def _free(self, topic: str, group: str, value: V) -> None:
        _take(self._by_topic, topic, group)
        if self._freed is not None:
            self._freed(topic, group, value)

    def _remove_part(self, parts: _Parts[V], name: str, *, of_topic: bool) -> bool:
        part = parts.pop(name, None)
        if part is None:
            return False
        self._removed.append((name, part, of_topic))
        return True


def _take(parts: _Parts[V], name: str, other: str) -> None:
    part = parts[name]
    del part[other]
    if not part:
        del parts[name]
