"""A Java master's hand-over: sends are refused, a slave catches up, the controllers elect it, it takes over.

The refusal ends by itself at the hand-over's deadline (`domain.observing.fence`), so that neither a crash here nor a
lost answer leaves the broker refusing sends. The controllers notify the old master of the election (1008), and it
becomes a slave. Called by `admin`, for operators and when the sidecar stops.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import structlog

from rocketmq_api.replica_view import NewMaster
from rocketmq_sidecar.domain.observing import fence as observer_fence
from rocketmq_sidecar.domain.observing.hand_over import CatchUpWatch, NoTargetError, candidates
from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus
from rocketmq_sidecar.observer.broker import BrokerError
from rocketmq_sidecar.observer.controllers import ControllersSilentError, Elected, ElectionRefusedError
from rocketmq_sidecar.ports.replica_admin import NotDoneError, NotNowError

log = structlog.get_logger(__name__)

ROUND = 0.03
"""Seconds between two reads of the logs' ends."""
CATCH_UP_SHARE = 0.6
"""Share of the time for the candidates to catch up; the rest is for the election."""
CALL_SHARE = 0.25
"""Share of the time for one call: a Java broker on a busy machine may take a second. A candidate that takes longer is
left out."""


class Brokers(Protocol):
    """The part of `observer.broker.BrokerCalls` that is used here."""

    async def status(self, address: str, seconds: float = ...) -> BrokerStatus: ...
    async def end(self, address: str, seconds: float = ...) -> int: ...
    async def configuration(self, address: str, seconds: float = ...) -> Mapping[str, str]: ...
    async def configure(self, address: str, changes: Mapping[str, str], seconds: float = ...) -> None: ...


class Controllers(Protocol):
    """The part of `observer.controllers.ControllerCalls` that is used here."""

    @property
    def name(self) -> str | None: ...
    async def group(self) -> GroupStatus | None: ...
    async def elect(self, broker_id: int) -> Elected: ...


class HandOver:
    def __init__(
        self, brokers: Brokers, controllers: Controllers, *, address: str, broker_id: int, seconds: float, now_ms: int
    ) -> None:
        """Of the master `broker_id`, whose broker listens at `address`; `now_ms`: milliseconds since 1970."""
        self._brokers, self._controllers = brokers, controllers
        self._address, self._broker_id = address, broker_id
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._deadline = self._begun + seconds
        self._refuse_until_ms = now_ms + round(1000 * seconds)
        self.refusing = False
        """Whether the broker may have been set to refuse sends."""

    async def run(self, wanted: int | None) -> NewMaster:
        """Hand over to `wanted`, or to the best of those that can be elected.

        Raises:
            NotNowError: nothing was done.
            NotDoneError: it was tried and failed.
        """
        try:
            group = await self._controllers.group()
            if group is None or group.master_id != self._broker_id:
                raise NotNowError(f"the controllers do not name this replica master: {group and group.master_id} is")
            able = candidates(group, self._broker_id, wanted)
        except ControllersSilentError as error:
            raise NotNowError(f"cannot query the controllers: {error}") from error
        except NoTargetError as error:
            raise NotNowError(str(error)) from error
        addresses = {broker_id: group.addresses[broker_id] for broker_id in able}
        priorities = await self._priorities(addresses)
        self.refusing = True
        try:
            await self._brokers.configure(
                self._address, {observer_fence.START_ACCEPT: str(self._refuse_until_ms)}, self._left(CALL_SHARE)
            )
        except BrokerError as error:
            raise NotDoneError(f"could not make the broker refuse sends: {error}") from error
        log.info("hand-over begun: sends are refused", candidates=list(able))
        target = await self._wait_for_catch_up(addresses, priorities)
        elected = await self._elect(target)
        await self._taken_over(addresses[target])
        log.info(
            "mastership handed over",
            to=elected.master_id,
            master_epoch=elected.master_epoch,
            seconds=round(self._loop.time() - self._begun, 3),
        )
        return NewMaster(elected.master_id, elected.master_epoch)

    async def _priorities(self, addresses: Mapping[int, str]) -> dict[int, int]:
        """brokerElectionPriority of the candidates that answer soon."""
        if len(addresses) == 1:
            return {}
        calls = [self._brokers.configuration(address, self._left(CALL_SHARE / 4)) for address in addresses.values()]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        found = {}
        for broker_id, answer in zip(addresses, answers, strict=True):
            if not isinstance(answer, BaseException):
                text = answer.get("brokerElectionPriority", "")
                if text.isascii() and text.isdecimal() and len(text) <= 10:
                    found[broker_id] = int(text)
        return found

    async def _wait_for_catch_up(self, addresses: Mapping[int, str], priorities: Mapping[int, int]) -> int:
        level, able = CatchUpWatch(), dict(addresses)
        until = self._begun + CATCH_UP_SHARE * (self._deadline - self._begun)
        while self._loop.time() < until:
            master = await self._status(self._address)
            if master is not None:
                found = await asyncio.gather(*(self._end(address) for address in able.values()))
                ends = {broker_id: end for broker_id, end in zip(able, found, strict=True) if end is not None}
                if ends:
                    # A candidate that hangs must not delay every round.
                    able = {broker_id: addresses[broker_id] for broker_id in ends}
                target = level.on_round(master.max_offset, master.sends_waiting, ends, priorities)
                if target is not None:
                    return target
            await asyncio.sleep(ROUND)
        raise NotDoneError(f"no candidate caught up in time: {level.behind}")

    async def _status(self, address: str) -> BrokerStatus | None:
        try:
            return await self._brokers.status(address, self._left(CALL_SHARE))
        except BrokerError:
            return None

    async def _end(self, address: str) -> int | None:
        try:
            return await self._brokers.end(address, self._left(CALL_SHARE))
        except BrokerError:
            return None

    async def _elect(self, target: int) -> Elected:
        try:
            return await self._controllers.elect(target)
        except ElectionRefusedError as error:
            raise NotDoneError(f"the controllers did not elect {target}: {error}") from error
        except ControllersSilentError as error:
            return await self._perhaps_elected(target, error)

    async def _perhaps_elected(self, target: int, reason: ControllersSilentError) -> Elected:
        """Whether the target was elected after all, by the present leading controller."""
        while self._loop.time() < self._deadline:
            try:
                group = await self._controllers.group()
            except ControllersSilentError:
                await asyncio.sleep(ROUND)
                continue
            if group is not None and group.master_id == target:
                return Elected(target, group.master_epoch)
            break
        raise NotDoneError(f"the controllers did not answer whether they elected {target}: {reason}")

    async def _taken_over(self, address: str) -> None:
        """The election is committed; wait until the new master accepts sends."""
        while self._loop.time() < self._deadline:
            status = await self._status(address)
            if status is not None and status.serves_as_master:
                return
            await asyncio.sleep(ROUND)
        log.warning("elected, but does not serve as master yet", broker=address)

    def _left(self, share: float) -> float:
        """Seconds that one call may take: `share` of the hand-over, at most until its deadline."""
        now = self._loop.time()
        return max(min(share * (self._deadline - self._begun), self._deadline - now), 0.05)
