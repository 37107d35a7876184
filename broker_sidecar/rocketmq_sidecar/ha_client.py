"""The slave's connection to its master: the socket around `domain.ha_slave`, and the log written. Driven by `follower`.

Bytes of the log go from the socket straight into the mapped file when a batch is large; small ones come in many at a
time through a scratch buffer. One acknowledgement covers all that a turn of the loop brought. Far behind, threads make
the pages ready that come next (`page_maker`).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.frames import MasterHandshake, TransferHeader, decode_master_packet, encode_ack
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain.ha_slave import Action, FutureEpochError, Record, SlaveSession, Truncate
from rocketmq_sidecar.domain.replication_errors import TruncationError
from rocketmq_sidecar.domain.truncate import check_cut
from rocketmq_sidecar.epoch_store import EpochStore
from rocketmq_sidecar.finish import finish
from rocketmq_sidecar.page_maker import PageMaker
from rocketmq_store.errors import StoreError
from rocketmq_store.segments import MappedFiles

log = structlog.get_logger()

SCRATCH: Final = 64 * 1024
READS_PER_TURN: Final = 16
"""Reads before the turn ends with an acknowledgement."""
WAIT_FOR_EPOCH: Final = 3.0
"""Seconds to wait for the controllers to tell of an epoch that the master says it is in."""


class MasterConnection:
    """One connection; when it is over `ended` is set and `reason` says why."""

    def __init__(
        self,
        sock: socket.socket,
        session: SlaveSession,
        *,
        files: MappedFiles,
        epoch_store: EpochStore,
        truncate_broker: Callable[[int], Awaitable[None]],
        on_replicated: Callable[[int, int], None],
        strict: bool,
        sync_flush: bool,
        heartbeat_interval: float,
        housekeeping_interval: float,
    ) -> None:
        """`sock` is connected. `on_replicated(max_offset, confirm_offset)`. Times in seconds."""
        self.loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        self.reason: BaseException = ConnectionError("stopped")
        self.on_aligned: Callable[[], None] = lambda: None
        self.session = session
        self.received = 0
        """Bytes of the log."""
        self.last_read = self.last_write = self.loop.time()
        self.aligned = False
        """The transfer has begun."""
        self._socket = sock
        self._files = files
        self._epoch_store = epoch_store
        self._truncate_broker = truncate_broker
        self._on_replicated = on_replicated
        self._strict, self._sync_flush = strict, sync_flush
        self._heartbeat, self._housekeeping = heartbeat_interval, housekeeping_interval
        self._scratch = memoryview(bytearray(SCRATCH))
        self._filled = 0
        self._body_left = 0
        self._pages: PageMaker | None = None
        self._job: asyncio.Task[None] | None = None
        self._awaited: asyncio.TimerHandle | None = None
        self._reading = False
        self._told = (session.max_offset, session.confirm_offset)
        self._acked = -1
        self._flushed = 0
        self._flushing: asyncio.Future[None] | None = None
        self._out = b""
        self._blocked = False
        self._ticks: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Say who we are and begin to read."""
        try:
            self._send(self.session.on_connected())
        except OSError as error:
            self.end(error)
            return
        self._resume()
        self._ticks = self.loop.call_later(self._tick_interval, self._tick)

    def followed(self, epoch: int) -> None:
        """The controllers told of `epoch`, with the same master."""
        if self.session.on_followed(epoch):
            if self._awaited is not None:
                self._awaited.cancel()
                self._awaited = None
            self._resume()
            self._on_readable(parse_first=True)

    # Reading

    def _resume(self) -> None:
        if not self._reading and not self.ended.is_set():
            self._reading = True
            self.loop.add_reader(self._socket, self._on_readable)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self.loop.remove_reader(self._socket)

    def _on_readable(self, *, parse_first: bool = False) -> None:
        try:
            if parse_first:
                self._parse()
            more = self._reading
            for _ in range(READS_PER_TURN):
                if not more:
                    break
                more = self._receive()
                self._parse()
                more = more and self._reading
        except BlockingIOError:
            pass
        except (OSError, FrameError, TruncationError, StoreError, StorageError) as error:
            self.end(error)
            return
        if self._pages is not None:
            self._pages.written(self.session.max_offset)
        self._acknowledge()

    def _receive(self) -> bool:
        """Read once; False if there is probably no more for now."""
        if self._body_left:
            target = self._files.view(self.session.max_offset, self._body_left)
            room = len(target) + SCRATCH
            size = self._socket.recvmsg_into((target, self._scratch))[0]
            taken = min(size, len(target))
            self._took(taken)
            self._filled = size - taken
        else:
            rest = self._scratch[self._filled :]
            room = len(rest)
            size = self._socket.recv_into(rest)
            self._filled += size
        if size == 0:
            raise ConnectionResetError("the master closed the connection")
        self.last_read = self.loop.time()
        return size == room

    def _parse(self) -> None:
        position, limit = 0, self._filled
        scratch = self._scratch
        while position < limit:
            if self._body_left:
                part = scratch[position : min(limit, position + self._body_left)]
                self._files.write(self.session.max_offset, part)
                self._took(len(part))
                position += len(part)
                continue
            found = decode_master_packet(scratch, position, limit)
            if found is None:
                break
            packet, after = found
            if isinstance(packet, TransferHeader):
                action = self.session.on_header(packet)
                if action is not None:
                    self._do(action, packet)
                    break
                self._body_left = packet.size
            else:
                self._on_handshake(packet)
            position = after
            if not self._reading:
                break
        if position:
            rest = limit - position
            if rest:
                scratch[:rest] = bytes(scratch[position:limit])
            self._filled = rest

    def _took(self, size: int) -> None:
        self._body_left -= size
        self.received += size
        self.session.on_body(size)

    # What takes time; nothing is read meanwhile

    def _on_handshake(self, master: MasterHandshake) -> None:
        action = self.session.on_handshake(master)
        if action is not None:
            self._pages = PageMaker(self._files, action.offset, master.max_offset)
            self._start_job(lambda: self._align(action))

    def _do(self, action: Action, packet: TransferHeader) -> None:
        if isinstance(action, Record):
            self._start_job(lambda: self._record(action, packet.offset))
        else:
            self._pause()
            log.info("waiting for the controllers to tell of the master's epoch", epoch=action.epoch)
            error = FutureEpochError(f"the controllers did not tell of epoch {action.epoch}, which the master is in")
            self._awaited = self.loop.call_later(WAIT_FOR_EPOCH, self.end, error)

    def _start_job(self, job: Callable[[], Awaitable[None]]) -> None:
        self._pause()
        self._job = asyncio.ensure_future(self._work(job))

    async def _work(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except Exception as error:  # noqa: BLE001 - whatever it was: this connection must not stay, reading nothing
            self.end(error)
            return
        finally:
            self._job = None
        if not self.ended.is_set():
            self._resume()
            self._on_readable(parse_first=True)

    async def _align(self, action: Truncate) -> None:
        """Cut the log to what the master has too. A crash between any two steps is repaired by the next handshake:
        entries of the epoch file go last, because they say whose bytes those are that are still there."""
        session = self.session
        offset, end = action.offset, session.max_offset
        if offset < end:
            check_cut(self._files.read(offset, end - offset), offset, end, session.confirm_offset, strict=self._strict)
            log.warning(
                "log truncated to what the master has", offset=offset, end=end, confirmed=session.confirm_offset
            )
            await self._truncate_broker(offset)
            await finish(self._cut(offset))
        await finish(self._epoch_store.save(action.epochs))
        if self.ended.is_set():
            return
        self.session.on_aligned(action)
        self.aligned = True
        self.on_aligned()
        self._acknowledge()

    async def _cut(self, offset: int) -> None:
        await self.loop.run_in_executor(None, self._files.truncate, offset)
        self.session.on_cut(offset)
        self._tell()

    async def _record(self, action: Record, offset: int) -> None:
        if action.begin and offset > 0 and self._files.end > 0:
            # The log begins in a later file than the one that is there, empty.
            await self._truncate_broker(0)
            await finish(self.loop.run_in_executor(None, self._files.truncate, -1))
        await finish(self._epoch_store.save(action.epochs))
        self.session.on_recorded(action, offset)

    # Acknowledging

    def _acknowledge(self) -> None:
        """Tell both sides what there is now."""
        session = self.session
        if not self.aligned or self.ended.is_set():
            return
        self._tell()
        if session.max_offset > self._acked:
            if self._sync_flush:
                self._flush()
            else:
                self._ack(session.max_offset)

    def _tell(self) -> None:
        told = (self.session.max_offset, self.session.confirm_offset)
        if told != self._told:
            self._told = told
            self._on_replicated(*told)

    def _ack(self, offset: int) -> None:
        self._acked = offset
        try:
            self._send(encode_ack(offset))
        except OSError as error:
            self.end(error)

    def _flush(self) -> None:
        if self._flushing is None:
            end = self.session.max_offset
            call = self._files.flusher(self._flushed, end)
            self._flushing = self.loop.run_in_executor(None, call)
            self._flushing.add_done_callback(lambda done: self._on_flushed(done, end))

    def _on_flushed(self, done: "asyncio.Future[None]", end: int) -> None:
        self._flushing = None
        error = done.exception()
        if self.ended.is_set():
            return
        if error is not None:
            self.end(error)
            return
        self._flushed = end
        self._ack(end)
        if self.session.max_offset > end:
            self._flush()

    def _send(self, data: bytes) -> None:
        """All of it, later if need be; what is not sent yet is superseded by nothing, so it has to stay short."""
        self.last_write = self.loop.time()
        if self._out:
            if len(self._out) < SCRATCH:
                self._out += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._out = data[sent:]
            self.loop.add_writer(self._socket, self._on_writable)
            self._blocked = True

    def _on_writable(self) -> None:
        self.loop.remove_writer(self._socket)
        self._blocked = False
        out, self._out = self._out, b""
        try:
            self._send(out)
        except OSError as error:
            self.end(error)

    # Time and the end

    @property
    def _tick_interval(self) -> float:
        return min(1.0, self._heartbeat / 2, self._housekeeping / 4)

    def _tick(self) -> None:
        self._ticks = self.loop.call_later(self._tick_interval, self._tick)
        now = self.loop.time()
        if now - self.last_read > self._housekeeping and self._reading:
            self.end(ConnectionError(f"the master was silent for {self._housekeeping:g} s"))
        elif self._acked >= 0 and now - self.last_write >= self._heartbeat:
            self._ack(self._acked)

    def end(self, reason: BaseException) -> None:
        """Stop reading; nothing is written to the log any more, unless a truncation is under way (`stopped`)."""
        if self.ended.is_set():
            return
        self._pause()
        if self._blocked:
            self.loop.remove_writer(self._socket)
        for timer in (self._ticks, self._awaited):
            if timer is not None:
                timer.cancel()
        if self._pages is not None:
            self._pages.close()
        self.session.on_closed()
        self._socket.close()
        self._tell()
        self.reason = reason
        self.ended.set()

    async def stopped(self) -> None:
        """After `end`: until the last thread that works on the log is through."""
        if self._job is not None:
            self._job.cancel()
        pages = () if self._pages is None else self._pages.running
        pending = [work for work in (self._job, self._flushing, *pages) if work is not None]
        if pending:
            await asyncio.wait(pending)
