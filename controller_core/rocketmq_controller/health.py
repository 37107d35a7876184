"""What /healthz and /readyz say. Called from the probes' own thread, so that a stuck event loop is noticed: reads only.

Healthy: the event loop turns and committed entries get applied; else a restart helps. Ready: healthy and in touch with
a quorum that has a leader; else a restart would not help, and the probe only takes the member out of its Service.
"""

import asyncio
import time
from collections.abc import Callable

from rocketmq_controller.raft import RaftStatus

BEAT_PERIOD = 0.25
STUCK_AFTER = 5.0
"""Seconds without a turn of the event loop, or without progress of the apply while entries wait, that count as
stuck."""


class Health:
    """Fed by the event loop, read by the probes. `status` is the Raft member as it was at the last beat."""

    def __init__(self, ask: Callable[[], RaftStatus], now: Callable[[], float] = time.monotonic) -> None:
        """`ask` is called in the event loop only, between `start` and `stop`."""
        self.status: RaftStatus | None = None
        self._ask = ask
        self._now = now
        self._last_beat = self._last_progress = now()
        self._last_applied = -1
        self._fatal: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to note the turns of the running event loop."""
        self._beat()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def failed(self, reason: str) -> None:
        """The process is about to end because of `reason`."""
        self._fatal = reason

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        if self._fatal is not None:
            return self._fatal
        if (silence := self._now() - self._last_beat) > STUCK_AFTER:
            return f"event loop stuck for {silence:.1f} s"
        if (stuck := self._now() - self._last_progress) > STUCK_AFTER:
            return f"committed entries after {self._last_applied} have not been applied for {stuck:.1f} s"
        return None

    def ready(self) -> str | None:
        """None, or why this member is of no use just now."""
        trouble = self.healthy()
        if trouble is None and (self.status is None or self.status.leader_id is None):
            return "no leader: the quorum is electing one, or too few members reach each other"
        return trouble

    def _beat(self) -> None:
        self._last_beat = self._now()
        status = self.status = self._ask()
        if status.last_applied != self._last_applied or status.last_applied >= status.commit_index:
            self._last_applied = status.last_applied
            self._last_progress = self._last_beat
        self._timer = asyncio.get_running_loop().call_later(BEAT_PERIOD, self._beat)
