"""Notices that the broker hangs: it is alive, its connection is open, but it says nothing.

It is asked every while whether somebody is there. A broker that has said nothing for too long since is cut off, so that
the controllers elect another. Used by the agent's side towards its broker.
"""

import asyncio
from collections.abc import Callable

from rocketmq_formats.replica_link import Probe
from rocketmq_sidecar.broker_link import BrokerLink

PERIOD = 0.25
"""Seconds between two questions; a broker that is busy answers later, but not as late as this as a rule."""


class BrokerWatch:
    """Runs while a broker is connected."""

    def __init__(self, link: BrokerLink, *, limit: float, outlast_promises: bool, clock: Callable[[], float]) -> None:
        """
        Args:
            limit: seconds without an answer after which the broker is cut off.
            outlast_promises: wait at least until what it was promised has ended. With relaxed durability a broker
                that wakes up may acknowledge by itself until its lease is over.
        """
        self._promised_until = float("-inf")
        self._link = link
        self._limit = limit
        self._outlast_promises = outlast_promises
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at: float | None = None
        """When it was asked and has said nothing since; None: it has."""
        self._looked_at = float("-inf")

    @property
    def silent(self) -> bool:
        """Whether the broker has left a question open for so long that it should be promised nothing more."""
        return self._asked_at is not None and self._clock() - self._asked_at >= PERIOD

    def start(self) -> None:
        """A broker is connected."""
        self.stop()
        self._looked_at = self._clock()
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def stop(self) -> None:
        """It is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._asked_at = None
        self._promised_until = float("-inf")

    def heard(self) -> None:
        """It said something."""
        self._asked_at = None

    def promised(self, until: float) -> None:
        """The broker was told a lease that ends then."""
        self._promised_until = max(self._promised_until, until)

    def _look(self) -> None:
        now = self._clock()
        if self._asked_at is None:
            self._asked_at = now
            self._link.send(Probe())
        elif now - self._looked_at > 2 * PERIOD:
            self._asked_at = now  # we ourselves were held up, the answer may wait to be read
        elif now - self._asked_at >= self._limit and not (self._outlast_promises and now < self._promised_until):
            self._link.drop(f"it has said nothing for {now - self._asked_at:.1f} s: it hangs")
            return
        self._looked_at = now
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)
