"""The HA port: sockets of slaves around `domain.ha_master`. Driven by `replication`.

Built for few system calls: what the broker has appended goes out in the same turn of the loop, small batches with their
header in one call, large ones by sendfile straight from the page cache.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

import structlog

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.frames import (
    SlaveHandshake,
    SlaveStream,
    encode_master_handshake,
    encode_transfer_header,
)
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain.ha_master import CONFIRM_DELAY, Batch, FlowControl, MasterSession, Mastership
from rocketmq_store.errors import OutOfRangeError, StoreError
from rocketmq_store.segments import FileSlice, MappedFiles

log = structlog.get_logger()

INLINE: Final = 64 * 1024
"""Bytes up to which a batch is copied behind its header: one call, against two."""
BATCHES_PER_TURN: Final = 8
"""Sent to one slave before others get their turn."""
MAX_SLAVES: Final = 64
"""Connections at a time; a group has a handful of replicas."""
_RECEIVE: Final = 64 * 1024


class SlaveConnection:
    """One accepted socket."""

    def __init__(self, server: "HaServer", sock: socket.socket, peer: str, session: MasterSession) -> None:
        self.session = session
        self.peer = peer
        self.sent = 0
        """Bytes of the log, in all."""
        self.last_read = self.last_write = server.loop.time()
        self._server = server
        self._socket = sock
        self._stream = SlaveStream()
        self._head: memoryview | None = None
        self._slice: FileSlice | None = None
        self._at = 0
        self._blocked = False
        self._wake: asyncio.Handle | None = None
        self.open = True
        server.loop.add_reader(sock, self._on_readable)

    # Reading

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if not data:
            self.close("closed by the slave")
            return
        now = self.last_read = self._server.loop.time()
        try:
            packets = self._stream.receive(data)
            for index, packet in enumerate(packets):
                if isinstance(packet, SlaveHandshake):
                    self._on_handshake(packet)
                elif self.session.position < 0:
                    self.session.on_ack(packet, now)
                    log.info("slave connected", slave=self.name, position=self.session.position)
                elif index + 1 == len(packets):  # the last one says all
                    self.session.on_ack(packet, now)
        except FrameError as error:
            self._server.refused(self, error)
            return
        if self.open:
            self._server.acknowledged(self)

    def _on_handshake(self, handshake: SlaveHandshake) -> None:
        if not self.session.on_handshake(handshake):
            return
        self._server.introduced(self, handshake)
        master = self.session.mastership
        # In one call, or Java's slave asks twice. Nothing was sent before, so there is room for it.
        self._send(encode_master_handshake(master.max_offset, master.epochs))

    # Writing

    def pump(self) -> None:
        """Send what may be sent now."""
        if self._blocked or not self.open:
            return
        try:
            if not self._flush():
                return
            now = self._server.loop.time()
            for _ in range(BATCHES_PER_TURN):
                batch = self.session.next_batch(now)
                if batch is None:
                    self._wait_for_budget(now)
                    return
                self.last_write = now
                self._start(batch)
                if not self._flush():
                    return
            if self._wake is None:
                self._wake = self._server.loop.call_soon(self._woken)
        except OSError as error:
            self.close(error.strerror or str(error))
        except (StoreError, StorageError) as error:
            log.error("cannot read the log for a slave", slave=self.name, reason=str(error))
            self.close("the log could not be read")

    def heartbeat(self) -> None:
        """Send a header without bytes, unless something is on its way."""
        if self._blocked or not self.open or self._head is not None or self._slice is not None:
            return
        batch = self.session.heartbeat()
        if batch is None:
            return
        self.last_write = self._server.loop.time()
        try:
            self._start(batch)
            self._flush()
        except OSError as error:
            self.close(error.strerror or str(error))

    def _start(self, batch: Batch) -> None:
        size = batch.size
        header = encode_transfer_header(
            size, batch.offset, batch.epoch, batch.epoch_start, self.session.mastership.confirm
        )
        self.sent += size
        if size > INLINE:
            self._slice, self._at = self._server.readable(batch.offset, size), 0
            self._send(header, more=True)
        elif size:
            self._send(b"".join((header, self._server.read(batch.offset, size))))
        else:
            self._send(header)

    def _send(self, data: bytes, *, more: bool = False) -> None:
        try:
            sent = self._socket.send(data, socket.MSG_MORE if more else 0)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._head = memoryview(data)[sent:]
            self._block()

    def _flush(self) -> bool:
        """Send the rest of what was started; False if the socket takes no more for now."""
        if self._head is not None:
            try:
                sent = self._socket.send(self._head)
            except BlockingIOError:
                sent = 0
            if sent < len(self._head):
                self._head = self._head[sent:]
                return self._block()
            self._head = None
        part = self._slice
        while part is not None:
            try:
                sent = os.sendfile(self._socket.fileno(), part.fd, part.position + self._at, part.size - self._at)
            except BlockingIOError:
                return self._block()
            if sent == 0:
                raise OutOfRangeError(f"a file of the log ends {part.size - self._at} bytes too early")
            self._at += sent
            if self._at == part.size:
                self._slice = part = None
        return True

    def _block(self) -> bool:
        if not self._blocked:
            self._blocked = True
            self._server.loop.add_writer(self._socket, self._on_writable)
        return False

    def _on_writable(self) -> None:
        self._blocked = False
        self._server.loop.remove_writer(self._socket)
        self.pump()

    def _wait_for_budget(self, now: float) -> None:
        if self.session.starved and self._wake is None:
            self._wake = self._server.loop.call_later(max(0.0, self.session.starved_until() - now), self._woken)

    def _woken(self) -> None:
        self._wake = None
        self.pump()

    # The end

    @property
    def name(self) -> str:
        slave = self.session.slave
        return self.peer if slave is None else f"{slave.broker_id} at {self.peer}"

    def close(self, reason: str) -> None:
        """Once; the server hears of it."""
        if not self.open:
            return
        self.open = False
        self.session.on_closed()
        loop = self._server.loop
        loop.remove_reader(self._socket)
        if self._blocked:
            loop.remove_writer(self._socket)
        if self._wake is not None:
            self._wake.cancel()
        self._slice = None
        self._socket.close()
        self._server.closed(self, reason)


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
        on_wish: Callable[[frozenset[int]], None],
        on_change: Callable[[], None],
    ) -> None:
        """Times in seconds. `on_progress`: acknowledged or confirmed offset or the set's size moved. `on_wish`: see
        `Replication`. `on_change`: something of the status moved."""
        self.loop = asyncio.get_running_loop()
        self.mastership: Mastership | None = None
        self.connections: dict[SlaveConnection, None] = {}
        self._by_id: dict[int, SlaveConnection] = {}
        self._files: MappedFiles | None = None
        self._heartbeat, self._housekeeping, self._not_catchup = heartbeat_interval, housekeeping_interval, not_catchup
        self._review_interval = review_interval
        self._flow_limit = flow_limit
        self._on_progress, self._on_wish, self._on_change = on_progress, on_wish, on_change
        self._listener: socket.socket | None = None
        self._tick_interval = min(1.0, heartbeat_interval / 2, housekeeping_interval / 4, review_interval)
        self._ticks: asyncio.TimerHandle | None = None
        self._last_tick = 0.0
        self._reviewed_at = 0.0
        self._telling: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._refusals: set[str] = set()
        self._wished: frozenset[int] | None = None

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
        self._on_change()

    def end(self, reason: str) -> None:
        """Close all connections; no wish comes of it, because the set is not ours to shape any more."""
        self.mastership = None
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

    def _end_of_turn(self, shipped: int) -> None:
        self._turn = None
        if self.mastership is not None and self.mastership.max_offset > shipped:
            self._ship()

    def _ship(self) -> None:
        for connection in list(self.connections):
            connection.pump()
        self._settle()

    def agreed(self) -> None:
        """The set changed, or a wish was refused."""
        self._wished = None
        if self.mastership is not None:
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

    # Consequences

    def _settle(self) -> None:
        master = self.mastership
        if master is not None and master.settle():
            self._on_progress()
            if self._telling is None:
                self._telling = self.loop.call_later(CONFIRM_DELAY, self._tell_confirmed)

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
            connection.session.idle(now)
        size = master.sync_set.size
        wish = master.sync_set.wish(now, self._not_catchup)
        if wish is not None and wish != self._wished:
            self._wished = wish
            self._on_wish(wish)
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
