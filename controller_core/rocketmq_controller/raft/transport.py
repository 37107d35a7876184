"""The network of one member: a sealed TCP connection to each other member, kept up for as long as the process lives.

Implements PySyncObj's Transport for the machine; started and stopped by `Replica`. Of each pair the member with the
greater id dials, so there is one connection and no race. Names are resolved anew at each attempt: members change
address at every restart. Nothing a stranger sends is kept beyond one handshake message.
"""

import asyncio
import os
import random
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import cast

import structlog
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from rocketmq_controller.raft import messages
from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.handshake import NONCE_SIZE, Handshake, RefusedError
from rocketmq_runtime.quiet import Quiet

log = structlog.get_logger(__name__)

HANDSHAKE_SECONDS = 3.0
CONNECT_SECONDS = 2.0
RECONNECT_MIN, RECONNECT_MAX = 0.05, 1.0
MAX_UNPROVEN = 64
"""Connections from outside that have not proven themselves yet. A further one costs the oldest its place: a member
needs a moment for its proof, and strangers would have to open this many within that moment to keep it out."""
MAX_UNSENT = 64 * 1024 * 1024
"""Bytes waiting for a peer that does not read; then the connection is dropped, and Raft sends again what matters."""
UNACKED_MILLIS = 3000
"""How long TCP may wait for a peer's host before the connection counts as dead."""
LOG_EVERY = 10.0
"""Seconds between two log lines about the same kind of trouble."""


class Events:
    """What the transport tells its owner besides PySyncObj's callbacks."""

    def __init__(
        self,
        on_message: Callable[[str, messages.AnyMessage], None],
        on_connected: Callable[[str], None],
        on_disconnected: Callable[[str, bool], None],
    ) -> None:
        self.on_message = on_message
        """May raise WireError: the connection is dropped."""
        self.on_connected = on_connected
        self.on_disconnected = on_disconnected
        """The second argument: the other side closed it, so its process has ended or does not count on us any more."""


