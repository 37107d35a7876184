"""A strict master waits for each replica that it has proposed until it knows the result. If an answer was lost, Java's
controllers cannot exclude that they agree later. So a replica that died while it joined would be waited for until it
returns, and nothing would be acknowledged. After a while the master hands over to a member of the agreed set: a new
masterEpoch makes the old proposal void. Pure; part of the control machine, which calls `step` after every event.
"""

from rocketmq_sidecar.domain.actions import Actions, LogLine
from rocketmq_sidecar.domain.control.hand_over import HandOver, Situation


class Undecided:
    def __init__(self, patience: float) -> None:
        """`patience`: seconds until the first hand-over and between two, and the longest that one may take."""
        self.reason: str | None = None
        """Why nothing is acknowledged and what helps, once that has lasted for `patience`."""
        self._patience = patience
        self._due_at: float | None = None

    @property
    def wake_at(self) -> float | None:
        """When to call `step` next; None if only events matter."""
        return self._due_at

    def step(self, now: Situation, undecided: frozenset[int], hand_over: HandOver, at: float) -> Actions:
        """The actions that are due now; begins a hand-over. `undecided`: `Mandate.undecided`."""
        # Alone it is `unfollowed`; and who is connected acknowledges.
        waits = now.connected is not None and 1 < now.connected < len(now.in_sync | undecided)
        if not (now.leads and undecided and waits):
            self.reason = self._due_at = None
            return ()
        if self._due_at is None:
            self._due_at = at + self._patience
        if at < self._due_at or not now.controllers or hand_over.active:
            return ()
        self._due_at = at + self._patience
        begun = hand_over.begin(None, self._patience, now, at)
        if self.reason is not None:
            return begun
        missing = ", ".join(map(str, sorted(undecided)))
        self.reason = (
            f"nothing is acknowledged: brokerId {missing} may be in the SyncStateSet by a proposal without an answer, "
            "and is not in sync. Start it, or hand mastership over"
        )
        values: dict[str, object] = {"master_epoch": now.epoch, "reason": self.reason}
        return (LogLine("a proposed replica is away and cannot be excluded, handing over", values, "warning"), *begun)
