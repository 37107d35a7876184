"""Callers that wait for the result of an operator's request: a state of the machine, or the end of a hand-over. Part of
`agent`, which calls `notify` after each event.
"""

import asyncio
from collections.abc import Callable

from rocketmq_sidecar.domain.actions import HandedOver


class Waiters:
    """One per agent, used in its event loop."""

    def __init__(self) -> None:
        self._states: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._hand_overs: dict[int, asyncio.Future[HandedOver]] = {}
        self._beginning: asyncio.Future[HandedOver] | None = None
        """The hand-over that is being requested within this call."""

    async def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Returns when `holds()` is true.

        Raises:
            TimeoutError: it was not in time.
        """
        if holds():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (holds, waiter)
        self._states.append(entry)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        finally:
            if entry in self._states:
                self._states.remove(entry)

    def notify(self) -> None:
        """Something has happened: wake the callers whose condition holds now."""
        for holds, waiter in self._states:
            if not waiter.done() and holds():
                waiter.set_result(None)

    async def handed_over(self, begin: Callable[[], int]) -> HandedOver:
        """The end of the hand-over that `begin` starts, which returns its number and may refuse it at once."""
        outcome: asyncio.Future[HandedOver] = asyncio.get_running_loop().create_future()
        self._beginning = outcome
        number = begin()
        self._beginning = None
        if not outcome.done():
            self._hand_overs[number] = outcome
        return await outcome

    def on_handed_over(self, ended: HandedOver) -> None:
        """A hand-over ended, or was refused."""
        asked = self._hand_overs.pop(ended.number, self._beginning)
        if asked is not None and not asked.done():
            asked.set_result(ended)
