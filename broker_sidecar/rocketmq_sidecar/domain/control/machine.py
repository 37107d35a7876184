"""The control machine of one replica: events with their time in, actions out. Pure.

It joins two parts: `session` (the controllers' answers, or a fixed mandate) and `role` (what broker and replication do
about them); and it sends the broker its lease. After every event both are asked for their next actions, so no sequence
of events needs a path of its own.

The controllers receive no request before the broker has sent `Hello` and replication has opened the log. When the
broker's link breaks, the connections to them are closed at once: a replica without a broker is dead, and another one
has to be elected.
"""

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import (
    Grant,
    Held,
    Hello,
    LogState,
    Prepared,
    Registered,
    Released,
    RoleNotice,
    Welcome,
)
from rocketmq_formats.replica_link import Lease as LeaseMessage
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    AdoptSyncSet,
    Disconnect,
    Heartbeat,
    LogLine,
    OpenLog,
    Request,
    SaveIdentity,
    SendToBroker,
    SetBrokerId,
    Stored,
)
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.control.hand_over import HandOver, Situation
from rocketmq_sidecar.domain.control.holds import Holds
from rocketmq_sidecar.domain.control.known_master import KnownMaster
from rocketmq_sidecar.domain.control.role import (
    AwaitMaster,
    BeMaster,
    BeSlave,
    BrokerState,
    Halt,
    ReplicationState,
    RoleMachine,
    Wanted,
)
from rocketmq_sidecar.domain.control.undecided import Undecided
from rocketmq_sidecar.domain.control.unfollowed import Unfollowed
from rocketmq_sidecar.domain.controllers.fixed_mandate import FixedMandate
from rocketmq_sidecar.domain.controllers.lease import NEVER
from rocketmq_sidecar.domain.controllers.mandate import Mandate
from rocketmq_sidecar.domain.controllers.session import ControllerSession
from rocketmq_sidecar.domain.options import Options

STOP_HAND_OVER = 1.0
"""Seconds that an orderly stop gives a hand-over; after that the controllers elect by themselves."""
_NO_LEASE = "write lease has ended: no answer from the controllers"
_SENDS_CONTINUE = "continue as long as every member of the SyncStateSet acknowledges"


