"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): orderly consumers take queues for themselves.

Locks are not replicated: consumers renew theirs every 20 s, at a new master too.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java.
"""

import asyncio
import time
from collections.abc import Callable

from rocketmq_broker.domain.consuming.locks import QueueLocks
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.processor_table import Processor
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_request_body, encode_body
from rocketmq_formats.remoting.client import LockBatchRequestBody, LockBatchResponseBody
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace, in_steps

MAX_QUEUES = 10_000
"""In one request."""


class LockApi:
    """Locks by request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._locks = QueueLocks()
        self._clock = clock
        self._expiring: asyncio.Task[None] | None = None

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    def expire(self) -> None:
        """Start removing expired locks."""
        if self._expiring is None or self._expiring.done():
            steps = in_steps(self._locks.expire(self._clock()), Pace(time.perf_counter))
            self._expiring = asyncio.ensure_future(steps)

    def any_held(self, group: str) -> bool:
        """Whether a client of the group holds a queue: the group consumes in order."""
        return self._locks.any_held(group, self._clock())

    def _lock(self, request: RemotingCommand, _peer: Peer) -> Answer:
        body = _decode(request)
        held = self._locks.lock(body.consumer_group, body.client_id, body.mq_set, self._clock())
        answer = encode_body(LockBatchResponseBody(lock_ok_mq_set=held))
        return response(request, ResponseCode.SUCCESS, None, None, answer)

    def _unlock(self, request: RemotingCommand, _peer: Peer) -> Answer:
        body = _decode(request)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return response(request, ResponseCode.SUCCESS)


def _decode(request: RemotingCommand) -> LockBatchRequestBody:
    body = decode_request_body(LockBatchRequestBody, request.body)
    if len(body.mq_set) > MAX_QUEUES:
        raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, f"more than {MAX_QUEUES} queues in one request")
    return body
