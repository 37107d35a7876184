"""The network of one member: a sealed TCP connection to each other member, kept up while the process lives.

Implements PySyncObj's Transport for the machine; started and stopped by `Replica`. Of each pair the member with the
greater id dials, so there is one connection and no race. Names are resolved again at each attempt: members change
address at every restart. Of a stranger at most one handshake message is kept.
"""

import asyncio
import os
import random
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import structlog
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.network.handshake import ADVICE, NONCE_SIZE, Handshake, HandshakeRefusedError, Refusal
from rocketmq_formats.addresses import format_address
from rocketmq_runtime import background, lookups
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.sockets import open_server

log = structlog.get_logger(__name__)

HANDSHAKE_SECONDS = 3.0
CONNECT_SECONDS = 2.0
GOODBYE_SECONDS = 1.0
"""For connections to end when the member stops, and again once they are aborted: the process ends in any case."""
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
    """The transport's callbacks besides PySyncObj's callbacks."""

    def __init__(
        self,
        on_message: Callable[[str, messages.AnyMessage], None],
        on_connected: Callable[[str], None],
        on_disconnected: Callable[[str], None],
    ) -> None:
        self.on_message = on_message
        """May raise WireError: the connection is dropped."""
        self.on_connected = on_connected
        self.on_disconnected = on_disconnected


