"""What /healthz and /readyz say. Called from the probes' own thread, so that a stuck event loop is noticed: reads only.

Healthy: the event loop turns and committed entries get applied; else a restart helps. Ready: healthy and in touch with
a quorum that has a leader; else a restart would not help, and the probe only takes the member out of its Service.
"""

import time
from collections.abc import Callable

from rocketmq_controller.raft import RaftStatus
from rocketmq_runtime.pulse import STUCK_AFTER, Pulse


class Health:
    """Fed by the event loop, read by the probes. `status` is the Raft member as it was at the last beat."""

    def __init__(self, ask: Callable[[], RaftStatus]) -> None:
        """`ask` is called in the event loop only, while the pulse beats."""
        self.status: RaftStatus | None = None
        self.pulse = Pulse(self._look)
        self._ask = ask
        self._last_progress = time.monotonic()
        self._last_applied = -1
        self._fatal: str | None = None

    def failed(self, reason: str) -> None:
        """The process is about to end because of `reason`."""
        self._fatal = reason

    def healthy(self) -> str | None:
        """None, or what is stuck."""
        if self._fatal is not None:
            return self._fatal
        if (trouble := self.pulse.stuck()) is not None:
            return trouble
        if (stuck := time.monotonic() - self._last_progress) > STUCK_AFTER:
            return f"committed entries after {self._last_applied} have not been applied for {stuck:.1f} s"
        return None

    def ready(self) -> str | None:
        """None, or why this member is of no use just now."""
        trouble = self.healthy()
        if trouble is None and (self.status is None or self.status.leader_id is None):
            return "no leader: the quorum is electing one, or too few members reach each other"
        return trouble

    def _look(self) -> None:
        status = self.status = self._ask()
        if status.last_applied != self._last_applied or status.last_applied >= status.commit_index:
            self._last_applied = status.last_applied
            self._last_progress = time.monotonic()
