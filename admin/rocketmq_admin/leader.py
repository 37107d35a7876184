"""Finds the controllers' leader and asks it.

As mqadmin does: any controller says who leads (1005), the request goes there. Unlike mqadmin, which gives up: a dead or
cut off controller costs its time-out and the next address is asked, and while an election is on (nobody leads, or the
leader answers 2007) we go round again for as long as one answer may take. Both are safe, for nothing was done so far.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_admin.caller import Caller, NotSentError, read_header, succeeded
from rocketmq_admin.errors import AdminError, UnreachableError, refusal
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader

PAUSE_SECONDS = 0.2
"""Between two rounds while an election is on."""


@dataclass(frozen=True)
class LeaderAnswer:
    """A successful answer and the leader that gave it."""

    address: str
    command: RemotingCommand


async def ask_leader(
    caller: Caller, controllers: Sequence[str], asked: RemotingCommand, *, patience: float | None = None
) -> LeaderAnswer:
    """The leader's answer to `asked`; `controllers` are addresses of any of them.

    `patience`: seconds to wait for the end of an election; None: as long as for an answer.

    Raises:
        RefusedError: the leader answered with another code than success.
        UnreachableError: no controller answers, none knows a leader, or the leader's answer stayed away (then the
            request may have taken effect).
    """
    now = asyncio.get_running_loop().time
    deadline = now() + (caller.timeout if patience is None else patience)
    while True:
        attempt = _Round(caller, asked)
        for address in controllers:
            answer = await attempt.through(address)
            if answer is not None:
                return LeaderAnswer(answer.address, succeeded(answer.address, answer.command))
        if not attempt.election or now() >= deadline:
            raise attempt.failure()
        await asyncio.sleep(PAUSE_SECONDS)


async def get_metadata(caller: Caller, address: str) -> GetMetaDataResponseHeader:
    """What the controller at `address` says of its group (1005).

    Raises:
        RefusedError, UnreachableError: it does not say it.
    """
    answer = await caller.ask_successfully(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO))
    return read_header(address, GetMetaDataResponseHeader, answer)


class _Round:
    """One walk over the addresses, with what went wrong on the way."""

    def __init__(self, caller: Caller, asked: RemotingCommand) -> None:
        self.election = False
        """Some controller answered, but nobody leads just now."""
        self._caller = caller
        self._asked = asked
        self._tried: set[str] = set()
        self._refused: AdminError | None = None
        self._problems: list[AdminError] = []

    async def through(self, address: str) -> LeaderAnswer | None:
        """The answer of the leader that the controller at `address` names; None to go on with the next address."""
        try:
            leader = (await get_metadata(self._caller, address)).controller_leader_address
        except AdminError as error:
            self._problems.append(error)
            return None
        if not leader:
            self.election = True
            self._problems.append(UnreachableError(f"{address} knows no leader"))
            return None
        if leader in self._tried:
            return None
        self._tried.add(leader)
        try:
            answer = await self._caller.ask(leader, self._asked)
        except NotSentError as error:
            self.election = True  # it is gone, the others will notice
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
