"""The state that Raft replicates: groups by broker name, changed only by applying committed batches of events.

Raft calls `apply`, `capture` and `load`; all others read `groups` or subscribe to changes. Nothing here depends on
the clock or on which brokers live, so every member that applied the same index holds the same state (ReplayEqual).
"""

from collections.abc import Callable, Mapping

from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.forms import FIRST_LEVEL, level_of
from rocketmq_controller.domain.model import BrokerGroup, GroupRecord, record_bytes
from rocketmq_controller.domain.room import Tally
from rocketmq_controller.log import event_codec

GroupListener = Callable[[str, BrokerGroup | None], None]
"""Receives the name of a group that changed and its new value, None when it is deleted."""


class ControllerStateMachine:
    """Implements `rocketmq_controller.raft.StateMachine`."""

    def __init__(self) -> None:
        self._groups: dict[str, BrokerGroup] = {}
        self._records: dict[str, tuple[BrokerGroup, bytes]] = {}
        """What the last snapshot wrote: most groups have not changed since. Only `capture`'s function touches it."""
        self._listeners: list[GroupListener] = []
        self.tally = Tally()
        """Of the committed state."""
        self.feature_level = FIRST_LEVEL
        """Highest level of what was committed: every member could read it (`domain.forms`)."""

    @property
    def groups(self) -> Mapping[str, BrokerGroup]:
        """The committed state; read-only."""
        return self._groups

    def subscribe(self, listener: GroupListener) -> Callable[[], None]:
        """Call `listener` after every change until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def apply(self, index: int, command: bytes) -> frozenset[str]:
        """Fold a committed batch into the state; returns the groups for which an event was void (see `evolve`).

        Raises:
            EventCodecError: bytes that this version cannot read; the process must stop, not skip them.
        """
        del index  # only Raft needs it
        changed: dict[str, None] = {}
        void: set[str] = set()
        for event in event_codec.decode_events(command):
            self.feature_level = max(self.feature_level, level_of(event))
            name = event.broker_name
            before = self._groups.get(name)
            group = evolve(before, event)
            if group is before:
                void.add(name)
            elif group is not None:
                self._groups[name] = group
                self.tally.change(before, group)
                changed[name] = None
        if self._listeners:
            for name in changed:
                self._notify(name)
        return frozenset(void)

    def capture(self) -> Callable[[], bytes]:
        """The groups as they are now; the function encodes them, in any thread, one such function at a time."""
        groups = dict(self._groups)  # groups are frozen values

        def encode() -> bytes:
            known, self._records = self._records, {}
            for name, group in groups.items():
                before = known.get(name)
                self._records[name] = before if before and before[0] is group else (group, record_bytes(group))
            return event_codec.encode_records({name: record for name, (_, record) in self._records.items()})

        return encode

    def load(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a state, in any thread; the function replaces ours by it.

        Raises:
            EventCodecError: not a snapshot that this version can read.
        """
        groups = event_codec.decode_snapshot(snapshot)
        compared = dict(self._groups)
        differing = {name for name in compared.keys() | groups.keys() if compared.get(name) != groups.get(name)}
        tally = Tally.of(groups)
        feature_level = max((level_of(GroupRecord.of(group)) for group in groups.values()), default=FIRST_LEVEL)

        def take_over() -> None:
            before, self._groups, self.tally = self._groups, groups, tally
            self.feature_level = max(self.feature_level, feature_level)
            for name in before.keys() | groups.keys():
                # What was applied while we decoded was not compared.
                if name in differing or before.get(name) is not compared.get(name):
                    self._notify(name)

        return take_over

    def _notify(self, name: str) -> None:
        group = self._groups.get(name)
        for listener in tuple(self._listeners):
            listener(name, group)
