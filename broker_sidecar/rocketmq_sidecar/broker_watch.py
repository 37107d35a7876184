"""Notices that the broker hangs: it is alive, its connection is open, but it reads nothing.

Something small is sent every while, and the kernel knows whether the other process has read it. A broker that has not
for too long is cut off, so that the controllers elect another. Used by the agent.
"""

import asyncio
from collections.abc import Callable

from rocketmq_sidecar.broker_link import BrokerLink

PERIOD = 0.5
"""Seconds between two looks."""


class BrokerWatch:
    """Runs while a broker is connected."""

    def __init__(self, link: BrokerLink, *, limit: float, outlast_promises: bool, clock: Callable[[], float]) -> None:
        """
        Args:
            limit: seconds without reading after which the broker is cut off.
            outlast_promises: wait at least until what it was promised has ended. With relaxed durability a broker
                that wakes up may acknowledge by itself until its lease is over.
        """
        self._promised_until = float("-inf")
        self._link = link
        self._limit = limit
        self._outlast_promises = outlast_promises
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._behind_since: float | None = None
        self._looked_at = float("-inf")

    @property
    def behind(self) -> bool:
        """Whether the broker has not read what it was sent."""
        return self._link.unread()

    def start(self) -> None:
        """A broker is connected."""
        self.stop()
        self._looked_at = self._clock()
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def stop(self) -> None:
        """It is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._behind_since = None
        self._promised_until = float("-inf")

    def promised(self, until: float) -> None:
        """The broker was told a lease that ends then."""
        self._promised_until = max(self._promised_until, until)

    def _look(self) -> None:
        now = self._clock()
        if not self.behind:
            self._behind_since = None
            self._link.probe()
        elif self._behind_since is None or now - self._looked_at > 2 * PERIOD:
            self._behind_since = now  # in the second case we ourselves were held up
        elif now - self._behind_since >= self._limit and not (self._outlast_promises and now < self._promised_until):
            self._link.drop(f"it has read nothing for {now - self._behind_since:.1f} s: it hangs")
            return
        self._looked_at = now
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)
