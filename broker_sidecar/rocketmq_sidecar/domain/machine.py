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
from rocketmq_formats.replica_link import Grant, Held, Hello, Prepared, Released, RoleNotice, Welcome
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
from rocketmq_sidecar.domain.fence import Fence
from rocketmq_sidecar.domain.hand_over import HandOver, Situation
from rocketmq_sidecar.domain.holds import Holds
from rocketmq_sidecar.domain.lease import NEVER
from rocketmq_sidecar.domain.options import Options
from rocketmq_sidecar.domain.role import Broker, Halt, Lead, Replicating, RoleMachine, Serve, Stay, Wanted
from rocketmq_sidecar.domain.steward import Steward

STOP_HAND_OVER = 1.0
"""Seconds that an orderly end gives a hand-over; it goes on without, and the controllers elect by themselves."""
_NO_LEASE = "write lease has ended: no word from the controllers"


class ControlMachine:
    """One replica's life from start to end. Times are monotonic seconds that never go back."""

    def __init__(
        self,
        options: Options,
        *,
        identity: BrokerIdentity | None,
        applied: AppliedIdentity | None,
        fence: Fence | None = None,
    ) -> None:
        """`identity`, `applied` and `fence` are what the files hold."""
        self.steward = Steward(options, identity=identity, applied=applied)
        self.role = RoleMachine(retry=options.timing.store_retry)
        self.holds = Holds(fence)
        self.hand_over = HandOver()
        self.epoch_trouble: str | None = None
        """Why the epoch that this replica was elected for cannot begin."""
        self._now = NEVER
        self._hello: Hello | None = None
        self._opened = self._taken_up = False
        self._stopping = self._ending = False
        self._adopted = -1
        self._told_until = NEVER
        self._lease_runs = self._held = False

    # What happens

    def on_hello(self, hello: Hello, check_code: str, now: float) -> Actions:
        """The broker has recovered its store. `check_code` (`address;millis`) is for an id that is applied for anew."""
        self._hello, self._opened, self._taken_up = hello, False, False
        self.holds.on_link()
        self.steward.open(hello.address, check_code)
        return self._advance(now)

    def on_broker_gone(self, now: float) -> Actions:
        """The link to the broker broke: dead to the controllers, at once."""
        self._hello, self._opened, self._taken_up = None, False, False
        self.holds.on_link()
        self.steward.close()
        self.role.on_broker_gone()
        return (Disconnect(), *self._advance(now))

    def on_broker_said(self, message: Prepared | Released | RoleNotice | Held, now: float) -> Actions:
        """What concerns the role; progress of the log goes to replication directly."""
        notes: Actions = ()
        match message:
            case Prepared():
                self.role.on_prepared(message.epoch, message.max_offset)
            case Released():
                self.role.on_released()
            case RoleNotice():
                notes = self.steward.on_notice(message)
            case Held():
                self.holds.on_held(message.serial, message.max_offset)
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
            self.steward.beat_now()  # the controllers tell the slaves when they have heard us in the epoch
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

    def on_fence(self, fence: Fence | None, now: float) -> Actions:
        """An operator wants sends refused, or accepted again; the file says so already."""
        if fence == self.holds.fence:
            return self._advance(now)
        self.holds.fence = fence
        if fence is None:
            return (Note("fence ended: sends are accepted again as far as the role allows", {}), *self._advance(now))
        return (Note("fenced: sends are refused", {"reason": fence.reason}, "warning"), *self._advance(now))

    def on_hand_over(self, broker_id: int | None, seconds: float, now: float) -> Actions:
        """An operator wants `broker_id` (None: whoever is level first) to be master; ends in `HandedOver`."""
        begun = self.hand_over.begin(broker_id, seconds, self._situation, now)
        return (*begun, *self._advance(now))

    def on_level(self, watch: int, level: frozenset[int], now: float, *, acked: bool) -> Actions:
        """Which replicas have all that `WatchLevel` asked for, and whether all copies are there that sends ask for."""
        self.hand_over.on_level(watch, level, acked=acked)
        return self._advance(now)

    def on_stop(self, now: float) -> Actions:
        """An orderly end: hand over if somebody can take over, then let go of whatever this replica is; over when
        `at_rest`."""
        self._ending = True
        situation = self._situation
        begun: Actions = ()
        self.hand_over.hasten(now + STOP_HAND_OVER)
        if not self.hand_over.active and situation.leads and situation.controllers and len(situation.in_sync) > 1:
            begun = self.hand_over.begin(None, STOP_HAND_OVER, situation, now)
        return (*begun, *self._advance(now))

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be done any more before this replica leaves."""
        return self._stopping and self.role.at_rest

    def farewell(self, now: float) -> Beat | None:
        """The heartbeat that gives the write lease back after an orderly end; None if the controllers know of none."""
        return self.steward.give_back(now) if self.at_rest else None

    def on_tick(self, now: float) -> Actions:
        """`wake_at` has come."""
        self.steward.on_tick(now)
        return self._advance(now)

    @property
    def wake_at(self) -> float:
        """When `on_tick` wants to be called next; infinity if only events matter."""
        times: list[float | None] = [self._lease_until, self.role.retry_at, self.hand_over.wake_at]
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
        actions += self.hand_over.step(self._situation, now)
        self.steward.elect_instead(self.hand_over.electing)
        self._stopping = self._stopping or (self._ending and not self.hand_over.active)
        hold = self._hold()
        if self._held:
            actions += hold  # before anything is granted
        actions += self.role.step(self.wanted, now, self._lease_until)
        if not self._held:
            actions += hold
        actions += self._tell_lease(actions, now)
        actions += self._adopt()
        if self._taken_up and not self._stopping:
            actions += self.steward.next(now, self.role.begun)
        return tuple(actions)

    @property
    def _situation(self) -> Situation:
        steward, mandate = self.steward, self.steward.mandate
        return Situation(
            own_id=steward.broker_id,
            leads=isinstance(self.wanted, Lead) and self.role.master_of == mandate.master_epoch,
            epoch=mandate.master_epoch,
            master_id=mandate.master_id,
            in_sync=mandate.agreed.sync_state_set,
            controllers=steward.finder.leader is not None,
            end=self.holds.end,
            refused=steward.succession.refused,
        )

    def _hold(self) -> Actions:
        """Refuse sends or take them again. A lease that was given back is not used before it is certain that it counts:
        the broker does not know that it ended."""
        if not self._opened:
            return ()
        doubt = self.role.master_of is not None and self.steward.is_master and self.steward.succession.in_doubt
        self._held = self.holds.fence is not None or self.hand_over.holds or doubt
        hold = self.holds.next(handing_over=self.hand_over.holds or doubt)
        return () if hold is None else (Tell(hold),)

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
        if ran != self._lease_runs and not self.steward.succession.in_doubt:
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
