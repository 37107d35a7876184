"""Who lives, as this controller sees it: the heartbeat table, fed on every member and consulted on the leader.

The shell passes each heartbeat (904) and each closed connection with the monotonic time in seconds; no clock in here.
A broker is dead when its connection closes, and suspected when it has been silent for three of its own heartbeats: the
limit is min(heartbeatTimeoutMills it declared, max(brokerSuspectTimeoutMs, 3 x observed interval)), and only the
declared time-out while too few heartbeats were seen to know the interval.

A broker never heard of by a controller that took over just now is neither alive nor dead but `unheard`, until the grace
period ends. A closed connection is knowledge and counts at once, in a grace period as well.

Unless this process was held up itself: brokers close a connection over which they were not answered, so it may be our
silence that ended it. Soon after a stall the entry of a broker whose connection closes lives on without one, until the
broker beats over another or has been silent for too long since we listen again.

A broker that declares a write lease (writeLeaseMillis, durability relaxed) acknowledges alone for so long after a
heartbeat, so it is not called dead before: not when its connection closes, not when the suspect timeout is shorter, and
not by a controller that has just taken over and cannot know what its predecessor answered. One that says 0 has no lease
now, but would have one as master: a new leader waits for it through the grace period.

A broker may have been restarted whenever it turns up over another connection: what it reported before is void, since it
may have lost of its log. If it registers there, it has been: it is dead until it beats.

Differs from 5.3.3 (`DefaultBrokerHeartbeatManager`):
- A heartbeat over another connection moves the entry there; Java keeps the first one, so that a broker which has
  reconnected is declared dead when its old connection is closed at last.
- The latest epoch and maxOffset count. In Java they never shrink, so a truncated broker is compared by data it lost.
- Java knows the declared time-out only: a hung broker is noticed after 10 to 15 s.
- Looked up by brokerName and id as the replicated state is; the cluster's name is kept for display only.
- Bounded: entries of the dead are given up first, then newcomers are refused.
"""

from collections.abc import Iterator

import msgspec

from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import BrokerLiveInfo
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.controller import MAX_ELECTION_PRIORITY, BrokerHeartbeatRequestHeader

DEFAULT_DECLARED_TIMEOUT = 10.0
"""Seconds; what a heartbeat without heartbeatTimeoutMills stands for."""
DEFAULT_SUSPECT_TIMEOUT = 3.0
"""Seconds; brokerSuspectTimeoutMs."""
DEFAULT_GRACE = 5.0
"""Seconds a new leader waits for the first word of those it never heard: brokers look for controllers that have come
(back) every 3 s and beat each second after that. After a stall of this process it covers a broker's time-out of 3 s for
a request as well."""
CATCHING_UP = 1.0
"""Seconds after a stall in which the heartbeats that had waited are read; they say nothing of a broker's pace."""
MISSED_HEARTBEATS = 3
MAX_ENTRIES = 100_000
FORGET_AFTER = 600.0
"""Seconds after which a dead entry says nothing any more."""
_SAMPLES = 5
_ENOUGH_SAMPLES = 2  # of two the longer counts
_MAX_TIMEOUT = 86_400.0


class BrokerKey(msgspec.Struct, frozen=True, order=True):
    """A broker as it names itself in heartbeats; it need not be registered."""

    cluster_name: str
    broker_name: str
    broker_id: int


class Heard(msgspec.Struct, frozen=True):
    """What a heartbeat led to."""

    came_alive: bool = False
    """It was unknown, dead or without a connection before: its group may be able to elect now."""
    refused: Decision | None = None
    """The answer if it was not taken in; otherwise it is `HEARTBEAT_SUCCESS` (most are oneway and want none)."""


