"""The remoting server every RocketMQ-speaking process listens with: asyncio around the sans-IO connection.

Requests go to one `Handler`. It answers at once, later (a future), or never (oneway); answers made in one turn of the
loop leave in one write. Everything a stranger can make grow is bounded here: connections, bytes of unfinished frames,
requests in flight, answers not taken, idle time, lines in the log.
"""

import asyncio
import enum
import itertools
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol, cast

import structlog

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, response
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_runtime.open_files import OpenFiles
from rocketmq_runtime.open_files import raise_file_limit as _raise_file_limit
from rocketmq_runtime.quiet import Quiet

log = structlog.get_logger(__name__)

FLUSH_BYTES = 64 * 1024
"""Answers are written when so many bytes wait, not only at the end of the turn: one read can hold thousands of
requests, and only a write finds out whether the peer takes their answers."""
REQUESTS_PER_TURN = 32
"""Handled of one connection before its answers leave and others have their turn: one read can hold hundreds, and a peer
that has answers works on while the rest are handled."""
MAX_REMARK = 1024
"""Characters of an unexpected error's text that go to the peer."""
LOG_SECONDS, LOG_LINES = 60.0, 60
"""So many lines in so many seconds about connections of one host that are closed for one kind of reason."""


class Deferred(enum.Enum):
    """Type of `DEFERRED`."""

    DEFERRED = "deferred"


DEFERRED: Final = Deferred.DEFERRED
"""Answer of a handler that will call `Peer.answer_frame` or `Peer.answer_later` exactly once for this request. Where
thousands of requests a second are answered in runs, it saves a future and a callback for each of them."""

Answer = RemotingCommand | bytes | asyncio.Future[RemotingCommand] | Deferred | None
"""At once (a command, or its whole frame), when the future is done, later through the peer, or never (oneway)."""


class Handler(Protocol):
    """What a process does with requests; called in the event loop, must not block."""

    def on_request(self, request: RemotingCommand, peer: "Peer") -> Answer:
        """Answer `request`; None where it was oneway or needs no answer."""

    def on_close(self, peer: "Peer") -> None:
        """`peer`'s connection is gone, for whatever reason; called once."""


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """What one server lets strangers use."""

    max_connections: int = 10_000
    max_unfinished_bytes: int = 256 * 1024 * 1024
    """Bytes of half received frames over all connections; above it, the connection that adds more is closed."""
    max_in_flight: int = 4096
    """Unanswered requests of one connection; above it the connection is not read until answers left."""
    max_unsent_bytes: int = 64 * 1024 * 1024
    """Bytes written for one peer that it has not taken; above it the connection is closed. A peer that does not read
    is not read either, so only answers already promised and pushes can come so far."""
    idle_seconds: float = 120.0
    """Java closes a channel without traffic after 120 s (remoting reference, section 4)."""
    linger_seconds: float = 2.0
    """How long a closing connection may take to deliver what was written; then it is cut off."""


