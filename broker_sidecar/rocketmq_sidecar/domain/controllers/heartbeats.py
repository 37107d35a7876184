"""The heartbeats (904), which show every controller that this replica lives and announce its write lease. Pure; part of
`session`.

A relaxed master acknowledges alone while its lease lasts, so its heartbeats announce it: controllers do not replace a
master whose lease may still run. A lease begins with the first heartbeat of its epoch that announces it; earlier ones
extend nothing. It ends with one that announces none, at a hand-over (`designated_election`) and at an orderly stop.

A leading controller that leaves heartbeats unanswered may hang.
"""

from rocketmq_formats.remoting.controller import CLOCKS_DIFFER
from rocketmq_sidecar.domain.actions import Heartbeat
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.leader import LeaderFinder
from rocketmq_sidecar.domain.controllers.lease import NEVER
from rocketmq_sidecar.domain.options import Timing


class Heartbeats:
    def __init__(self, timing: Timing, finder: LeaderFinder, group: GroupState, *, relaxed: bool) -> None:
        self._timing = timing
        self._finder = finder
        self._group = group
        self._relaxed = relaxed
        self._due_at = NEVER
        self._announced: tuple[int, float] | None = None
        """Epoch and time of the first heartbeat that announced a lease."""
        self._unanswered_since: float | None = None

    @property
    def due_at(self) -> float:
        """When the next one is due."""
        return self._due_at

    @property
    def patience_ends_at(self) -> float | None:
        """When the leading controller has been silent for too long; None while it owes no answer."""
        return None if self._unanswered_since is None else self._unanswered_since + self._timing.patience

    def at_once(self) -> None:
        """Send the next heartbeat now, because its content has changed."""
        self._due_at = NEVER

    def announce_again(self) -> None:
        """A lease begins or ends: announce it at once, and count no earlier heartbeat."""
        self._announced = None
        self.at_once()

    def next(self, broker_id: int, address: str, now: float, *, lease: bool) -> Heartbeat | None:
        """The heartbeat that is due, or None. `lease`: as a master that has not returned its lease."""
        if now < self._due_at:
            return None
        self._due_at = now + self._timing.heartbeat
        if self._unanswered_since is None and self._finder.leader is not None:
            self._unanswered_since = now
        if not self._relaxed:
            return Heartbeat(self._finder.addresses, broker_id, address, now, None)
        if not lease:
            # 0: a leading controller without an announced lease learns that there may be one later.
            return Heartbeat(self._finder.addresses, broker_id, address, now, 0.0)
        if self._announced is None or self._announced[0] != self._group.master_epoch:
            self._announced = self._group.master_epoch, now
        return Heartbeat(self._finder.addresses, broker_id, address, now, CLOCKS_DIFFER * self._timing.lease)

    def return_lease(self, broker_id: int, address: str, now: float) -> Heartbeat | None:
        """The heartbeat that ends an announced lease; None if none was announced."""
        return None if self._announced is None else Heartbeat(self._finder.addresses, broker_id, address, now, 0.0)

    def counts(self, sent_at: float) -> bool:
        """Whether a heartbeat sent then may extend the lease. Controllers without an announced lease may elect as soon
        as a connection closes; that is harmful only if this replica acknowledges alone."""
        if not self._relaxed:
            return True
        announced = self._announced
        return announced is not None and announced[0] == self._group.master_epoch and sent_at >= announced[1]

    def on_answered(self) -> None:
        """The leading controller accepted one, or no longer needs to."""
        self._unanswered_since = None

    def unanswered(self, now: float) -> bool:
        """Whether the leading controller has been silent for too long."""
        since = self._unanswered_since
        return since is not None and now - since >= self._timing.patience
