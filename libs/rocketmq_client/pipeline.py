"""One connection to one broker that carries sends and nothing else: as few steps per message as Python allows.

The producer owns one per broker address. Requests go out as finished frames, everything of one turn of the event loop
in one write; answers come back as `SendAnswer`, read without the generic codec. Timeouts need no timer per request:
requests are numbered in order, and a sweep checks the oldest.
"""

import asyncio
import struct
from collections import deque
from typing import Final, cast

from rocketmq_formats.addresses import parse_address
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import MAX_FRAME, decode_frame
from rocketmq_formats.remoting.send_frames import SendAnswer, SendAnswerFields, decode_send_answer
from rocketmq_runtime import lookups
from rocketmq_runtime.remoting.client import (
    MAX_REQUESTS_IN_FLIGHT,
    MAX_UNSENT_BYTES,
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    RemotingError,
)

_SWEEPS: Final = 8
"""Sweeps per timeout: a request times out at most an eighth of the timeout late."""
_RESPONSE: Final = 1
_TWO_WORDS: Final = struct.Struct(">ii")


class Pipeline(asyncio.Protocol):
    """Made by `connect`. Pushes of the broker (transaction checks, say) are ignored."""

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self.loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self.loop.create_future()
        """Done when the connection has closed."""
        self._timeout = timeout
        self._transport: asyncio.Transport | None = None
        self._next_opaque = 1
        self._waiting: dict[int, asyncio.Future[SendAnswer]] = {}
        self._marks: deque[int] = deque(maxlen=_SWEEPS)
        """The next opaque at each of the last sweeps, the oldest first."""
        self._sweep: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._pending = bytearray()
        self._needed = 4

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def next_opaque(self) -> int:
        """The number that the next request's frame has to carry."""
        return self._next_opaque

    def send(self, frame: bytes) -> "asyncio.Future[SendAnswer]":
        """Write `frame`, a request with the opaque `next_opaque`; the future is its answer.

        The future's exceptions are `CallTimeoutError` and `ConnectionLostError`: the outcome is unknown.

        Raises:
            ConnectError: nothing was sent: the connection ended, or too much waits on it.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectError(f"{self.address} closed the connection")
        if len(self._waiting) >= MAX_REQUESTS_IN_FLIGHT:
            raise ConnectError(f"more than {MAX_REQUESTS_IN_FLIGHT} requests in flight to {self.address}")
        out = self._out
        if not out:
            if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                self._fail(ConnectionLostError(f"{self.address} does not read"))
                raise ConnectError(f"{self.address} does not read: more than {MAX_UNSENT_BYTES} bytes wait for it")
            self.loop.call_soon(self._flush)
            if self._sweep is None:
                self._sweep = self.loop.call_later(self._timeout / _SWEEPS, self._sweep_oldest)
        out.append(frame)
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & 0x7FFFFFFF
        self._waiting[opaque] = answer = self.loop.create_future()
        return answer

    def close(self) -> None:
        """End the connection once what was written has left; what waits ends with ConnectionLostError."""
        self._flush()
        self._end(ConnectionLostError(f"connection to {self.address} closed here"))
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._fail(ConnectionLostError(f"connection to {self.address} closed here"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return
            data = bytes(pending)
            pending.clear()
        try:
            self._cut(data)
        except FrameError as error:
            self._fail(ConnectionLostError(f"{self.address} sent a bad frame: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(ConnectionLostError(f"{self.address} closed the connection" + (f": {exc}" if exc else "")))
        if not self.closed.done():
            self.closed.set_result(None)

    # inside

    def _cut(self, data: bytes) -> None:
        at, size = 0, len(data)
        take, read_words = self._waiting.pop, _TWO_WORDS.unpack_from
        while size - at >= 8:
            length, word = read_words(data, at)
            if not 4 <= length <= MAX_FRAME:
                raise FrameError(f"frame length {length}")
            end = at + 4 + length
            if end > size:
                self._needed = 4 + length
                break
            if word >> 24 == 0:
                header_end = at + 8 + word
                if header_end > end:
                    raise FrameError("a header longer than its frame")
                answer = decode_send_answer(data[at + 8 : header_end])
            else:
                answer = _decode(data[at + 4 : end])
            at = end
            if answer.flag & _RESPONSE:
                waiting = take(answer.opaque, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        else:
            self._needed = 8
        if at < size:
            self._pending += data[at:]

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def _sweep_oldest(self) -> None:
        """End the connection if the oldest request has waited for the whole timeout."""
        self._sweep = None
        if not self._waiting:
            self._marks.clear()
            return
        oldest = next(iter(self._waiting))
        if len(self._marks) == _SWEEPS and _is_before(oldest, self._marks[0]):
            waiting = self._waiting.pop(oldest)
            if not waiting.done():
                waiting.set_exception(CallTimeoutError(f"no answer from {self.address} within {self._timeout:g} s"))
            self._fail(ConnectionLostError(f"connection to {self.address} closed: a send was not answered in time"))
            return
        self._marks.append(self._next_opaque)
        self._sweep = self.loop.call_later(self._timeout / _SWEEPS, self._sweep_oldest)

    def _fail(self, error: RemotingError) -> None:
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: RemotingError) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)


def _is_before(opaque: int, mark: int) -> bool:
    """Whether `opaque` was given out before `mark`; numbers wrap around."""
    return (opaque - mark) & 0x7FFFFFFF >= 0x40000000


def _decode(payload: bytes) -> SendAnswer:
    """An answer with a binary header, from a broker that is configured so."""
    command = decode_frame(payload)
    fields = command.ext_fields or {}
    try:
        typed = (
            SendAnswerFields(fields["msgId"], int(fields["queueId"]), int(fields["queueOffset"]))
            if "msgId" in fields
            else None
        )
    except (KeyError, ValueError) as error:
        raise FrameError(f"no answer to a send: {error}") from error
    return SendAnswer(command.code, command.opaque, command.flag, command.remark, typed)


async def connect(address: str, *, timeout: float, connect_timeout: float = 1.0) -> Pipeline:  # noqa: ASYNC109
    """A new connection to `address`, whose requests get `timeout` seconds each.

    Raises:
        ConnectError: no connection within `connect_timeout` seconds.
    """
    loop = asyncio.get_running_loop()
    try:
        host, port = parse_address(address)
        async with asyncio.timeout(connect_timeout):
            _, pipeline = await lookups.connect(loop, lambda: Pipeline(address, timeout), host, port)
    except (OSError, ValueError) as error:
        raise ConnectError(f"cannot connect to {address}: {str(error) or type(error).__name__}") from error
    return pipeline