class Connection(asyncio.Protocol):
    """One TCP connection, from its first byte to its end."""

    def __init__(self, owner: "TcpTransport", dial: str | None) -> None:
        self._owner = owner
        self._dial = dial
        self._handshake: Handshake | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._seal: Callable[[bytes], bytes] | None = None
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
        except HandshakeRefusedError as error:
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

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        if self._deadline is not None:
            self._deadline.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.lost(self)

    def abandoned(self) -> None:
        """No task waits for it any longer. Harmless if it has ended."""
        self.abort()
        if not self.closed.done():
            self.connection_lost(None)

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
        return format_address(name[0], name[1]) if name else "unknown"

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
    def __init__(self, self_id: str, secret: bytes, events: Events) -> None:
        super().__init__(None, Node(self_id), ())
        self._nodes: dict[str, Node] = {}
        """The other members; no connection to others is kept."""
        self._places: Mapping[str, Sequence[tuple[str, int]]] = {}
        self._leaving: set[Connection] = set()
        """To former members, until what was sent is out."""
        self._started = False
        self._self_id = self_id
        self._secret = secret
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._may_log = LogLimiter(self._loop.time, LOG_EVERY)
        self._server: asyncio.Server | None = None
        self._dialers: dict[str, asyncio.Task[None]] = {}
        self._refused_by: set[str] = set()
        """Members that refuse us as a stranger; logged once until they accept us."""
        self._unproven: dict[Connection, bool] = {}
        """In the order of their opening; did we dial?"""
        self._proven: dict[str, Connection] = {}
        self._stopping = False

    async def start(self, host: str, port: int) -> int:
        """Listen and begin to dial; returns the port.

        Raises:
            OSError: the port cannot be bound.
        """
        self._server = await open_server(
            self._loop, lambda: Connection(self, None), host, port, what="controllerRaftPort"
        )
        self._started = True
        self._dial_members()
        return int(self._server.sockets[0].getsockname()[1])

    def set_members(self, places: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """Connect to these members from now on, and to no others. `places`: id -> addresses to try in turn; none: it
        has to dial."""
        self._places = dict(places)
        for member in places.keys() - self._nodes.keys():
            self._nodes[member] = Node(member)
        for member in self._nodes.keys() - places.keys():
            if (dialer := self._dialers.pop(member, None)) is not None:
                dialer.cancel()
            if (connection := self._proven.get(member)) is not None:
                self._leaving.add(connection)
                connection.close()  # after what was sent, which says why
            del self._nodes[member]
        if self._started and not self._stopping:
            self._dial_members()

    def _dial_members(self) -> None:
        for member in sorted(self._nodes):
            if self._self_id > member and member not in self._dialers:
                task = background.start(self._dial(member), f"raft dialer to {member}")
                self._dialers[member] = task

    async def stop(self) -> None:
        """Close everything; the peers notice at once."""
        self._stopping = True
        connections = [*self._unproven, *self._proven.values(), *self._leaving]
        dialers = list(self._dialers.values())
        for task in dialers:
            task.cancel()
        await asyncio.gather(*dialers, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for connection in connections:
            connection.close()
        if connections:
            _, pending = await asyncio.wait([connection.closed for connection in connections], timeout=GOODBYE_SECONDS)
            if pending:
                for connection in connections:
                    connection.abort()
                await asyncio.wait(pending, timeout=GOODBYE_SECONDS)
        if self._server is not None:
            await self._server.wait_closed()

    def leave(self) -> None:
        """Accept and make no further connections, and close the present ones after what was sent. Does not wait; `stop`
        does."""
        self._stopping = True
        for task in self._dialers.values():
            task.cancel()
        if self._server is not None:
            self._server.close()
        for connection in (*self._unproven, *self._proven.values()):
            connection.close()

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
            if self._may_log("too many"):
                log.warning("too many unproven raft connections", limit=MAX_UNPROVEN, remote=connection.remote())
            strangers[0].abort()

    def proven(self, connection: Connection) -> None:
        assert connection.peer is not None
        self._unproven.pop(connection, None)
        if connection.peer not in self._nodes:  # removed during the handshake
            connection.abort()
            return
        self._refused_by.discard(connection.peer)
        old = self._proven.get(connection.peer)
        if old is not None:
            # The peer has a new connection, so it has given up the old one, even if it looks open from here.
            old.abort()
        self._proven[connection.peer] = connection
        log.info("raft peer connected", peer=connection.peer, remote=connection.remote())
        self._onNodeConnected(self._nodes[connection.peer])
        self._events.on_connected(connection.peer)

    def deliver(self, connection: Connection, message: messages.AnyMessage) -> None:
        if connection.peer is not None and self._proven.get(connection.peer) is connection:
            self._events.on_message(connection.peer, message)

    def lost(self, connection: Connection) -> None:
        self._unproven.pop(connection, None)
        self._leaving.discard(connection)
        self._forget(connection)

    def closing(self, connection: Connection) -> None:
        """We close it ourselves: our owner has to know before the peer can (see elections)."""
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        if connection.peer is not None and self._proven.get(connection.peer) is connection:
            del self._proven[connection.peer]
            if not self._stopping:
                log.info("raft peer disconnected", peer=connection.peer)
            self._onNodeDisconnected(self._nodes[connection.peer])
            self._events.on_disconnected(connection.peer)

    def refused(self, connection: Connection, dial: str | None, reason: str) -> None:
        remote = connection.remote()
        if dial is not None and reason == ADVICE[Refusal.UNKNOWN_MEMBER]:
            if dial not in self._refused_by:
                self._refused_by.add(dial)
                log.error("this member is not in the quorum of another", peer=dial, remote=remote, reason=reason)
        elif not self._stopping and self._may_log(f"{dial} {remote.rpartition(':')[0]} {reason}"):
            log.error("raft connection refused", peer=dial, remote=remote, reason=reason)

    def broken(self, connection: Connection, reason: str) -> None:
        if self._may_log(f"{connection.peer} {reason}"):
            log.warning("raft connection dropped", peer=connection.peer, remote=connection.remote(), reason=reason)

    # Dialling

    async def _dial(self, member: str) -> None:
        delay, attempt = RECONNECT_MIN, -1
        while True:
            started = self._loop.time()
            places = self._places.get(member, ())
            attempt += 1
            host, port = places[attempt % len(places)] if places else ("", 0)
            try:
                if places:
                    await self._connect(member, host, port)
            except (OSError, TimeoutError) as error:
                if self._may_log(f"dial {member}"):
                    log.info(
                        "raft peer cannot be reached",
                        peer=member,
                        address=format_address(host, port),
                        reason=str(error) or "time-out",
                    )
            # A connection that held for a while resets the back-off.
            delay = (
                RECONNECT_MIN if self._loop.time() - started > 2 * HANDSHAKE_SECONDS else min(2 * delay, RECONNECT_MAX)
            )
            await asyncio.sleep(delay * (0.5 + random.random() / 2))  # noqa: S311 - spreads attempts, guards nothing

    async def _connect(self, member: str, host: str, port: int) -> None:
        """Connect and stay until the connection ends."""
        connection = Connection(self, member)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await lookups.connect(self._loop, lambda: connection, host, port)
        except BaseException:
            # uvloop closes a transport whose `create_connection` is cancelled, and reports no end to its protocol
            connection.abandoned()
            raise
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
