"""The heartbeat table: which brokers live, as this controller sees it. Fed on every member, consulted on the leader.

Callers pass each heartbeat (904) and each closed connection with the monotonic time in seconds; no clock in here.
A broker is dead when its connection closes, and suspected when it has been silent for three of its own heartbeats: the
limit is min(heartbeatTimeoutMills it declared, max(brokerSuspectTimeoutMs, 3 x observed interval)), and only the
declared time-out while too few heartbeats were seen to measure the interval.

A broker that a new leader has never heard is neither alive nor dead but `unheard`, until the grace period ends. A
closed connection is evidence and counts at once, in a grace period as well.

A stall of this process is the exception: brokers close a connection over which they got no answer, so the stall may
have ended it. Soon after a stall the entry of a broker whose connection closes stays alive without one, until the
broker sends a heartbeat over another connection or has been silent for too long since the stall.

A broker that declares a write lease (writeLeaseMillis, durability relaxed) acknowledges alone for that long after a
heartbeat, so it is not called dead before: not when its connection closes, not when the suspect timeout is shorter, and
not by a new leader, which cannot know what its predecessor answered. A broker that declares 0 has no lease now, but
would have one as master: a new leader waits for it through the grace period.

An entry belongs to one connection. `rivals` decides which one, where several send heartbeats in a broker's name.
`log_doubts` has what sidecars report of official brokers' logs.

A broker may have been restarted whenever it comes over another connection: what it reported before is void, since its
log may be shorter. If it registers there, it was restarted: it is dead until its next heartbeat. That it is a learner,
or that its log may lack data, is not void: only a heartbeat takes it back, as anyone can send 1002 in a broker's name.

Differs from 5.3.3 (rocketmq-all-5.3.3: DefaultBrokerHeartbeatManager.java):
- An entry can go over to another connection. Java keeps the first one, so that a broker which has reconnected is
  declared dead when its old connection finally closes.
- The latest epoch and maxOffset count. In Java they never shrink, so a truncated broker is ranked by data that it lost.
- Java uses the declared time-out only: a hung broker is noticed after 10 to 15 s.
- Looked up by brokerName and id as the replicated state is; the cluster's name is kept for display only.
- Bounded: brokers that are not registered get a small part of the table, where dead ones are dropped first and then
  new ones refused. Registered ones are always admitted: the replicated state bounds their number.
"""

from collections.abc import Iterator

import msgspec

from rocketmq_controller.domain.broker_entry import UNKNOWN, BrokerEntry, BrokerKey, Origin, Rival
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.log_doubts import LogDoubts
from rocketmq_controller.domain.model import BrokerLiveInfo
from rocketmq_controller.domain.rivals import Connections, Place, is_impostor, is_rival, newest_rival
from rocketmq_controller.domain.stalls import Stalls
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import NEW_LEADER_WAITS_MS, BrokerHeartbeatRequestHeader

DEFAULT_SUSPECT_TIMEOUT = 3.0
"""Seconds; brokerSuspectTimeoutMs."""
DEFAULT_GRACE = NEW_LEADER_WAITS_MS / 1000
"""Seconds a new leader waits for the first heartbeat of brokers it never heard: brokers look for controllers every 3 s
and send a heartbeat each second after that. After a stall of this process it also covers a broker's request time-out
of 3 s."""
CATCHING_UP = 1.0
"""Seconds after a stall in which the heartbeats that had waited are read; their intervals do not count."""
MISSED_HEARTBEATS = 3
MAX_STRANGERS = 1000
"""Entries of brokers that are not registered."""
FORGET_AFTER = 600.0
"""Seconds after which a dead entry is dropped."""
_SAMPLES = 5


class HeartbeatResult(msgspec.Struct, frozen=True):
    """The effect of a heartbeat."""

    came_alive: bool = False
    """The broker was unknown, dead or without a connection, or had not reported where its log ends or that it has
    everything: its group may be able to elect now."""
    refused: Decision | None = None
    """The answer if it was not accepted; otherwise it is `HEARTBEAT_SUCCESS` (most are oneway and get none)."""