class Peer(asyncio.Protocol):
    """One accepted connection. `id` is never used twice in a process."""

    def __init__(self, server: "RemotingServer", connection_id: int) -> None:
        self.id = connection_id
        self.address = ""
        self.last_activity = 0.0
        self._server = server
        self._frames = RemotingConnection()
        self._unfinished = 0
        self._backlog: deque[RemotingCommand] = deque()
        """Requests received but not handled: only while the connection is throttled."""
        self._turn: asyncio.Handle | None = None
        """The next one, where the backlog is too long for one."""
        self._in_flight = 0
        self._write_paused = False
        self._reading_paused = False
        self._closing = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._transport: asyncio.Transport | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        if name:
            self.address = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self.last_activity = self._server.now()
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self.last_activity = self._server.now()
        try:
            self._backlog.extend(self._frames.receive_data(data))
        except FrameError as error:
            if self._server.may_log("frame", self.address):
                log.warning("frame refused, connection closed", peer=self.address, reason=str(error))
            self.close()
            return
        self._account_unfinished()
        self._work()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._throttle()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._work()

    def eof_received(self) -> None:
        """The peer says no more. That counts as its end at once (it may have died), but what can be answered is."""
        while self._backlog and not self._busy:
            self._handle(self._backlog.popleft())
        self._flush()  # the connection closes before this turn of the loop is over

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            log.debug("connection lost", peer=self.address, reason=str(exc))
        self._closing = True
        self._transport = None
        self._backlog.clear()
        self._frames = RemotingConnection()
        self._account_unfinished()
        self._server.closed(self)

    # for handlers

    def send(self, command: RemotingCommand) -> None:
        """Queue `command`; everything queued in this turn of the loop is written at once. Dropped if the peer is gone.

        Raises:
            ValueError: `command` does not fit a frame.
        """
        if self._closing:
            return
        self._queue(encode_frame(command))

    def answer_frame(self, frame: bytes) -> None:
        """Queue `frame`, the whole answer to a request that was `DEFERRED`. Dropped if the peer is gone."""
        self._in_flight -= 1
        if self._closing:
            return
        self._queue(frame)
        if self._out_bytes >= FLUSH_BYTES:
            self._flush()
        if self._backlog:
            self._work()
        elif self._reading_paused:
            self._throttle()

    def answer_later(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """Queue the answer to a request that was `DEFERRED`. Dropped if the peer is gone."""
        try:
            frame = encode_frame(answer)
        except ValueError as error:
            log.exception("answer cannot be written", code=request.code, peer=self.address)
            frame = encode_frame(_failure(request, error))
        self.answer_frame(frame)

    def close(self) -> None:
        """Close after what was queued has been written; requests not handled yet are dropped."""
        if self._transport is None or self._closing:
            return
        self._flush()
        self._closing = True
        self._backlog.clear()
        if self._transport.is_closing():
            return
        unsent = self._transport.get_write_buffer_size()
        self._transport.close()
        if unsent:
            # A peer that does not read would never let the connection end.
            self._server.loop.call_later(self._server.limits.linger_seconds, self.abort)

    def abort(self) -> None:
        """Close now, whatever was queued."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # inside

    @property
    def _busy(self) -> bool:
        return self._write_paused or self._in_flight >= self._server.limits.max_in_flight

    def _work(self) -> None:
        """Handle what was received, as far as the peer takes answers."""
        if self._turn is not None:
            return
        left = REQUESTS_PER_TURN
        while self._backlog and not self._busy:
            if not left:
                self._turn = self._server.loop.call_soon(self._next_turn)
                break
            left -= 1
            self._handle(self._backlog.popleft())
        self._throttle()

    def _next_turn(self) -> None:
        self._turn = None
        self._work()

    def _handle(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._dispatch(command)
            if self._out_bytes >= FLUSH_BYTES:
                self._flush()

    def _dispatch(self, request: RemotingCommand) -> None:
        try:
            answer = self._server.handler.on_request(request, self)
        except Exception as error:
            # The last line of defence: a bug in one request must not end the connection's other traffic.
            log.exception("request failed", code=request.code, peer=self.address)
            answer = _failure(request, error)
        if answer is DEFERRED:
            self._in_flight += 1
            return
        if answer is None or request.is_oneway:
            return
        if isinstance(answer, asyncio.Future):
            self._in_flight += 1
            answer.add_done_callback(lambda done: self._answered(request, done))
        elif isinstance(answer, bytes):
            self._queue(answer)
        else:
            self._answer(request, answer)

    def _answered(self, request: RemotingCommand, done: "asyncio.Future[RemotingCommand]") -> None:
        self._in_flight -= 1
        if done.cancelled():
            self._answer(request, response(request, ResponseCode.SYSTEM_ERROR, "cancelled: the process is stopping"))
        elif (error := done.exception()) is not None:
            log.error("request failed", code=request.code, peer=self.address, exc_info=error)
            self._answer(request, _failure(request, error))
        else:
            self._answer(request, done.result())
        self._work()

    def _answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        try:
            self.send(answer)
        except ValueError as error:
            log.exception("answer cannot be written", code=request.code, peer=self.address)
            self.send(_failure(request, error))

    def _throttle(self) -> None:
        """Read while there is room."""
        if self._transport is None or self._transport.is_closing():
            return
        wait = self._busy or bool(self._backlog)
        if wait is self._reading_paused:
            return
        self._reading_paused = wait
        if wait:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _queue(self, frame: bytes) -> None:
        if not self._out:
            self._server.loop.call_soon(self._flush)
        self._out.append(frame)
        self._out_bytes += len(frame)

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if self._transport is None or self._transport.is_closing() or not out:
            return
        self.last_activity = self._server.now()
        self._transport.write(b"".join(out))
        if (
            not self._transport.is_closing()
            and self._transport.get_write_buffer_size() > self._server.limits.max_unsent_bytes
        ):
            if self._server.may_log("answers", self.address):
                log.warning("peer does not take its answers, connection closed", peer=self.address)
            self.abort()

    def _account_unfinished(self) -> None:
        unfinished = self._frames.buffered
        if unfinished != self._unfinished:
            self._server.unfinished_bytes += unfinished - self._unfinished
            self._unfinished = unfinished
            if not self._closing and self._server.unfinished_bytes > self._server.limits.max_unfinished_bytes:
                if self._server.may_log("unfinished", self.address):
                    log.warning("too many bytes of unfinished frames, connection closed", peer=self.address)
                self._backlog.clear()
                self.abort()


def _failure(request: RemotingCommand, error: BaseException) -> RemotingCommand:
    return response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"[:MAX_REMARK])


class RemotingServer:
    """Listens on one port and hands every request to `handler`."""

    def __init__(self, handler: Handler, *, host: str, port: int, limits: ServerLimits | None = None) -> None:
        self.handler = handler
        self.limits = limits or ServerLimits()
        self.loop = asyncio.get_running_loop()
        self.unfinished_bytes = 0
        self.refused_connections = 0
        self._host, self._port = host, port
        self._ids = itertools.count(1)
        self._peers: dict[int, Peer] = {}
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._may_log = Quiet(self.now, LOG_SECONDS, lines=LOG_LINES)
        self._emptied: asyncio.Future[None] | None = None
        """Made by `stop`, done when the last connection is gone."""

    async def start(self) -> None:
        """Open the port.

        Raises:
            OSError: the port cannot be bound.
        """
        self._server = await self.loop.create_server(
            lambda: Peer(self, next(self._ids)), self._host, self._port, backlog=1024, reuse_address=True
        )
        OpenFiles.wanted += self.limits.max_connections
        OpenFiles.room = _raise_file_limit(OpenFiles.wanted)
        self._sweep = self.loop.call_later(self._sweep_period, self._close_idle)

    @property
    def port(self) -> int:
        """The bound port (differs from the wanted one where that was 0)."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._peers)

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
        await self._server.wait_closed()

    def now(self) -> float:
        return self.loop.time()

    def may_log(self, kind: str, address: str) -> bool:
        """Whether a closed connection is written down: a line a second for each kind of reason and host."""
        return self._may_log(f"{kind} {address.rpartition(':')[0]}")

    def opened(self, peer: Peer) -> None:
        """Called by the connection itself."""
        if self._emptied is not None:
            peer.abort()  # accepted just before the port was closed
            return
        if len(self._peers) >= self.limits.max_connections or OpenFiles.open >= OpenFiles.room:
            self.refused_connections += 1
            if self._may_log("full"):
                log.warning(
                    "connection refused: limit reached",
                    limit=min(self.limits.max_connections, OpenFiles.room),
                    refused=self.refused_connections,
                )
            peer.close()
            return
        self._peers[peer.id] = peer
        OpenFiles.open += 1

    def closed(self, peer: Peer) -> None:
        """Called by the connection itself."""
        if self._peers.pop(peer.id, None) is None:
            return
        OpenFiles.open -= 1
        if not self._peers and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        self.handler.on_close(peer)

    @property
    def _sweep_period(self) -> float:
        return self.limits.idle_seconds / 12

    def _close_idle(self) -> None:
        oldest = self.now() - self.limits.idle_seconds
        for peer in [peer for peer in self._peers.values() if peer.last_activity < oldest]:
            log.info("idle connection closed", peer=peer.address)
            peer.close()
        self._sweep = self.loop.call_later(self._sweep_period, self._close_idle)
