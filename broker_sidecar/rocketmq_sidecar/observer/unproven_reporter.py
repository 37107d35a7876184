"""Reports to every controller whether the Java broker's log may lack what was acknowledged (990002), again and again:
each controller keeps it in memory only. Used by `app`. Controllers of another group than the broker's hear nothing.

Often while it is unproven, so that the controllers know it before the broker's first heartbeat (904) can have it
elected.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import LogDoubtRequestHeader
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingError
from rocketmq_sidecar.observer.controllers import ControllersSilentError

log = structlog.get_logger(__name__)

INTERVAL_UNPROVEN: Final = 0.25
INTERVAL: Final = 3.0
"""Seconds between two reports, while the log is unproven and otherwise."""


class UnprovenReporter:
    """For the broker beside this sidecar."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        cluster_name: str,
        broker_name: str,
        ask: Callable[[str, RemotingCommand], Awaitable[RemotingCommand]],
        report: Callable[[], tuple[int, str | None] | None],
    ) -> None:
        """`ask`: `ControllerCalls.ask`. `report()`: the broker's id and why its log may lack something; None while not
        known."""
        self._addresses = tuple(addresses)
        self._names = (cluster_name, broker_name)
        self._read_report = report
        self._ask = ask
        self._tasks: list[asyncio.Task[None]] = []
        self._unsupported: set[str] = set()
        """Controllers that do not support the request."""

    def start(self) -> None:
        self._tasks = [background.start(self._report(address), f"reports to {address}") for address in self._addresses]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report(self, address: str) -> None:
        cluster_name, broker_name = self._names
        while True:
            report = self._read_report()
            unproven = report is not None and report[1] is not None
            if report is not None:
                header = LogDoubtRequestHeader(
                    cluster_name=cluster_name, broker_name=broker_name, broker_id=report[0], unproven=unproven
                )
                try:
                    answer = await self._ask(address, request(RequestCode.CONTROLLER_LOG_DOUBT, header))
                except (RemotingError, ControllersSilentError):
                    pass  # the next report reaches it when it is back; another group's is in `/readyz`
                else:
                    self._on_answer(address, unsupported=answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            waits = report is None or (unproven and address not in self._unsupported)
            await asyncio.sleep(INTERVAL_UNPROVEN if waits else INTERVAL)

    def _on_answer(self, address: str, *, unsupported: bool) -> None:
        if not unsupported:
            self._unsupported.discard(address)
        elif address not in self._unsupported:
            self._unsupported.add(address)
            log.warning(
                "this controller does not support reports that a log may lack what was acknowledged: it may elect this"
                " replica while others have more; upgrade all controllers to this release",
                controller=address,
            )
