"""A master has another replica elected in its place: step by step, with nothing lost and the shortest gap. Pure; part
of the control machine, which asks `step` after whatever happened.

    NEARING    the other one is watched until it has what the log holds now: no send is refused yet
    HOLDING    the broker refuses sends, and says where its log ends
    LEVELLING  until the other one has all of that; for a moment longer until all copies are confirmed, so that what was
               accepted is answered, and until all others have it where nobody was named: then the controllers choose
    ELECTING   the controllers are asked to elect it; with relaxed durability the write lease is given back before

It is over when the controllers name a master of a later epoch, when they refuse, when the time is up, or when this
replica is no master any more; in all cases but the first the broker takes sends again as long as it is still master.
Nothing acknowledged is lost whatever happens: no acknowledged message ends behind what the other one has.
"""

from enum import StrEnum

import msgspec

from rocketmq_sidecar.domain.actions import Action, Actions, HandedOver, Note, WatchLevel
from rocketmq_sidecar.domain.lease import NEVER

HOLD_MOST = 2.0
"""Seconds that sends are refused at the most, whatever time the hand-over has."""
SETTLE = 0.1
"""Seconds that the copies on others than the target may take once that one is level."""
REFUSALS = 2
"""The first may be of a leading controller that has not heard of us yet."""


class Phase(StrEnum):
    """How far it is."""

    IDLE = "idle"
    NEARING = "waiting until the replica has caught up"
    HOLDING = "waiting for the broker to refuse sends"
    LEVELLING = "waiting until the replica has everything"
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
    """What the machine knows otherwise."""

    own_id: int | None
    leads: bool
    """The broker is master of `epoch` by the controllers' last word."""
    epoch: int
    master_id: int | None
    in_sync: frozenset[int]
    controllers: bool
    """Whether a leading controller is known."""
    end: int | None
    """Where the log ends, while the broker refuses sends."""
    refused: tuple[int, str]
    """How often the controllers refused to elect, and the last reason."""


class HandOver:
    """One at a time."""

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.number = 0
        """Of the last one; grows."""
        self._chosen: tuple[int, ...] = ()
        self._asked_for: int | None = None
        self._epoch = 0
        self._deadline = self._hold_until = self._settle_until = NEVER
        self._began_at = NEVER
        self._end = 0
        self._watch = 0
        self._level: frozenset[int] = frozenset()
        self._acked = False

    @property
    def active(self) -> bool:
        """Whether one is under way."""
        return self.phase is not Phase.IDLE

    @property
    def holds(self) -> bool:
        """Whether the broker has to refuse sends for it."""
        return self.phase in {Phase.HOLDING, Phase.LEVELLING, Phase.ELECTING}

    @property
    def electing(self) -> tuple[int, ...]:
        """Of whom the controllers are to elect one now; they know who is preferred."""
        return self._chosen if self.phase is Phase.ELECTING else ()

    @property
    def wake_at(self) -> float:
        """When `step` wants to be called next; infinity if only events matter."""
        if not self.active:
            return float("inf")
        return min(time for time in (self._deadline, self._hold_until, self._settle_until) if time != NEVER)

    def begin(self, broker_id: int | None, seconds: float, now: Situation, at: float) -> Actions:
        """Hand over to `broker_id`, None: to whoever is level first; ends in one `HandedOver`, perhaps at once."""
        if self.active:
            return (HandedOver(0, Outcome.UNDER_WAY, "another hand-over is under way"),)
        refusal = _refusal(broker_id, now)
        if refusal is not None:
            return (HandedOver(0, Outcome.NOT_NOW, refusal),)
        self.number += 1
        if broker_id is not None and broker_id == now.own_id:
            return (HandedOver(self.number, Outcome.ELECTED, "", broker_id, now.epoch),)
        self.phase = Phase.NEARING
        self._chosen, self._asked_for, self._epoch = (), broker_id, now.epoch
        self._began_at, self._deadline = at, at + seconds
        self._hold_until = self._settle_until = NEVER
        values: dict[str, object] = {"to": broker_id, "master_epoch": now.epoch, "seconds": seconds}
        return (Note("handing over", values), self._look(None))

    def hasten(self, until: float) -> None:
        """This replica is about to end: no longer than that."""
        self._deadline = min(self._deadline, until)

    def on_level(self, watch: int, level: frozenset[int], *, acked: bool) -> None:
        """Who has all that was watched for; `acked`: all copies that sends ask for are there."""
        if watch == self._watch:
            self._level, self._acked = level, acked

    def step(self, now: Situation, at: float) -> Actions:
        """What can be done now."""
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
        """Why it cannot go on."""
        refusals, refusal = now.refused
        named = self._asked_for
        if now.epoch > self._epoch or not now.leads:
            return "this replica is not master any more, and no new one is known yet"
        if not self._candidates(now):
            return f"{'nobody else' if named is None else f'brokerId {named} no longer'} is in the SyncStateSet"
        if self.phase is Phase.ELECTING and refusals >= REFUSALS:
            return f"the controllers refused: {refusal}"
        if at >= self._deadline or (self.holds and at >= self._hold_until):
            known = "" if now.controllers else ", no leading controller can be reached"
            return f"not done in time: {self.phase}{known}"
        return None

    def _next(self, now: Situation, at: float) -> Actions:
        level = self._level & self._candidates(now)
        match self.phase:
            case Phase.NEARING if level:
                self.phase, self._hold_until = Phase.HOLDING, at + HOLD_MOST
                return (self._look_for_nothing(),)
            case Phase.HOLDING if now.end is not None:
                self.phase, self._end = Phase.LEVELLING, now.end
                return (self._look(now.end),)
            case Phase.LEVELLING if level:
                if self._settle_until == NEVER:
                    self._settle_until = at + SETTLE
                everybody = self._acked and level == self._candidates(now)
                if everybody or at >= self._settle_until:
                    self.phase, self._chosen = Phase.ELECTING, tuple(sorted(level))
                    self._settle_until = NEVER
                    return (self._look_for_nothing(),)
            case _:
                pass
        return ()

    def _candidates(self, now: Situation) -> frozenset[int]:
        others = now.in_sync - {now.own_id or 0}
        if self._chosen:
            return others.intersection(self._chosen)
        return others if self._asked_for is None else others & {self._asked_for}

    def _look(self, offset: int | None) -> WatchLevel:
        self._watch += 1
        self._level, self._acked = frozenset(), False
        return WatchLevel(self._watch, offset)

    def _look_for_nothing(self) -> WatchLevel:
        self._look(None)
        return WatchLevel(0, None)

    def _fail(self, reason: str, at: float) -> Actions:
        return self._over(Outcome.FAILED, reason, at)

    def _over(self, outcome: Outcome, reason: str, at: float, master: int | None = None, epoch: int = 0) -> Actions:
        values: dict[str, object] = {"seconds": round(at - self._began_at, 3)}
        if self._hold_until != NEVER:
            values["held_seconds"] = round(at - self._hold_until + HOLD_MOST, 3)
        if outcome is Outcome.ELECTED:
            note = Note("handed over", {"to": master, "master_epoch": epoch, **values})
        else:
            note = Note("hand-over ended in vain", {"reason": reason, **values}, "warning")
        self.phase, self._chosen = Phase.IDLE, ()
        return (note, self._look_for_nothing(), HandedOver(self.number, outcome, reason, master, epoch))


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
        return f"nobody else is in the SyncStateSet {members}: wait until a slave has caught up"
    return None
