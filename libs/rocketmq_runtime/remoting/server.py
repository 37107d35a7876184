"""The remoting server every RocketMQ-speaking process listens with: asyncio around the sans-IO connection.

Requests go to one `Handler`. It answers at once, later (a future), or never (oneway). What one slice of requests is
answered leaves in one write, and so do later answers of one turn of the loop. Everything a stranger can make grow is
bounded here and in `peer`: connections, bytes of unfinished requests, requests in flight, answers not taken, idle time,
time in the loop, lines in the log.
"""

import asyncio
import itertools
import time
from collections.abc import Callable

import structlog

from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting.fair_scheduler import FairScheduler
from rocketmq_runtime.remoting.hosts import Hosts
from rocketmq_runtime.remoting.limits import ServerLimits
from rocketmq_runtime.remoting.open_files import OpenFiles
from rocketmq_runtime.remoting.open_files import raise_file_limit as _raise_file_limit
from rocketmq_runtime.remoting.peer import (
    DEFERRED,
    HELD,
    MAX_REMARK,
    REQUESTS_PER_TURN,
    Answer,
    Deferred,
    Handler,
    Peer,
)
from rocketmq_runtime.remoting.peer_calls import PeerBusyError, PeerCallError, PeerTimeoutError
from rocketmq_runtime.remoting.server_memory import ServerMemory
from rocketmq_runtime.sockets import open_server

__all__ = [
    "DEFERRED",
    "HELD",
    "MAX_REMARK",
    "REQUESTS_PER_TURN",
    "Answer",
    "Deferred",
    "Handler",
    "Peer",
    "PeerBusyError",
    "PeerCallError",
    "PeerTimeoutError",
    "RemotingServer",
    "ServerLimits",
    "server_memory",
]

log = structlog.get_logger(__name__)

LOG_SECONDS, LOG_LINES = 60.0, 60
"""At most this number of lines in this time about connections of one host that are closed for one kind of reason."""


class RemotingServer:
    """Listens on one port and hands every request to `handler`."""

    def __init__(
        self,
        handler: Handler,
        *,
        host: str,
        port: int,
        key: str = "remoting",
        limits: ServerLimits | None = None,
        memory: ServerMemory | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`key`: the port's in the configuration, for errors. `memory`: shared with other servers of the process; None:
        this one's own, as `limits` say. `clock`: seconds that grow within a turn of the loop, to measure how long
        requests take."""
        self.handler = handler
        self.limits = limits or ServerLimits()
        self.loop = asyncio.get_running_loop()
        self.memory = memory or server_memory(self.limits)
        self.clock = clock or time.perf_counter
        self.turns = FairScheduler(self.loop)
        self.refused_connections = 0
        """Closed at once, because there was no room."""
        self.replaced_connections = 0
        """Closed because a host with fewer connections came."""
        self._host, self._port, self._key = host, port, key
        self._ids = itertools.count(1)
        self._peers: dict[int, Peer] = {}
        """All that are not gone, also those that are about to be closed."""
        self._hosts: Hosts[Peer] = Hosts(lambda peer: peer.last_activity)
        """Those that count as connections."""
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._may_log = LogLimiter(self.now, LOG_SECONDS, lines=LOG_LINES)
        self._emptied: asyncio.Future[None] | None = None
        """Made by `stop`, done when the last connection is gone."""

    async def start(self) -> None:
        """Open the port.

        Raises:
            OSError: the port cannot be bound.
        """
        self._server = await open_server(
            self.loop, lambda: Peer(self, next(self._ids)), self._host, self._port, what=self._key, backlog=1024
        )
        OpenFiles.wanted += self.limits.max_connections
        OpenFiles.room = _raise_file_limit(OpenFiles.wanted)
        self._sweep = self.loop.call_later(self._sweep_period, self._sweep_up)

    @property
    def port(self) -> int:
        """The bound port (differs from the wanted one where that was 0)."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._hosts)

    async def stop(self) -> None:
        """Close the port and every connection; takes `linger_seconds` where a peer does not take its last answers."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is None:
            return
        if self._emptied is None:
            OpenFiles.wanted -= self.limits.max_connections
        self._emptied = self.loop.create_future()
        self._server.close()
        for peer in list(self._peers.values()):
            peer.close()
        if self._peers:
            await self._emptied
        self.memory.stop()
        await self._server.wait_closed()

    def now(self) -> float:
        return self.loop.time()

    def may_log(self, kind: str, peer: Peer) -> bool:
        """Whether a closed connection is written down: a line a second for each kind of reason and host."""
        return self._may_log(f"{kind} {peer.host}")

    def opened(self, peer: Peer) -> None:
        """Called by the connection itself."""
        if self._emptied is not None:
            peer.abort()  # accepted just before the port was closed
            return
        if len(self._hosts) >= self.limits.max_connections or OpenFiles.open >= OpenFiles.room:
            other = self._hosts.gives_way(peer.host)
            if self._may_log("full"):
                log.warning(
                    "connection limit reached",
                    limit=min(self.limits.max_connections, OpenFiles.room),
                    refused=self.refused_connections,
                    replaced=self.replaced_connections,
                )
            if other is None:
                self.refused_connections += 1
                peer.close()
                return
            self.replaced_connections += 1
            self._uncount(other)
            other.abort()
        self._peers[peer.id] = peer
        self._hosts.add(peer.host, peer)
        OpenFiles.open += 1

    def closed(self, peer: Peer) -> None:
        """Called by the connection itself."""
        if self._peers.pop(peer.id, None) is None:
            return
        self._uncount(peer)
        if not self._peers and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        self.handler.on_close(peer)

    def _uncount(self, peer: Peer) -> None:
        if self._hosts.remove(peer.host, peer):
            OpenFiles.open -= 1

    @property
    def _sweep_period(self) -> float:
        return min(self.limits.idle_seconds, self.limits.frame_seconds) / 12

    def _sweep_up(self) -> None:
        """Close those that are silent, and those whose frames do not end."""
        now = self.now()
        oldest, begun = now - self.limits.idle_seconds, now - self.limits.frame_seconds
        for peer in list(self._peers.values()):
            if peer.last_activity < oldest:
                if self.may_log("idle", peer):
                    log.info("idle connection closed", peer=peer.address)
                peer.close()
            elif (since := peer.unfinished_since) is not None and since < begun:
                peer.give_way("a frame does not end, connection closed")
        self._sweep = self.loop.call_later(self._sweep_period, self._sweep_up)


def server_memory(limits: ServerLimits) -> ServerMemory:
    """What servers with these limits may share."""
    return ServerMemory(max_received_bytes=limits.max_received_bytes, max_unsent_bytes=limits.max_unsent_total)
