"""This replica's dealings with the controllers: who leads, who we are, who is master, until when that holds. Pure.

It owns no sequence: `next` chooses from all that is known, after every event. So a lost answer, a restart and a new
leading controller need no path of their own. Three questions may be under way, one of each kind: who we are (1012,
1013, 1003, 1002, and the identity files), who is master (1004), who is in sync (1001). Heartbeats (904) go to every
controller, so that a new leader knows who lives.

It begins at 1003 over new connections whenever the broker has come back, before the first heartbeat: that is how the
controllers tell a restarted master. A master asks 1004 with each heartbeat: its lease needs both.

Source: RIP-44, persistent-BrokerId document, broker-agent reference, sections 2 to 6.
"""

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import RoleNotice
from rocketmq_sidecar.domain import answers
from rocketmq_sidecar.domain.actions import Action, Actions, Ask, Beat, Forgive, Note, SetRefused, Stored
from rocketmq_sidecar.domain.identity import IdentityKeeper
from rocketmq_sidecar.domain.lanes import Lane
from rocketmq_sidecar.domain.leader import LeaderFinder
from rocketmq_sidecar.domain.lease import NEVER, Lease
from rocketmq_sidecar.domain.mandate import Mandate, View, notice_view
from rocketmq_sidecar.domain.options import Options
from rocketmq_sidecar.domain.questions import Questions
from rocketmq_sidecar.domain.succession import Succession
from rocketmq_sidecar.domain.wish import Wish

_UNREGISTERED = frozenset(
    {ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST}
)
_UNDECIDED = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY})
_WRITE_PATIENCE = 2.5
"""Times the patience: what has to be committed may take longer than a read."""
_CLOCKS = 1.05
"""What the controllers wait for is longer than the lease: their clocks may run faster than ours."""


