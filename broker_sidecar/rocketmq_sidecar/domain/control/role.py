"""Makes the replica master or slave, step by step, between broker and replication. Pure.

Level-triggered: `step` compares the wanted role with what the broker and replication are doing, and takes the next
step. It is called after every event, so that every step may be interrupted and repeated. The writer lock changes hands
as `rocketmq_formats.replica_link` describes:

    to master     stop replication (the lock is free) -> Prepare -> Prepared -> begin the epoch, durably -> Grant
    to slave      Release, close slaves' connections -> Released -> follow
    newer epoch   as master: Prepare again, since an epoch begins where nothing is being appended
    as slave      without controllers the broker copies a master's tables only while replication has found that the
                  master's log continues this one: CopyFrom
    link lost     stop replication; everything is forgotten except the epoch
"""

from enum import StrEnum

import msgspec

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import CopyFrom, Following, Grant, NoRole, Prepare, Release
from rocketmq_sidecar.domain.actions import Action, Actions, BeginEpoch, Follow, SendToBroker, StopReplication


class BrokerState(StrEnum):
    """What the broker is doing, by its last message."""

    GONE = "gone"
    IDLE = "idle"
    PREPARING = "preparing"
    PREPARED = "prepared"
    MASTER = "master"
    RELEASING = "releasing"


class ReplicationState(StrEnum):
    """What replication is doing."""

    IDLE = "idle"
    FOLLOWING = "following"
    BEGINNING = "beginning"
    LEADING = "leading"
    STOPPING = "stopping"


class BeMaster(msgspec.Struct, frozen=True):
    epoch: int
    agreed: SyncStateSet


class BeSlave(msgspec.Struct, frozen=True):
    """Follow that master."""

    epoch: int
    master_broker_id: int
    master_address: str


class AwaitMaster(msgspec.Struct, frozen=True):
    """No master is known: a slave may keep following the last one, a master must step down."""

    reason: str


class Halt(msgspec.Struct, frozen=True):
    """Have no role."""

    reason: str


Wanted = BeMaster | BeSlave | AwaitMaster | Halt

_HOLDS_LOCK = frozenset({BrokerState.PREPARING, BrokerState.PREPARED, BrokerState.MASTER})
_BUSY = frozenset({ReplicationState.BEGINNING, ReplicationState.STOPPING})
_SETTLE = 8
"""Steps after which one call must be finished; every path through the states is shorter."""


