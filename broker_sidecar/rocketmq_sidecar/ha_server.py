"""The HA port: accepts slaves, serves them while this replica is master, and watches who is in sync.

Driven by `replication`. What the broker has appended goes out in the same turn of the loop.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replication.frames import SlaveHandshake
from rocketmq_sidecar.domain.flow_control import FlowControl
from rocketmq_sidecar.domain.ha_master import CONFIRM_DELAY, MasterSession, Mastership
from rocketmq_sidecar.domain.level import LevelWatch
from rocketmq_sidecar.slave_connection import SlaveConnection
from rocketmq_store.errors import OutOfRangeError
from rocketmq_store.segments import FileSlice, MappedFiles

log = structlog.get_logger()

MAX_SLAVES: Final = 64
"""Connections at a time; a group has a handful of replicas."""


class SlaveLag(msgspec.Struct, frozen=True):
    """How far a connected slave is behind."""

    broker_id: int
    lag: int
    """Bytes of the log that it has not acknowledged."""
    in_sync: bool
    """Whether it is in the SyncStateSet."""


class HaServer:
    """Listens always; serves slaves while there is a `mastership`."""

    def __init__(
        self,
        *,
        heartbeat_interval: float,
        housekeeping_interval: float,
        not_catchup: float,
        review_interval: float,
        flow_limit: int | None,
        on_progress: Callable[[], None],
        on_wish: Callable[[SyncStateSet], None],
        on_change: Callable[[], None],
        on_level: Callable[[int, frozenset[int], bool], None],
    ) -> None:
        """Times in seconds. `on_progress`: acknowledged or confirmed offset or the set's size moved. `on_wish`
        and `on_level`: see `Replication`. `on_change`: something of the status moved."""
        self.loop = asyncio.get_running_loop()
        self.mastership: Mastership | None = None
        self.connections: dict[SlaveConnection, None] = {}
        self._by_id: dict[int, SlaveConnection] = {}
        self._files: MappedFiles | None = None
        self._heartbeat, self._housekeeping, self._not_catchup = heartbeat_interval, housekeeping_interval, not_catchup
        self._review_interval = review_interval
        self._flow_limit = flow_limit
        self._on_progress, self._on_wish, self._on_change = on_progress, on_wish, on_change
        self._on_level = on_level
        self._level: LevelWatch | None = None
        self._listener: socket.socket | None = None
        self._tick_interval = min(1.0, heartbeat_interval / 2, housekeeping_interval / 4, review_interval)
        self._ticks: asyncio.TimerHandle | None = None
        self._last_tick = 0.0
        self._reviewed_at = 0.0
        self._telling: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._refusals: set[str] = set()
        self._wished: frozenset[int] | None = None
        """Wished for since the last look of the timer."""

    @property
    def slaves(self) -> tuple[SlaveLag, ...]:
        """By broker id; also read by the thread that answers probes."""
        master = self.mastership
        if master is None:
            return ()
        sessions = [connection.session for connection in list(self.connections)]
        behind = {
            session.slave.broker_id: master.max_offset - max(0, session.ack)
            for session in sessions
            if session.slave is not None
        }
        members = master.sync_set.members
        return tuple(
            SlaveLag(broker_id, max(0, behind[broker_id]), broker_id in members) for broker_id in sorted(behind)
        )

    # Its life

    def listen(self, host: str, port: int) -> int:
        """Open the port; returns it. Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=16)
        self._listener.setblocking(False)
        self.loop.add_reader(self._listener, self._accept)
        return int(self._listener.getsockname()[1])

    def begin(self, mastership: Mastership, files: MappedFiles) -> None:
        """Serve slaves."""
        self._files = files
        if self.mastership is not mastership:
            self.end("a new mastership begins")
            self.mastership = mastership
        self._wished = None
        self._last_tick = self._reviewed_at = self.loop.time()
        if self._ticks is None:
            self._ticks = self.loop.call_later(self._tick_interval, self._tick)
        self._on_progress()
        self._review()  # elected again: the slaves are there already
        self._on_change()

    def end(self, reason: str) -> None:
        """Close all connections; no wish comes of it, because the set is not ours to shape any more."""
        self.mastership = self._level = None
        for connection in list(self.connections):
            connection.close(reason)
        for timer in (self._ticks, self._telling):
            if timer is not None:
                timer.cancel()
        self._ticks = self._telling = None

    def close(self) -> None:
        """End everything."""
        self.end("the sidecar stops")
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, address = self._listener.accept()
        except OSError:
            return  # it is gone again, or there are no descriptors: the next try will tell
        peer = f"{address[0]}:{address[1]}"
        if self.mastership is None or len(self.connections) >= MAX_SLAVES:
            sock.close()
            log.debug("slave turned away", peer=peer, master=self.mastership is not None)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = MasterSession(self.mastership, FlowControl(self._flow_limit))
        self.connections[SlaveConnection(self, sock, peer, session)] = None

    # From replication

    def appended(self, max_offset: int) -> None:
        """The log reaches to `max_offset` now. The first of a turn of the loop leaves at once, the others together."""
        master = self.mastership
        if master is None or max_offset <= master.max_offset:
            return
        master.max_offset = max_offset
        if self._turn is None:
            self._turn = self.loop.call_soon(self._end_of_turn, max_offset)
            self._ship()

    def flushed(self, offset: int) -> None:
        """The broker's log is on disk up to `offset`."""
        master = self.mastership
        if master is not None and offset > master.flushed:
            master.flushed = offset
            if master.sync_flush:
                self._settle()

    def _end_of_turn(self, shipped: int) -> None:
        self._turn = None
        if self.mastership is not None and self.mastership.max_offset > shipped:
            self._ship()

    def _ship(self) -> None:
        for connection in list(self.connections):
            connection.pump()
        self._settle()

    def watch_level(self, number: int, offset: int | None) -> None:
        """Tell `on_level` who has everything up to `offset`, None: up to the log's end as it is now; `number` 0: no
        more."""
        master = self.mastership
        if master is not None:
            self._level = LevelWatch(number, master.max_offset if offset is None else offset) if number else None
            self._look_level()

    def agreed(self) -> None:
        """The set changed, or a wish was refused."""
        self._wished = None
        if self.mastership is not None:
            self._review()  # first: nothing is acknowledged without those who had qualified and are wished for again
            self.mastership.settle()
            self._on_progress()
            self._on_change()

    # From connections

    def read(self, offset: int, size: int) -> memoryview:
        assert self._files is not None
        try:
            data = self._files.read(offset, size)
        except OutOfRangeError:
            self._files.refresh()
            data = self._files.read(offset, size)
        return data

    def readable(self, offset: int, size: int) -> FileSlice:
        assert self._files is not None
        try:
            return self._files.readable(offset, size)
        except OutOfRangeError:
            self._files.refresh()
            return self._files.readable(offset, size)

    def introduced(self, connection: SlaveConnection, handshake: SlaveHandshake) -> None:
        """A slave said who it is."""
        master = self.mastership
        if master is not None and handshake.broker_id == master.sync_set.own_id:
            raise FrameError(
                f"a slave with this master's own brokerId {handshake.broker_id}: its .broker.meta is a copy"
            )
        older = self._by_id.get(handshake.broker_id)
        self._by_id[handshake.broker_id] = connection
        if older is not None:
            older.close("the same brokerId connected again")
        if master is not None:
            master.acks.pop(handshake.broker_id, None)

    def acknowledged(self, connection: SlaveConnection) -> None:
        """Something was read and understood."""
        self._settle()
        connection.pump()
        slave, master = connection.session.slave, self.mastership
        if slave is not None and master is not None and slave.broker_id not in master.sync_set.members:
            self._review()

    def refused(self, connection: SlaveConnection, error: FrameError) -> None:
        """A slave broke the rules. Logged once for each slave and kind, it will come again."""
        kind = f"{connection.peer.rpartition(':')[0]} {type(error).__name__}"
        note = log.debug if kind in self._refusals else log.warning
        if len(self._refusals) < MAX_SLAVES:
            self._refusals.add(kind)
        note("slave refused", slave=connection.name, reason=str(error))
        connection.close(str(error))

    def closed(self, connection: SlaveConnection, reason: str) -> None:
        """A connection ended, whoever ended it."""
        self.connections.pop(connection, None)
        slave = connection.session.slave
        if slave is None or self._by_id.get(slave.broker_id) is not connection:
            return
        del self._by_id[slave.broker_id]
        if connection.session.position >= 0:
            log.info("slave disconnected", slave=connection.name, reason=reason, ack=connection.session.ack)
        master = self.mastership
        if master is not None:
            master.acks.pop(slave.broker_id, None)
            master.sync_set.left(slave.broker_id)
            self._review()
            self._on_change()
            self._look_level()

    # Consequences

    def _settle(self) -> None:
        master = self.mastership
        if master is not None and master.settle():
            self._on_progress()
            if self._telling is None:
                self._telling = self.loop.call_later(CONFIRM_DELAY, self._tell_confirmed)
        if self._level is not None:
            self._look_level()

    def _look_level(self) -> None:
        if self._level is not None and self.mastership is not None:
            news = self._level.look(self.mastership)
            if news is not None:
                self._on_level(self._level.number, *news)

    def _tell_confirmed(self) -> None:
        self._telling = None
        master = self.mastership
        if master is None:
            return
        for connection in list(self.connections):
            if connection.session.confirm_sent < master.confirm and connection.session.position >= master.max_offset:
                connection.heartbeat()

    def _review(self) -> None:
        """See whether another set is wished for."""
        master = self.mastership
        if master is None:
            return
        now = self.loop.time()
        for connection in self.connections:
            connection.session.review(now)
        size = master.sync_set.size
        wish = master.sync_set.wish(now, self._not_catchup)
        if wish is not None and wish != self._wished:
            self._wished = wish
            self._on_wish(SyncStateSet(sync_state_set=wish, sync_state_set_epoch=master.sync_set.epoch))
        if master.sync_set.size != size:
            self._on_progress()

    def _tick(self) -> None:
        now = self.loop.time()
        self._ticks = self.loop.call_later(self._tick_interval, self._tick)
        master = self.mastership
        stalled = now - self._last_tick > 2 * self._tick_interval + 1.0
        self._last_tick = now
        if stalled and master is not None:  # we slept: silence meanwhile is no proof
            master.sync_set.forgive(now)
            for connection in self.connections:
                connection.last_read = now
        for connection in list(self.connections):
            if now - connection.last_read > self._housekeeping:
                connection.close(f"silent for {self._housekeeping:g} s")
            elif now - connection.last_write >= self._heartbeat:
                connection.heartbeat()
        if now - self._reviewed_at >= self._review_interval:
            self._reviewed_at = now
            self._wished = None  # repeat it: an answer may have been lost
            self._review()
        self._on_change()