class Steward:
    """Asks nothing between `close` and `open`, nor before the first `open`."""

    def __init__(self, options: Options, *, identity: BrokerIdentity | None, applied: AppliedIdentity | None) -> None:
        """`identity` and `applied` are what the two files hold."""
        timing = self._timing = options.timing
        self.identity = IdentityKeeper(options, identity=identity, applied=applied)
        self.finder = LeaderFinder(options.controllers, interval=timing.find)
        self.mandate = Mandate()
        self.lease = Lease(timing.lease)
        self.registered = False
        self.trouble: str | None = None
        """What needs an operator: a file that cannot be written, controllers that do not know this replica."""
        self.lost: str | None = None
        """What is missing from the log: no heartbeat, no election while the SyncStateSet has this replica in it."""
        self._options = options
        self._questions = Questions(options.cluster_name, options.broker_name)
        self._address: str | None = None
        self._beat_at = self._poll_at = self._looking_until = NEVER
        self._announced: tuple[int, float] | None = None
        """Epoch and time of the first heartbeat that told the controllers of a lease."""
        self._unanswered_since: float | None = None
        self._last_leader: str | None = None
        self._last_refusal: tuple[int, int] | None = None

        def lane(times: float) -> Lane:
            return Lane(patience=times * timing.patience, retry=timing.retry, retry_most=timing.retry_most)

        lanes = lane(_WRITE_PATIENCE), lane(1), lane(_WRITE_PATIENCE), lane(_WRITE_PATIENCE)
        self._main, self._poll, alter, elect = self._lanes = lanes
        self._wish = Wish(alter, self.mandate, self._questions)
        self.succession = Succession(elect, self.mandate, self.lease, self._questions, relaxed=options.relaxed)

    @property
    def broker_id(self) -> int | None:
        """The id at the controllers, once it is kept."""
        return None if self.identity.identity is None else self.identity.identity.broker_id

    @property
    def address(self) -> str | None:
        """The broker's, while there is one."""
        return self._address

    @property
    def is_master(self) -> bool:
        """Whether the newest view names this replica."""
        return self.registered and self.mandate.master_id is not None and self.mandate.master_id == self.broker_id

    # What happens

    def open(self, address: str, check_code: str) -> None:
        """The broker is there, at `address`. `check_code` (`address;millis`) is for an id that is applied for anew."""
        self._address = address
        self.identity.offer_check_code(check_code)

    def close(self) -> None:
        """The connections to the controllers are closed; nothing that was said over them counts."""
        self._address, self.registered, self.lost = None, False, None
        self.mandate.forget()
        self.lease.reset()
        self.finder.reset()
        self._unanswered_since = self._last_leader = None
        self._wish.forget()
        for lane in self._lanes:
            if lane.pending is None or isinstance(lane.pending, Ask):
                lane.reset()

    def beat_now(self, now: float) -> None:
        """There is something to tell every controller."""
        self._beat_at = now

    def look_for_master(self, now: float) -> None:
        """The master is gone, it seems: ask who is master now, often, until there is another or some time has passed.
        The controllers tell slaves late, for the sake of Java's."""
        self._poll_at = now
        self._looking_until = now + self._timing.look

    def elect_instead(self, ids: tuple[int, ...]) -> None:
        """As master: have one of these replicas elected in our place, from now on; none: stay master."""
        if self.succession.aim(ids) and self._options.relaxed:
            self._announced, self._beat_at = None, NEVER  # at once: whether there is a lease

    def forget_wish(self) -> None:
        """A mastership has ended."""
        self._wish.forget()

    def wish(self, wanted: SyncStateSet) -> None:
        """As master: the SyncStateSet that the controllers should agree to, with the epoch of the one it replaces."""
        self._wish.set(wanted)

    def on_notice(self, notice: RoleNotice, now: float) -> Actions:
        """1008: a controller tells of an election. Only a newer epoch counts, and it proves nothing for the lease: it
        may have been under way for long."""
        if not self.registered or (notice.master_epoch or 0) <= self.mandate.master_epoch:
            return ()
        self._poll_at = now
        return () if notice.master_broker_id is None else self._learn(notice_view(notice), None)

    def on_answer(self, ask: Ask, answer: RemotingCommand | None, now: float) -> Actions:
        """A controller answered, or did not (None: whether it acted is unknown)."""
        lane = next((one for one in self._lanes if one.take(ask)), None)
        if answer is not None:
            self.finder.heard(ask.address)
        try:
            if ask.code is RequestCode.CONTROLLER_GET_METADATA_INFO:
                self.finder.on_answer(ask, None if answer is None else answers.quorum(answer))
            elif lane is None:
                return ()  # it came too late and has been asked again
            elif answer is None:
                self._lost(ask.address)
            elif answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self.finder.not_leader(ask.address)
            else:
                return self._take(ask, answer, lane, now)
        except FormatError as error:
            if lane is not None:
                lane.refused(now)
            return (Note("answer not understood", {"code": ask.code.name, "reason": str(error)}, "warning"),)
        return ()

    def on_beat(self, address: str, sent_at: float, *, taken: bool) -> None:
        """A controller took a heartbeat, or it is not known to have."""
        if taken:
            self.finder.heard(address)
        if address != self.finder.leader:
            return
        if taken:
            if self._counts(sent_at):
                self.lease.on_acknowledged(sent_at)
                self.succession.on_heard()
            self._unanswered_since = None
        else:
            self._lost(address)

    def on_stored(self, action: Stored, error: str | None, now: float) -> Actions:
        """An identity file is as wanted, durably; or `error` says why not, and it is tried again."""
        if not self._main.take(action):
            return ()
        before, self.trouble = self.trouble, error
        if error is None:
            self._main.succeeded()
            self.identity.on_stored(action)
            return ()
        self._main.not_before = now + self._timing.store_retry
        return () if error == before else (Note("identity cannot be written", {"reason": error}, "error"),)

    def on_tick(self, now: float) -> None:
        """Time went on: a leading controller that does not answer may hang."""
        for lane in self._lanes:
            late = lane.overdue(now)
            if late is not None:
                self._lost(late.address)
        since, leader = self._unanswered_since, self.finder.leader
        if leader is not None and since is not None and now - since >= self._timing.patience:
            self._lost(leader)

    def wake_times(self) -> list[float | None]:
        """When `on_tick` and `next` matter next; None and what has passed is to be ignored."""
        if self._address is None:
            return []
        times = [self.finder.wake_at]
        for lane in self._lanes:
            times += [lane.deadline, lane.not_before]
        if self.registered:
            times += [self._beat_at, self._poll_at]
        if self._unanswered_since is not None:
            times.append(self._unanswered_since + self._timing.patience)
        return times

    # What to do next

    def next(self, now: float, begun: int | None) -> Actions:
        """All that is to be asked and told now. `begun` is the epoch that this replica's replication serves."""
        if self._address is None:
            return ()
        asks = self.finder.questions(now)
        if self.finder.leader not in {None, self._last_leader}:
            # The new one has to hear us, and to say what it knows, before it can extend a lease.
            self._last_leader = self.finder.leader
            self._beat_at = now
            self.lease.on_leader_changed()
            self.succession.on_leader_changed()
        actions: list[Action] = [*asks, *self._beat(self._address, now)]
        for lane, question in (
            (self._main, self._main_question(self._address, now)),
            (self._poll, self._poll_question(now)),
            (self._wish.lane, self._alteration(begun, now)),
            (self.succession.lane, self._election(now)),
        ):
            if question is not None:
                lane.pending = question
                actions.append(question)
        return tuple(actions)

    def _beat(self, address: str, now: float) -> Actions:
        broker_id = self.broker_id
        if not self.registered or broker_id is None or self.lost is not None or now < self._beat_at:
            return ()
        self._beat_at = now + self._timing.heartbeat
        if self._unanswered_since is None and self.finder.leader is not None:
            self._unanswered_since = now
        # 0: a leading controller that has not heard of a lease yet knows that there may be one.
        lease = 0.0 if self._options.relaxed else None
        if self.is_master:
            self._poll_at = now
            if self._options.relaxed and not self.succession.given_back:
                lease = _CLOCKS * self._timing.lease
                if self._announced is None or self._announced[0] != self.mandate.master_epoch:
                    self._announced = self.mandate.master_epoch, now
        return (Beat(self.finder.addresses, broker_id, address, now, lease),)

    def give_back(self, now: float) -> Beat | None:
        """The heartbeat that ends a lease that was announced: the broker acknowledges nothing any more."""
        broker_id, announced = self.broker_id, self._announced
        if self._address is None or broker_id is None or announced is None:
            return None
        return Beat(self.finder.addresses, broker_id, self._address, now, 0.0)

    def _counts(self, sent_at: float) -> bool:
        """Whether a heartbeat sent then may extend the lease. Controllers that were not told of a lease may elect as
        soon as a connection closes, which hurts nobody unless this replica acknowledges alone."""
        if not self._options.relaxed:
            return True
        announced = self._announced
        return announced is not None and announced[0] == self.mandate.master_epoch and sent_at >= announced[1]

    def _main_question(self, address: str, now: float) -> Ask | Stored | None:
        if not self._main.free(now):
            return None
        leader, broker_id = self.finder.leader, self.broker_id
        if broker_id is None:
            return self.identity.next(leader, now)
        if leader is None:
            return None
        if not self.registered:
            return self._questions.register(leader, broker_id, address, now)
        vacant = self.mandate.vacant and self.lost is None
        return self._questions.elect(leader, broker_id, now) if vacant else None

    def _poll_question(self, now: float) -> Ask | None:
        leader = self.finder.leader
        if leader is None or not self.registered or now < self._poll_at or not self._poll.free(now):
            return None
        self._poll_at = now + (self._timing.look_every if now < self._looking_until else self._timing.poll)
        return self._questions.replica_info(leader, now)

    def _alteration(self, begun: int | None, now: float) -> Ask | None:
        leader, broker_id = self.finder.leader, self.broker_id
        if leader is None or broker_id is None or not self.is_master or begun != self.mandate.master_epoch:
            return None
        return self._wish.question(leader, broker_id, now)

    def _election(self, now: float) -> Ask | None:
        return self.succession.question(self.finder.leader, self.broker_id, now) if self.is_master else None

    def _confirmed(self, sent_at: float) -> None:
        if not self.succession.in_doubt:
            self.lease.on_confirmed(self.mandate.master_epoch, sent_at)

    # What answers mean

    def _take(self, ask: Ask, answer: RemotingCommand, lane: Lane, now: float) -> Actions:
        if lane is self.succession.lane:
            return self._take_election(ask, answer, lane, now)
        match ask.code:
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID | RequestCode.CONTROLLER_APPLY_BROKER_ID:
                if not self.identity.on_answer(ask.code, answer):
                    return self._refused(ask, answer, lane, now)
                lane.succeeded()
                return ()
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                return self._take_alteration(ask, answer, now)
            case _:
                return self._take_view(ask, answer, lane, now)

    def _take_alteration(self, ask: Ask, answer: RemotingCommand, now: float) -> Actions:
        if self._wish.taken(answer):
            self._confirmed(ask.sent_at)
            return ()
        self._poll_at = now
        refused = self._refused(ask, answer, self._wish.lane, now)
        return (*refused, SetRefused()) if self._wish.refused_for_certain(answer) else refused

    def _take_election(self, ask: Ask, answer: RemotingCommand, lane: Lane, now: float) -> Actions:
        view = answers.view(ask.code, answer)
        if view is None:
            if answer.code not in _UNDECIDED:
                self.succession.on_refused(answer)
            return self._refused(ask, answer, lane, now)
        lane.succeeded()
        learnt = self._learn(view, None)
        if view.master_id == self.broker_id:
            self.succession.on_named(view.master_epoch, ask.sent_at)
        return learnt

    def _take_view(self, ask: Ask, answer: RemotingCommand, lane: Lane, now: float) -> Actions:
        view = answers.view(ask.code, answer)
        if view is None:
            if answer.code in _UNREGISTERED:
                self._unknown(ask)
            return self._refused(ask, answer, lane, now)
        lane.succeeded()
        self._last_refusal = None
        if ask.code is RequestCode.CONTROLLER_REGISTER_BROKER:
            self.registered, self.trouble = True, None
            self._beat_at, self._poll_at = now, now + self._timing.poll
        return self._learn(view, ask.sent_at)

    def _learn(self, view: View, sent_at: float | None) -> Actions:
        mandate = self.mandate
        before = mandate.master_epoch, mandate.master_id
        changed = mandate.learn(view)
        if view.master_epoch is not None and view.master_epoch < mandate.master_epoch:
            return ()
        if mandate.master_id != self.broker_id:
            self.lease.on_denied()
        elif sent_at is not None:
            self._confirmed(sent_at)
        forgiven = self._forgiven(view)
        if not changed:
            return forgiven
        self._looking_until = NEVER
        if self._options.relaxed and self.is_master:
            self._beat_at = NEVER  # at once: the lease begins with the first heartbeat that announces it
        values: dict[str, object] = {
            "broker_id": self.broker_id,
            "master_id": mandate.master_id,
            "master_epoch": mandate.master_epoch,
            "master_address": mandate.master_address,
            "in_sync": sorted(mandate.agreed.sync_state_set),
            "before": before,
            "source": view.source.name,
        }
        text = "the controllers name the master" if mandate.decided else "the group has no master"
        return (*forgiven, Note(text, values))

    def _forgiven(self, view: View) -> Actions:
        """Out of the set nobody is elected, and nobody comes back into it without the master's log. Nor without a
        heartbeat: so the set of an older answer is good enough."""
        asked = view.source in {RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_GET_REPLICA_INFO}
        if self.lost is None or not asked or self.broker_id in view.agreed.sync_state_set:
            return ()
        self.lost, self._beat_at = None, NEVER
        return (Forgive(), Note("the group goes on without what this log has lost", {}, "warning"))

    def _unknown(self, ask: Ask) -> None:
        self.registered = False
        self.mandate.forget()
        self.lease.on_denied()
        if ask.code is RequestCode.CONTROLLER_REGISTER_BROKER:
            names = f"{self._options.cluster_name}#{self._options.broker_name}"
            self.trouble = (
                f"the controllers do not know brokerId {self.broker_id} of {names}: the broker was cleaned, or their"
                " data was lost. If this replica alone is unknown, stop it, move its store away and start it again: it"
                " joins as a new one. Else restore the controllers' data; or stop all replicas of the group, delete"
                " .broker.meta, epochFileCheckpoint and epochFileCheckpoint.bak of each, and start the one with the"
                " longest log first"
            )

    def _refused(self, ask: Ask, answer: RemotingCommand, lane: Lane, now: float) -> Actions:
        lane.refused(now)
        if self._last_refusal == (ask.code, answer.code):
            return ()
        self._last_refusal = ask.code, answer.code
        values: dict[str, object] = {"code": ask.code.name, "answer": answer.code, "remark": answer.remark}
        if self.trouble is not None:
            return (Note("refused by the controllers", {**values, "reason": self.trouble}, "error"),)
        return (Note("refused by the controllers", values, "warning"),)

    def _lost(self, address: str) -> None:
        if address == self.finder.leader:
            self._unanswered_since = None
        self.finder.suspect(address)
