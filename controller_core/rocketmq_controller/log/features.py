"""Which feature level all members can read (`domain.forms`), so that the leader of a quorum that is being upgraded
proposes nothing that a member of an older release would stop at.

Every member asks every other one by getControllerMetaData (1005), which all releases answer, and keeps the last answer,
so the next leader has it at once. A level that was committed once stays agreed, whether all members are up or not.
Called by failover; built and run by app.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from rocketmq_controller.domain.forms import FEATURE_LEVEL, FIRST_LEVEL
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

PERIOD: Final = 5.0
"""Seconds between polls of a member."""


class Features:
    """One per process; used in the event loop only."""

    def __init__(
        self,
        client: RemotingClient,
        others: Callable[[], Mapping[str, str]],
        *,
        committed: Callable[[], int],
        own: int = FEATURE_LEVEL,
        period: float = PERIOD,
    ) -> None:
        """`others`: the other members' remoting addresses by id, as of now; `committed`: the state machine's level."""
        self._client, self._others = client, others
        self._committed, self._own, self._period = committed, own, period
        self._read_by: dict[str, int] = {}
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def level(self) -> int:
        """What every member can read; the first level while a member has not reported more."""
        readable = min((self._read_by.get(member, FIRST_LEVEL) for member in self._others()), default=self._own)
        return min(self._own, max(readable, self._committed()))

    def start(self) -> None:
        """Begin to poll."""
        self._task = background.start(self._poll_all(), "feature levels")

    async def stop(self) -> None:
        """Stop polling. Harmless if not started."""
        tasks = [*self._polls.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll_all(self) -> None:
        """Each member in a task of its own: one that hangs does not delay the others. Members come and go."""
        while True:
            others = self._others()
            for member in self._polls.keys() - others.keys():
                self._polls.pop(member).cancel()
                self._read_by.pop(member, None)
            for member in others.keys() - self._polls.keys():
                self._polls[member] = background.start(self._poll_member(member), f"feature level of {member}")
            await asyncio.sleep(self._period / 10)

    async def _poll_member(self, member: str) -> None:
        while True:
            address = self._others().get(member, "")
            try:
                answer = await self._client.call(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO))
                if answer.code == ResponseCode.SUCCESS:
                    level = decode_header(GetMetaDataResponseHeader, answer.ext_fields or {}).feature_level
                    self._record(member, FIRST_LEVEL if level is None else level)
            except (RemotingError, FormatError) as error:
                log.debug("feature level not known", member=member, reason=str(error))
            await asyncio.sleep(self._period)

    def _record(self, member: str, level: int) -> None:
        before = self.level
        self._read_by[member] = level
        if self.level != before:
            log.info("feature level of the quorum", level=self.level, was=before, because_of=member)
