"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): orderly consumers take queues for themselves.

Locks are not replicated: consumers renew theirs every 20 s, at a new master too. Until then a new master gives any
queue to the first who asks, while the old holder believes for up to 30 s that it has it. With lockInStrictMode a client
gets what most replicas of the group give it: the broker that it asks asks the others (`lock_members.py`).

Two rules beside the count keep two clients from holding a queue at a time, though replicas die, return or are cut off:
- A lock is taken back only by its client or by time, or at this broker when its topic or group is deleted. What a lost
  vote leaves behind at this broker is released if that request took it; anything older may be part of a majority that
  the client got at another master.
- A broker that has just started gives nothing while a lock lasts: it has forgotten whose queues are taken.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java (which knows neither rule).
"""

import asyncio
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from rocketmq_broker.consuming.lock_members import LockMembers
from rocketmq_broker.domain.consuming.lock_votes import Ballot, quorum
from rocketmq_broker.domain.consuming.locks import LOCK_SECONDS, Locked, QueueLocks
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.processor_table import Processor
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_request_body, encode_body
from rocketmq_formats.remoting.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_runtime import background
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace, in_steps

MAX_QUEUES: Final = 10_000
"""In one request."""


class LockApi:
    """Locks by request."""

    def __init__(
        self, broker_name: str, group: LockMembers | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`broker_name`: of this group. `group`: whose votes count; None without lockInStrictMode."""
        self._broker_name = broker_name
        self._group = group
        others_vote = group is not None and quorum(group.replicas) > 1
        self._locks = QueueLocks(grants_from=clock() + LOCK_SECONDS if others_vote else float("-inf"))
        self._clock = clock
        self._expiring: asyncio.Task[None] | None = None

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    def expire(self) -> None:
        """Start removing expired locks."""
        if self._expiring is None or self._expiring.done():
            steps = in_steps(self._locks.expire(self._clock()), Pace(time.perf_counter))
            self._expiring = background.start(steps, "expiry of locks")

    def forget_groups(self, groups: AbstractSet[str]) -> None:
        """These are deleted."""
        self._locks.forget_groups(groups)

    def forget_topics(self, topics: AbstractSet[str]) -> None:
        """These are deleted: a topic of the same name begins without holders."""
        self._locks.forget_topics(topics)

    def any_held(self, group: str) -> bool:
        """Whether a client of the group holds a queue: the group consumes in order."""
        return self._locks.any_held(group, self._clock())

    def _lock(self, request: RemotingCommand, peer: Peer) -> Answer:
        body, now, group = _decode(request), self._clock(), self._group
        addresses = [] if group is None or body.only_this_broker else group.addresses()
        asked = self._of_this_group(body) if body.only_this_broker else body.mq_set
        own = self._locks.lock(body.consumer_group, body.client_id, asked, now, host=peer.host)
        if group is None or body.only_this_broker:
            return _answer(request, own.held)
        candidates = own.held if self._locks.grants(now) else body.mq_set
        needed = quorum(max(group.replicas, 1 + len(addresses)))
        ballot = Ballot(candidates, own.held, needed=needed, voters=len(addresses))
        if ballot.decided:
            return self._result(request, body, own, ballot)
        # in this turn of the loop: what the client sends next, such as an unlock, must reach the members later
        decided = group.ask(addresses, msgspec.structs.replace(body, mq_set=candidates), ballot)
        return background.awaited(self._when(decided, request, body, own, ballot), "locks")

    async def _when(
        self,
        decided: "asyncio.Future[None]",
        request: RemotingCommand,
        body: LockBatchRequestBody,
        own: Locked,
        ballot: Ballot,
    ) -> RemotingCommand:
        await decided
        return self._result(request, body, own, ballot)

    def _result(
        self, request: RemotingCommand, body: LockBatchRequestBody, own: Locked, ballot: Ballot
    ) -> RemotingCommand:
        won = ballot.won
        self._locks.give_back(body.consumer_group, own, own.held - won)
        return _answer(request, won)

    def _of_this_group(self, body: LockBatchRequestBody) -> frozenset[MessageQueue]:
        """What a member may vote on: the one that asks may know this broker's address as another's, of before."""
        return frozenset(queue for queue in body.mq_set if queue.broker_name == self._broker_name)

    def _unlock(self, request: RemotingCommand, _peer: Peer) -> Answer:
        body = _decode(request)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        if self._group is not None and not body.only_this_broker:
            self._group.unlock(self._group.addresses(), body)
        return response(request, ResponseCode.SUCCESS)


def _answer(request: RemotingCommand, held: frozenset[MessageQueue]) -> RemotingCommand:
    return response(request, ResponseCode.SUCCESS, None, None, encode_body(LockBatchResponseBody(lock_ok_mq_set=held)))


def _decode(request: RemotingCommand) -> LockBatchRequestBody:
    body = decode_request_body(LockBatchRequestBody, request.body)
    if len(body.mq_set) > MAX_QUEUES:
        raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, f"more than {MAX_QUEUES} queues in one request")
    return body
