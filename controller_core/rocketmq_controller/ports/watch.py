"""The watches of groups through gRPC, and the changes that each has still to send. Called by grpc_admin and grpc_port.

A watch holds names only: the group is described when its turn comes, so a slow reader gets the newest value of each
group and costs at most the memory of all groups' names. Changes of state come from the state machine as they are
applied. Changes of liveness are found by `sweep`, a few times a second: silence and the end of a grace period are not
events. An absence shorter than the time between two sweeps is reported only if another change is sent in that time;
then its end is reported too.
"""

import asyncio
import enum
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.ports import group_view


class Kind(enum.Enum):
    """Kind of a watch message; see WatchGroupsResponse in the .proto."""

    CURRENT = "current"
    SYNCED = "synced"
    CHANGED = "changed"
    REMOVED = "removed"


class Change(msgspec.Struct, frozen=True):
    """One message of a watch."""

    kind: Kind
    broker_name: str = ""
    group: pb.Group | None = None
    """None with SYNCED and REMOVED."""


class End(enum.Enum):
    """Why the controller ended a watch."""

    NOT_LEADER = "not leader"
    STOPPING = "stopping"


class WatchEndedError(Exception):
    """The controller ended the watch; `end` says why."""

    def __init__(self, end: End) -> None:
        super().__init__(end.value)
        self.end = end


class TooManyWatchesError(Exception):
    """The limit is reached; nothing was opened."""


class Watch:
    """One reader's place in the stream of changes; made by `Watches.open`."""

    def __init__(self, watches: "Watches", names: Iterable[str], only: str | None) -> None:
        self._watches = watches
        self._only = only
        self._current = OrderedDict.fromkeys(names)
        self._changed: OrderedDict[str, None] = OrderedDict()
        self._synced = False
        self._end: End | None = None
        self._wake = asyncio.Event()

    @property
    def backlog(self) -> int:
        """Groups that are still to be sent to the reader."""
        return len(self._current) + len(self._changed)

    def mark_changed(self, broker_name: str) -> None:
        """The group or its liveness has changed."""
        if (self._only is None or self._only == broker_name) and broker_name not in self._current:
            self._changed[broker_name] = None
            self._wake.set()

    def end(self, end: End) -> None:
        """End the watch; changes that were not sent yet are dropped."""
        self._end = end
        self._wake.set()

    async def next(self) -> Change:
        """Wait for the next change.

        Raises:
            WatchEndedError: the watch has ended.
        """
        while True:
            change = self._next()
            if change is not None:
                return change
            self._wake.clear()
            await self._wake.wait()

    def _next(self) -> Change | None:
        if self._end is None and not self._watches.is_leader():
            self._end = End.NOT_LEADER
        if self._end is not None:
            raise WatchEndedError(self._end)
        while self._current:
            name = next(iter(self._current))
            group = self._watches.describe(name)
            del self._current[name]
            if group is not None:  # else it was cleaned before its turn came
                return Change(Kind.CURRENT, name, group)
        if not self._synced:
            self._synced = True
            return Change(Kind.SYNCED)
        if not self._changed:
            return None
        name = next(iter(self._changed))
        group = self._watches.describe(name)
        del self._changed[name]
        return Change(Kind.REMOVED, name) if group is None else Change(Kind.CHANGED, name, group)


class Watches:
    """All watches of one process; used in the event loop only."""

    def __init__(
        self,
        *,
        machine: ControllerStateMachine,
        heartbeats: HeartbeatTable,
        is_leader: Callable[[], bool],
        now: Callable[[], float],
        limit: int,
    ) -> None:
        self.is_leader = is_leader
        self._machine = machine
        self._heartbeats = heartbeats
        self._now = now
        self._limit = limit
        self._open: set[Watch] = set()
        self._unsubscribe: Callable[[], None] | None = None
        self._liveness: dict[str, tuple[pb.Liveness, ...]] = {}
        """Of each group's replicas: what every watch was sent last, unless the group is marked in it."""

    def __len__(self) -> int:
        return len(self._open)

    def group(self, broker_name: str) -> BrokerGroup | None:
        """The group as it is now, None if no replica is registered in it."""
        group = self._machine.groups.get(broker_name)
        return group if group_view.exists(group) else None

    def describe(self, broker_name: str) -> pb.Group | None:
        """The group as a watch is sent it now. If its liveness is not what the others were sent, they get it too."""
        group = self.group(broker_name)
        if group is None:
            return None
        message = group_view.describe(group, self._heartbeats, self._now())
        self._set_liveness(broker_name, tuple(replica.liveness for replica in message.replicas))
        return message

    def open(self, only: str | None) -> Watch:
        """Begin to watch all groups, or `only` this one, which need not exist. To be closed.

        Raises:
            TooManyWatchesError: see there.
        """
        if len(self._open) >= self._limit:
            raise TooManyWatchesError(f"{self._limit} watches are open already")
        if self._unsubscribe is None:
            self._unsubscribe = self._machine.subscribe(self._on_change)
            self._liveness = {name: self._liveness_of(group) for name, group in self._machine.groups.items()}
        watch = Watch(self, sorted(self._machine.groups) if only is None else (only,), only)
        self._open.add(watch)
        return watch

    def close(self, watch: Watch) -> None:
        """The reader has disconnected."""
        self._open.discard(watch)
        if not self._open and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._liveness = {}

    def sweep(self) -> None:
        """Find the changes that make no event: lost leadership and changed liveness."""
        if not self._open:
            return
        if not self.is_leader():
            self.end_all(End.NOT_LEADER)
            return
        for name, group in self._machine.groups.items():
            self._set_liveness(name, self._liveness_of(group))

    def end_all(self, end: End) -> None:
        """End every watch."""
        for watch in self._open:
            watch.end(end)

    def _on_change(self, broker_name: str, group: BrokerGroup | None) -> None:
        self._liveness[broker_name] = () if group is None else self._liveness_of(group)
        self._mark_changed(broker_name)

    def _set_liveness(self, broker_name: str, seen: tuple[pb.Liveness, ...]) -> None:
        if seen != self._liveness.get(broker_name):
            self._liveness[broker_name] = seen
            self._mark_changed(broker_name)

    def _mark_changed(self, broker_name: str) -> None:
        for watch in self._open:
            watch.mark_changed(broker_name)

    def _liveness_of(self, group: BrokerGroup) -> tuple[pb.Liveness, ...]:
        view = self._heartbeats.view(self._now())
        return tuple(group_view.liveness(view, group.broker_name, broker_id) for broker_id in sorted(group.replicas))
