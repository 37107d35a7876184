"""The slave's connection to its master: the socket around `domain.ha_slave`, and writing the log. Driven by `follower`.

Bytes of large batches are read from the socket directly into the mapped file; small batches are read many at a time
through a scratch buffer. One acknowledgement covers everything that a turn of the loop received. While the slave is far
behind, threads prefault the next pages (`page_prefault`).
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from rocketmq_formats.challenge import SEAL_SIZE, Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.frames import (
    MasterHandshake,
    SealError,
    TransferHeader,
    decode_master_packet,
    encode_ack,
)
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.domain.replication.ha_challenge import SlaveChallenge, State
from rocketmq_sidecar.domain.replication.ha_introduction import SlaveIntroduction
from rocketmq_sidecar.domain.replication.ha_slave import Action, FutureEpochError, Record, SlaveSession, Truncate
from rocketmq_sidecar.domain.replication.truncate import TruncationError, check_cut
from rocketmq_sidecar.replication.epoch_store import EpochStore
from rocketmq_sidecar.replication.page_prefault import PagePrefaulter
from rocketmq_store.errors import StoreError
from rocketmq_store.log.segments import MappedFiles

log = structlog.get_logger()

SCRATCH: Final = 64 * 1024
READS_PER_TURN: Final = 16
"""Reads before the turn ends with an acknowledgement."""
PROOF_TIMEOUT: Final = 3.0
"""Seconds in which the master has to authenticate itself."""
WAIT_FOR_EPOCH: Final = 3.0
"""Seconds to wait until the controllers name the epoch that the master reports."""


class MasterConnection:
    """One connection; when it is over `ended` is set and `reason` says why."""

    def __init__(
        self,
        sock: socket.socket,
        session: SlaveSession,
        *,
        preludes: Sequence[SlaveChallenge | SlaveIntroduction] = (),
        files: MappedFiles,
        epoch_store: EpochStore,
        truncate_broker: Callable[[int], Awaitable[None]],
        on_replicated: Callable[[int, int], None],
        strict: bool,
        alone: bool = False,
        sync_flush: bool,
        heartbeat_interval: float,
        housekeeping_interval: float,
        master_silence: float,
    ) -> None:
        """`sock` is connected. `preludes` come before the packets, in this order. `strict`, `alone`: as in `check_cut`.

        `on_replicated(max_offset, confirm_offset)`. `master_silence`: see `on_heard`. Times in seconds."""
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
        self.caught_up = False
        """Everything that the master had when the connection was made is acknowledged."""
        self.on_caught_up: Callable[[], None] = lambda: None
        self.heard = True
        """The master has not been silent for `master_silence`."""
        self.on_heard: Callable[[bool], None] = lambda _: None
        """Called with `heard` when it changes; again with True by the first byte, before that byte counts."""
        self.before_acknowledging: Callable[[int], Awaitable[None]] | None = None
        """Called with the log's end, once the log is a prefix of the master's; its exceptions end the connection."""
        self._preludes = deque(preludes)
        self._proof_timer: asyncio.TimerHandle | None = None
        self._sealing: Seals | None = None
        self._opening: Seals | None = None
        self._packet_received = False
        """Whether a packet of the master has arrived."""
        self._seal_checked = False
        """Whether the seal of the packet at the front of the scratch buffer has been checked."""
        self._socket = sock
        self._files = files
        self._epoch_store = epoch_store
        self._truncate_broker = truncate_broker
        self._on_replicated = on_replicated
        self._strict, self._alone, self._sync_flush = strict, alone, sync_flush
        self._heartbeat, self._housekeeping = heartbeat_interval, housekeeping_interval
        self._master_silence = master_silence
        self._scratch = memoryview(bytearray(SCRATCH))
        self._filled = 0
        self._body_left = 0
        self._pages: PagePrefaulter | None = None
        self._job: asyncio.Task[None] | None = None
        self._epoch_timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._reported = (session.max_offset, session.confirm_offset)
        self._acked = -1
        self._flushed = 0
        self._flushing: asyncio.Future[None] | None = None
        self._out = b""
        self._blocked = False
        self._ticks: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send the first packet and begin to read."""
        try:
            if not self._preludes:
                self._send(self.session.on_connected())
            else:
                self._send(self._preludes[0].begin())
                late = ConnectionError(f"the master did not say who it is within {PROOF_TIMEOUT:g} s")
                self._proof_timer = self.loop.call_later(PROOF_TIMEOUT, self.end, late)
        except OSError as error:
            self.end(error)
            return
        self._resume()
        self._ticks = self.loop.call_later(self._tick_interval, self._tick)

    def followed(self, epoch: int) -> None:
        """The controllers have named `epoch`, with the same master."""
        if self.session.on_followed(epoch):
            if self._epoch_timer is not None:
                self._epoch_timer.cancel()
                self._epoch_timer = None
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
        """Read once; False if the socket is probably empty now."""
        if self._body_left:
            target = self._files.view(self.session.max_offset, self._body_left)
            room = len(target) + SCRATCH
            size = self._socket.recvmsg_into((target, self._scratch))[0]
            taken = min(size, len(target))
            self._on_body(taken)
            self._filled = size - taken
        else:
            rest = self._scratch[self._filled :]
            room = len(rest)
            size = self._socket.recv_into(rest)
            self._filled += size
        if size == 0:
            raise ConnectionResetError(self._closed_why)
        self.last_read = self.loop.time()
        self._set_heard(True)
        return size == room

    def _set_heard(self, heard: bool) -> None:  # noqa: FBT001 - the state's only word
        if heard != self.heard:
            self.heard = heard
            self.on_heard(heard)

    @property
    def authenticated(self) -> bool:
        """Whether the master has authenticated itself."""
        return self._sealing is not None

    @property
    def challenge_unanswered(self) -> bool:
        """Whether the master has not answered the challenge at all."""
        return bool(self._preludes) and self._preludes[0].state is State.NONCE_AWAITED

    @property
    def _closed_why(self) -> str:
        if self.challenge_unanswered:
            return "the master closed the connection unproven: it has no haReplicationSecretFile, or is not master yet"
        if self._preludes and isinstance(self._preludes[0], SlaveIntroduction):
            return "the master closed the connection at once: it is not master yet, or its sidecar has another release"
        if not self._packet_received:
            return "the master closed the connection at once: it requires haReplicationSecretFile, or is not master yet"
        return "the master closed the connection"

    def _prove(self) -> bool:
        """Continue the preludes; True if they are complete and packets follow."""
        while self._preludes:
            prelude = self._preludes[0]
            reply = prelude.receive(bytes(self._scratch[: self._filled]))
            self._filled = 0
            if reply:
                self._send(reply)
            if prelude.state is not State.OVER:
                return False
            rest = prelude.rest()
            self._scratch[: len(rest)] = rest
            self._filled = len(rest)
            if isinstance(prelude, SlaveChallenge):
                self._sealing, self._opening = prelude.sealing, prelude.opening
            self._preludes.popleft()
            if self._preludes:
                self._send(self._preludes[0].begin())
                continue
            if self._proof_timer is not None:
                self._proof_timer.cancel()
            self._send(self._sealed(self.session.on_connected()))
        return True

    def _sealed(self, packet: bytes) -> bytes:
        return packet if self._sealing is None else packet + self._sealing.next(packet)

    def _check_seal(self, position: int, after: int, limit: int) -> int | None:
        """The end of the packet with its seal; None if the seal has not arrived yet. Raises `SealError`."""
        seals = self._opening
        if seals is None:
            return after
        end = after + SEAL_SIZE
        if end > limit:
            return None
        if not self._seal_checked and not seals.opens(self._scratch[position:after], self._scratch[after:end]):
            raise SealError
        self._seal_checked = True  # the packet is parsed again once its action is done
        return end

    def _parse(self) -> None:
        if not self._prove():
            return
        position, limit = 0, self._filled
        scratch = self._scratch
        while position < limit:
            if self._body_left:
                part = scratch[position : min(limit, position + self._body_left)]
                self._files.write(self.session.max_offset, part)
                self._on_body(len(part))
                position += len(part)
                continue
            found = decode_master_packet(scratch, position, limit)
            if found is None:
                break
            packet, header_end = found
            after = self._check_seal(position, header_end, limit)
            if after is None:
                break
            self._packet_received = True
            if isinstance(packet, TransferHeader):
                action = self.session.on_header(packet)
                if action is not None:
                    self._on_action(action, packet)
                    break
                self._body_left = packet.size
            else:
                self._on_handshake(packet)
            position, self._seal_checked = after, False
            if not self._reading:
                break
        if position:
            rest = limit - position
            if rest:
                scratch[:rest] = bytes(scratch[position:limit])
            self._filled = rest

    def _on_body(self, size: int) -> None:
        self._body_left -= size
        self.received += size
        self.session.on_body(size)

    # Jobs that take time; nothing is read while one runs

    def _on_handshake(self, master: MasterHandshake) -> None:
        action = self.session.on_handshake(master)
        if action is not None:
            self._pages = PagePrefaulter(self._files, action.offset, master.max_offset)
            self._start_job(lambda: self._align(action))

    def _on_action(self, action: Action, packet: TransferHeader) -> None:
        if isinstance(action, Record):
            self._start_job(lambda: self._record(action, packet.offset))
        else:
            self._pause()
            log.info("waiting until the controllers name the master's epoch", epoch=action.epoch)
            error = FutureEpochError(f"the controllers have not named epoch {action.epoch}, which the master reports")
            self._epoch_timer = self.loop.call_later(WAIT_FOR_EPOCH, self.end, error)

    def _start_job(self, job: Callable[[], Awaitable[None]]) -> None:
        self._pause()
        self._job = background.start(self._work(job), "what the master asked for")

    async def _work(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except Exception as error:  # noqa: BLE001 - a connection that reads nothing must not stay
            self.end(error)
            return
        finally:
            self._job = None
        if not self.ended.is_set():
            self._resume()
            self._on_readable(parse_first=True)

    async def _align(self, action: Truncate) -> None:
        """Cut the log to what the master has too. The next handshake repairs a crash between any two steps: the epoch
        file is changed last, because it says which masters wrote the bytes that are still there."""
        session = self.session
        offset, end = action.offset, session.max_offset
        if offset < end:
            data, confirm = self._files.read(offset, end - offset), session.confirm_offset
            check_cut(data, offset, end, confirm, strict=self._strict, alone=self._alone)
            log.warning(
                "log truncated to what the master has", offset=offset, end=end, confirmed=session.confirm_offset
            )
            await self._truncate_broker(offset)
            await background.completed(self._cut(offset), "cut")
        await background.completed(self._epoch_store.save(action.epochs), "epoch file")
        if self.before_acknowledging is not None:
            await self.before_acknowledging(session.max_offset)
        if self.ended.is_set():
            return
        self.session.on_aligned(action)
        self.aligned = True
        self.on_aligned()
        self._acknowledge()

    async def _cut(self, offset: int) -> None:
        await self.loop.run_in_executor(None, self._files.truncate, offset)
        self.session.on_cut(offset)
        self._report_progress()

    async def _record(self, action: Record, offset: int) -> None:
        if action.begin and offset > 0 and self._files.end > 0:
            # The log begins in a later file than the empty one that exists.
            await self._truncate_broker(0)
            await background.completed(self.loop.run_in_executor(None, self._files.truncate, -1), "cut")
        await background.completed(self._epoch_store.save(action.epochs), "epoch file")
        self.session.on_recorded(action, offset)

    # Acknowledging

    def _acknowledge(self) -> None:
        """Report the present end to the master, which producers wait for, and then to the broker."""
        session = self.session
        if not self.aligned or self.ended.is_set():
            return
        if session.max_offset > self._acked:
            if self._sync_flush:
                self._flush()
            else:
                self._ack(session.max_offset)
        self._report_progress()

    def _report_progress(self) -> None:
        progress = (self.session.max_offset, self.session.confirm_offset)
        if progress != self._reported:
            self._reported = progress
            self._on_replicated(*progress)

    def _ack(self, offset: int) -> None:
        self._acked = offset
        try:
            if len(self._out) < SCRATCH:  # else the master does not read; a later acknowledgement includes this one
                self._send(self._sealed(encode_ack(offset)))
        except OSError as error:
            self.end(error)
            return
        if not self.caught_up and offset >= self.session.master_end:
            self.caught_up = True
            self.on_caught_up()

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
        # One sync covers all that arrived during the last one.
        if self.session.max_offset > end:
            self._flush()

    def _send(self, data: bytes) -> None:
        """Send all of it, the rest when the socket has room; callers keep what waits short."""
        self.last_write = self.loop.time()
        if self._out:
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
        return min(1.0, self._heartbeat / 2, self._housekeeping / 4, self._master_silence / 4)

    def _tick(self) -> None:
        self._ticks = self.loop.call_later(self._tick_interval, self._tick)
        now = self.loop.time()
        silence = now - self.last_read if self._reading else 0.0
        if silence > self._master_silence:
            self._set_heard(False)
        if silence > self._housekeeping:
            old = "" if self._packet_received else ", and did not answer the handshake: it may be older than 5.1.1"
            self.end(ConnectionError(f"the master was silent for {self._housekeeping:g} s{old}"))
        elif self._acked >= 0 and now - self.last_write >= self._heartbeat:
            self._ack(self._acked)

    def end(self, reason: BaseException) -> None:
        """Stop reading; nothing more is written to the log, unless a truncation is under way (`stopped`)."""
        if self.ended.is_set():
            return
        self._pause()
        if self._blocked:
            self.loop.remove_writer(self._socket)
        for timer in (self._ticks, self._epoch_timer, self._proof_timer):
            if timer is not None:
                timer.cancel()
        if self._pages is not None:
            self._pages.close()
        self.session.on_closed()
        self._socket.close()
        self._report_progress()
        self.reason = reason
        self.ended.set()

    async def stopped(self) -> None:
        """After `end`: wait until the last thread that works on the log has ended."""
        if self._job is not None:
            self._job.cancel()
        pages = () if self._pages is None else self._pages.running
        pending = [work for work in (self._job, self._flushing, *pages) if work is not None]
        if pending:
            await asyncio.wait(pending)
