"""A strict master that no member of its SyncStateSet follows acknowledges nothing. After a while it asks the
controllers to elect another living member: each has everything that was acknowledged, and the others may be able to
follow it. Pure; part of the control machine, which calls `step` after every event.

If no replica can follow any other, mastership would circulate. So the wait doubles each time, until this replica has a
follower again.
"""

from rocketmq_sidecar.domain.actions import Actions, LogLine
from rocketmq_sidecar.domain.control.hand_over import REFUSALS, Situation

LONGEST = 16
"""The longest wait, as a multiple of the first."""


class Unfollowed:
    def __init__(self, patience: float) -> None:
        """`patience`: seconds of the first wait."""
        self.electing: tuple[int, ...] = ()
        """The replicas of which the controllers should elect one now."""
        self._patience = self._wait = patience
        self._since: tuple[int, float] | None = None
        """The epoch, and since when it has had no follower."""

    @property
    def wake_at(self) -> float | None:
        """When to call `step` next; None if only events matter."""
        return None if self._since is None or self.electing else self._since[1] + self._wait

    def step(self, now: Situation, at: float) -> Actions:
        """The actions that are due now."""
        others = now.in_sync - {now.own_id or 0}
        if not now.leads or not others or now.followed:
            if self.electing and not now.leads:
                self._wait = min(2 * self._wait, LONGEST * self._patience)
            elif now.leads and now.connected is not None:
                self._wait = self._patience
            self._since, self.electing = None, ()
            return ()
        if self._since is None or self._since[0] != now.epoch:
            self._since, self.electing = (now.epoch, at), ()
        if self.electing:
            if now.refused[0] >= REFUSALS:  # none of them lives
                self._since, self.electing = (now.epoch, at), ()
        elif at >= self._since[1] + self._wait and now.controllers:
            self.electing = tuple(sorted(others))
            values: dict[str, object] = {"master_epoch": now.epoch, "seconds": round(at - self._since[1], 3)}
            return (LogLine("no member of the SyncStateSet follows, requesting another master", values, "warning"),)
        return ()
