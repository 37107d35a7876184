"""The state that Raft replicates: groups by broker name, changed only by applying committed batches of events.

Raft calls `apply` and `restore`; everybody else reads `groups` or subscribes to changes. Nothing here looks at the
clock or at who lives, so every member that applied the same index holds the same state (ReplayEqual).
"""

from collections.abc import Callable, Mapping

from rocketmq_controller import event_codec
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.model import BrokerGroup

GroupListener = Callable[[str, BrokerGroup | None], None]
"""Told the name of a group that changed and its new value, None when it is gone."""


class ControllerStateMachine:
    """Implements `rocketmq_controller.raft.StateMachine`."""

    def __init__(self) -> None:
        self._groups: dict[str, BrokerGroup] = {}
        self._listeners: list[GroupListener] = []
        self.applied_index = 0

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
            EventCodecError: bytes that this version cannot read; the process must stop rather than go on without them.
        """
        changed: dict[str, None] = {}
        void: set[str] = set()
        for event in event_codec.decode_events(command):
            name = event.broker_name
            before = self._groups.get(name)
            group = evolve(before, event)
            if group is before:
                void.add(name)
            elif group is not None:
                self._groups[name] = group
                changed[name] = None
        self.applied_index = index
        if self._listeners:
            for name in changed:
                self._tell(name)
        return frozenset(void)

    def snapshot(self) -> bytes:
        return event_codec.encode_snapshot(self._groups)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state.

        Raises:
            EventCodecError: not a snapshot that this version can read.
        """
        before = self._groups
        self._groups = event_codec.decode_snapshot(snapshot)
        for name in before.keys() | self._groups.keys():
            if before.get(name) != self._groups.get(name):
                self._tell(name)

    def _tell(self, name: str) -> None:
        group = self._groups.get(name)
        for listener in tuple(self._listeners):
            listener(name, group)
