"""A master has another replica elected in its place, step by step, with nothing lost and the shortest gap. Pure; part
of the control machine, which calls `step` after every event.

    CATCHING_UP     until the target has what the log holds now; sends are still accepted
    HOLDING         the broker refuses sends, and reports where its log ends
    FINAL_CATCH_UP  until the target has all of that. Then a moment (`SETTLE`) longer until all copies are confirmed, so
                    that accepted sends are answered; without a named target also until all others have it, so that the
                    controllers can choose
    ELECTING        the controllers are asked to elect the target; with relaxed durability the write lease is returned
                    before

It ends when the controllers name a master of a later epoch, when they refuse, when the time is up, or when this replica
is no longer master. Except in the first case the broker accepts sends again while it is still master. Nothing
acknowledged is ever lost: the target has the log beyond the last acknowledged message.
"""

from enum import StrEnum

import msgspec

from rocketmq_sidecar.domain.actions import Action, Actions, HandedOver, LogLine, WatchCatchUp
from rocketmq_sidecar.domain.controllers.lease import NEVER

HOLD_MOST = 2.0
"""Longest time in seconds for which sends are refused, whatever the hand-over's time-out is."""
SETTLE = 0.1
"""Seconds that the other replicas may take to catch up once the target has."""
REFUSALS = 2
"""The first refusal may come from a new leading controller that has not received our heartbeat yet."""


class Phase(StrEnum):
    """The step of a hand-over; the value completes "not done in time: ..."."""

    IDLE = "idle"
    CATCHING_UP = "waiting until the replica has caught up"
    HOLDING = "waiting for the broker to refuse sends"
    FINAL_CATCH_UP = "waiting until the replica has everything"
    ELECTING = "waiting for the controllers to elect it"


class Outcome(StrEnum):
    """How it ended."""

    ELECTED = "elected"
    NOT_NOW = "not now"
    """Refused, nothing was done."""
    UNDER_WAY = "under way"
    """Refused: another one is."""
    FAILED = "failed"


class Situation(msgspec.Struct, frozen=True):
    """The control machine's state, as far as its parts need it that decide whether another replica should be master."""

    own_id: int | None
    leads: bool
    """The broker is master of `epoch`, by the controllers' last answer."""
    epoch: int
    master_id: int | None
    in_sync: frozenset[int]
    connected: int | None
    """How many replicas, this one included, are in sync and connected; None: replication has not reported it for
    `epoch`."""
    controllers: bool
    """Whether a leading controller is known."""
    end: int | None
    """Where the log ends, while the broker refuses sends."""
    refused: tuple[int, str]
    """How often the controllers refused to elect, and the last reason."""

    @property
    def followed(self) -> bool:
        """False if replication reported that no slave follows."""
        return self.connected != 1