class ControlMachine:
    """One replica's life from start to end. Times are monotonic seconds that never go back."""

    def __init__(
        self,
        options: Options,
        *,
        identity: BrokerIdentity | None,
        applied: AppliedIdentity | None,
        controllers: str | None = None,
        fence: Fence | None = None,
    ) -> None:
        """All but `options` are what the files hold, `controllers` a group of them; without controllers only `fence`
        counts."""
        fixed = options.fixed_id
        self.session: Mandate
        self.controllers: ControllerSession | None = None
        """`session`, if it is one with controllers: their answers are for it alone."""
        if fixed is None:
            self.session = self.controllers = ControllerSession(
                options, identity=identity, applied=applied, controllers=controllers
            )
        else:
            self.session = FixedMandate(fixed)
        self.role = RoleMachine(retry=options.timing.store_retry, alone=fixed is not None)
        self.holds = Holds(fence)
        self.hand_over = HandOver()
        self.known_master = KnownMaster()
        self.unfollowed = None if options.relaxed or fixed is not None else Unfollowed(options.timing.unfollowed)
        self.undecided = None if self.unfollowed is None else Undecided(options.timing.unfollowed)
        self._relaxed = options.relaxed
        self._no_master = "the group has no master"
        if options.learner:
            self._no_master += ", and this replica is a learner (asyncLearner=true), which is never elected"
        self.epoch_trouble: str | None = None
        """Why the epoch that this replica was elected for cannot begin."""
        self._now = NEVER
        self._hello: Hello | None = None
        self._broker_accepted = self._log_opened = False
        self._stopping = self._ending = False
        self._adopted = -1
        self._reported = 0, 0
        """The epoch, and how many replicas are in sync and connected in it."""
        self._sent_until = NEVER
        self._lease_runs = self._held = False

    # What happens

    def on_hello(self, hello: Hello, check_code: str, now: float) -> Actions:
        """The broker has recovered its store. `check_code` (`address;millis`) is for an id applied for from now on."""
        self._hello, self._broker_accepted, self._log_opened = hello, False, False
        self.holds.on_link()
        self.session.open(hello.address)
        if self.controllers is not None:
            self.controllers.identity.offer_check_code(check_code)
        self.session.on_log(hello.log)
        if hello.registered is not None:
            self.session.on_registered(hello.registered)
        return self._advance(now)

    def on_broker_gone(self, now: float) -> Actions:
        """The link to the broker broke: the controllers must take this replica for dead at once."""
        self._hello, self._broker_accepted, self._log_opened = None, False, False
        self.holds.on_link()
        self.session.close()
        self.role.on_broker_gone()
        return (Disconnect(), *self._advance(now))

    def on_broker_message(self, message: Prepared | Released | RoleNotice | Held, now: float) -> Actions:
        """Messages about the role; progress of the log goes to replication directly."""
        match message:
            case Prepared():
                self.role.on_prepared(message.epoch, message.max_offset)
            case Released():
                self.role.on_released()
            case RoleNotice():
                if self.controllers is not None:
                    self.controllers.on_notice(now)
            case Held():
                self.holds.on_held(message.serial, message.max_offset)
        return self._advance(now)

    def on_log(self, state: LogState, now: float) -> Actions:
        """The broker has checked the log's bytes: whether the replica may be elected depends on it."""
        self.session.on_log(state)
        return self._advance(now)

    def on_registered(self, registered: Registered, now: float) -> Actions:
        """Name servers list other members of the group than before."""
        self.session.on_registered(registered)
        return self._advance(now)

    def on_answer(self, request: Request, answer: RemotingCommand | None, now: float) -> Actions:
        """A controller answered, or did not (None: whether it acted is unknown)."""
        assert self.controllers is not None
        return (*self.controllers.on_answer(request, answer, now), *self._advance(now))

    def on_heartbeat(self, address: str, sent_at: float, now: float, *, accepted: bool) -> Actions:
        """A controller accepted a heartbeat, or whether it did is not known."""
        assert self.controllers is not None
        self.controllers.on_heartbeat(address, sent_at, accepted=accepted)
        return self._advance(now)

    def on_stored(self, action: Stored, error: str | None, now: float) -> Actions:
        """An identity file was written durably; or `error` says why not, and it is tried again."""
        assert self.controllers is not None
        notes = self.controllers.on_stored(action, error, now)
        kept = self._broker_id_actions() if error is None and isinstance(action, SaveIdentity) else ()
        return (*notes, *kept, *self._advance(now))

    def on_begun(self, epoch: int, error: str | None, now: float) -> Actions:
        """The epoch is in the epoch file and served; or `error` says why not, and it is tried again."""
        self.role.on_begun(epoch, now, failed=error is not None)
        before, self.epoch_trouble = self.epoch_trouble, error
        proven: Actions = ()
        if error is None:
            proven = self.session.on_begun()
        notes: Actions = ()
        if error is not None and error != before:
            notes = (LogLine("epoch cannot begin", {"master_epoch": epoch, "reason": error}, "error"),)
        return (*notes, *proven, *self._advance(now))

    def on_log_opened(self, hello: Hello, lost: str | None, now: float, *, unproven: str | None = None) -> Actions:
        """`OpenLog` has ended: where the log ends is known, so heartbeats may report it. `lost` says what is missing
        from it, `unproven` why something may be."""
        if hello is not self._hello or not self._broker_accepted:
            return ()
        self._log_opened = True
        self.session.on_log_opened(lost, unproven, now)
        notes: list[Action] = []
        if lost is not None:
            notes.append(LogLine("log has lost what it held", {"reason": lost}, "error"))
        if unproven is not None:
            notes.append(LogLine("log may have lost what it held", {"reason": unproven}, "warning"))
        return (*notes, *self._advance(now))

    def on_replication_stopped(self, now: float) -> Actions:
        """Replication has stopped, in both directions."""
        self.role.on_replication_stopped()
        self.session.on_proposal(None)  # slaves that had qualified may lack what comes next
        return self._advance(now)

    def on_proposal(self, wanted: SyncStateSet, now: float) -> Actions:
        """Replication proposes this set in place of the one with this epoch."""
        self.session.on_proposal(wanted)
        return self._advance(now)

    def on_in_sync(self, epoch: int, in_sync: int, now: float) -> Actions:
        """As master of `epoch`: the number of replicas, this one included, that are in sync and connected."""
        self._reported = epoch, in_sync
        return self._advance(now)

    def on_aligned(self, master_address: str, now: float) -> Actions:
        """As slave: the log of the connected master there continues this one; empty: none does any longer."""
        return self._advance(now) if self.role.on_aligned(master_address) else ()

    def on_caught_up(self, now: float) -> Actions:
        """As slave: the log has all that the master had when the connection was made."""
        self.known_master.on_caught_up()
        return (*self.session.on_caught_up(), *self._advance(now))

    def on_master_lost(self, now: float) -> Actions:
        """The connection to the master broke: another master may have been elected."""
        self.session.on_master_lost(now)
        self.known_master.on_master_lost()
        return self._advance(now)

    def on_master_heard(self, now: float, *, heard: bool) -> Actions:
        """The connected master has been silent for too long to count as alive, or is heard again."""
        self.known_master.on_heard(heard=heard)
        return self._advance(now)

    def on_fence(self, fence: Fence | None, now: float) -> Actions:
        """An operator orders that sends are refused, or accepted again; the file is written already."""
        if fence == self.holds.fence:
            return self._advance(now)
        self.holds.fence = fence
        if fence is None:
            return (LogLine("fence ended: sends are accepted again if the role allows", {}), *self._advance(now))
        return (LogLine("fenced: sends are refused", {"reason": fence.reason}, "warning"), *self._advance(now))

    def on_hand_over(self, broker_id: int | None, seconds: float, now: float) -> Actions:
        """An operator requests `broker_id` (None: the first that has caught up) as master; ends in `HandedOver`."""
        begun = self.hand_over.begin(broker_id, seconds, self._situation, now)
        return (*begun, *self._advance(now))

    def on_replicas_caught_up(self, watch: int, caught_up: frozenset[int], now: float, *, acked: bool) -> Actions:
        """Which replicas have reached the offset of `WatchCatchUp`, and whether sends have all the copies they need."""
        self.hand_over.on_replicas_caught_up(watch, caught_up, acked=acked)
        return self._advance(now)

    def on_stop(self, now: float) -> Actions:
        """An orderly stop: hand over if another replica can take over, then give up the role; complete when
        `at_rest`."""
        self._ending = True
        situation = self._situation
        begun: Actions = ()
        self.hand_over.limit_to(now + STOP_HAND_OVER)
        followed = len(situation.in_sync) > 1 and (self.unfollowed is None or situation.followed)
        if not self.hand_over.active and situation.leads and situation.controllers and followed:
            begun = self.hand_over.begin(None, STOP_HAND_OVER, situation, now)
        return (*begun, *self._advance(now))

    @property
    def at_rest(self) -> bool:
        """Whether an orderly stop is complete."""
        return self._stopping and self.role.at_rest

    def final_heartbeat(self, now: float) -> Heartbeat | None:
        """The heartbeat that returns the write lease after an orderly stop; None if none was announced."""
        return self.controllers.return_lease(now) if self.controllers is not None and self.at_rest else None

    def on_tick(self, now: float) -> Actions:
        """`wake_at` has come."""
        if self.controllers is not None:
            self.controllers.on_tick(now)
        return self._advance(now)

    @property
    def wake_at(self) -> float:
        """When to call `on_tick` next; infinity if only events matter."""
        times: list[float | None] = [self._lease_until, self.role.retry_at, self.hand_over.wake_at]
        if self.unfollowed is not None:
            times.append(self.unfollowed.wake_at)
        if self.undecided is not None:
            times.append(self.undecided.wake_at)
        if self._log_opened and not self._stopping:
            times += self.session.wake_times()
        return min((time for time in times if time is not None and time > self._now), default=float("inf"))

    # What is known

    @property
    def wanted(self) -> Wanted:
        """The role that the replica should have, by all that is known."""
        session, group = self.session, self.session.group
        if self._stopping:
            return Halt("the sidecar is stopping")
        if session.broker_id is None:
            return Halt("no broker id yet")
        if (waits := session.waits) is not None:
            return AwaitMaster(waits) if session.trouble is None else Halt(session.trouble)
        if group.master_id is None or group.master_address is None:
            return AwaitMaster(session.lost or session.reported_unproven or self._no_master)
        if not session.is_master:
            return BeSlave(group.master_epoch, group.master_id, group.master_address)
        return BeMaster(group.master_epoch, group.agreed) if session.lost is None else AwaitMaster(session.lost)

    def unready(self, now: float) -> str | None:
        """None if this replica does its part, as master or as slave; else why it does not."""
        trouble = self.session.trouble or self.epoch_trouble or self.session.lost
        if trouble is not None:
            return trouble
        if not self._broker_accepted:
            return "the broker is not connected"
        match self.wanted:
            case AwaitMaster(reason) | Halt(reason):
                silence = self.session.silence
                return reason if silence is None else f"{reason}; {silence}"
            case BeSlave() as serve:
                if self.role.slave_of != serve:
                    return "becoming slave"
                return self.session.reported_unproven if self.session.log.damage >= 0 else None
            case BeMaster():
                granted = self.role.broker is BrokerState.MASTER
                return self._unready_master(now) if granted else "becoming master"

    def _unready_master(self, now: float) -> str | None:
        if self._relaxed:
            return _NO_LEASE if self._lease_until <= now else None
        return None if self.undecided is None else self.undecided.reason

    def remark(self, now: float) -> str | None:
        """What an operator should know although the replica is not `unready`."""
        if (remark := self.session.remark) is not None:
            return remark
        strict_master = not self._relaxed and self.role.master_of is not None
        return f"no controller answers: sends {_SENDS_CONTINUE}" if strict_master and self._lease_until <= now else None

    # What to do next

    def _advance(self, now: float) -> Actions:
        self._now = now
        self.session.settle(now)
        actions: list[Action] = [*self._open()]
        if self.undecided is not None and not self._ending:
            actions += self.undecided.step(self._situation, self.session.undecided, self.hand_over, now)
        actions += self.hand_over.step(self._situation, now)
        electing = self.hand_over.electing
        if self.unfollowed is not None:
            actions += self.unfollowed.step(self._situation, now)
            electing = electing or self.unfollowed.electing
        self.session.designate(electing)
        self._stopping = self._stopping or (self._ending and not self.hand_over.active)
        hold = self._hold()
        if self._held:
            actions += hold  # before anything is granted
        actions += self.role.step(self.wanted, now, self._lease_until)
        if not self._held:
            actions += hold
        news = self.known_master.step(
            self.role.slave_of,
            named=self.session.group.has_master,
            controllers=self.session.vouched,
        )
        if news:
            self.session.ask_again()
        actions += news
        actions += self._lease_actions(actions, now)
        actions += self._adopt()
        if self._log_opened and not self._stopping:
            actions += self.session.next(self.role.begun)
        return tuple(actions)

    @property
    def _situation(self) -> Situation:
        session, group = self.session, self.session.group
        epoch, connected = self._reported
        return Situation(
            own_id=session.broker_id,
            leads=isinstance(self.wanted, BeMaster) and self.role.master_of == group.master_epoch,
            epoch=group.master_epoch,
            master_id=group.master_id,
            in_sync=group.agreed.sync_state_set,
            connected=connected if epoch == group.master_epoch else None,
            controllers=session.elects,
            end=self.holds.end,
            refused=session.refused,
        )

    def _hold(self) -> Actions:
        """Refuse sends or accept them again. A lease that was returned must not be used before it certainly counts, and
        only a hold keeps the broker from using it."""
        if not self._broker_accepted:
            return ()
        suspended = self.role.master_of is not None and self.session.is_master and self.session.lease_suspended
        self._held = self.holds.fence is not None or self.hand_over.holds or suspended
        hold = self.holds.next(handing_over=self.hand_over.holds or suspended)
        return () if hold is None else (SendToBroker(hold),)

    @property
    def _lease_until(self) -> float:
        return self.session.lease_until

    def _open(self) -> Actions:
        """Accept the new broker, once replication for the earlier one has stopped."""
        if self._hello is None or self._broker_accepted or self.role.replicating is not ReplicationState.IDLE:
            return ()
        self._broker_accepted = True
        self.role.on_broker()
        return (*self._broker_id_actions(), OpenLog(self._hello))

    def _broker_id_actions(self) -> Actions:
        broker_id = self.session.broker_id
        if broker_id is None:
            return ()
        welcome = (SendToBroker(Welcome(broker_id)),) if self._hello is not None else ()
        return (SetBrokerId(broker_id), *welcome)

    def _lease_actions(self, done: list[Action], now: float) -> Actions:
        epoch, until = self.role.master_of, self._lease_until
        if epoch is None or not isinstance(self.wanted, BeMaster) or epoch != self.session.group.master_epoch:
            self._lease_runs = False
            return ()
        ran, self._lease_runs = self._lease_runs, until > now
        if any(isinstance(action, SendToBroker) and isinstance(action.message, Grant) for action in done):
            self._sent_until = until
            return (LogLine("master", {"master_epoch": epoch}),)
        notes: list[Action] = []
        if ran != self._lease_runs and not self.session.lease_suspended:
            values: dict[str, object] = {"master_epoch": epoch}
            if self._lease_runs:
                notes.append(LogLine("write lease continues", values))
            else:
                sends = "are refused" if self._relaxed else _SENDS_CONTINUE
                notes.append(LogLine(_NO_LEASE, {**values, "sends": sends}, "warning"))
        if until > now and until > self._sent_until:
            self._sent_until = until
            notes.append(SendToBroker(LeaseMessage(epoch, until)))
        return tuple(notes)

    def _adopt(self) -> Actions:
        agreed = self.session.group.agreed
        if not self.session.is_master or self.role.begun != self.session.group.master_epoch:
            return ()
        if agreed.sync_state_set_epoch == self._adopted:
            return ()
        self._adopted = agreed.sync_state_set_epoch
        return (AdoptSyncSet(agreed),)
