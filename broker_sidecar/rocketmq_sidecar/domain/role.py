"""What the replica does about its mandate: master or slave, step by step, between broker and replication. Pure.

Level-triggered: `step` compares what is wanted with what the broker and replication are doing, and does the next thing;
it is called after whatever happened, so that every step may be interrupted and repeated. The hand-over of the writer
lock is the one that `rocketmq_formats.replica_link` describes:

    to master     stop replication (the lock is free) -> Prepare -> Prepared -> begin the epoch, durably -> Grant
    to slave      Release, close slaves' connections -> Released -> follow
    newer epoch   as master: Prepare again, since an epoch begins where nothing is being appended
    link lost     stop replication; all is forgotten but the epoch
"""

from enum import StrEnum

import msgspec

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import Fenced, Following, Grant, Prepare, Release
from rocketmq_sidecar.domain.actions import Action, Actions, Begin, Follow, StopReplication, Tell


class Broker(StrEnum):
    """What the broker is doing, as far as it has said."""

    GONE = "gone"
    IDLE = "idle"
    PREPARING = "preparing"
    PREPARED = "prepared"
    MASTER = "master"
    RELEASING = "releasing"


class Replicating(StrEnum):
    """What replication is doing."""

    IDLE = "idle"
    FOLLOWING = "following"
    BEGINNING = "beginning"
    LEADING = "leading"
    STOPPING = "stopping"


class Lead(msgspec.Struct, frozen=True):
    """Be master."""

    epoch: int
    agreed: SyncStateSet


class Serve(msgspec.Struct, frozen=True):
    """Be the slave of another."""

    epoch: int
    master_broker_id: int
    master_address: str


class Stay(msgspec.Struct, frozen=True):
    """No master is known: a slave may go on following the last one, a master may not go on."""

    reason: str


class Halt(msgspec.Struct, frozen=True):
    """Do nothing."""

    reason: str


Wanted = Lead | Serve | Stay | Halt

_HOLDS_LOCK = frozenset({Broker.PREPARING, Broker.PREPARED, Broker.MASTER})
_BUSY = frozenset({Replicating.BEGINNING, Replicating.STOPPING})
_SETTLE = 8
"""Steps after which one call must have come to rest; there are fewer states than that on any way."""


