"""Who waits for what an operator asked of this replica: for a state of the machine, or for the end of a hand-over. Part
of `agent`, which says when something has happened.
"""

import asyncio
from collections.abc import Callable

from rocketmq_sidecar.domain.actions import HandedOver


class Waiting:
    """Those of one agent, all in its event loop."""

    def __init__(self) -> None:
        self._states: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._hand_overs: dict[int, asyncio.Future[HandedOver]] = {}
        self._asking: asyncio.Future[HandedOver] | None = None
        """Who asks for a hand-over within this call."""

    async def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Returns when `holds`.

        Raises:
            TimeoutError: it does not in time.
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

    def look(self) -> None:
        """Something has happened: whoever waited for it goes on."""
        for holds, waiter in self._states:
            if not waiter.done() and holds():
                waiter.set_result(None)

    async def handed_over(self, ask: Callable[[], int]) -> HandedOver:
        """How the hand-over ends that `ask` begins and gives the number of; it may be refused within that call."""
        asking: asyncio.Future[HandedOver] = asyncio.get_running_loop().create_future()
        self._asking = asking
        number = ask()
        self._asking = None
        if not asking.done():
            self._hand_overs[number] = asking
        return await asking

    def on_handed_over(self, ended: HandedOver) -> None:
        """A hand-over ended, or was refused."""
        asked = self._hand_overs.pop(ended.number, self._asking)
        if asked is not None and not asked.done():
            asked.set_result(ended)