class Connection(asyncio.Protocol):
    """One TCP connection, from its first byte to its end."""

    def __init__(self, owner: "TcpTransport", dial: str | None) -> None:
        self._owner = owner
        self._dial = dial
        self._handshake: Handshake | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._seal: Callable[[bytes], bytes] | None = None
        self._ended_by_peer = False
        self.peer: str | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are no subclasses of asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._owner.opened(self, dialled=self._dial is not None)
        if transport.is_closing():
            return
        _tune(transport.get_extra_info("socket"))
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._too_slow)
        self._handshake = self._owner.handshake(self._dial)
        self._transport.write(self._handshake.begin())

    def data_received(self, data: bytes) -> None:
        handshake = self._handshake
        if handshake is None or self._transport is None or self._transport.is_closing():
            return
        try:
            if self.peer is None:
                self._prove(handshake, data)
            elif handshake.opener is not None:
                handshake.opener.feed(data)
            if handshake.opener is not None:
                for payload in handshake.opener.frames():
                    self._owner.deliver(self, messages.decode(payload))
        except RefusedError as error:
            self._transport.write(error.reply)
            self._owner.refused(self, self._dial, str(error))
            self.close()
        except WireError as error:
            self._owner.broken(self, str(error))
            self.abort()

    def _prove(self, handshake: Handshake, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(handshake.receive(data))
        if handshake.peer is not None and handshake.sealer is not None:
            if self._deadline is not None:
                self._deadline.cancel()
            self.peer = handshake.peer
            self._seal = handshake.sealer.seal
            self._owner.proven(self)

    def _too_slow(self) -> None:
        self._owner.refused(self, self._dial, f"no handshake within {HANDSHAKE_SECONDS:g} s")
        self.abort()

    def eof_received(self) -> None:
        self._ended_by_peer = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        ended = self._ended_by_peer or isinstance(exc, ConnectionResetError)
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.lost(self, ended_by_peer=ended)

    def send(self, payload: bytes) -> bool:
        transport = self._transport
        if transport is None or self._seal is None or transport.is_closing():
            return False
        transport.write(self._seal(payload))
        if transport.get_write_buffer_size() > MAX_UNSENT:
            self._owner.broken(self, f"does not read: {transport.get_write_buffer_size()} bytes are waiting")
            asyncio.get_running_loop().call_soon(self.abort)  # not while the machine is looping over its peers
            return False
        return True

    def remote(self) -> str:
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if name else "unknown"

    def close(self) -> None:
        """Say goodbye after what is written."""
        self._owner.closing(self)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._owner.closing(self)
        if self._transport is not None:
            self._transport.abort()


class TcpTransport(Transport):
    """See the module's docstring."""

    def __init__(self, self_id: str, peers: Mapping[str, tuple[str, int]], secret: bytes, events: Events) -> None:
        self._nodes = {member: Node(member) for member in sorted(peers) if member != self_id}
        super().__init__(None, Node(self_id), self._nodes.values())
        self._self_id = self_id
        self._peers = peers
        self._secret = secret
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._quiet = Quiet(self._loop.time, LOG_EVERY)
        self._server: asyncio.Server | None = None
        self._dialers: list[asyncio.Task[None]] = []
        self._unproven: dict[Connection, bool] = {}
        """In the order of their opening; did we dial?"""
        self._proven: dict[str, Connection] = {}
        self._stopping = False

    async def start(self, host: str, port: int) -> int:
        """Listen and begin to dial; returns the port.

        Raises:
            OSError: the port cannot be bound.
        """
        self._server = await self._loop.create_server(
            lambda: Connection(self, None), host or None, port, reuse_address=True
        )
        for member in self._nodes:
            if self._self_id > member:
                self._dialers.append(self._loop.create_task(self._dial(member), name=f"raft dialer to {member}"))
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close everything; the peers notice at once."""
        self._stopping = True
        for task in self._dialers:
            task.cancel()
        await asyncio.gather(*self._dialers, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        connections = [*self._unproven, *self._proven.values()]
        for connection in connections:
            connection.close()
        if connections:
            _, pending = await asyncio.wait([connection.closed for connection in connections], timeout=1.0)
            if pending:
                for connection in connections:
                    connection.abort()
                await asyncio.wait(pending)
        if self._server is not None:
            await self._server.wait_closed()

    def abort(self) -> None:
        """Cut everything at once: the process is about to stop, and the others should know."""
        self._stopping = True
        for task in self._dialers:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for connection in (*self._unproven, *self._proven.values()):
            connection.abort()

    # PySyncObj's side

    def send(self, node: Node, message: object) -> bool:
        connection = self._proven.get(node.id)
        return connection is not None and connection.send(messages.encode(message))  # type: ignore[arg-type]  # PySyncObj's signature

    def connected(self) -> frozenset[str]:
        return frozenset(self._proven)

    def drop(self, member: str) -> None:
        """Close the connection to `member`; it is dialled again."""
        connection = self._proven.get(member)
        if connection is not None:
            connection.abort()

    # The connections' side

    def handshake(self, dial: str | None) -> Handshake:
        return Handshake(
            self_id=self._self_id,
            members=self._nodes.keys(),
            secret=self._secret,
            nonce=secrets.token_bytes(NONCE_SIZE),
            dial=dial,
        )

    def opened(self, connection: Connection, *, dialled: bool) -> None:
        if self._stopping:
            connection.abort()
            return
        self._unproven[connection] = dialled
        strangers = [other for other, ours in self._unproven.items() if not ours]
        if len(strangers) > MAX_UNPROVEN:
            if self._quiet("too many"):
                log.warning("too many unproven raft connections", limit=MAX_UNPROVEN, remote=connection.remote())
            strangers[0].abort()

    def proven(self, connection: Connection) -> None:
        assert connection.peer is not None
        self._unproven.pop(connection, None)
        old = self._proven.get(connection.peer)
        if old is not None:
            # The peer has a new connection, so it has given up the old one, whatever our side thinks of it.
            old.abort()
        self._proven[connection.peer] = connection
        log.info("raft peer connected", peer=connection.peer, remote=connection.remote())
        self._onNodeConnected(self._nodes[connection.peer])
        self._events.on_connected(connection.peer)

    def deliver(self, connection: Connection, message: messages.AnyMessage) -> None:
        if connection.peer is not None and self._proven.get(connection.peer) is connection:
            self._events.on_message(connection.peer, message)

    def lost(self, connection: Connection, *, ended_by_peer: bool) -> None:
        self._unproven.pop(connection, None)
        self._forget(connection, ended_by_peer=ended_by_peer)

    def closing(self, connection: Connection) -> None:
        """We close it ourselves: our owner has to know before the peer can (see elections)."""
        self._forget(connection, ended_by_peer=False)

    def _forget(self, connection: Connection, *, ended_by_peer: bool) -> None:
        if connection.peer is not None and self._proven.get(connection.peer) is connection:
            del self._proven[connection.peer]
            if not self._stopping:
                log.info("raft peer disconnected", peer=connection.peer, ended_by_peer=ended_by_peer)
            self._onNodeDisconnected(self._nodes[connection.peer])
            self._events.on_disconnected(connection.peer, ended_by_peer)

    def refused(self, connection: Connection, dial: str | None, reason: str) -> None:
        remote = connection.remote()
        if not self._stopping and self._quiet(f"{dial} {remote.rpartition(':')[0]} {reason}"):
            log.error("raft connection refused", peer=dial, remote=remote, reason=reason)

    def broken(self, connection: Connection, reason: str) -> None:
        if self._quiet(f"{connection.peer} {reason}"):
            log.warning("raft connection dropped", peer=connection.peer, remote=connection.remote(), reason=reason)

    # Dialling

    async def _dial(self, member: str) -> None:
        delay = RECONNECT_MIN
        while True:
            started = self._loop.time()
            try:
                await self._connect(member)
            except (OSError, TimeoutError) as error:
                if self._quiet(f"dial {member}"):
                    host, port = self._peers[member]
                    log.info(
                        "raft peer cannot be reached",
                        peer=member,
                        address=f"{host}:{port}",
                        reason=str(error) or "time-out",
                    )
            # A connection that held for a while starts the back-off anew.
            delay = (
                RECONNECT_MIN if self._loop.time() - started > 2 * HANDSHAKE_SECONDS else min(2 * delay, RECONNECT_MAX)
            )
            await asyncio.sleep(delay * (0.5 + random.random() / 2))  # noqa: S311 - spreads attempts, guards nothing

    async def _connect(self, member: str) -> None:
        """Connect and stay until the connection ends."""
        host, port = self._peers[member]
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await self._loop.create_connection(lambda: Connection(self, member), host, port)
        await asyncio.shield(connection.closed)


def _tune(sock: socket.socket) -> None:
    """No delays, and dead hosts noticed within seconds."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if os.uname().sysname == "Linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKED_MILLIS)
