"""This replica's dealings with the controllers: who leads, who we are, who is master, until when that holds. Pure.

It owns no sequence: `next` chooses from all that is known, after every event. So a lost answer, a restart and a new
leading controller need no path of their own. Three questions may be under way, one of each kind: who we are (1012,
1013, 1003, 1002, and the identity files), who is master (1004), who is in sync (1001). Heartbeats (904) go to every
controller, so that a new leader knows who lives (`heartbeats`).

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
from rocketmq_sidecar.domain.heartbeats import Heartbeats
from rocketmq_sidecar.domain.identity import IdentityKeeper
from rocketmq_sidecar.domain.lanes import Lane, Lanes
from rocketmq_sidecar.domain.leader import LeaderFinder
from rocketmq_sidecar.domain.lease import Lease
from rocketmq_sidecar.domain.mandate import Mandate, View, notice_view
from rocketmq_sidecar.domain.options import Options
from rocketmq_sidecar.domain.polls import Polls
from rocketmq_sidecar.domain.questions import Questions
from rocketmq_sidecar.domain.refusals import Refusals, unknown_id
from rocketmq_sidecar.domain.succession import Succession
from rocketmq_sidecar.domain.wish import Wish

_UNREGISTERED = frozenset(
    {ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST}
)


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
        self._last_leader: str | None = None
        self._heartbeats = Heartbeats(timing, self.finder, self.mandate, relaxed=options.relaxed)
        self._refusals = Refusals()
        lanes = self._lanes = Lanes(timing)
        self._polls = Polls(timing, lanes.poll, self._questions)
        self._wish = Wish(lanes.alter, self.mandate, self._questions)
        self.succession = Succession(lanes.elect, self.mandate, self.lease, self._questions, relaxed=options.relaxed)

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
        self._last_leader = None
        self._heartbeats.on_answered()
        self._wish.forget()
        self._lanes.drop_questions()

    def beat_now(self) -> None:
        """There is something to tell every controller."""
        self._heartbeats.at_once()

    def look_for_master(self, now: float) -> None:
        """The master is gone, it seems: ask who is master now, often, until there is another or some time has passed.
        The controllers tell slaves late, for the sake of Java's."""
        self._polls.look(now)

    def elect_instead(self, ids: tuple[int, ...]) -> None:
        """As master: have one of these replicas elected in our place, from now on; none: stay master."""
        if self.succession.aim(ids) and self._options.relaxed:
            self._heartbeats.announce_anew()

    def forget_wish(self) -> None:
        """A mastership has ended."""
        self._wish.forget()

    def wish(self, wanted: SyncStateSet) -> None:
        """As master: the SyncStateSet that the controllers should agree to, with the epoch of the one it replaces."""
        self._wish.set(wanted)

    def on_notice(self, notice: RoleNotice) -> Actions:
        """1008: a controller tells of an election. Only a newer epoch counts, and it proves nothing for the lease: it
        may have been under way for long."""
        if not self.registered or (notice.master_epoch or 0) <= self.mandate.master_epoch:
            return ()
        self._polls.at_once()
        return () if notice.master_broker_id is None else self._learn(notice_view(notice), None)

    def on_answer(self, ask: Ask, answer: RemotingCommand | None, now: float) -> Actions:
        """A controller answered, or did not (None: whether it acted is unknown)."""
        lane = self._lanes.take(ask)
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
            if self._heartbeats.counts(sent_at):
                self.lease.on_acknowledged(sent_at)
                self.succession.on_heard()
            self._heartbeats.on_answered()
        else:
            self._lost(address)

    def on_stored(self, action: Stored, error: str | None, now: float) -> Actions:
        """An identity file is as wanted, durably; or `error` says why not, and it is tried again."""
        if not self._lanes.main.take(action):
            return ()
        before, self.trouble = self.trouble, error
        if error is None:
            self._lanes.main.succeeded()
            self.identity.on_stored(action)
            return ()
        self._lanes.main.not_before = now + self._timing.store_retry
        return () if error == before else (Note("identity cannot be written", {"reason": error}, "error"),)

    def on_tick(self, now: float) -> None:
        """Time went on: a leading controller that does not answer may hang."""
        for late in self._lanes.overdue(now):
            self._lost(late.address)
        leader = self.finder.leader
        if leader is not None and self._heartbeats.unanswered(now):
            self._lost(leader)

    def wake_times(self) -> list[float | None]:
        """When `on_tick` and `next` matter next; None and what has passed is to be ignored."""
        if self._address is None:
            return []
        times = [self.finder.wake_at, self._heartbeats.patience_ends_at, *self._lanes.wake_times()]
        return [*times, self._heartbeats.due_at, self._polls.due_at] if self.registered else times

    # What to do next

    def next(self, now: float, begun: int | None) -> Actions:
        """All that is to be asked and told now. `begun` is the epoch that this replica's replication serves."""
        if self._address is None:
            return ()
        asks = self.finder.questions(now)
        if self.finder.leader not in {None, self._last_leader}:
            # The new one has to hear us, and to say what it knows, before it can extend a lease.
            self._last_leader = self.finder.leader
            self._heartbeats.at_once()
            self.lease.on_leader_changed()
            self.succession.on_leader_changed()
        actions: list[Action] = [*asks, *self._beat(self._address, now)]
        for lane, question in (
            (self._lanes.main, self._main_question(self._address, now)),
            (self._lanes.poll, self._poll_question(now)),
            (self._wish.lane, self._alteration(begun, now)),
            (self.succession.lane, self._election(now)),
        ):
            if question is not None:
                lane.pending = question
                actions.append(question)
        return tuple(actions)

    def _beat(self, address: str, now: float) -> Actions:
        broker_id, is_master = self.broker_id, self.is_master
        if not self.registered or broker_id is None or self.lost is not None:
            return ()
        lease = is_master and not self.succession.given_back
        beat = self._heartbeats.next(broker_id, address, now, lease=lease)
        if beat is None:
            return ()
        if is_master:
            self._polls.at_once()
        return (beat,)

    def give_back(self, now: float) -> Beat | None:
        """The heartbeat that ends a lease that was announced: the broker acknowledges nothing any more."""
        if self._address is None or self.broker_id is None:
            return None
        return self._heartbeats.give_back(self.broker_id, self._address, now)

    def _main_question(self, address: str, now: float) -> Ask | Stored | None:
        if not self._lanes.main.free(now):
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
        return self._polls.question(leader, now) if leader is not None and self.registered else None

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
        self._polls.at_once()
        refused = self._refused(ask, answer, self._wish.lane, now)
        return (*refused, SetRefused()) if self._wish.refused_for_certain(answer) else refused

    def _take_election(self, ask: Ask, answer: RemotingCommand, lane: Lane, now: float) -> Actions:
        view = answers.view(ask.code, answer)
        if view is None:
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
        self._refusals.forget()
        if ask.code is RequestCode.CONTROLLER_REGISTER_BROKER:
            self.registered, self.trouble = True, None
            self._heartbeats.at_once()
            self._polls.told(now)
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
        self._polls.found()
        if self._options.relaxed and self.is_master:
            self._heartbeats.at_once()  # the lease begins with the first one that announces it
        return (*forgiven, mandate.note(self.broker_id, before, view.source))

    def _forgiven(self, view: View) -> Actions:
        """Out of the set nobody is elected, and nobody comes back into it without the master's log. Nor without a
        heartbeat: so the set of an older answer is good enough."""
        asked = view.source in {RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_GET_REPLICA_INFO}
        if self.lost is None or not asked or self.broker_id in view.agreed.sync_state_set:
            return ()
        self.lost = None
        self._heartbeats.at_once()
        return (Forgive(), Note("the group goes on without what this log has lost", {}, "warning"))

    def _unknown(self, ask: Ask) -> None:
        self.registered = False
        self.mandate.forget()
        self.lease.on_denied()
        if ask.code is RequestCode.CONTROLLER_REGISTER_BROKER:
            self.trouble = unknown_id(self._options.cluster_name, self._options.broker_name, self.broker_id)

    def _refused(self, ask: Ask, answer: RemotingCommand, lane: Lane, now: float) -> Actions:
        lane.refused(now)
        return self._refusals.note(ask, answer, self.trouble)

    def _lost(self, address: str) -> None:
        if address == self.finder.leader:
            self._heartbeats.on_answered()
        self.finder.suspect(address)
