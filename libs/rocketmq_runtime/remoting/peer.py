"""One accepted connection of a `RemotingServer`: its requests in, their answers out, as fast as its share of the loop
and its appetite allow. What handlers see of a peer.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import structlog

from rocketmq_formats.addresses import format_address
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RemotingCommand,
    encode_frame,
    response,
)
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_runtime.remoting.fair_scheduler import SLICE_SECONDS, FairScheduler
from rocketmq_runtime.remoting.hosts import host_of, ip_of
from rocketmq_runtime.remoting.limits import ServerLimits
from rocketmq_runtime.remoting.peer_calls import PeerCalls
from rocketmq_runtime.remoting.server_memory import SMALL, UNTAKEN, ServerMemory

log = structlog.get_logger(__name__)

FLUSH_BYTES = 64 * 1024
"""Answers are written when this number of bytes waits, not only at the end of the turn: one read can hold thousands of
requests, and only a write finds out whether the peer takes their answers."""
REQUESTS_PER_TURN = 32
"""Handled of one connection before its answers leave and others have their turn: one read can hold hundreds, and a peer
that has answers works on while the rest are handled. A slice can end earlier, see `fair_scheduler.SLICE_SECONDS`."""
SMALL_BODY = 4096
"""Bodies of at most this number of bytes are not counted while their requests wait for an answer."""
BACKLOG_FACTOR = 8
"""Bytes of memory that a byte of a received request may take, at most."""
MAX_REMARK = 1024
"""Characters of an unexpected error's text that go to the peer."""


class Deferred(enum.Enum):
    """Type of `DEFERRED`."""

    DEFERRED = "deferred"


class Held(enum.Enum):
    """Type of `HELD`."""

    HELD = "held"


DEFERRED: Final = Deferred.DEFERRED
"""Answer of a handler that will call `Peer.answer_frame`, `answer_frames` or `answer_later` exactly once for this
request. Where thousands of requests a second are answered in runs, it saves a future and a callback for each."""

HELD: Final = Held.HELD
"""Answer of a handler that will call `Peer.answer_held` once something happens, perhaps in minutes, and bounds how many
such requests it keeps. They do not count as in flight: else what a peer sends behind them, such as heartbeats and its
answers to our questions, would wait as long."""

Answer = RemotingCommand | bytes | asyncio.Future[RemotingCommand] | Deferred | Held | None
"""At once (a command, or its whole frame), when the future is done, later through the peer, or never (oneway)."""


class Handler(Protocol):
    """What a process does with requests; called in the event loop, must not block."""

    def on_request(self, request: RemotingCommand, peer: "Peer") -> Answer:
        """Answer `request`; None where it was oneway or needs no answer."""

    def on_close(self, peer: "Peer") -> None:
        """`peer`'s connection is gone, for whatever reason; called once."""


class Server(Protocol):
    """What a connection needs of the server that accepted it."""

    handler: Handler
    limits: ServerLimits
    loop: asyncio.AbstractEventLoop
    memory: ServerMemory
    turns: FairScheduler
    clock: Callable[[], float]
    """Seconds that grow within a turn of the loop."""

    def now(self) -> float:
        """The loop's time."""

    def may_log(self, kind: str, peer: "Peer") -> bool:
        """Whether a line about this kind of trouble may be written."""

    def opened(self, peer: "Peer") -> None:
        """The connection is there."""

    def closed(self, peer: "Peer") -> None:
        """The connection is gone."""


