"""How far consumer groups are: the next offset to consume of every queue, by `topic@group`.

Clients commit and ask, pulls commit on the way, tools look, slaves copy. Each key's numbers are kept as text beside
the numbers until they change, because the whole table is written to its file every few seconds. A topic or group is
removed at once (`domain/pairs.py`), here and at the slaves, which get its name: `topic@` or `@group`.
Source: rocketmq-all-5.3.3: ConsumerOffsetManager.java.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

from rocketmq_broker.domain.pairs import Pairs
from rocketmq_broker.domain.tables.acting_commits import ActingRecord, TakenCommits, joined
from rocketmq_broker.domain.tables.change_order import Changed, ChangeOrder
from rocketmq_broker.domain.tables.pending_resets import PendingResets
from rocketmq_broker.domain.tables.resets import Resets
from rocketmq_formats.steps import Steps, finish
from rocketmq_formats.store.config_files import TOPIC_GROUP_SEPARATOR, ActingCommit, ActingCommits, topic_at_group
from rocketmq_formats.topics import DataVersion

MAX_OFFSETS: Final = 1_000_000
"""Queues times groups; above it commits for new ones are refused."""
MAX_QUEUE_ID: Final = 65_535
MAX_PULL_OFFSETS: Final = 200_000
SLICE: Final = 2000
"""Keys whose texts are made or compared, or commits that are taken over, in one step; 4 ms."""


class ConsumerOffsets:
    """Committed offsets; implements `consumer_protocols.OffsetTable`.

    `changes` counts what changed, so that others see whether they have the present state.
    """

    def __init__(self, *, acts: Callable[[], bool] = lambda: False) -> None:
        """`acts`: whether this replica takes commits in the place of a master."""
        self._acts = acts
        self.acting = ActingRecord()
        self._taken = TakenCommits()
        self._resets = Resets()
        self.pending_resets = PendingResets()
        self._table = Pairs[dict[int, int]](self._freed)
        self._pulled = Pairs[dict[int, int]](self._pulls_freed)
        """Of this process alone."""
        self._pulls = 0
        """Queues in it."""
        self._texts: dict[str, bytes] = {}
        """Of keys that did not change since it was asked for: `0:12,1:7`."""
        self._outdated: dict[str, None] = {}
        """Keys without text."""
        self._named: set[str] | None = None
        """As a slave, in a copy of the whole table: the keys that its parts have named so far."""
        self._count = 0
        self._order = ChangeOrder()
        """Of keys; removed are `topic@` and `@group`."""
        self.version = DataVersion()
        self.versioned = 0
        """The changes that `version` covers."""
        self.on_change: Callable[[], None] = _nothing

    def __len__(self) -> int:
        """Queues with an offset."""
        return self._count

    # reading

    @property
    def changes(self) -> int:
        return self._order.changes

    @property
    def floor(self) -> int:
        """Removals before this number of `changes` are no longer known."""
        return self._order.floor

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """The group's committed offset of the queue; None if it never committed."""
        return self._find(topic_at_group(topic, group), queue_id)

    def has(self, group: str, topic: str) -> bool:
        """Whether the group has committed an offset of the topic."""
        return self._table.get(topic, group) is not None

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that the group pulls next; None if it did not pull here."""
        queues = self._pulled.get(topic, group)
        return None if queues is None else queues.get(queue_id)

    def raw_keys(self) -> list[str]:
        """`topic@group` of each pair with committed offsets, made without a step for each. Some may have none any
        more."""
        return self._order.keys()

    def topics_of(self, group: str) -> list[str]:
        """Topics of which the group has committed offsets."""
        return self._table.topics_of(group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of the topic."""
        return self._table.groups_of(topic)

    def texts(self) -> Steps[dict[str, bytes]]:
        """Every key with its numbers, `0:12,1:7` (the inside of a fastjson map with bare integer keys), in any order.
        All are as they are at the last step."""
        for _ in range(0, len(self._outdated), SLICE):
            self._make_texts(SLICE)
            yield
        while self._table.to_sweep or self._pulled.to_sweep:
            yield from self._pulled.sweep()
            yield from self._table.sweep()
        self._make_texts(len(self._outdated))  # changed between the steps
        return dict(self._texts)

    def changed_since(self, changes: int, most: int, *, begun: int | None = None) -> Changed:
        """See `ChangeOrder.since`; all keys have values."""
        changed = self._order.since(changes, most, begun=begun)
        return changed._replace(keys=[key for key in changed.keys if self._queues(key) is not None])

    def text(self, key: str) -> bytes:
        """One key's numbers, see `texts`."""
        text = self._texts.get(key)
        if text is None:
            queues = self._queues(key) or {}
            text = self._texts[key] = b",".join([b"%d:%d" % item for item in sorted(queues.items())])
            self._outdated.pop(key, None)
        return text

    # changing

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take over an offset, also one that is lower than before: operators reset groups. False: no such queue can
        be, or the table is full."""
        key = topic_at_group(topic, group)
        before = self._find(key, queue_id)
        if not self._put(key, queue_id, offset):
            return False
        if self._acts():
            self.acting.note(key, queue_id, offset, before, self.version)
        return True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """An administrator moves the group; see `PendingResets`. False as `commit`."""
        if not self.commit(group, topic, queue_id, offset):
            return False
        self.pending_resets.add(group, topic, queue_id, offset)
        return True

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group's next pull begins here."""
        queues = self._pulled.get(topic, group)
        if queues is None or queue_id not in queues:
            if self._pulls >= MAX_PULL_OFFSETS:  # the next pulls fill it again
                self._pulled.clear()
                self._pulls, queues = 0, None
            if queues is None:
                queues = {}
                self._pulled.put(topic, group, queues)
            self._pulls += 1
        queues[queue_id] = offset

    def forget_pulls(self, *, groups: AbstractSet[str] = frozenset(), topics: AbstractSet[str] = frozenset()) -> None:
        """These groups, or these topics, are deleted."""
        self._pulled.remove_all(topics=topics, groups=groups)

    def merge(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """A slave takes over its master's table (Java's putAll): the master's numbers win, higher or lower; entries
        that the master lacks stay."""
        for key, queues in table.items():
            if _is_key(key):
                for queue_id, offset in queues.items():
                    self._put(key, queue_id, offset)

    def take_acting(self, acting: ActingCommits) -> Steps[None]:
        """A master takes over what was committed at a slave that acted, see `joined`; not what it took over before."""
        told = [(key, commit) for key, commits in acting.commits.items() if _is_key(key) for commit in commits]
        for first in range(0, len(told), SLICE):
            for key, commit in told[first : first + SLICE]:
                if self._taken.is_new(key, acting.base, commit):
                    self._join(key, commit, acting.base)
            yield

    def master_again(self) -> None:
        """This replica is master itself: what was committed while it acted is in its table, and stays there."""
        acting = self.acting.commits
        if acting is not None:
            finish(self.take_acting(acting))  # a copy may have replaced them
            self.acting.clear()

    def copied(self, version: DataVersion) -> None:
        """What was taken over last completes a copy of another broker's table, which has this version."""
        self.version, self.versioned = version, self.changes
        self._taken.clear()
        self._resets.copied(version)

    def take_changes(
        self,
        table: Mapping[str, Mapping[int, int]],
        removed: Iterable[str],
        *,
        begins: bool = False,
        ends: bool = True,
    ) -> Steps[None]:
        """A slave takes over its master's changes: what was removed, then queues of some keys. `begins` and `ends`:
        first and last part of a copy of the whole table; at its end, keys that no part has named are removed. Where
        that does not come to its end, the copy has not either."""
        if begins:
            self._named = set()
        for name in removed:
            self._remove_named(name)
        for key, queues in table.items():
            if (self._queues(key) or {}).keys() - queues.keys():
                self._remove_named(key)
        self.merge(table)
        if self._named is not None:
            self._named.update(table)
            if ends:
                yield from self._remove_unnamed(self._named)

    @property
    def copying(self) -> bool:
        """A copy of the whole table has begun and not ended."""
        return self._named is not None

    def load(
        self, version: DataVersion, table: Mapping[str, Mapping[int, int]], acting: ActingCommits | None = None
    ) -> None:
        """Take over what a file kept."""
        self.merge(table)
        self._resets.table_replaced()
        self.copied(version)
        self.acting.load(acting)

    def remove(self, *, groups: AbstractSet[str] = frozenset(), topics: AbstractSet[str] = frozenset()) -> None:
        """Forget where these groups are in every topic, and where every group is in these topics."""
        self.pending_resets.remove(groups=groups, topics=topics)
        for name in (
            *(topic_at_group(topic, "") for topic in topics),
            *(topic_at_group("", group) for group in groups),
        ):
            self._remove_named(name)

    def _join(self, key: str, commit: ActingCommit, base: DataVersion) -> None:
        own = self._find(key, commit.queue_id)
        if own is None and self._resets.removed_since(base, key):
            return  # the slave could not know that yet
        offset = joined(own, commit, reset=self._resets.may_follow(base, key, commit, own))
        if offset is not None:
            self._put(key, commit.queue_id, offset)

    def _find(self, key: str, queue_id: int) -> int | None:
        queues = self._queues(key)
        return None if queues is None else queues.get(queue_id)

    def _queues(self, key: str) -> dict[int, int] | None:
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        return self._table.get(topic, group)

    def _put(self, key: str, queue_id: int, offset: int) -> bool:
        if not 0 <= queue_id <= MAX_QUEUE_ID or not 0 <= offset < 2**63:
            return False
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        queues = self._table.get(topic, group)
        before = None if queues is None else queues.get(queue_id)
        if before == offset:
            return True
        if before is None:
            if self._count >= MAX_OFFSETS:
                return False
            self._count += 1
        elif offset < before and not self.acting.is_from_here(key, queue_id, before):
            self._resets.note(key, queue_id, self.version)
        if queues is None:
            queues = {}
            self._table.put(topic, group, queues)
        queues[queue_id] = offset
        self._mark_changed(key)
        return True

    def _remove_named(self, name: str) -> None:
        """`topic@`, `@group` or a key."""
        topic, _, group = name.partition(TOPIC_GROUP_SEPARATOR)
        if topic and group:
            if not self._table.remove(topic, group):
                return
            self._order.touch()
        elif self._table.remove_topic(topic) if topic else self._table.remove_group(group):
            self._order.removed(name)
        else:
            return
        self._resets.note_removal(name, self.version)
        self.on_change()

    def _remove_unnamed(self, named: AbstractSet[str]) -> Steps[None]:
        """The end of a copy of the whole table."""
        self._resets.table_replaced()
        keys = self._order.keys()
        for first in range(0, len(keys), SLICE):
            if first:
                yield
            for key in keys[first : first + SLICE]:
                if key not in named and self._queues(key) is not None:
                    self._remove_named(key)
        self._named = None

    def _freed(self, topic: str, group: str, queues: dict[int, int]) -> None:
        """These have left the table."""
        self._count -= len(queues)
        key = topic_at_group(topic, group)
        if self._table.get(topic, group) is None:
            self._texts.pop(key, None)
            self._outdated.pop(key, None)
            self._order.forget(key)

    def _pulls_freed(self, _topic: str, _group: str, queues: dict[int, int]) -> None:
        self._pulls -= len(queues)

    def _make_texts(self, most: int) -> None:
        for key in list(islice(self._outdated, most)):
            self.text(key)

    def _mark_changed(self, key: str) -> None:
        self._texts.pop(key, None)
        self._outdated[key] = None
        self._order.mark(key)
        self.on_change()


def _is_key(key: str) -> bool:
    topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
    return bool(topic and separator and group) and TOPIC_GROUP_SEPARATOR not in group


def _nothing() -> None:
    pass