HEARTBEAT_SUCCESS = Decision(ResponseCode.SUCCESS, "Heart beat success")
_ALIVE = Heard()
_CAME_ALIVE = Heard(came_alive=True)
_NO_ID = Heard(refused=Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId"))
_FULL = Heard(refused=Decision(ResponseCode.SYSTEM_BUSY, "Heart beat refused: too many brokers are alive already"))


class BrokerEntry:
    """One broker's last words. Read by views and metrics, written by `HeartbeatTable` only."""

    __slots__ = (
        "address",
        "alive",
        "confirm_offset",
        "connection_id",
        "declared_timeout",
        "election_priority",
        "epoch",
        "intervals",
        "key",
        "last_heartbeat",
        "lease",
        "limit",
        "max_offset",
        "takes_leases",
    )

    def __init__(self, key: BrokerKey) -> None:
        self.key = key
        self.address = ""
        self.alive = False
        self.connection_id: int | None = None
        self.declared_timeout = DEFAULT_DECLARED_TIMEOUT
        self.limit = DEFAULT_DECLARED_TIMEOUT
        self.lease = 0.0
        """Seconds after a heartbeat in which it may acknowledge alone."""
        self.takes_leases: bool | None = None
        """Whether it has, or as master would have, a lease; None before its first heartbeat."""
        self.last_heartbeat = 0.0
        self.intervals: tuple[float, ...] = ()
        self.epoch = -1
        self.max_offset = -1
        self.confirm_offset = -1
        self.election_priority = MAX_ELECTION_PRIORITY

    @property
    def interval(self) -> float | None:
        """Median of the last intervals between heartbeats in seconds; None while too few were seen."""
        if len(self.intervals) < _ENOUGH_SAMPLES:
            return None
        return sorted(self.intervals)[len(self.intervals) // 2]

    def forget_report(self) -> None:
        """What it said of its log is void."""
        self.epoch = self.max_offset = self.confirm_offset = -1


class HeartbeatTable:
    """All brokers this controller has heard of. `now` is monotonic seconds and never goes back."""

    def __init__(self, *, suspect_timeout: float = DEFAULT_SUSPECT_TIMEOUT, max_entries: int = MAX_ENTRIES) -> None:
        self.suspect_timeout = suspect_timeout
        self._max_entries = max_entries
        self._entries: dict[tuple[str, int], BrokerEntry] = {}
        self._by_connection: dict[int, set[tuple[str, int]]] = {}
        self._leading_since = self._grace_until = float("-inf")
        self._listening_since = float("-inf")

    def __len__(self) -> int:
        return len(self._entries)

    def on_heartbeat(self, request: BrokerHeartbeatRequestHeader, connection_id: int, now: float) -> Heard:
        """Take in one heartbeat (904). Refusals: 2005 without brokerId; 2 if the table is full of living brokers."""
        if request.broker_id is None:
            return _NO_ID
        entry = self._admit(request.cluster_name, request.broker_name, request.broker_id, now)
        if entry is None:
            return _FULL
        if entry.connection_id != connection_id:
            entry.forget_report()
        entry.address = request.broker_addr
        if request.epoch is not None:
            entry.epoch = request.epoch
        if request.max_offset is not None:
            entry.max_offset = request.max_offset
        if request.confirm_offset is not None:
            entry.confirm_offset = request.confirm_offset
        if request.election_priority is not None:
            entry.election_priority = request.election_priority
        declared = request.heartbeat_timeout_mills
        entry.declared_timeout = (
            DEFAULT_DECLARED_TIMEOUT if declared is None else min(max(declared, 0) / 1000, _MAX_TIMEOUT)
        )
        lease = request.write_lease_millis
        entry.lease = 0.0 if lease is None else min(max(lease, 0) / 1000, _MAX_TIMEOUT)
        entry.takes_leases = lease is not None
        if entry.alive and entry.last_heartbeat >= self._listening_since + CATCHING_UP:
            entry.intervals = (*entry.intervals[1 - _SAMPLES :], now - entry.last_heartbeat)
        entry.limit = self._limit(entry)
        return _CAME_ALIVE if self._hear(entry, connection_id, now) else _ALIVE

    def touch(self, key: BrokerKey, connection_id: int, now: float) -> None:
        """Another request that only the broker itself sends shows that it lives; it says nothing of offsets.

        Meant for electMaster without designateElect, before deciding: brokers announce themselves by a heartbeat sent
        asynchronously just before, and if that is overtaken Java makes them wait 5 s. Not for registerBroker, which
        tells a restarted master by the connection of its last heartbeat.
        """
        entry = self._admit(key.cluster_name, key.broker_name, key.broker_id, now)
        if entry is not None:
            if entry.connection_id != connection_id:
                entry.forget_report()
            entry.limit = self._limit(entry)
            self._hear(entry, connection_id, now)

    def on_registered(self, broker_name: str, broker_id: int, connection_id: int) -> None:
        """registerBroker: no sign of life that counts, but over another connection than its heartbeats the word of a
        broker that has been restarted. Its life before is over, with what it said and any lease; the new one begins
        when it beats or asks for an election. It may not want to be elected: its log may be gone."""
        entry = self._entries.get((broker_name, broker_id))
        if entry is not None and entry.connection_id != connection_id:
            self._bury(entry)

    def on_connection_closed(self, connection_id: int, now: float) -> tuple[BrokerKey, ...]:
        """The living brokers that were on the connection: dead at once, unless a lease lasts or we caused it."""
        gone: list[BrokerKey] = []
        proves_death = now >= self._listening_since + DEFAULT_GRACE
        for place in self._by_connection.pop(connection_id, ()):
            entry = self._entries[place]
            entry.connection_id = None
            if entry.alive and now - entry.last_heartbeat < entry.lease:
                entry.limit = entry.lease
            elif entry.alive and proves_death:
                entry.last_heartbeat = now
                gone.append(entry.key)
                self._bury(entry)
        return tuple(sorted(gone))

    def expired(self, now: float) -> tuple[BrokerKey, ...]:
        """Brokers silent for longer than their limit, each reported once until it beats again.

        To be called on every member, a few times a second.
        """
        silent: list[BrokerKey] = []
        forgotten: list[tuple[str, int]] = []
        for place, entry in self._entries.items():
            if entry.alive:
                if self._silent(entry, now):
                    silent.append(entry.key)
                    self._bury(entry)
            elif now - entry.last_heartbeat > FORGET_AFTER:
                forgotten.append(place)
        for place in forgotten:
            self._forget(place)
        return tuple(sorted(silent))

    def start_grace(self, now: float, seconds: float = DEFAULT_GRACE) -> None:
        """This controller begins to lead: for so long a broker it never heard of is not to be called dead, nor for its
        lease one that it has lost sight of: the leader before may have heard it until now."""
        self._leading_since = now
        self._grace_until = now + seconds

    def forgive_stall(self, now: float) -> None:
        """This process itself was held up until `now`: silence counts from here, closed connections only later."""
        self._listening_since = now

    def view(self, now: float) -> "TableView":
        """The table as it is at `now`; to be used within the same call stack."""
        return TableView(self, now)

    def entry(self, broker_name: str, broker_id: int) -> BrokerEntry | None:
        """The entry, of a living or a dead broker."""
        return self._entries.get((broker_name, broker_id))

    def living(self, now: float) -> Iterator[BrokerEntry]:
        """Entries of brokers alive at `now`, for metrics and the admin API."""
        return (entry for entry in self._entries.values() if self.is_alive(entry, now))

    def is_alive(self, entry: BrokerEntry, now: float) -> bool:
        """Whether the entry's broker has been heard within its limit."""
        return entry.alive and not self._silent(entry, now)

    def in_grace(self, now: float) -> bool:
        """Whether silence of the unknown means nothing yet."""
        return now < self._grace_until

    def may_hold_lease(self, entry: BrokerEntry, now: float) -> bool:
        """Whether a broker that is dead to us may hold a lease that another controller let it have."""
        if entry.lease > 0:
            return now < self._leading_since + entry.lease
        return entry.takes_leases is not False and self.in_grace(now)

    def _silent(self, entry: BrokerEntry, now: float) -> bool:
        if entry.last_heartbeat < self._listening_since:  # it may have to find us again first
            return now - self._listening_since > max(entry.limit, DEFAULT_GRACE)
        return now - entry.last_heartbeat > entry.limit

    def _limit(self, entry: BrokerEntry) -> float:
        interval = entry.interval
        limit = entry.declared_timeout
        if interval is not None:
            limit = min(limit, max(self.suspect_timeout, MISSED_HEARTBEATS * interval))
        return max(limit, entry.lease)

    def _admit(self, cluster_name: str, broker_name: str, broker_id: int, now: float) -> BrokerEntry | None:
        place = (broker_name, broker_id)
        entry = self._entries.get(place)
        if entry is None:
            if len(self._entries) >= self._max_entries and not self._make_room(now):
                return None
            entry = self._entries[place] = BrokerEntry(BrokerKey(cluster_name, broker_name, broker_id))
        elif entry.key.cluster_name != cluster_name:
            entry.key = BrokerKey(cluster_name, broker_name, broker_id)
        return entry

    def _make_room(self, now: float) -> bool:
        for place in [place for place, entry in self._entries.items() if not self.is_alive(entry, now)]:
            self._forget(place)
        return len(self._entries) < self._max_entries

    def _hear(self, entry: BrokerEntry, connection_id: int, now: float) -> bool:
        """Note a sign of life; True if the broker was not alive before, or without a connection."""
        came_alive = entry.connection_id is None or not self.is_alive(entry, now)
        if entry.connection_id != connection_id:
            self._leave_connection(entry)
            entry.connection_id = connection_id
            self._by_connection.setdefault(connection_id, set()).add((entry.key.broker_name, entry.key.broker_id))
        entry.last_heartbeat = now
        entry.alive = True
        return came_alive

    def _bury(self, entry: BrokerEntry) -> None:
        # What it said before is void: when it returns it may have been truncated, and beat at another pace.
        entry.alive = False
        entry.intervals = ()
        entry.forget_report()

    def _forget(self, place: tuple[str, int]) -> None:
        self._leave_connection(self._entries.pop(place))

    def _leave_connection(self, entry: BrokerEntry) -> None:
        if entry.connection_id is None:
            return
        places = self._by_connection[entry.connection_id]
        places.discard((entry.key.broker_name, entry.key.broker_id))
        if not places:
            del self._by_connection[entry.connection_id]


class TableView:
    """A `model.LivenessView` of the table at one instant."""

    __slots__ = ("_now", "_table")

    def __init__(self, table: HeartbeatTable, now: float) -> None:
        self._table = table
        self._now = now

    def alive(self, broker_name: str, broker_id: int) -> bool:
        """Whether it was heard within its limit."""
        entry = self._table.entry(broker_name, broker_id)
        return entry is not None and self._table.is_alive(entry, self._now)

    def unheard(self, broker_name: str, broker_id: int) -> bool:
        """Whether it was never heard of and the grace period lasts, or may hold a lease that we know nothing of."""
        entry = self._table.entry(broker_name, broker_id)
        if entry is None:
            return self._table.in_grace(self._now)
        return not self._table.is_alive(entry, self._now) and self._table.may_hold_lease(entry, self._now)

    def info(self, broker_name: str, broker_id: int) -> BrokerLiveInfo | None:
        """Its last report; None unless it is alive."""
        entry = self._table.entry(broker_name, broker_id)
        if entry is None or not self._table.is_alive(entry, self._now):
            return None
        lease = max(0.0, entry.last_heartbeat + entry.lease - self._now)
        connected = entry.connection_id is not None
        return BrokerLiveInfo(
            entry.epoch, entry.max_offset, entry.election_priority, entry.connection_id, lease, connected
        )
