"""One slave's connection to the HA port: the socket around `domain.ha_master.MasterSession`. Used by `ha_server`.

It needs few system calls: small batches are sent with their header in one call, large ones by sendfile from the page
cache.
"""

import asyncio
import contextlib
import os
import socket
from typing import Final, Protocol

import structlog

from rocketmq_formats.challenge import Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication import audit, introduction
from rocketmq_formats.replication.frames import (
    SlaveHandshake,
    SlaveStream,
    encode_master_handshake,
    encode_transfer_header,
)
from rocketmq_formats.replication.introduction import Introduction, Reception
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.domain.replication.ha_challenge import ChallengeError, MasterChallenge, State
from rocketmq_sidecar.domain.replication.ha_master import Batch, MasterSession
from rocketmq_store.errors import OutOfRangeError, StoreError
from rocketmq_store.log.segments import FileSlice

log = structlog.get_logger()

INLINE: Final = 64 * 1024
"""Bytes up to which a batch is copied after its header: one call in place of two."""
BATCHES_PER_TURN: Final = 8
"""Sent to one slave before it is the others' turn."""
_RECEIVE: Final = 64 * 1024


class Server(Protocol):
    """The part of `ha_server.HaServer` that a connection uses."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of the log; raises `StoreError`, `OSError`."""

    def readable(self, offset: int, size: int) -> FileSlice:
        """The same as a part of a file."""

    def on_handshake(self, connection: "SlaveConnection", handshake: SlaveHandshake) -> None:
        """A slave has identified itself; raises `FrameError` if that cannot be."""

    def introduced(self, slave: Introduction) -> Reception:
        """What to answer a slave that names itself."""

    def connected(self, connection: "SlaveConnection") -> None:
        """Its first acknowledgement came."""

    def acknowledged(self, connection: "SlaveConnection") -> None:
        """A slave's packets were processed."""

    def start_audit(self, connection: "SlaveConnection", sock: socket.socket, first: bytes) -> None:
        """The connection is for audit requests, which begin with `first`. The socket is no longer used here."""

    def refused(self, connection: "SlaveConnection", error: FrameError) -> None:
        """A slave violated the protocol."""

    def closed(self, connection: "SlaveConnection", reason: str) -> None:
        """The connection ended, from either side; called once."""


class SlaveConnection:
    def __init__(
        self, server: Server, sock: socket.socket, peer: str, session: MasterSession, challenge: MasterChallenge
    ) -> None:
        self.session = session
        self.challenge = challenge
        self.peer = peer
        self.sent = 0
        """Bytes of the log, in total."""
        self.last_read = self.last_write = server.loop.time()
        self._server = server
        self._socket = sock
        self._stream: SlaveStream | None = None
        """None before the challenge is over."""
        self._first = b""
        """What came after the challenge, until it is known what it begins."""
        self.introduction: Introduction | None = None
        """As whom a native slave has named itself."""
        self._seals: Seals | None = None
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
            packets = self._receive(data)
            for index, packet in enumerate(packets):
                if isinstance(packet, SlaveHandshake):
                    self._on_handshake(packet)
                elif self.session.position < 0:  # the first one says where to begin
                    self.session.on_ack(packet, now)
                    self._server.connected(self)
                elif index + 1 == len(packets):  # the last acknowledgement includes the others
                    self.session.on_ack(packet, now)
        except FrameError as error:
            if isinstance(error, ChallengeError) and error.reply:
                with contextlib.suppress(OSError):
                    self._socket.send(error.reply)
            self._server.refused(self, error)
            return
        except OSError as error:  # it disconnected before the answer
            self.close(error.strerror or str(error))
            return
        if self.open:
            self._server.acknowledged(self)

    def _receive(self, data: bytes) -> list[SlaveHandshake | int]:
        if self._stream is None:
            challenge = self.challenge
            reply = challenge.receive(data)
            if reply:
                self._send(reply)  # short, and nothing waits to be sent, so the socket has room
            if challenge.state is not State.OVER:
                return []
            self._first += challenge.rest()
            if self.introduction is None and introduction.begins(self._first) and not self._introduce():
                return []
            is_audit = audit.begins(self._first)
            if is_audit is None:
                return []
            if is_audit:
                self._detach()
                self._server.start_audit(self, self._socket, self._first)
                return []
            self._stream, self._seals, data = SlaveStream(challenge.opening), challenge.sealing, self._first
        return self._stream.receive(data)

    def _introduce(self) -> bool:
        """Answer a slave that names itself; False if its name is not complete yet.

        Raises:
            ChallengeError: it is not of this master's.
        """
        found = introduction.decode(self._first, introduction.Introduction, self.challenge.opening)
        if found is None:
            return False
        self.introduction, self._first = found
        reception = self._server.introduced(self.introduction)
        answer = introduction.encode(reception, self.challenge.sealing)
        if reception.refused is not None:
            raise ChallengeError(f"it is not a slave of this master: {reception.refused}", answer)
        self._send(answer)  # short, and nothing waits to be sent, so the socket has room
        return True

    def _sealed(self, packet: bytes) -> bytes:
        return packet if self._seals is None else packet + self._seals.next(packet)

    def _on_handshake(self, handshake: SlaveHandshake) -> None:
        if not self.session.on_handshake(handshake):
            return
        self._server.on_handshake(self, handshake)
        master = self.session.mastership
        # In one call, or Java's slave sends its handshake twice. Little was sent before, so the socket has room.
        self._send(self._sealed(encode_master_handshake(master.max_offset, master.epochs)))

    # Writing

    def pump(self) -> None:
        """Send what flow control and the socket allow now."""
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
                if not self._flush() or not self.session.is_behind:
                    return
            if self._wake is None:
                self._wake = self._server.loop.call_soon(self._on_wake)
        except OSError as error:
            self.close(error.strerror or str(error))
        except (StoreError, StorageError) as error:
            log.error("cannot read the log for a slave", slave=self.name, reason=str(error))
            self.close("the log could not be read")

    def heartbeat(self) -> None:
        """Send a header without bytes, unless a batch is being sent."""
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
        header = self._sealed(
            encode_transfer_header(size, batch.offset, batch.epoch, batch.epoch_start, self.session.mastership.confirm)
        )
        self.sent += size
        if size > INLINE:
            self._slice, self._at = self._server.readable(batch.offset, size), 0
            self._send(header, more=True)  # the kernel keeps it for the packet that sendfile fills
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
        """Send the rest of the present batch; False if the socket has no room for now."""
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
        if self.session.throttled and self._wake is None:
            self._wake = self._server.loop.call_later(max(0.0, self.session.throttled_until() - now), self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        self.pump()

    # The end

    @property
    def host(self) -> str:
        """Of the slave, without its port."""
        return self.peer.rpartition(":")[0]

    @property
    def name(self) -> str:
        slave = self.session.slave
        return self.peer if slave is None else f"{slave.broker_id} at {self.peer}"

    def close(self, reason: str) -> None:
        """Close it once, and notify the server."""
        if not self.open:
            return
        self._detach()
        self._socket.close()
        self._server.closed(self, reason)

    def _detach(self) -> None:
        self.open = False
        self.session.on_closed()
        loop = self._server.loop
        loop.remove_reader(self._socket)
        if self._blocked:
            loop.remove_writer(self._socket)
        if self._wake is not None:
            self._wake.cancel()
        self._slice = None
