"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): orderly consumers take queues for themselves.

Locks are not replicated: consumers renew theirs every 20 s, at a new master too.
Source: client reference, section 3 (`AdminBrokerProcessor.lockBatchMQ`).
"""

import time
from collections.abc import Callable

from rocketmq_broker.domain.locks import QueueLocks
from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_broker.front import Processor
from rocketmq_formats.remoting.bodies import decode_body, encode_body
from rocketmq_formats.remoting.client import LockBatchRequestBody, LockBatchResponseBody
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_runtime.server import Answer, Peer

MAX_QUEUES = 10_000
"""In one request."""


class LockApi:
    """Locks by request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._locks = QueueLocks()
        self._clock = clock

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    def expire(self) -> None:
        """Forget locks that nobody renewed."""
        self._locks.expire(self._clock())

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
    body = decode_body(LockBatchRequestBody, request.body)
    if len(body.mq_set) > MAX_QUEUES:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"more than {MAX_QUEUES} queues in one request")
    return body
