"""Finds the controllers' leader and sends it the request.

As in mqadmin, any controller names the leader (1005), and the request goes there. Unlike mqadmin, which gives up, we
try the next address after the time-out of a dead controller, and during an election (no leader, or the leader answers
2007) we try all addresses again for the time that one answer may take. Both are safe: nothing was changed so far.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_admin.caller import Caller, NotSentError, read_header, succeeded
from rocketmq_admin.errors import AdminError, UnreachableError, refusal
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader

PAUSE_SECONDS = 0.2
"""Between two rounds during an election."""


@dataclass(frozen=True)
class LeaderAnswer:
    """A successful answer and the leader that gave it."""

    address: str
    command: RemotingCommand


async def call_leader(
    caller: Caller, controllers: Sequence[str], command: RemotingCommand, *, patience: float | None = None
) -> LeaderAnswer:
    """The leader's answer to `command`; `controllers` are addresses of any of them.

    `patience`: seconds to wait for the end of an election; None: the time-out of an answer.

    Raises:
        ClusterRefusedError: the leader answered with another code than success.
        UnreachableError: no controller answers, none has a leader, or the leader did not answer (then the request may
            have taken effect).
    """
    now = asyncio.get_running_loop().time
    deadline = now() + (caller.timeout if patience is None else patience)
    while True:
        attempt = _Round(caller, command)
        for address in controllers:
            answer = await attempt.through(address)
            if answer is not None:
                return LeaderAnswer(answer.address, succeeded(answer.address, answer.command))
        if not attempt.election or now() >= deadline:
            raise attempt.failure()
        await asyncio.sleep(PAUSE_SECONDS)


async def get_metadata(caller: Caller, address: str) -> GetMetaDataResponseHeader:
    """The group's members and leader as the controller at `address` reports them (1005).

    Raises:
        ClusterRefusedError, UnreachableError: no such answer.
    """
    answer = await caller.call_checked(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO))
    return read_header(address, GetMetaDataResponseHeader, answer)


class _Round:
    """One try of all addresses, with the problems met."""

    def __init__(self, caller: Caller, command: RemotingCommand) -> None:
        self.election = False
        """Some controller answered, but there is no leader now."""
        self._caller = caller
        self._command = command
        self._tried: set[str] = set()
        self._refused: AdminError | None = None
        self._problems: list[AdminError] = []

    async def through(self, address: str) -> LeaderAnswer | None:
        """The answer of the leader that the controller at `address` names; None to try the next address."""
        try:
            leader = (await get_metadata(self._caller, address)).controller_leader_address
        except AdminError as error:
            self._problems.append(error)
            return None
        if not leader:
            self.election = True
            self._problems.append(UnreachableError(f"{address} reports no leader"))
            return None
        if leader in self._tried:
            return None
        self._tried.add(leader)
        try:
            answer = await self._caller.call(leader, self._command)
        except NotSentError as error:
            self.election = True  # it is dead, the others will notice
            self._problems.append(error)
            return None
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.election = True
            self._refused = refusal(leader, answer.code, answer.remark)
            return None
        return LeaderAnswer(leader, answer)

    def failure(self) -> AdminError:
        if self._refused is not None:
            return self._refused
        if len(self._problems) == 1:
            return self._problems[0]
        return UnreachableError("no leading controller: " + "; ".join(map(str, self._problems)))
