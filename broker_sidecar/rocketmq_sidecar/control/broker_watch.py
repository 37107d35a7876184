"""Notices that the broker hangs: it is alive, its connection is open, but it sends nothing.

The watch sends a probe from time to time. If the broker then sends nothing for too long, its connection is cut, so that
the controllers elect another master. Used by `broker_side`.
"""

import asyncio
from collections.abc import Callable

from rocketmq_formats.replica_link import Probe
from rocketmq_sidecar.control.broker_link import BrokerLink

PERIOD = 0.25
"""Seconds between two probes; a busy broker usually answers sooner than that."""


class BrokerWatch:
    """Runs while a broker is connected."""

    def __init__(self, link: BrokerLink, *, limit: float, outlast_promises: bool, clock: Callable[[], float]) -> None:
        """
        Args:
            limit: seconds without an answer after which the broker is cut off.
            outlast_promises: wait at least until its lease has ended. With relaxed durability a broker that wakes up
                may acknowledge alone until then.
        """
        self._promised_until = float("-inf")
        self._link = link
        self._limit = limit
        self._outlast_promises = outlast_promises
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at: float | None = None
        """When a probe was sent that nothing has followed yet; None: the broker has sent something since."""
        self._checked_at = float("-inf")

    @property
    def silent(self) -> bool:
        """Whether a probe has been unanswered for `PERIOD`: then the lease must not be extended."""
        return self._asked_at is not None and self._clock() - self._asked_at >= PERIOD

    def start(self) -> None:
        """A broker is connected."""
        self.stop()
        self._checked_at = self._clock()
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._check)

    def stop(self) -> None:
        """The broker has disconnected."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._asked_at = None
        self._promised_until = float("-inf")

    def on_message(self) -> None:
        """The broker sent a message."""
        self._asked_at = None

    def promised(self, until: float) -> None:
        """The broker was sent a lease that ends then."""
        self._promised_until = max(self._promised_until, until)

    def _check(self) -> None:
        now = self._clock()
        if self._asked_at is None:
            self._asked_at = now
            self._link.send(Probe())
        elif now - self._checked_at > 2 * PERIOD:
            self._asked_at = now  # this process was held up: the answer may wait to be read
        elif now - self._asked_at >= self._limit and not (self._outlast_promises and now < self._promised_until):
            self._link.drop(f"it has sent nothing for {now - self._asked_at:.1f} s: it hangs")
            return
        self._checked_at = now
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._check)
