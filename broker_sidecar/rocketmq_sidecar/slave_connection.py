"""One slave's connection to the HA port: the socket around `domain.ha_master.MasterSession`. Used by `ha_server`.

Built for few system calls: small batches leave with their header in one call, large ones by sendfile straight from the
page cache.
"""

import asyncio
import os
import socket
from typing import Final, Protocol

import structlog

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.frames import (
    SlaveHandshake,
    SlaveStream,
    encode_master_handshake,
    encode_transfer_header,
)
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain.ha_master import Batch, MasterSession
from rocketmq_store.errors import OutOfRangeError, StoreError
from rocketmq_store.segments import FileSlice

log = structlog.get_logger()

INLINE: Final = 64 * 1024
"""Bytes up to which a batch is copied behind its header: one call, against two."""
BATCHES_PER_TURN: Final = 8
"""Sent to one slave before others get their turn."""
_RECEIVE: Final = 64 * 1024


class Server(Protocol):
    """What a connection needs of `ha_server.HaServer`."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of the log; raises `StoreError`, `OSError`."""

    def readable(self, offset: int, size: int) -> FileSlice:
        """The same as a part of a file."""

    def introduced(self, connection: "SlaveConnection", handshake: SlaveHandshake) -> None:
        """A slave said who it is; raises `FrameError` if it cannot be."""

    def acknowledged(self, connection: "SlaveConnection") -> None:
        """Something was read and understood."""

    def refused(self, connection: "SlaveConnection", error: FrameError) -> None:
        """A slave broke the rules."""

    def closed(self, connection: "SlaveConnection", reason: str) -> None:
        """The connection ended, whoever ended it; called once."""


class SlaveConnection:
    """One accepted socket."""

    def __init__(self, server: Server, sock: socket.socket, peer: str, session: MasterSession) -> None:
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
        except OSError as error:  # it went before it was answered
            self.close(error.strerror or str(error))
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