class RoleMachine:
    """Broker and replication of one replica, brought to where they are wanted."""

    def __init__(self, *, retry: float) -> None:
        """`retry`: seconds until an epoch that could not be written is tried again."""
        self.broker = Broker.GONE
        self.replicating = Replicating.IDLE
        self.retry_at: float | None = None
        self._retry = retry
        self._broker_epoch = 0
        self._max_offset = 0
        self._led_epoch = 0
        self._following: Serve | None = None
        self._told: str | None = None
        """The reason that the broker was fenced with last."""

    @property
    def at_rest(self) -> bool:
        """Whether neither half has anything of a role any more."""
        return self.broker in {Broker.GONE, Broker.IDLE} and self.replicating is Replicating.IDLE

    @property
    def master_of(self) -> int | None:
        """The epoch that the broker was granted."""
        return self._broker_epoch if self.broker is Broker.MASTER else None

    @property
    def begun(self) -> int | None:
        """The epoch that is in the epoch file and served."""
        return self._led_epoch if self.replicating is Replicating.LEADING else None

    @property
    def slave_of(self) -> Serve | None:
        """The master that is being followed."""
        return self._following if self.replicating is Replicating.FOLLOWING else None

    # What happens

    def on_broker(self) -> None:
        """The broker said `Hello`: it holds nothing."""
        self.broker, self._told = Broker.IDLE, None

    def on_broker_gone(self) -> None:
        """The link broke."""
        self.broker = Broker.GONE

    def on_prepared(self, epoch: int, max_offset: int) -> bool:
        """The broker holds the lock; False if that is not what was asked for last."""
        if self.broker is not Broker.PREPARING or epoch != self._broker_epoch:
            return False
        self.broker, self._max_offset = Broker.PREPARED, max_offset
        return True

    def on_released(self) -> None:
        """The broker holds nothing any more, asked or not."""
        if self.broker is not Broker.GONE:
            self.broker, self._told = Broker.IDLE, None

    def on_begun(self, epoch: int, now: float, *, failed: bool) -> None:
        """`Begin` has ended."""
        if self.replicating is not Replicating.BEGINNING:
            return
        if failed:
            self.replicating = Replicating.IDLE
            self.retry_at = now + self._retry
        else:
            self.replicating, self._led_epoch, self.retry_at = Replicating.LEADING, epoch, None

    def on_replication_stopped(self) -> None:
        """`StopReplication` has ended: nothing appends, the lock is free, no slave is served."""
        if self.replicating is Replicating.STOPPING:
            self.replicating, self._following = Replicating.IDLE, None

    # What to do next

    def step(self, wanted: Wanted, now: float, lease_until: float) -> Actions:
        """Everything that can be done towards `wanted` now. `lease_until` is that of the wanted epoch."""
        actions: list[Action] = []
        for _ in range(_SETTLE):
            more = self._one(wanted, now, lease_until)
            if not more:
                return tuple(actions)
            actions += more
        raise AssertionError(f"no rest: {wanted}, {self.broker}, {self.replicating}")

    def _one(self, wanted: Wanted, now: float, lease_until: float) -> Actions:
        if self.broker is Broker.GONE:
            return self._stop()
        match wanted:
            case Lead():
                return self._lead(wanted, now, lease_until)
            case Serve():
                return self._leave_mastership() or self._serve(wanted)
            case Stay(reason):
                return self._leave_mastership() or (
                    () if self.replicating is Replicating.FOLLOWING else self._fence(reason)
                )
            case Halt(reason):
                return self._leave_mastership() or self._stop() or self._fence(reason)

    def _lead(self, wanted: Lead, now: float, lease_until: float) -> Actions:
        if self.replicating is Replicating.FOLLOWING:
            return self._stop()
        if self.replicating in _BUSY or self.broker is Broker.RELEASING:
            return ()
        if self.broker is Broker.IDLE or self._broker_epoch != wanted.epoch:
            self.broker, self._broker_epoch = Broker.PREPARING, wanted.epoch
            return (Tell(Prepare(wanted.epoch)),)
        return self._begin(wanted, now, lease_until) if self.broker is Broker.PREPARED else ()

    def _begin(self, wanted: Lead, now: float, lease_until: float) -> Actions:
        if self.begun != wanted.epoch:
            if self.retry_at is not None and now < self.retry_at:
                return ()
            self.replicating = Replicating.BEGINNING
            return (Begin(wanted.epoch, self._max_offset, wanted.agreed),)
        if lease_until <= now:
            return ()  # a heartbeat or the controllers' word is still under way
        self.broker = Broker.MASTER
        return (Tell(Grant(wanted.epoch, lease_until)),)

    def _leave_mastership(self) -> Actions:
        """Let the broker go first: from then on it acknowledges nothing."""
        actions: list[Action] = []
        if self.broker in _HOLDS_LOCK:
            self.broker = Broker.RELEASING
            actions.append(Tell(Release()))
        if self.replicating is Replicating.LEADING:
            actions += self._stop()
        return tuple(actions)

    def _serve(self, wanted: Serve) -> Actions:
        if self.replicating in _BUSY or self.broker is Broker.RELEASING or self.slave_of == wanted:
            return ()
        self.replicating, self._following = Replicating.FOLLOWING, wanted
        self._told = None
        following = Following(wanted.epoch, wanted.master_broker_id, wanted.master_address)
        return (Tell(following), Follow(wanted.epoch, wanted.master_broker_id, wanted.master_address))

    def _stop(self) -> Actions:
        if self.replicating not in {Replicating.FOLLOWING, Replicating.LEADING}:
            return ()
        self.replicating = Replicating.STOPPING
        return (StopReplication(),)

    def _fence(self, reason: str) -> Actions:
        if self.replicating is not Replicating.IDLE or self.broker is not Broker.IDLE or self._told == reason:
            return ()
        self._told = reason
        return (Tell(Fenced(reason)),)