class Peer(asyncio.Protocol):
    """One accepted connection. `id` is never used twice in a process."""

    def __init__(self, server: Server, connection_id: int) -> None:
        self.id = connection_id
        self.address = ""
        self.ip = ""
        self.host = ""
        """What `Hosts` counts connections by."""
        self.last_activity = 0.0
        self._server = server
        self._memory = server.memory
        self._turns = server.turns
        self._clock = server.clock
        self._frames = RemotingConnection()
        self._backlog: deque[RemotingCommand] = deque()
        """Requests received but not handled: only while the connection is throttled or waits for its turn."""
        self._frame_since = 0.0
        """Loop time when the frame began that is not complete."""
        self._backlog_bytes = 0
        self._body_bytes = 0
        """Of the requests that a future will answer."""
        self._received = 0
        """As counted in the process's memory."""
        self._in_line = False
        """`turn` will be called."""
        self._in_slice = False
        """Requests are being handled: what is queued is written when the slice ends."""
        self._in_flight = 0
        self._write_paused = False
        self._reading_paused = False
        self._closing = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._unsent_counted = False
        self._pinned = 0
        """Bytes of what was written since the peer fell behind: a transport frees a piece when all of it was taken."""
        self._when_it_takes: Callable[[], None] | None = None
        self._calls = PeerCalls()
        self._transport: asyncio.Transport | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        if name:
            self.address = format_address(name[0], name[1])
        self.ip = ip_of(self.address)
        self.host = host_of(self.address)
        self.last_activity = self._server.now()
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self.last_activity = self._server.now()
        before = self._frames.buffered
        if not before:
            self._frame_since = self.last_activity
        try:
            commands = self._frames.receive_data(data)
        except FrameError as error:
            if self._server.may_log("frame", self):
                log.warning("frame refused, connection closed", peer=self.address, reason=str(error))
            self.close()
            return
        if commands:
            self._frame_since = self.last_activity
            self._backlog.extend(commands)
            self._work()
            if self._backlog:
                self._backlog_bytes = before + BACKLOG_FACTOR * len(data)
        if self._received or self._frames.buffered:
            self._account_received(fresh=bool(commands))

    def pause_writing(self) -> None:
        self._write_paused = True
        self._throttle()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._unsent_counted:
            self._unsent_counted = False
            self._memory.set_unsent(self, 0)
        self._work()
        if self._when_it_takes is not None:
            self._call_when_it_takes()

    def eof_received(self) -> None:
        """The peer has ended its side. That counts as its end at once (it may have died), but what can be answered in
        one slice is."""
        self._slice()  # it flushes, too: the connection closes before this turn of the loop is over

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            log.debug("connection lost", peer=self.address, reason=str(exc))
        self._closing = True
        self._transport = None
        self._when_it_takes = None
        self._out = []
        self._backlog.clear()
        self._frames = RemotingConnection()
        self._memory.remove(self)
        self._calls.end()
        self._server.closed(self)

    # for handlers

    def send(self, command: RemotingCommand) -> None:
        """Queue `command`; everything queued in this slice, else in this turn of the loop, leaves in one write. Dropped
        if the peer is gone.

        Raises:
            ValueError: `command` does not fit a frame.
        """
        if self._closing:
            return
        self._queue(encode_frame(command))

    def push_frame(self, frame: bytes) -> None:
        """As `send`, of a frame that many peers are sent: all of them share its bytes."""
        if not self._closing:
            self._queue(frame)

    async def call(self, command: RemotingCommand, seconds: float) -> RemotingCommand:
        """Ask the peer; its answer, whatever its code. The opaque of `command` is not used.

        Raises:
            PeerBusyError, PeerTimeoutError: see there.
            PeerCallError: the connection ended before the answer.
            ValueError: `command` does not fit a frame.
        """
        return await self._calls.call(self, command, seconds)

    def answer_frame(self, frame: bytes) -> None:
        """Queue `frame`, the whole answer to a request that was `DEFERRED`. Dropped if the peer is gone."""
        self._in_flight -= 1
        if self._closing:
            return
        self._queue(frame)
        if self._out_bytes >= FLUSH_BYTES:
            self.flush()
        self._read_on()

    def answer_frames(self, frames: Sequence[bytes]) -> None:
        """As `answer_frame`, for several requests; written now, not at the end of the turn: a run of answers is worth a
        write of its own."""
        self._in_flight -= len(frames)
        if self._closing:
            return
        self._out += frames
        self.flush()
        self._read_on()

    def answer_later(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """Queue the answer to a request that was `DEFERRED`. Dropped if the peer is gone."""
        self.answer_frame(self._encoded(request, answer))

    def answer_held(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """As `answer_later`, to a request that was `HELD`."""
        if self._closing:
            return
        self._queue(self._encoded(request, answer))
        if self._out_bytes >= FLUSH_BYTES:
            self.flush()

    @property
    def takes(self) -> bool:
        """Whether a large answer may be written now: the peer reads its answers, and there is memory for one more.
        Where it is False, an answer that can wait should wait; see `when_it_takes`."""
        return not self._write_paused and not self._closing and self._memory.roomy

    @property
    def reads(self) -> bool:
        """Whether the peer has read nearly all that was written for it."""
        return not self._write_paused

    def when_it_takes(self, callback: Callable[[], None]) -> None:
        """Call `callback`, once, when `takes` may have become true; never, if the peer is gone before. A second
        callback replaces the first."""
        waits = self._when_it_takes is not None
        self._when_it_takes = callback
        if not waits and not self._write_paused:
            self._memory.when_roomy(self._call_when_it_takes)

    def close(self) -> None:
        """Close after what was queued has been written; requests not handled yet are dropped."""
        if self._transport is None or self._closing:
            return
        self.flush()
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

    # for the server

    @property
    def unsent(self) -> int:
        """Bytes that are kept for the peer: it has not taken them, or not the last of what was written with them."""
        if self._transport is None:
            return 0
        unsent = self._transport.get_write_buffer_size()
        return max(unsent, self._pinned) if self._write_paused else unsent

    @property
    def unfinished_since(self) -> float | None:
        """Loop time when the frame began whose end is awaited; None: no frame, or it is not read further."""
        return None if self._reading_paused or not self._frames.buffered else self._frame_since

    def give_way(self, event: str) -> None:
        if self._server.may_log(event, self):
            log.warning(event, peer=self.address)
        self.abort()

    def turn(self) -> None:
        self._in_line = False
        self._slice()
        self._throttle()

    # inside

    @property
    def _busy(self) -> bool:
        return self._write_paused or self._in_flight >= self._server.limits.max_in_flight

    def _work(self) -> None:
        """Handle what was received, as far as the peer takes answers and it is its turn."""
        if self._in_line:
            return
        if self._backlog:
            if self._turns.free:
                self._slice()
            elif not self._busy:
                self._wait(slow=False)
        self._throttle()

    def _slice(self) -> None:
        """One turn's requests."""
        clock, backlog, left = self._clock, self._backlog, REQUESTS_PER_TURN
        most = self._server.limits.max_in_flight
        began = now = clock()
        self._in_slice = True
        try:
            while backlog and not self._write_paused and self._in_flight < most:  # `_busy`, without its call
                if not left or now - began >= SLICE_SECONDS:
                    self._wait(slow=now - began >= SLICE_SECONDS)
                    break
                left -= 1
                command = backlog.popleft()
                if command.flag & FLAG_RESPONSE:
                    self._calls.answered(command)
                else:
                    self._dispatch(command)
                    if self._out_bytes >= FLUSH_BYTES:
                        self.flush()
                now = clock()
        finally:
            self._in_slice = False
            if self._out:
                self.flush()  # now: at the end of the turn it would cost another one
        self._turns.spend(now - began)
        if self._backlog_bytes and not backlog:
            self._backlog_bytes = 0
            self._account_received(fresh=True)

    def _read_on(self) -> None:
        """A deferred answer has left room for requests."""
        if self._backlog:
            # not at once: the caller has other requests to answer
            self._wait(slow=False)
        elif self._reading_paused:
            self._throttle()

    def _wait(self, *, slow: bool) -> None:
        if not self._in_line:
            self._in_line = True
            self._turns.wait(self, slow=slow)

    def _dispatch(self, request: RemotingCommand) -> None:
        try:
            answer = self._server.handler.on_request(request, self)
        except Exception as error:
            # The last line of defence: a bug in one request must not end the connection's other traffic.
            if self._may_log_failure(request):
                log.exception("request failed", code=request.code, peer=self.address)
            answer = _failure(request, error)
        if answer is DEFERRED:
            self._in_flight += 1
            return
        if answer is HELD:
            return
        if answer is None or request.flag & FLAG_ONEWAY:
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(lambda done: self._log_failure(request, done))
            return
        if isinstance(answer, asyncio.Future):
            self._promised(request, answer)
        elif isinstance(answer, bytes):
            self._queue(answer)
        else:
            self._answer(request, answer)

    def _promised(self, request: RemotingCommand, answer: "asyncio.Future[RemotingCommand]") -> None:
        self._in_flight += 1
        size = len(request.body)
        if size > SMALL_BODY:
            self._body_bytes += size
            self._account_received(fresh=False)
        answer.add_done_callback(lambda done: self._answered(request, done))

    def _answered(self, request: RemotingCommand, done: "asyncio.Future[RemotingCommand]") -> None:
        self._in_flight -= 1
        size = len(request.body)
        if size > SMALL_BODY:
            self._body_bytes -= size
            self._account_received(fresh=False)
        if done.cancelled():
            self._answer(request, response(request, ResponseCode.SYSTEM_ERROR, "cancelled: the process is stopping"))
        elif (error := self._log_failure(request, done)) is not None:
            self._answer(request, _failure(request, error))
        else:
            self._answer(request, done.result())
        self._work()

    def _log_failure(self, request: RemotingCommand, done: "asyncio.Future[RemotingCommand]") -> BaseException | None:
        error = None if done.cancelled() else done.exception()
        if error is not None and self._may_log_failure(request):
            log.error("request failed", code=request.code, peer=self.address, exc_info=error)
        return error

    def _may_log_failure(self, request: RemotingCommand) -> bool:
        return self._server.may_log(f"request {request.code}", self)

    def _answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        if not self._closing:
            self._queue(self._encoded(request, answer))

    def _encoded(self, request: RemotingCommand, answer: RemotingCommand) -> bytes:
        try:
            return encode_frame(answer)
        except ValueError as error:
            if self._may_log_failure(request):
                log.exception("answer cannot be written", code=request.code, peer=self.address)
            return encode_frame(_failure(request, error))

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
            self._frame_since = self._server.now()
            self._transport.resume_reading()

    def _queue(self, frame: bytes) -> None:
        if not self._out and not self._in_slice:
            self._turns.flush_later(self)
        self._out.append(frame)
        self._out_bytes += len(frame)

    def flush(self) -> None:
        out = self._out
        if not out:
            return
        self._out, self._out_bytes = [], 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.last_activity = self._server.now()
        data = b"".join(out)
        if not self._write_paused:
            self._pinned = 0
        transport.write(data)
        self._pinned += len(data)
        if transport.get_write_buffer_size() > SMALL:
            self._account_unsent()
        elif self._unsent_counted:
            self._unsent_counted = False
            self._memory.set_unsent(self, 0)

    def _account_unsent(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        unsent = self.unsent
        if unsent > self._server.limits.max_unsent_bytes:
            self.give_way(UNTAKEN)
            return
        self._unsent_counted = True
        self._memory.set_unsent(self, unsent)

    def _account_received(self, *, fresh: bool) -> None:
        received = self._frames.buffered + self._backlog_bytes + self._body_bytes
        if received != self._received and not self._closing:
            self._received = received
            self._memory.set_received(self, received, fresh=fresh)

    def _call_when_it_takes(self) -> None:
        callback = self._when_it_takes
        if callback is None or self._write_paused:
            return  # gone, or `resume_writing` will call
        self._when_it_takes = None
        callback()


def _failure(request: RemotingCommand, error: BaseException) -> RemotingCommand:
    return response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"[:MAX_REMARK])