HEARTBEAT_SUCCESS = Decision(ResponseCode.SUCCESS, "Heart beat success")
_ALIVE = HeartbeatResult()
_CAME_ALIVE = HeartbeatResult(came_alive=True)
_NO_ID = HeartbeatResult(refused=Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId"))
_FULL = HeartbeatResult(
    refused=Decision(ResponseCode.SYSTEM_BUSY, "Heart beat refused: too many brokers are not registered")
)
_NOT_AT_HOME = HeartbeatResult(
    refused=Decision(
        ResponseCode.SYSTEM_BUSY,
        "Heart beat refused: this broker sends heartbeats from the host that it registered",
    )
)
_NO_LEASE = HeartbeatResult(
    refused=Decision(
        ResponseCode.SYSTEM_BUSY,
        "Heart beat refused: this broker sends heartbeats over another connection, which has the lease",
    )
)


class HeartbeatTable:
    """All brokers that this controller has heard. `now` is monotonic seconds and never goes back."""

    def __init__(self, *, suspect_timeout: float = DEFAULT_SUSPECT_TIMEOUT, max_strangers: int = MAX_STRANGERS) -> None:
        self.suspect_timeout = suspect_timeout
        self._max_strangers = max_strangers
        self._entries: dict[Place, BrokerEntry] = {}
        self._strangers: set[Place] = set()
        """Entries of brokers that are not registered."""
        self._connections = Connections()
        self._stalls = Stalls()
        self._leading_since = self._grace_until = float("-inf")
        self.doubts = LogDoubts()

    def __len__(self) -> int:
        return len(self._entries)

    def on_heartbeat(
        self,
        request: BrokerHeartbeatRequestHeader,
        connection_id: int,
        now: float,
        *,
        registered: bool = True,
        origin: Origin = UNKNOWN,
    ) -> HeartbeatResult:
        """Handle one heartbeat (904); `registered`: its broker is in the replicated state.

        Refusals: 2005 without brokerId; 2 if there are too many strangers, for a rival that asks for a write lease, and
        for one that is not at home while the entry is.
        """
        if request.broker_id is None:
            return _NO_ID
        key = BrokerKey(request.cluster_name, request.broker_name, request.broker_id)
        entry = self._admit(key, now, registered=registered)
        if entry is None:
            return _FULL
        if is_impostor(entry, connection_id, origin):
            return _NOT_AT_HOME
        if self._is_rival(entry, connection_id, now, origin):
            self._connections.record_rival(entry, Rival(now, request, origin.host), connection_id)
            return _NO_LEASE if (request.write_lease_millis or 0) > 0 else _ALIVE
        home = origin.home if origin.at_home else ""
        if home not in {"", entry.home}:
            self._connections.drop_rivals(entry)
        return self._accept(entry, Rival(now, request, origin.host), connection_id, home=home)

    def _accept(self, entry: BrokerEntry, heartbeat: Rival, connection_id: int, *, home: str) -> HeartbeatResult:
        request, now = heartbeat.request, heartbeat.received_at
        moved = entry.connection_id != connection_id
        left = entry.last_heartbeat + entry.lease - now if entry.alive and moved else 0.0
        loser = entry.connection_id if entry.alive and moved else None
        before = None if entry.last_request is None else Rival(entry.last_heartbeat, entry.last_request, entry.host)
        reported = entry.max_offset >= 0, not entry.unproven
        if moved:
            entry.forget_report()
        entry.take_report(request, leased=left)
        if entry.alive and not moved and entry.last_heartbeat >= self._stalls.listening_since + CATCHING_UP:
            entry.intervals = (*entry.intervals[1 - _SAMPLES :], now - entry.last_heartbeat)
        entry.limit = self._limit(entry)
        came_alive = (
            self._mark_alive(entry, connection_id, now) or (entry.max_offset >= 0, not entry.unproven) > reported
        )
        outdone = home not in {"", entry.home}
        entry.home, entry.host = home, heartbeat.host
        if loser is not None and before is not None and not outdone:
            # The loser was silent but may be the broker, and the winner a stranger that hangs up next.
            self._connections.record_rival(entry, before, loser)
        return _CAME_ALIVE if came_alive else _ALIVE

    def touch(
        self, key: BrokerKey, connection_id: int, now: float, *, strict: bool = False, origin: Origin = UNKNOWN
    ) -> None:
        """Another request that only the broker itself sends shows that it lives; offsets stay unknown. `strict`: as the
        request declares.

        Meant for electMaster without designateElect, before deciding: brokers send a heartbeat asynchronously just
        before, and if it arrives later Java makes them wait 5 s. Not for registerBroker, which recognizes a restarted
        master by the connection of its last heartbeat. Over another connection than that of a living broker it proves
        nothing: anyone may ask.
        """
        entry = self._admit(key, now, registered=True)
        if entry is None or is_impostor(entry, connection_id, origin):
            return
        if not (entry.alive and entry.connection_id not in {None, connection_id}):
            if entry.connection_id != connection_id:
                entry.forget_report()
            entry.strict = entry.strict or strict
            entry.limit = self._limit(entry)
            entry.home, entry.host = origin.home if origin.at_home else "", origin.host
            self._mark_alive(entry, connection_id, now)

    def on_log_doubt(self, broker_name: str, broker_id: int, host: str, now: float, *, unproven: bool) -> bool:
        """The sidecar of a registered broker reports, from `host`, whether the log may lack what was acknowledged. It
        repeats that; a doubt that is not repeated is kept for `FORGET_AFTER`.

        True: the broker lives and is no longer doubted, so its group may be able to elect now.
        """
        proven = self.doubts.report((broker_name, broker_id), host, now, unproven=unproven)
        entry = self._entries.get((broker_name, broker_id))
        return proven and entry is not None and entry.host == host and self.is_alive(entry, now)

    def is_unproven(self, entry: BrokerEntry) -> bool:
        """Whether the log may lack what was acknowledged, as the broker or its sidecar reports."""
        return entry.unproven or self.doubts.concern(entry)

    def on_registered(
        self, broker_name: str, broker_id: int, connection_id: int, now: float, *, origin: Origin = UNKNOWN
    ) -> bool:
        """registerBroker is no sign of life. Over another connection than the heartbeats it means that the broker was
        restarted: its report and any lease are void, and it lives again when it sends a heartbeat or asks for an
        election. It may not want to be elected: its log may be lost.

        False: the broker sends heartbeats over an open connection, so it was not restarted; or the network lost the
        end of that connection, then it will be silent soon. Nothing has changed.
        """
        entry = self._entries.get((broker_name, broker_id))
        if entry is None or entry.connection_id == connection_id:
            return True
        if self._is_rival(entry, connection_id, now, origin):
            return False
        self._mark_dead(entry)
        return True

    def on_connection_closed(self, connection_id: int, now: float) -> tuple[BrokerKey, ...]:
        """The living brokers on this connection: dead at once, unless a lease lasts or a stall of ours caused it."""
        dead: list[BrokerKey] = []
        proves_death = now >= self._stalls.listening_since + DEFAULT_GRACE
        for place in self._connections.close(connection_id):
            entry = self._entries[place]
            if entry.connection_id != connection_id:
                entry.rivals.pop(connection_id, None)
                continue
            entry.connection_id = None
            if entry.alive and self._taken_over(entry, now):
                continue
            if entry.alive and now - entry.last_heartbeat < entry.lease:
                entry.limit = entry.lease
            elif entry.alive and proves_death:
                entry.last_heartbeat = now
                dead.append(entry.key)
                self._mark_dead(entry)
        return tuple(sorted(dead))

    def expired(self, now: float) -> tuple[BrokerKey, ...]:
        """Brokers silent for longer than their limit, each reported once until its next heartbeat.

        To be called on every member, a few times a second.
        """
        silent: list[BrokerKey] = []
        forgotten: list[Place] = []
        for place, entry in self._entries.items():
            if entry.alive:
                # the first condition holds for each that is silent: for nearly all it spares the call
                if (
                    now - entry.last_heartbeat > entry.limit
                    and self._silent(entry, now)
                    and not self._taken_over(entry, now)
                ):
                    silent.append(entry.key)
                    self._mark_dead(entry)
            elif now - entry.last_heartbeat > FORGET_AFTER:
                forgotten.append(place)
        for place in forgotten:
            self._forget(place)
        self.doubts.forget(before=now - FORGET_AFTER)
        return tuple(sorted(silent))

    def start_grace(self, now: float, seconds: float = DEFAULT_GRACE) -> None:
        """This controller begins to lead: for `seconds` a broker that it never heard is not called dead. Nor is, for
        its lease, a broker that it does not receive: the previous leader may have received it until now."""
        self._leading_since = now
        self._grace_until = now + seconds

    def on_stall(self, now: float, seconds: float) -> None:
        """This process was stalled for `seconds` until `now`: silence counts from here, closed connections only later.
        Where a broker is silent across several stalls, the time between the stalls counts."""
        self._stalls.add(now, seconds)

    def view(self, now: float) -> "TableView":
        """The table as it is at `now`; to be used within the same call stack."""
        return TableView(self, now)

    def entry(self, broker_name: str, broker_id: int) -> BrokerEntry | None:
        """The entry, of a living or a dead broker."""
        return self._entries.get((broker_name, broker_id))

    def living(self, now: float) -> Iterator[BrokerEntry]:
        """Entries of brokers alive at `now`, for the admin API, and for metrics, which read from another thread."""
        return (entry for entry in tuple(self._entries.values()) if self.is_alive(entry, now))

    def is_alive(self, entry: BrokerEntry, now: float) -> bool:
        """Whether the entry's broker has been heard within its limit."""
        return entry.alive and not self._silent(entry, now)

    def in_grace(self, now: float) -> bool:
        """Whether the silence of unheard brokers means nothing yet."""
        return now < self._grace_until

    def may_hold_lease(self, entry: BrokerEntry, now: float) -> bool:
        """Whether a broker that is dead here may hold a lease that another controller granted."""
        if entry.lease > 0:
            return now < self._leading_since + entry.lease
        return entry.takes_leases is not False and self.in_grace(now)

    def _silent(self, entry: BrokerEntry, now: float) -> bool:
        if entry.last_heartbeat < self._stalls.listening_since:  # it may have to reconnect first
            return self._stalls.listened(entry.last_heartbeat, now) > max(entry.limit, DEFAULT_GRACE)
        return now - entry.last_heartbeat > entry.limit

    def _limit(self, entry: BrokerEntry) -> float:
        interval = entry.interval
        limit = entry.declared_timeout
        if interval is not None:
            limit = min(limit, max(self.suspect_timeout, MISSED_HEARTBEATS * interval))
        return max(limit, entry.lease)

    def _admit(self, key: BrokerKey, now: float, *, registered: bool) -> BrokerEntry | None:
        place = (key.broker_name, key.broker_id)
        entry = self._entries.get(place)
        if entry is None:
            if not registered:
                if len(self._strangers) >= self._max_strangers and not self._make_room(now):
                    return None
                self._strangers.add(place)
            entry = self._entries[place] = BrokerEntry(key)
        elif registered:
            self._strangers.discard(place)
        return entry

    def _make_room(self, now: float) -> bool:
        for place in [place for place in self._strangers if not self.is_alive(self._entries[place], now)]:
            self._forget(place)
        return len(self._strangers) < self._max_strangers

    def _is_rival(self, entry: BrokerEntry, connection_id: int, now: float, origin: Origin) -> bool:
        silent = now - max(entry.last_heartbeat, self._stalls.listening_since)
        return is_rival(entry, connection_id, origin, silent=silent)

    def _taken_over(self, entry: BrokerEntry, now: float) -> bool:
        """Whether a rival that is not silent took over the entry of a living broker whose own connection ended."""
        rival = newest_rival(entry)
        if rival is None:
            return False
        connection_id, heartbeat = rival
        if now - heartbeat.received_at > self._limit(entry):
            return False
        self._accept(entry, heartbeat, connection_id, home=entry.home)
        return True

    def _mark_alive(self, entry: BrokerEntry, connection_id: int, now: float) -> bool:
        """Record a sign of life; True if the broker was not alive before, or without a connection."""
        came_alive = entry.connection_id is None or not self.is_alive(entry, now)
        self._connections.give(entry, connection_id)
        entry.last_heartbeat = now
        entry.alive = True
        return came_alive

    def _mark_dead(self, entry: BrokerEntry) -> None:
        # Its report is void: when it returns its log may be shorter, and its heartbeat interval another one.
        entry.alive = False
        entry.intervals = ()
        self._connections.drop_rivals(entry)
        entry.forget_report()

    def _forget(self, place: Place) -> None:
        self._strangers.discard(place)
        self._connections.forget(self._entries.pop(place))


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
        """Whether it was never heard and the grace period lasts, or may hold a lease from another controller."""
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
            entry.epoch,
            entry.max_offset,
            entry.election_priority,
            entry.connection_id,
            lease,
            connected,
            entry.strict,
            self._table.is_unproven(entry),
            entry.learner,
        )
