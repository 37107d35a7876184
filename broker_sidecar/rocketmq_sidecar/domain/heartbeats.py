"""The heartbeats (904) that tell every controller that this replica lives, and of which write lease. Pure; part of
`steward`.

A relaxed master acknowledges by itself while its lease lasts, so its heartbeats announce it: controllers replace nobody
whose lease may run. A lease begins with the first heartbeat of its epoch that announces it; what was sent before
extends nothing. It ends with one that announces none, at a hand-over (`succession`) and at an orderly end.

A leading controller that leaves heartbeats unanswered may hang.
"""

from rocketmq_sidecar.domain.actions import Beat
from rocketmq_sidecar.domain.leader import LeaderFinder
from rocketmq_sidecar.domain.lease import NEVER
from rocketmq_sidecar.domain.mandate import Mandate
from rocketmq_sidecar.domain.options import Timing

_CLOCKS = 1.05
"""What the controllers wait for is longer than the lease: their clocks may run faster than ours."""


class Heartbeats:
    """Of one replica."""

    def __init__(self, timing: Timing, finder: LeaderFinder, mandate: Mandate, *, relaxed: bool) -> None:
        self._timing = timing
        self._finder = finder
        self._mandate = mandate
        self._relaxed = relaxed
        self._due_at = NEVER
        self._announced: tuple[int, float] | None = None
        """Epoch and time of the first heartbeat that told the controllers of a lease."""
        self._unanswered_since: float | None = None

    @property
    def due_at(self) -> float:
        """When the next one is to be sent."""
        return self._due_at

    @property
    def patience_ends_at(self) -> float | None:
        """When the leading controller has been silent for too long; None while it owes no answer."""
        return None if self._unanswered_since is None else self._unanswered_since + self._timing.patience

    def at_once(self) -> None:
        """There is something to tell every controller."""
        self._due_at = NEVER

    def announce_anew(self) -> None:
        """Whether there is a lease has changed: tell it at once, and count nothing before that."""
        self._announced = None
        self.at_once()

    def next(self, broker_id: int, address: str, now: float, *, lease: bool) -> Beat | None:
        """The one that is due. `lease`: as a master that has not given its lease back."""
        if now < self._due_at:
            return None
        self._due_at = now + self._timing.heartbeat
        if self._unanswered_since is None and self._finder.leader is not None:
            self._unanswered_since = now
        if not self._relaxed:
            return Beat(self._finder.addresses, broker_id, address, now, None)
        if not lease:
            # 0: a leading controller that has not heard of a lease yet knows that there may be one.
            return Beat(self._finder.addresses, broker_id, address, now, 0.0)
        if self._announced is None or self._announced[0] != self._mandate.master_epoch:
            self._announced = self._mandate.master_epoch, now
        return Beat(self._finder.addresses, broker_id, address, now, _CLOCKS * self._timing.lease)

    def give_back(self, broker_id: int, address: str, now: float) -> Beat | None:
        """The one that ends a lease that was announced; None if none was."""
        return None if self._announced is None else Beat(self._finder.addresses, broker_id, address, now, 0.0)

    def counts(self, sent_at: float) -> bool:
        """Whether one sent then may extend the lease. Controllers that were not told of a lease may elect as soon as a
        connection closes, which hurts nobody unless this replica acknowledges alone."""
        if not self._relaxed:
            return True
        announced = self._announced
        return announced is not None and announced[0] == self._mandate.master_epoch and sent_at >= announced[1]

    def on_answered(self) -> None:
        """The leading controller took one, or it is not to be waited for any more."""
        self._unanswered_since = None

    def unanswered(self, now: float) -> bool:
        """Whether the leading controller has been silent for too long."""
        since = self._unanswered_since
        return since is not None and now - since >= self._timing.patience
