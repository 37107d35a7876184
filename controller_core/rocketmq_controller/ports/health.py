"""What /healthz and /readyz answer. Called in the probes' own thread, which notices a stuck event loop: reads only.

Healthy: the event loop runs and committed entries are applied; otherwise a restart helps. Ready: healthy and in contact
with a quorum that has a leader; otherwise a restart would not help, and the probe only takes the member out of its
Service.
"""

import time
from collections.abc import Callable

from rocketmq_controller.raft import RaftStatus
from rocketmq_runtime.loop_watchdog import STUCK_AFTER, LoopWatchdog


class Health:
    """Updated by the event loop, read by the probes. `status` is the Raft member's at the last check."""

    def __init__(self, read_status: Callable[[], RaftStatus]) -> None:
        """`read_status` is called in the event loop only, by the watchdog."""
        self.status: RaftStatus | None = None
        self.watchdog = LoopWatchdog(self._update)
        self._read_status = read_status
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
        if (trouble := self.watchdog.stuck()) is not None:
            return trouble
        if (stuck := time.monotonic() - self._last_progress) > STUCK_AFTER:
            return f"committed entries after {self._last_applied} have not been applied for {stuck:.1f} s"
        return None

    def ready(self) -> str | None:
        """None, or why this member cannot serve now."""
        trouble = self.healthy()
        if trouble is None and (self.status is None or self.status.leader_id is None):
            return "no leader: the quorum is electing one, or too few members reach each other"
        if trouble is None and self.status is not None and self.status.removed:
            trouble = "this member was removed from the quorum: stop it and delete its store"
        if trouble is None and self.status is not None and self.status.learner:
            trouble = "this member is a learner: it votes when it has caught up"
        if trouble is None and self.status is not None and not self.status.voter:
            trouble = "the store is new or was set back: it neither votes nor counts until a leader has caught it up"
        return trouble

    def _update(self) -> None:
        status = self.status = self._read_status()
        if status.last_applied != self._last_applied or status.last_applied >= status.commit_index:
            self._last_applied = status.last_applied
            self._last_progress = time.monotonic()
