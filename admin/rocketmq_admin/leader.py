"""Finds the controllers' leader and sends it the request.

All controllers are asked at once who leads (1005), and the request goes to the address at which a controller answered
that it leads itself. The address that a controller says of the leader may not be reachable from here (NAT, port
mappings, names of another network). It is asked too, beside the given ones, and counts if the leader answers there. So
neither a dead controller nor a wrong address delays the request. During an election (no one leads, or the leader
answers 2007) all are asked again for the time that one answer may take. That is safe: nothing was changed so far.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_admin.caller import Caller, NotSentError, read_header, succeeded
from rocketmq_admin.errors import AdminError, UnreachableError, refusal
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader
from rocketmq_runtime import background

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
        answer = await attempt.answer(controllers)
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
        self._asking: dict[asyncio.Task[GetMetaDataResponseHeader], str] = {}
        self._asked: set[str] = set()
        self._refused: AdminError | None = None
        self._problems: list[AdminError] = []

    async def answer(self, addresses: Sequence[str]) -> LeaderAnswer | None:
        """The leader's answer; None if no address leads to a leader that answers as one."""
        for address in addresses:
            self._ask(address)
        try:
            while self._asking:
                await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in self._asking if task.done()]:
                    answer = await self._learn(self._asking.pop(task), task)
                    if answer is not None:
                        return answer
        finally:
            for task in self._asking:
                task.cancel()
            await asyncio.gather(*self._asking, return_exceptions=True)
        return None

    def _ask(self, address: str) -> None:
        if address not in self._asked:
            self._asked.add(address)
            self._asking[background.awaited(get_metadata(self._caller, address), "question who leads")] = address

    async def _learn(self, address: str, task: asyncio.Task[GetMetaDataResponseHeader]) -> LeaderAnswer | None:
        try:
            metadata = task.result()
        except AdminError as error:
            self._problems.append(error)
            return None
        if metadata.is_leader:
            return await self._call(address)
        self.election = True
        named = metadata.controller_leader_address
        if named:
            self._ask(named)
        self._problems.append(UnreachableError(f"{address} reports {f'{named} as leader' if named else 'no leader'}"))
        return None

    async def _call(self, leader: str) -> LeaderAnswer | None:
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
