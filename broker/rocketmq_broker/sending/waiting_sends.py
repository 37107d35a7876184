"""Sends that are in the log and wait for their copies; answered in batches as the replicas confirm.

`send.py` adds them in the order of the log, `replica.py` calls `release` at each message of the sidecar and `fail_all`
when mastership ends. One timer serves all time-outs.

PUT_OK of what waits leaves in one place, `release`, and only for offsets that `ReplicaRole.releasable` allows
(AckedSurvives). Sends that the master acknowledges alone (`ReplicaRole.acknowledges_alone`) do not come here.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.tables.table_file import Barrier
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.codes import ResponseCode, SerializeType
from rocketmq_formats.remoting.command import FLAG_RESPONSE, RemotingCommand, decode_frame, encode_frame
from rocketmq_runtime import background
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.remoting.server import Peer

_STORED = frozenset({ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT})
"""Producers turn these into a SendResult, so the answer carries the message's place, as PUT_OK does."""


class WaitingSend(msgspec.Struct, gc=False):
    """One send; the request itself is not kept, because bodies are large."""

    end: int
    """Physical offset behind the message (the batch's last message)."""
    since: float
    """Loop time when it was appended."""
    peer: Peer
    opaque: int
    serialize_type: SerializeType
    frame: bytes
    """The answer PUT_OK."""
    barrier: Barrier | None
    """Of its topic if that is new: PUT_OK waits for this too."""


class WaitingSends:
    """The queue between append and answer. Times are milliseconds here, as in the settings."""

    def __init__(
        self,
        role: ReplicaRole,
        *,
        slave_timeout_ms: int,
        capacity: int,
        flushed_offset: Callable[[], int] | None = None,
        flush_timeout_ms: int = 5000,
        clock: Callable[[], float] = boot_clock,
        traffic: Traffic | None = None,
    ) -> None:
        """`flushed_offset`: how far the log is on disk; None: answers do not wait for it (ASYNC_FLUSH).
        `clock`: what leases are in."""
        self._role = role
        self._clock = clock
        self._traffic = traffic or Traffic()
        self._slave_timeout = slave_timeout_ms / 1000
        self._flushed_offset = flushed_offset
        self._flush_timeout = flush_timeout_ms / 1000
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._queue: deque[WaitingSend] = deque()
        self._behind_barriers = 0
        """How many have their copies, but the slaves lack their topics."""
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._queue) + self._behind_barriers

    @property
    def full(self) -> bool:
        return len(self._queue) + self._behind_barriers >= self._capacity

    def add(self, end: int, peer: Peer, request: RemotingCommand, frame: bytes, barrier: Barrier | None = None) -> None:
        """`request`, whose message ends at `end`, waits; `frame` is its answer PUT_OK. `barrier`: of a new topic."""
        self._queue.append(
            WaitingSend(end, self._loop.time(), peer, request.opaque, request.serialize_type, frame, barrier)
        )
        if self._timer is None:
            self._timer = self._loop.call_later(self._slave_timeout, self._expire)

    def release(self) -> None:
        """Answer those that have their copies, and are on disk if that was asked for."""
        queue = self._queue
        if not queue:
            return
        until = self._role.releasable(self._clock())
        if self._flushed_offset is not None:
            until = min(until, self._flushed_offset())
        now = self._loop.time()
        answers: dict[Peer, list[bytes]] = {}
        waits: list[float] = []
        # in the order of the log: behind the first that must wait, all others must too
        while queue and queue[0].end <= until:
            send = queue.popleft()
            waits.append(now - send.since)
            if send.barrier is None:
                answers.setdefault(send.peer, []).append(send.frame)
            else:
                self._behind_barriers += 1
                background.start(self._answer_behind(send, send.barrier), "first messages of a topic")
        if waits:
            self._traffic.answered(waits)
            # one write for each connection, because a call of the kernel costs more than making the answer
            for peer, frames in answers.items():
                peer.answer_frames(frames)
            self._check_drained()

    def fail_all(self, code: ResponseCode, remark: str) -> None:
        """Answer all with an error; it is not known whether their messages survive."""
        queue, self._queue = self._queue, deque()
        for send in queue:
            _fail(send, code, remark)
        self._check_drained()

    async def drained(self, timeout_ms: int) -> bool:
        """Wait until nothing waits, at most `timeout_ms`; True if nothing waits."""
        if self:
            self._drained = self._loop.create_future()
            await asyncio.wait([self._drained], timeout=timeout_ms / 1000)
            self._drained = None
        return not self

    async def _answer_behind(self, send: WaitingSend, barrier: Barrier) -> None:
        try:
            problem = await barrier()
        finally:
            self._behind_barriers -= 1
        if problem is None:
            send.peer.answer_frame(send.frame)
        else:
            _fail(send, ResponseCode.FLUSH_SLAVE_TIMEOUT, None)
            self._traffic.counts.sends_timed_out += 1
        self._check_drained()

    def _expire(self) -> None:
        """Answer those that have waited too long; Java lets the slaves' status override the disk's."""
        now = self._loop.time()
        acked = self._role.releasable(self._clock())
        kept: deque[WaitingSend] = deque()
        for send in self._queue:
            age = now - send.since
            if send.end > acked:
                if age < self._slave_timeout:
                    kept.append(send)
                    continue
                _fail(send, ResponseCode.FLUSH_SLAVE_TIMEOUT, None)
            elif self._flushed_offset is None or age >= self._flush_timeout:
                _fail(send, ResponseCode.FLUSH_DISK_TIMEOUT, None)
            else:
                kept.append(send)
                continue
            self._traffic.counts.sends_timed_out += 1
        self._queue = kept
        self._timer = None
        if kept:
            due = min(self._due(send, acked) for send in kept)
            self._timer = self._loop.call_at(due, self._expire)
        self._check_drained()

    def _due(self, send: WaitingSend, acked: int) -> float:
        if send.end > acked or self._flushed_offset is None:
            return send.since + self._slave_timeout
        return send.since + self._flush_timeout

    def _check_drained(self) -> None:
        if not self and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


def _fail(send: WaitingSend, code: ResponseCode, remark: str | None) -> None:
    if code in _STORED:
        answer = decode_frame(send.frame[4:])
        answer.code = code
    else:
        answer = RemotingCommand(
            code=code,
            flag=FLAG_RESPONSE,
            opaque=send.opaque,
            remark=remark,
            serialize_type=send.serialize_type,
        )
    send.peer.answer_frame(encode_frame(answer))