class RoleMachine:
    """Brings broker and replication of one replica to the wanted role."""

    def __init__(self, *, retry: float, alone: bool = False) -> None:
        """`retry`: seconds until the next attempt to write an epoch that could not be written. `alone`: the group has
        no controllers."""
        self.broker = BrokerState.GONE
        self.replicating = ReplicationState.IDLE
        self.retry_at: float | None = None
        self._retry, self._alone = retry, alone
        self._broker_epoch = 0
        self._max_offset = 0
        self._led_epoch = 0
        self._following: BeSlave | None = None
        self._aligned = ""
        """Without controllers: the address of the master whose log continues this one, while it is connected."""
        self._copied = ""
        """The last `CopyFrom` since `Following`."""
        self._sent_reason: str | None = None
        """The reason in the last `NoRole`."""

    @property
    def at_rest(self) -> bool:
        """Whether neither broker nor replication has a role any longer."""
        return self.broker in {BrokerState.GONE, BrokerState.IDLE} and self.replicating is ReplicationState.IDLE

    @property
    def master_of(self) -> int | None:
        """The epoch that the broker was granted."""
        return self._broker_epoch if self.broker is BrokerState.MASTER else None

    @property
    def begun(self) -> int | None:
        """The epoch that is in the epoch file and in which slaves are served."""
        return self._led_epoch if self.replicating is ReplicationState.LEADING else None

    @property
    def slave_of(self) -> BeSlave | None:
        """The master that is being followed."""
        return self._following if self.replicating is ReplicationState.FOLLOWING else None

    # What happens

    def on_broker(self) -> None:
        """The broker sent `Hello`: it does not hold the writer lock."""
        self.broker, self._sent_reason = BrokerState.IDLE, None

    def on_broker_gone(self) -> None:
        """The link broke."""
        self.broker = BrokerState.GONE

    def on_prepared(self, epoch: int, max_offset: int) -> bool:
        """The broker holds the lock; False if it answers an earlier `Prepare`."""
        if self.broker is not BrokerState.PREPARING or epoch != self._broker_epoch:
            return False
        self.broker, self._max_offset = BrokerState.PREPARED, max_offset
        return True

    def on_released(self) -> None:
        """The broker has released the lock, requested or not."""
        if self.broker is not BrokerState.GONE:
            self.broker, self._sent_reason = BrokerState.IDLE, None

    def on_begun(self, epoch: int, now: float, *, failed: bool) -> None:
        """`BeginEpoch` has ended."""
        if self.replicating is not ReplicationState.BEGINNING:
            return
        if failed:
            self.replicating = ReplicationState.IDLE
            self.retry_at = now + self._retry
        else:
            self.replicating, self._led_epoch, self.retry_at = ReplicationState.LEADING, epoch, None

    def on_replication_stopped(self) -> None:
        """`StopReplication` has ended: nothing appends, the lock is free, no slave is served."""
        if self.replicating is ReplicationState.STOPPING:
            self.replicating, self._following, self._aligned = ReplicationState.IDLE, None, ""

    def on_aligned(self, master_address: str) -> bool:
        """The log of the connected master there continues this one; empty: none does any longer. False with
        controllers: an election has compared the logs."""
        if self._alone:
            self._aligned = master_address
        return self._alone

    # What to do next

    def step(self, wanted: Wanted, now: float, lease_until: float) -> Actions:
        """All steps towards `wanted` that are possible now. `lease_until` is that of the wanted epoch."""
        actions: list[Action] = []
        for _ in range(_SETTLE):
            more = self._next_action(wanted, now, lease_until)
            if not more:
                return tuple(actions)
            actions += more
        raise AssertionError(f"too many steps: {wanted}, {self.broker}, {self.replicating}")

    def _next_action(self, wanted: Wanted, now: float, lease_until: float) -> Actions:
        if self.broker is BrokerState.GONE:
            return self._stop()
        match wanted:
            case BeMaster():
                return self._become_master(wanted, now, lease_until)
            case BeSlave():
                return self._step_down() or self._become_slave(wanted)
            case AwaitMaster(reason):
                return self._step_down() or (
                    () if self.replicating is ReplicationState.FOLLOWING else self._send_no_role(reason)
                )
            case Halt(reason):
                return self._step_down() or self._stop() or self._send_no_role(reason)

    def _become_master(self, wanted: BeMaster, now: float, lease_until: float) -> Actions:
        if self.replicating is ReplicationState.FOLLOWING:
            return self._stop()
        if self.replicating in _BUSY or self.broker is BrokerState.RELEASING:
            return ()
        if self.broker is BrokerState.IDLE or self._broker_epoch != wanted.epoch:
            self.broker, self._broker_epoch = BrokerState.PREPARING, wanted.epoch
            return (SendToBroker(Prepare(wanted.epoch)),)
        return self._begin(wanted, now, lease_until) if self.broker is BrokerState.PREPARED else ()

    def _begin(self, wanted: BeMaster, now: float, lease_until: float) -> Actions:
        if self.begun != wanted.epoch:
            if self.retry_at is not None and now < self.retry_at:
                return ()
            self.replicating = ReplicationState.BEGINNING
            return (BeginEpoch(wanted.epoch, self._max_offset, wanted.agreed),)
        if lease_until <= now:
            return ()  # a heartbeat or the controllers' answer is still under way
        self.broker = BrokerState.MASTER
        return (SendToBroker(Grant(wanted.epoch, lease_until)),)

    def _step_down(self) -> Actions:
        """The broker first: from then on it acknowledges nothing."""
        actions: list[Action] = []
        if self.broker in _HOLDS_LOCK:
            self.broker = BrokerState.RELEASING
            actions.append(SendToBroker(Release()))
        if self.replicating is ReplicationState.LEADING:
            actions += self._stop()
        return tuple(actions)

    def _become_slave(self, wanted: BeSlave) -> Actions:
        if self.replicating in _BUSY or self.broker is BrokerState.RELEASING:
            return ()
        if self.slave_of == wanted:
            return self._copy_tables(wanted) if self._alone else ()
        self.replicating, self._following = ReplicationState.FOLLOWING, wanted
        self._sent_reason, self._copied = None, ""
        known_address = "" if self._alone else wanted.master_address
        following = Following(wanted.epoch, wanted.master_broker_id, known_address)
        return (SendToBroker(following), Follow(wanted.epoch, wanted.master_broker_id, wanted.master_address))

    def _copy_tables(self, serve: BeSlave) -> Actions:
        """Without controllers a master may be listed whose disk was emptied: tables follow the log, or stay."""
        address = serve.master_address if serve.master_address == self._aligned else ""
        if address == self._copied:
            return ()
        self._copied = address
        return (SendToBroker(CopyFrom(address)),)

    def _stop(self) -> Actions:
        if self.replicating not in {ReplicationState.FOLLOWING, ReplicationState.LEADING}:
            return ()
        self.replicating = ReplicationState.STOPPING
        return (StopReplication(),)

    def _send_no_role(self, reason: str) -> Actions:
        if (
            self.replicating is not ReplicationState.IDLE
            or self.broker is not BrokerState.IDLE
            or self._sent_reason == reason
        ):
            return ()
        self._sent_reason = reason
        return (SendToBroker(NoRole(reason)),)
