"""Asks the other members of the group for their votes on locks, and tells them of locks that end (lockInStrictMode).

Members are asked all at once, with onlyThisBroker=true. One that is away, slow, refuses or answers nonsense gives
nothing; the result never waits for it longer than `MEMBER_SECONDS`.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, BrokerOuterAPI.java.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

import msgspec
import structlog

from rocketmq_broker.domain.consuming.lock_votes import Ballot
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import decode_request_body, encode_body
from rocketmq_formats.remoting.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_runtime import background
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

MEMBER_SECONDS: Final = 0.8
"""That a member has for its answer: clients wait 1 s for theirs (RebalanceImpl.java). In Java it is 1 s, so that a
member that hangs takes every lock from every client."""
MAX_CALLS: Final = 1000
"""To members at a time."""
LOG_SECONDS: Final = 60.0
"""Between two log lines about a member that does not answer as it should."""


class LockMembers:
    """The group as `LockApi` needs it."""

    def __init__(self, *, replicas: int, members: Callable[[], Mapping[int, str]], client: RemotingClient) -> None:
        """`replicas`: totalReplicas. `members`: the addresses of the others by brokerId, as known now."""
        self.replicas = replicas
        self._members = members
        self._client = client
        self._calls: set[asyncio.Task[None]] = set()
        self._may_log = LogLimiter(asyncio.get_running_loop().time, LOG_SECONDS)

    def addresses(self) -> list[str]:
        """Of those that can be asked; each has one vote, however many ids it is known by.

        Raises:
            RequestRefusedError: too many calls are under way.
        """
        addresses = sorted(set(self._members().values()))
        if len(self._calls) + len(addresses) > MAX_CALLS:
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, "too many requests for locks, try again")
        return addresses

    def ask(self, addresses: list[str], body: LockBatchRequestBody, ballot: Ballot) -> "asyncio.Future[None]":
        """Have the members at `addresses` vote. The future is done when `ballot` is decided, at the latest when all
        have answered or had their time."""
        command = _only_there(RequestCode.LOCK_BATCH_MQ, body)
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def count(address: str) -> None:
            given: frozenset[MessageQueue] = frozenset()
            try:
                given = await self._given(address, command)
            finally:
                ballot.count(given)
                if ballot.decided and not decided.done():
                    decided.set_result(None)

        for address in addresses:
            self._start(count(address))
        return decided

    def unlock(self, addresses: list[str], body: LockBatchRequestBody) -> None:
        """No one waits for it: a member that does not learn it keeps the lock until it expires."""
        command = _only_there(RequestCode.UNLOCK_BATCH_MQ, body)
        for address in addresses:
            self._start(self._tell(address, command))

    def _start(self, call: Coroutine[None, None, None]) -> None:
        task = background.start(call, "locks of the other members")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _given(self, address: str, command: RemotingCommand) -> frozenset[MessageQueue]:
        """The queues for which a member votes."""
        answer = await self._answer(address, command)
        if answer is None:
            return frozenset()
        try:
            return decode_request_body(LockBatchResponseBody, answer.body).lock_ok_mq_set
        except FormatError as error:
            self._report(address, str(error))
            return frozenset()

    async def _tell(self, address: str, command: RemotingCommand) -> None:
        await self._answer(address, command)

    async def _answer(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        try:
            answer = await self._client.call(address, command, timeout=MEMBER_SECONDS)
        except (RemotingError, ValueError) as error:
            self._report(address, str(error))
            return None
        if answer.code != ResponseCode.SUCCESS:
            self._report(address, f"code {answer.code}: {answer.remark}")
            return None
        return answer

    def _report(self, address: str, reason: str) -> None:
        if self._may_log(address):
            log.warning("a member of the group does not vote on locks", address=address, reason=reason)


def _only_there(code: RequestCode, body: LockBatchRequestBody) -> RemotingCommand:
    return request(code, None, encode_body(msgspec.structs.replace(body, only_this_broker=True)))