class HandOver:
    """One at a time."""

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.number = 0
        """Of the last hand-over; increases."""
        self._chosen: tuple[int, ...] = ()
        self._asked_for: int | None = None
        self._epoch = 0
        self._deadline = self._hold_until = self._settle_until = NEVER
        self._began_at = NEVER
        self._end = 0
        self._watch = 0
        self._caught_up: frozenset[int] = frozenset()
        self._acked = False

    @property
    def active(self) -> bool:
        """Whether one is under way."""
        return self.phase is not Phase.IDLE

    @property
    def holds(self) -> bool:
        """Whether the broker must refuse sends for it."""
        return self.phase in {Phase.HOLDING, Phase.FINAL_CATCH_UP, Phase.ELECTING}

    @property
    def electing(self) -> tuple[int, ...]:
        """The replicas of which the controllers should elect one now, by their priorities."""
        return self._chosen if self.phase is Phase.ELECTING else ()

    @property
    def wake_at(self) -> float:
        """When to call `step` next; infinity if only events matter."""
        if not self.active:
            return float("inf")
        return min(time for time in (self._deadline, self._hold_until, self._settle_until) if time != NEVER)

    def begin(self, broker_id: int | None, seconds: float, now: Situation, at: float) -> Actions:
        """Hand over to `broker_id` (None: to the first that has caught up); ends in one `HandedOver`."""
        if self.active:
            return (HandedOver(0, Outcome.UNDER_WAY, "another hand-over is under way"),)
        refusal = _refusal(broker_id, now)
        if refusal is not None:
            return (HandedOver(0, Outcome.NOT_NOW, refusal),)
        self.number += 1
        if broker_id is not None and broker_id == now.own_id:
            return (HandedOver(self.number, Outcome.ELECTED, "", broker_id, now.epoch),)
        self.phase = Phase.CATCHING_UP
        self._chosen, self._asked_for, self._epoch = (), broker_id, now.epoch
        self._began_at, self._deadline = at, at + seconds
        self._hold_until = self._settle_until = NEVER
        values: dict[str, object] = {"to": broker_id, "master_epoch": now.epoch, "seconds": seconds}
        return (LogLine("handing over", values), self._watch_catch_up(None))

    def limit_to(self, until: float) -> None:
        """This replica is about to stop: end by `until` at the latest."""
        self._deadline = min(self._deadline, until)

    def on_replicas_caught_up(self, watch: int, caught_up: frozenset[int], *, acked: bool) -> None:
        """`caught_up`: who has reached the watched offset; `acked`: sends have all the copies they need."""
        if watch == self._watch:
            self._caught_up, self._acked = caught_up, acked

    def step(self, now: Situation, at: float) -> Actions:
        """The actions that are due now."""
        actions: list[Action] = []
        while self.active:
            before = self.phase
            actions += self._ended(now, at) or self._next(now, at)
            if self.phase is before:
                break
        return tuple(actions)

    def _ended(self, now: Situation, at: float) -> Actions:
        if now.epoch > self._epoch and now.master_id is not None:
            if now.master_id == now.own_id or self._asked_for not in {None, now.master_id}:
                return self._fail(f"brokerId {now.master_id} was elected in epoch {now.epoch} instead", at)
            return self._over(Outcome.ELECTED, "", at, now.master_id, now.epoch)
        trouble = self._trouble(now, at)
        return () if trouble is None else self._fail(trouble, at)

    def _trouble(self, now: Situation, at: float) -> str | None:
        """Why it cannot continue."""
        refusals, refusal = now.refused
        named = self._asked_for
        if now.epoch > self._epoch or not now.leads:
            return "this replica is no longer master, and no new master is known yet"
        if not self._candidates(now):
            return f"{'no other replica' if named is None else f'brokerId {named} no longer'} is in the SyncStateSet"
        if self.phase is Phase.ELECTING and refusals >= REFUSALS:
            return f"the controllers refused: {refusal}"
        if at >= self._deadline or (self.holds and at >= self._hold_until):
            known = "" if now.controllers else ", no leading controller can be reached"
            return f"not done in time: {self.phase}{known}"
        return None

    def _next(self, now: Situation, at: float) -> Actions:
        caught_up = self._caught_up & self._candidates(now)
        match self.phase:
            case Phase.CATCHING_UP if caught_up:
                self.phase, self._hold_until = Phase.HOLDING, at + HOLD_MOST
                return (self._stop_watching(),)
            case Phase.HOLDING if now.end is not None:
                self.phase, self._end = Phase.FINAL_CATCH_UP, now.end
                return (self._watch_catch_up(now.end),)
            case Phase.FINAL_CATCH_UP if caught_up:
                if self._settle_until == NEVER:
                    self._settle_until = at + SETTLE
                everybody = self._acked and caught_up == self._candidates(now)
                if everybody or at >= self._settle_until:
                    self.phase, self._chosen = Phase.ELECTING, tuple(sorted(caught_up))
                    self._settle_until = NEVER
                    return (self._stop_watching(),)
            case _:
                pass
        return ()

    def _candidates(self, now: Situation) -> frozenset[int]:
        others = now.in_sync - {now.own_id or 0}
        if self._chosen:
            return others.intersection(self._chosen)
        return others if self._asked_for is None else others & {self._asked_for}

    def _watch_catch_up(self, offset: int | None) -> WatchCatchUp:
        self._watch += 1
        self._caught_up, self._acked = frozenset(), False
        return WatchCatchUp(self._watch, offset)

    def _stop_watching(self) -> WatchCatchUp:
        self._watch_catch_up(None)
        return WatchCatchUp(0, None)

    def _fail(self, reason: str, at: float) -> Actions:
        return self._over(Outcome.FAILED, reason, at)

    def _over(self, outcome: Outcome, reason: str, at: float, master: int | None = None, epoch: int = 0) -> Actions:
        values: dict[str, object] = {"seconds": round(at - self._began_at, 3)}
        if self._hold_until != NEVER:
            values["held_seconds"] = round(at - self._hold_until + HOLD_MOST, 3)
        if outcome is Outcome.ELECTED:
            note = LogLine("handed over", {"to": master, "master_epoch": epoch, **values})
        else:
            note = LogLine("hand-over failed", {"reason": reason, **values}, "warning")
        self.phase, self._chosen = Phase.IDLE, ()
        return (note, self._stop_watching(), HandedOver(self.number, outcome, reason, master, epoch))


def _refusal(broker_id: int | None, now: Situation) -> str | None:
    if not now.leads:
        master = "no master is known" if now.master_id is None else f"the master is brokerId {now.master_id}"
        return f"this replica is not master: {master}"
    if not now.controllers:
        return "no leading controller can be reached"
    if broker_id == now.own_id:
        return None
    members = sorted(now.in_sync)
    if broker_id is not None and broker_id not in now.in_sync:
        return f"brokerId {broker_id} is not in the SyncStateSet {members}: wait until it has caught up"
    if not now.in_sync - {now.own_id or 0}:
        return f"no other replica is in the SyncStateSet {members}: wait until a slave has caught up"
    return None
