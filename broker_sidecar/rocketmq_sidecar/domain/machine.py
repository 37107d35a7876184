"""The control machine of one replica: what happened goes in with the time it happened, what to do comes out. Pure.

It joins two parts, `steward` (what the controllers say) and `role` (what broker and replication do about it), and tells
the broker its lease. After every event both are asked what is next, so no sequence of events needs a path of its own.

Nothing is asked of the controllers before the broker has said `Hello` and replication has looked at the log. When the
broker's link breaks the connections to them are closed at once: a replica without a broker is dead, and another one is
to be elected.
"""

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import Grant, Hello, Prepared, Released, RoleNotice, Welcome
from rocketmq_formats.replica_link import Lease as LeaseMessage
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Adopt,
    Ask,
    Beat,
    Disconnect,
    Identified,
    Note,
    Opened,
    SaveIdentity,
    Stored,
    Tell,
)
from rocketmq_sidecar.domain.lease import NEVER
from rocketmq_sidecar.domain.options import Options
from rocketmq_sidecar.domain.role import Broker, Halt, Lead, Replicating, RoleMachine, Serve, Stay, Wanted
from rocketmq_sidecar.domain.steward import Steward

_NO_LEASE = "write lease has ended: no word from the controllers"


class ControlMachine:
    """One replica's life from start to end. Times are monotonic seconds that never go back."""

    def __init__(self, options: Options, *, identity: BrokerIdentity | None, applied: AppliedIdentity | None) -> None:
        """`identity` and `applied` are what the two files hold."""
        self.steward = Steward(options, identity=identity, applied=applied)
        self.role = RoleMachine(retry=options.timing.store_retry)
        self.epoch_trouble: str | None = None
        """Why the epoch that this replica was elected for cannot begin."""
        self._now = NEVER
        self._hello: Hello | None = None
        self._opened = self._taken_up = False
        self._stopping = False
        self._adopted = -1
        self._told_until = NEVER
        self._lease_runs = False

    # What happens

    def on_hello(self, hello: Hello, check_code: str, now: float) -> Actions:
        """The broker has recovered its store. `check_code` (`address;millis`) is for an id that is applied for anew."""
        self._hello, self._opened, self._taken_up = hello, False, False
        self.steward.open(hello.address, check_code)
        return self._advance(now)

    def on_broker_gone(self, now: float) -> Actions:
        """The link to the broker broke: dead to the controllers, at once."""
        self._hello, self._opened, self._taken_up = None, False, False
        self.steward.close()
        self.role.on_broker_gone()
        return (Disconnect(), *self._advance(now))

    def on_broker_said(self, message: Prepared | Released | RoleNotice, now: float) -> Actions:
        """What concerns the role; progress of the log goes to replication directly."""
        notes: Actions = ()
        match message:
            case Prepared():
                self.role.on_prepared(message.epoch, message.max_offset)
            case Released():
                self.role.on_released()
            case RoleNotice():
                notes = self.steward.on_notice(message, now)
        return (*notes, *self._advance(now))

    def on_answer(self, ask: Ask, answer: RemotingCommand | None, now: float) -> Actions:
        """A controller answered, or did not (None: whether it acted is unknown)."""
        return (*self.steward.on_answer(ask, answer, now), *self._advance(now))

    def on_beat(self, address: str, sent_at: float, now: float, *, taken: bool) -> Actions:
        """A controller took a heartbeat, or it is not known to have."""
        self.steward.on_beat(address, sent_at, taken=taken)
        return self._advance(now)

    def on_stored(self, action: Stored, error: str | None, now: float) -> Actions:
        """An identity file is as wanted, durably; or `error` says why not, and it is tried again."""
        notes = self.steward.on_stored(action, error, now)
        kept = self._introduce() if error is None and isinstance(action, SaveIdentity) else ()
        return (*notes, *kept, *self._advance(now))

    def on_begun(self, epoch: int, error: str | None, now: float) -> Actions:
        """The epoch is in the epoch file and served; or `error` says why not, and it is tried again."""
        self.role.on_begun(epoch, now, failed=error is not None)
        before, self.epoch_trouble = self.epoch_trouble, error
        if error is None:
            self.steward.beat_now(now)  # the controllers tell the slaves when they have heard us in the epoch
        notes: Actions = ()
        if error is not None and error != before:
            notes = (Note("epoch cannot begin", {"master_epoch": epoch, "reason": error}, "error"),)
        return (*notes, *self._advance(now))

    def on_opened(self, hello: Hello, lost: str | None, now: float) -> Actions:
        """`Opened` has ended: replication knows where the log ends, so the controllers may be told. `lost` says what is
        missing from it."""
        if hello is not self._hello or not self._opened:
            return ()
        self._taken_up = True
        self.steward.lost = lost
        notes = () if lost is None else (Note("log has lost what it held", {"reason": lost}, "error"),)
        return (*notes, *self._advance(now))

    def on_replication_stopped(self, now: float) -> Actions:
        """Nothing is replicated any more, either way."""
        self.role.on_replication_stopped()
        self.steward.forget_wish()  # who had qualified may lack what will have come since
        return self._advance(now)

    def on_sync_set_wanted(self, wanted: SyncStateSet, now: float) -> Actions:
        """Replication wants the controllers to agree to this set in place of the one with this epoch."""
        self.steward.wish(wanted)
        return self._advance(now)

    def on_master_lost(self, now: float) -> Actions:
        """The connection to the master broke: perhaps there is another one already."""
        self.steward.look_for_master(now)
        return self._advance(now)

    def on_stop(self, now: float) -> Actions:
        """An orderly end: let go of whatever this replica is; over when `role.at_rest`."""
        self._stopping = True
        return self._advance(now)

    def farewell(self, now: float) -> Beat | None:
        """The heartbeat that gives the write lease back after an orderly end; None if the controllers know of none."""
        return self.steward.give_back(now) if self.role.at_rest else None

    def on_tick(self, now: float) -> Actions:
        """`wake_at` has come."""
        self.steward.on_tick(now)
        return self._advance(now)

    @property
    def wake_at(self) -> float:
        """When `on_tick` wants to be called next; infinity if only events matter."""
        times: list[float | None] = [self._lease_until, self.role.retry_at]
        if self._taken_up and not self._stopping:
            times += self.steward.wake_times()
        return min((time for time in times if time is not None and time > self._now), default=float("inf"))

    # What is known

    @property
    def wanted(self) -> Wanted:
        """What the replica is to be, as far as is known."""
        steward, mandate = self.steward, self.steward.mandate
        if self._stopping:
            return Halt("the sidecar is stopping")
        if steward.broker_id is None:
            return Halt("no broker id yet")
        if not steward.registered:
            trouble = steward.trouble
            return Stay("not registered at the controllers yet") if trouble is None else Halt(trouble)
        if steward.lost is not None or mandate.master_id is None or mandate.master_address is None:
            return Stay(steward.lost or "the group has no master")
        if steward.is_master:
            return Lead(mandate.master_epoch, mandate.agreed)
        return Serve(mandate.master_epoch, mandate.master_id, mandate.master_address)

    def unready(self, now: float) -> str | None:
        """None if this replica does its part, as master or as slave; else why it does not."""
        trouble = self.steward.trouble or self.epoch_trouble
        if trouble is not None:
            return trouble
        if not self._opened:
            return "the broker is not connected"
        match self.wanted:
            case Stay(reason) | Halt(reason):
                found = self.steward.finder.leader is not None
                return reason if found else f"{reason}; no leading controller can be reached"
            case Serve() as serve:
                return None if self.role.slave_of == serve else "becoming slave"
            case Lead():
                granted = self.role.broker is Broker.MASTER
                return None if granted and self._lease_until > now else _NO_LEASE if granted else "becoming master"

    # What to do next

    def _advance(self, now: float) -> Actions:
        self._now = now
        actions: list[Action] = [*self._open()]
        actions += self.role.step(self.wanted, now, self._lease_until)
        actions += self._tell_lease(actions, now)
        actions += self._adopt()
        if self._taken_up and not self._stopping:
            actions += self.steward.next(now, self.role.begun)
        return tuple(actions)

    @property
    def _lease_until(self) -> float:
        return self.steward.lease.until(self.steward.mandate.master_epoch)

    def _open(self) -> Actions:
        """Take up the broker that has come, once what was replicated beside an earlier one has stopped."""
        if self._hello is None or self._opened or self.role.replicating is not Replicating.IDLE:
            return ()
        self._opened = True
        self.role.on_broker()
        return (*self._introduce(), Opened(self._hello))

    def _introduce(self) -> Actions:
        broker_id = self.steward.broker_id
        if broker_id is None:
            return ()
        told = (Tell(Welcome(broker_id)),) if self._hello is not None else ()
        return (Identified(broker_id), *told)

    def _tell_lease(self, done: list[Action], now: float) -> Actions:
        epoch, until = self.role.master_of, self._lease_until
        if epoch is None or not isinstance(self.wanted, Lead) or epoch != self.steward.mandate.master_epoch:
            self._lease_runs = False
            return ()
        ran, self._lease_runs = self._lease_runs, until > now
        if any(isinstance(one, Tell) and isinstance(one.message, Grant) for one in done):
            self._told_until = until
            return (Note("master", {"master_epoch": epoch}),)
        notes: list[Action] = []
        if ran != self._lease_runs:
            values: dict[str, object] = {"master_epoch": epoch}
            runs = self._lease_runs
            notes.append(Note("write lease goes on", values) if runs else Note(_NO_LEASE, values, "warning"))
        if until > now and until > self._told_until:
            self._told_until = until
            notes.append(Tell(LeaseMessage(epoch, until)))
        return tuple(notes)

    def _adopt(self) -> Actions:
        agreed = self.steward.mandate.agreed
        if not self.steward.is_master or self.role.begun != self.steward.mandate.master_epoch:
            return ()
        if agreed.sync_state_set_epoch == self._adopted:
            return ()
        self._adopted = agreed.sync_state_set_epoch
        return (Adopt(agreed),)
