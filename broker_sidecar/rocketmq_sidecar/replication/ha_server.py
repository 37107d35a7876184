"""The HA port: accepts slaves, serves them while this replica is master, and watches the SyncStateSet.

Driven by `replication`. What the broker has appended is sent in the same turn of the loop.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from rocketmq_formats.addresses import format_address
from rocketmq_formats.challenge import NONCE_SIZE
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replication.frames import SlaveHandshake
from rocketmq_formats.replication.introduction import Introduction, Reception
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.sockets import listen, listen_error
from rocketmq_sidecar.audit.audit_server import AuditServer
from rocketmq_sidecar.domain.replication import ha_introduction
from rocketmq_sidecar.domain.replication.ha_challenge import MasterChallenge, Trust
from rocketmq_sidecar.domain.replication.ha_master import CONFIRM_DELAY, FlowControl, MasterSession
from rocketmq_sidecar.domain.replication.mastership import CatchUpWatch, Mastership
from rocketmq_sidecar.replication.slave_connection import SlaveConnection
from rocketmq_store.errors import OutOfRangeError
from rocketmq_store.log.segments import FileSlice, MappedFiles

log = structlog.get_logger()

MAX_SLAVES: Final = 64
"""Slaves at a time; a group has a handful of replicas."""
MAX_UNIDENTIFIED: Final = 48
"""Connections at a time that have not identified themselves; one more closes the oldest of them, never a slave."""
LOG_SECONDS: Final = 60.0
LOG_LINES: Final = 20
"""About connections of each host, in that time: without a secret anybody can connect and leave without end."""
HANDSHAKE_TIMEOUT: Final = 3.0
"""Seconds in which a connection has to identify itself, and to authenticate itself if that is required."""


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
        trust: Trust,
        names: Callable[[], Introduction],
        auditor: AuditServer,
        heartbeat_interval: float,
        housekeeping_interval: float,
        not_catchup: float,
        review_interval: float,
        flow_limit: int | None,
        on_progress: Callable[[], None],
        on_proposal: Callable[[SyncStateSet], None],
        on_change: Callable[[], None],
        on_replicas_caught_up: Callable[[int, frozenset[int], bool], None],
    ) -> None:
        """`trust`: who may follow. `auditor`: serves audit requests. Times in seconds.

        `on_progress`: the acknowledged or confirmed offset moved, or the replicas to wait for changed. `on_proposal`,
        `on_replicas_caught_up`: see `Replication`. `on_change`: part of the status changed."""
        self.loop = asyncio.get_running_loop()
        self.mastership: Mastership | None = None
        self.connections: dict[SlaveConnection, None] = {}
        self._names = names
        self._trust = trust
        self._auditor = auditor
        self._by_id: dict[int, SlaveConnection] = {}
        self._unidentified: dict[SlaveConnection, asyncio.TimerHandle] = {}
        """The oldest first, with the timer that closes it."""
        self._files: MappedFiles | None = None
        self._heartbeat, self._housekeeping, self._not_catchup = heartbeat_interval, housekeeping_interval, not_catchup
        self._review_interval = review_interval
        self._flow_limit = flow_limit
        self._on_progress, self._on_proposal, self._on_change = on_progress, on_proposal, on_change
        self._on_replicas_caught_up = on_replicas_caught_up
        self._catch_up_watch: CatchUpWatch | None = None
        self._listeners: list[socket.socket] = []
        self._tick_interval = min(1.0, heartbeat_interval / 2, housekeeping_interval / 4, review_interval)
        self._ticks: asyncio.TimerHandle | None = None
        self._last_tick = 0.0
        self._reviewed_at = 0.0
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._may_log = LogLimiter(self.loop.time, LOG_SECONDS, lines=LOG_LINES)
        self._may_log_refusal = LogLimiter(self.loop.time, LOG_SECONDS)
        self._proposed: frozenset[int] | None = None
        """What was proposed since the last turn of the timer."""
        self._reported: tuple[int, frozenset[int], dict[int, int], frozenset[int]] | None = None
        """The replicas to wait for, as last reported."""

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
        try:
            self._listeners = listen(host, port, backlog=16)
        except OSError as error:
            raise listen_error("haListenPort", host, port, error) from error
        for listener in self._listeners:
            listener.setblocking(False)
            self.loop.add_reader(listener, self._accept, listener)
        return int(self._listeners[0].getsockname()[1])

    def begin(self, mastership: Mastership, files: MappedFiles) -> None:
        """Serve slaves."""
        self._files = files
        if self.mastership is not mastership:
            self.end("a new mastership begins")
            self.mastership = mastership
        self._proposed = self._reported = None
        self._last_tick = self._reviewed_at = self.loop.time()
        if self._ticks is None:
            self._ticks = self.loop.call_later(self._tick_interval, self._tick)
        self._on_progress()
        self._review()  # elected again: the slaves are connected already
        self._on_change()

    def end(self, reason: str) -> None:
        """Close all connections, without a proposal: this replica is no longer master."""
        self.mastership = self._catch_up_watch = None
        self._auditor.close()
        for connection in list(self.connections):
            connection.close(reason)
        for timer in (self._ticks, self._confirm_timer):
            if timer is not None:
                timer.cancel()
        self._ticks = self._confirm_timer = None

    def close(self) -> None:
        self.end("the sidecar stops")
        for listener in self._listeners:
            self.loop.remove_reader(listener)
            listener.close()
        self._listeners = []

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, address = listener.accept()
        except OSError:
            return  # the peer left again, or there are no descriptors: the next attempt will show
        peer = format_address(address[0], address[1])
        master = self.mastership
        if master is None:
            sock.close()
            log.debug("slave turned away: not master", peer=peer)
            return
        if len(self._unidentified) >= MAX_UNIDENTIFIED:
            next(iter(self._unidentified)).close("too many connections that have not identified themselves")
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = MasterSession(master, FlowControl(self._flow_limit))
        nonce = secrets.token_bytes(NONCE_SIZE)
        challenge = MasterChallenge(self._trust, broker_id=master.sync_set.own_id, nonce=nonce)
        connection = SlaveConnection(self, sock, peer, session, challenge)
        self.connections[connection] = None
        late = f"did not identify itself within {HANDSHAKE_TIMEOUT:g} s"
        self._unidentified[connection] = self.loop.call_later(HANDSHAKE_TIMEOUT, connection.close, late)

    # From replication

    def appended(self, max_offset: int) -> None:
        """The log reaches `max_offset` now. The first call in a turn of the loop sends at once, the others together at
        its end."""
        master = self.mastership
        if master is None or max_offset <= master.max_offset:
            return
        master.max_offset = max_offset
        # A single message does not wait for the end of the turn, and a burst costs two packets per slave.
        if self._turn is None:
            self._turn = self.loop.call_soon(self._end_of_turn, max_offset)
            self._send_new_bytes()

    def flushed(self, offset: int) -> None:
        """The broker's log is on disk up to `offset`."""
        master = self.mastership
        if master is not None and offset > master.flushed:
            master.flushed = offset
            if master.sync_flush:
                self._recompute()

    def _end_of_turn(self, shipped: int) -> None:
        self._turn = None
        if self.mastership is not None and self.mastership.max_offset > shipped:
            self._send_new_bytes()

    def _send_new_bytes(self) -> None:
        for connection in list(self.connections):
            connection.pump()
        self._recompute()  # where one copy is enough, the log's end alone acknowledges

    def watch_catch_up(self, number: int, offset: int | None) -> None:
        """Report to `on_replicas_caught_up` which replicas have everything up to `offset` (None: the present end of the
        log); `number` 0: stop."""
        master = self.mastership
        if master is not None:
            self._catch_up_watch = (
                CatchUpWatch(number, master.max_offset if offset is None else offset) if number else None
            )
            self._check_catch_up()

    def agreed(self) -> None:
        """The set changed, or a proposal was refused."""
        self._proposed = None
        if self.mastership is not None:
            # First: if another slave is proposed, or the same one again, nothing is acknowledged without it.
            self._review()
            self.mastership.recompute()
            self._on_progress()
            self._on_change()

    def copied(self, epoch: int, joins: frozenset[int]) -> None:
        """The broker's `Copied`: slaves that qualify and have the tables."""
        master = self.mastership
        if master is not None and master.epoch == epoch:
            master.sync_set.copied(joins)
            self._review()

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

    def on_handshake(self, connection: SlaveConnection, handshake: SlaveHandshake) -> None:
        """A slave has identified itself."""
        master = self.mastership
        if master is not None and handshake.broker_id == master.sync_set.own_id:
            raise FrameError(
                f"a slave with this master's own brokerId {handshake.broker_id}: its .broker.meta is a copy"
            )
        named = connection.introduction
        if named is not None and named.broker_id != handshake.broker_id:
            raise FrameError(f"named itself broker {named.broker_id}, its handshake is of broker {handshake.broker_id}")
        proven = connection.challenge.slave_id
        if proven is not None and proven != handshake.broker_id:
            raise FrameError(f"authenticated as broker {proven}, but its handshake is of broker {handshake.broker_id}")
        older = self._by_id.get(handshake.broker_id)
        if older is None and len(self._by_id) >= MAX_SLAVES:
            raise FrameError(f"{MAX_SLAVES} slaves are connected")
        if older is not None and older.challenge.slave_id is not None and proven is None:
            raise FrameError(f"broker {handshake.broker_id} is connected and authenticated, this connection is not")
        self._identified(connection)
        self._by_id[handshake.broker_id] = connection
        if older is not None:
            older.close("the same brokerId connected again")
        if master is not None:
            master.on_handshake(handshake)

    def introduced(self, slave: Introduction) -> Reception:
        """What to answer a slave that names itself."""
        return ha_introduction.receive(slave, self._names())

    def _identified(self, connection: SlaveConnection) -> None:
        timer = self._unidentified.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def acknowledged(self, connection: SlaveConnection) -> None:
        """A slave's packets were processed."""
        self._recompute()
        if connection.session.is_behind:
            connection.pump()
        slave, master = connection.session.slave, self.mastership
        if slave is None or master is None:
            return
        # An acknowledgement of a settled member does not change the set. They come for every message, reviews need not.
        if master.sync_set.changed or slave.broker_id not in master.sync_set.members:
            self._review()

    def start_audit(self, connection: SlaveConnection, sock: socket.socket, first: bytes) -> None:
        """The connection is for audit requests."""
        self.connections.pop(connection, None)
        self._identified(connection)
        challenge = connection.challenge
        self._auditor.take(sock, connection.peer, first, sealing=challenge.sealing, opening=challenge.opening)

    def refused(self, connection: SlaveConnection, error: FrameError) -> None:
        """A slave violated the protocol; it will reconnect."""
        if self._may_log_refusal(f"{type(error).__name__} {connection.host}"):
            log.warning("slave refused", slave=connection.name, reason=str(error))
        connection.close(str(error))

    def connected(self, connection: SlaveConnection) -> None:
        """Its first acknowledgement came."""
        if self._may_log(f"connected {connection.host}"):
            log.info("slave connected", slave=connection.name, position=connection.session.position)

    def closed(self, connection: SlaveConnection, reason: str) -> None:
        """A connection ended, from either side."""
        self.connections.pop(connection, None)
        self._identified(connection)
        slave = connection.session.slave
        if slave is None or self._by_id.get(slave.broker_id) is not connection:
            return
        del self._by_id[slave.broker_id]
        if connection.session.position >= 0 and self._may_log(f"disconnected {connection.host}"):
            log.info("slave disconnected", slave=connection.name, reason=reason, ack=connection.session.ack)
        master = self.mastership
        if master is not None:
            master.acks.pop(slave.broker_id, None)
            master.sync_set.disconnected(slave.broker_id)
            self._review()
            self._on_change()
            self._check_catch_up()

    # Consequences

    def _recompute(self) -> None:
        master = self.mastership
        if master is not None and master.recompute():
            self._on_progress()
            if self._confirm_timer is None:
                self._confirm_timer = self.loop.call_later(CONFIRM_DELAY, self._send_confirm_offset)
        if self._catch_up_watch is not None:
            self._check_catch_up()

    def _check_catch_up(self) -> None:
        if self._catch_up_watch is not None and self.mastership is not None:
            news = self._catch_up_watch.check(self.mastership)
            if news is not None:
                self._on_replicas_caught_up(self._catch_up_watch.number, *news)

    def _send_confirm_offset(self) -> None:
        self._confirm_timer = None
        master = self.mastership
        if master is None:
            return
        # Slaves that are behind get it with their next batch.
        for connection in list(self.connections):
            if connection.session.confirm_sent < master.confirm and connection.session.position >= master.max_offset:
                connection.heartbeat()

    def _review(self) -> None:
        """Propose another SyncStateSet if it has to change."""
        master = self.mastership
        if master is None:
            return
        now = self.loop.time()
        for connection in self.connections:
            connection.session.review(now)
        proposal = master.propose(now, self._not_catchup)
        if proposal is not None and proposal != self._proposed:
            self._proposed = proposal
            self._on_proposal(master.sync_set.proposed(proposal))
        reported = master.in_sync, master.sync_set.union, dict(master.sync_set.joins), master.officials
        if reported != self._reported:
            self._reported = reported
            self._on_progress()

    def _tick(self) -> None:
        now = self.loop.time()
        self._ticks = self.loop.call_later(self._tick_interval, self._tick)
        master = self.mastership
        stalled = now - self._last_tick > 2 * self._tick_interval + 1.0
        self._last_tick = now
        if stalled and master is not None:  # this process did not run: the slaves' silence proves nothing
            master.sync_set.excuse_silence(now)
            for connection in self.connections:
                connection.last_read = now
        for connection in list(self.connections):
            if now - connection.last_read > self._housekeeping:
                connection.close(f"silent for {self._housekeeping:g} s")
            elif now - connection.last_write >= self._heartbeat:
                connection.heartbeat()
        if now - self._reviewed_at >= self._review_interval:
            self._reviewed_at = now
            self._proposed = None  # propose it again: an answer may have been lost
            self._review()
        self._on_change()
