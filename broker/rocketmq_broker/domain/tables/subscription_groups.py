"""The consumer groups of this broker: the table, which groups are created automatically, and the table's version.

Pulls and retries look groups up, heartbeats create them, admin requests change them, a slave takes its master's table.
It does no I/O: a shell saves the table, notified by `on_change`.
Source: rocketmq-all-5.3.3: SubscriptionGroupManager.java, TopicValidator.java, Validators.java.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from msgspec import structs

from rocketmq_broker.domain.tables.change_order import ChangeOrder
from rocketmq_broker.domain.tables.topics import LEGAL, name_problem
from rocketmq_formats.topics import MAX_TOPIC_LENGTH, RETRY_PREFIX, DataVersion, SubscriptionGroupConfig

MAX_GROUPS: Final = 100_000
"""A client that makes up names must not fill the memory: above it no group is created automatically."""
MAX_GROUP_LENGTH: Final = MAX_TOPIC_LENGTH - len(RETRY_PREFIX)
"""A longer name makes retry records of the V2 layout, which an official broker in controller mode cannot load again."""
MAX_LONG_GROUP_LENGTH: Final = 248
"""With such names allowed: what the 255 characters of a retry topic's name leave."""

_BUILT_IN: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"

V = TypeVar("V")


class SubscriptionGroups:
    """Groups by name with their version; implements `consumer_protocols.GroupTable`."""

    def __init__(
        self,
        *,
        auto_create: bool,
        allow_long_names: bool,
        may_change: Callable[[], bool],
        state_version: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`may_change`: this replica is master; else its table is its master's, and nothing is created automatically.
        `state_version`: the master epoch, for the versions of changes."""
        self._auto_create = auto_create
        self._longest = MAX_LONG_GROUP_LENGTH if allow_long_names else MAX_GROUP_LENGTH
        self._may_change = may_change
        self._state_version = state_version
        self._now_ms = now_ms
        self._listeners: list[Callable[[], None]] = []
        self._on_removed: list[Callable[[AbstractSet[str]], None]] = []
        self._table = {name: SubscriptionGroupConfig(group_name=name) for name in _BUILT_IN}
        self._forbidden: dict[str, Mapping[str, int]] = {}
        self.order = ChangeOrder()
        """Of groups, with what is forbidden to them."""
        self.order.replaced(self._table)
        self._named: set[str] | None = None
        """As a slave, in a copy of the whole table: the groups that its parts have named so far."""
        self.version = DataVersion()

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called after every change of the table."""
        self._listeners.append(listener)

    def on_removed(self, listener: Callable[[AbstractSet[str]], None]) -> None:
        """As of `TopicTable`, with groups."""
        self._on_removed.append(listener)

    @property
    def table(self) -> Mapping[str, SubscriptionGroupConfig]:
        """All groups by name."""
        return self._table

    @property
    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """group -> topic -> bits; kept for official brokers, not used here."""
        return self._forbidden

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group as it is in the table."""
        return self._table.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, created if that is allowed; None if it does not exist. Not stored at a slave."""
        found = self._table.get(group)
        if found is not None:
            return found
        if not self._auto_create and not group.startswith(_SYSTEM_PREFIX):
            return None
        if self.name_problem(group) is not None or len(self._table) >= MAX_GROUPS:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        if self._may_change():
            self.put(created)
        return created

    def name_problem(self, group: str) -> str | None:
        """What is wrong with a group's name, in Java's words; None if it can be one."""
        if not group.strip():
            return "The specified group is blank."
        if not LEGAL.fullmatch(group) or name_problem(RETRY_PREFIX + group) is not None:
            return "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        if len(group) > self._longest:
            return f"The specified group is longer than group max length {self._longest}."
        return None

    # changing

    def load(
        self,
        version: DataVersion,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
    ) -> None:
        """Take over what a file kept; it goes over the built-in groups. As in Java the table's key is the name."""
        self.version = version
        self._table.update((name, structs.replace(group, group_name=name)) for name, group in groups.items() if name)
        self._forbidden = dict(forbidden)
        self.order.replaced({**self._table, **self._forbidden})

    def replace(
        self,
        version: DataVersion,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
    ) -> None:
        """A slave's table becomes its master's."""
        removed = {name for name in self._table if name not in groups}
        self.version = version
        self._table, self._forbidden = dict(groups), dict(forbidden)
        self._named = None
        self.order.replaced({**self._table, **self._forbidden})
        self._removed(removed)
        self._changed()

    def take_changes(
        self,
        version: DataVersion,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        removed: Iterable[str],
        *,
        begins: bool,
        ends: bool,
    ) -> None:
        """A slave takes over its master's changes: what was removed, then these groups. `begins` and `ends`: first and
        last part. At the end of a copy of the whole table what no part has named is removed; until then it is not
        worth a write."""
        if begins:
            self._named = set()
        table, bits = self._table, self._forbidden
        gone = {name for name in removed if name in table or name in bits}
        changed = groups.keys() | forbidden.keys()
        whole = self._named is not None
        if self._named is not None:
            self._named |= changed
            if ends:
                named, self._named = self._named, None
                gone |= {name for there in (table, bits) for name in there if name not in named}
        for name in gone | changed:
            _set(table, name, groups.get(name))
            _set(bits, name, forbidden.get(name))
        for name in changed:
            self.order.mark(name)
        gone -= changed
        for name in gone:
            self.order.removed(name)
        self._removed(gone)
        if ends:
            self.version = version
        if ends or not whole:
            self._changed()

    def put(self, group: SubscriptionGroupConfig) -> bool:
        """Create or change one; False if nothing changed (then the version stays too)."""
        if self._table.get(group.group_name) == group:
            return False
        self._table[group.group_name] = group
        self.order.mark(group.group_name)
        self._next_version()
        return True

    def delete(self, group: str) -> bool:
        """Delete one with what is forbidden to it; False if there was neither."""
        known, forbidden = self._table.pop(group, None), self._forbidden.pop(group, None)
        if known is None and forbidden is None:
            return False
        self.order.removed(group)
        self._removed({group})
        self._next_version()
        return True

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted: it is forbidden to no group."""
        changed = [group for group, topics in self._forbidden.items() if topic in topics]
        for group in changed:
            rest = {name: bits for name, bits in self._forbidden[group].items() if name != topic}
            _set(self._forbidden, group, rest or None)
            if rest or group in self._table:
                self.order.mark(group)
            else:
                self.order.removed(group)
        if changed:
            self._next_version()

    def _removed(self, groups: AbstractSet[str]) -> None:
        if groups:
            for listener in self._on_removed:
                listener(groups)

    def _next_version(self) -> None:
        self.version = self.version.next(self._state_version(), self._now_ms())
        self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def _set(table: dict[str, V], name: str, value: V | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
