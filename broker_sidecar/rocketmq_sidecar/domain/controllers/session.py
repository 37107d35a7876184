"""A replica's session with its controllers: who leads, its own id, who is master, the write lease. Pure.

There is no fixed sequence: after every event `next` chooses from all that is known. So a lost answer, a restart and a
new leading controller need no path of their own. The parts:

    leader                which controller leads (1005)
    identity              brokerId, from the files or by 1012 and 1013; then 1003, and 1002 if the group has no master
    heartbeats            904 to every controller, so that a new leader has the state of all replicas
    polls                 when to ask who is master (1004)
    group_state           master, epochs and SyncStateSet, by the newest answer
    lease                 until when a master may accept sends
    sync_set_proposal     1001: the set that a master proposes
    other_members         1006: whom the broker of a new master asks for newer tables
    designated_election   1002: another master in place of this one
    request_slots         one request of each kind under way, and when to repeat it

Whenever the broker comes back, the session begins with 1003 over new connections, before the first heartbeat: this is
how the controllers recognise a restarted master. A master sends 1004 with each heartbeat: its lease needs both.

Source: rocketmq-all-5.3.3: ReplicasManager.java, persistent_unique_broker_id.md; RIP-44, section Elect Master.
"""

import math

import msgspec

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader, SyncStateSet
from rocketmq_formats.replica_link import Registered
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Heartbeat,
    LogLine,
    ProposalRefused,
    Request,
    SaveControllers,
    SendToBroker,
    Stored,
)
from rocketmq_sidecar.domain.controllers import answers
from rocketmq_sidecar.domain.controllers.designated_election import DesignatedElection
from rocketmq_sidecar.domain.controllers.group_state import MasterAnswer
from rocketmq_sidecar.domain.controllers.heartbeats import Heartbeats
from rocketmq_sidecar.domain.controllers.identity import IdentityKeeper
from rocketmq_sidecar.domain.controllers.leader import LeaderFinder
from rocketmq_sidecar.domain.controllers.lease import NEVER, Lease
from rocketmq_sidecar.domain.controllers.mandate import Mandate
from rocketmq_sidecar.domain.controllers.other_members import OtherMembers
from rocketmq_sidecar.domain.controllers.polls import Polls
from rocketmq_sidecar.domain.controllers.refusals import OLD_CONTROLLERS, Refusals, unknown_id
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot, RequestSlots
from rocketmq_sidecar.domain.controllers.requests import Requests
from rocketmq_sidecar.domain.controllers.sync_set_proposal import SyncSetProposal
from rocketmq_sidecar.domain.options import Options

_UNREGISTERED = frozenset(
    {ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST}
)


class ControllerSession(Mandate):
    """Sends nothing between `close` and `open`, nor before the first `open`.

    While something is missing from the log (`lost`) and this replica is in the SyncStateSet, it sends no heartbeats and
    asks for no election, until the log has all that a master has. While the log is unproven, heartbeats say so.
    """

    def __init__(
        self,
        options: Options,
        *,
        identity: BrokerIdentity | None,
        applied: AppliedIdentity | None,
        controllers: str | None = None,
    ) -> None:
        """`identity`, `applied` and `controllers` (a group of them) are what the three files hold."""
        super().__init__()
        timing = self._timing = options.timing
        self.identity = IdentityKeeper(options, identity=identity, applied=applied)
        self.finder = LeaderFinder(options.controllers, interval=timing.find, group=controllers)
        self._kept_controllers = controllers
        self._keep_controllers_at = -math.inf
        """Not before: the last write failed."""
        self.lease = Lease(timing.lease)
        self.registered = False
        self._options = options
        self._requests = Requests(options.cluster_name, options.broker_name, strict=not options.relaxed)
        self._last_leader: str | None = None
        self._led_since = NEVER
        """When that one was found to lead."""
        self.heartbeats = Heartbeats(timing, self.finder, self.group, relaxed=options.relaxed)
        self._refusals = Refusals()
        slots = self._slots = RequestSlots(timing)
        self.polls = Polls(timing, slots.poll, self._requests)
        self.others = OtherMembers(
            slots.others, self.group, self._requests, options.broker_name, strict=not options.relaxed
        )
        self.proposal = SyncSetProposal(slots.alter, self.group, self._requests)
        self.election = DesignatedElection(slots.elect, self.group, self.lease, self._requests, relaxed=options.relaxed)

    @property
    def broker_id(self) -> int | None:
        """The id at the controllers, once it is kept."""
        return None if self.identity.identity is None else self.identity.identity.broker_id

    @property
    def waits(self) -> str | None:
        return None if self.registered else "not registered at the controllers yet"

    @property
    def lease_until(self) -> float:
        return self.lease.until(self.group.master_epoch)

    @property
    def elects(self) -> bool:
        return self.finder.leader is not None

    @property
    def silence(self) -> str | None:
        if self.elects:
            return None
        foreign = self.finder.foreign
        return "no leading controller can be reached" + ("" if foreign is None else f": {foreign}")

    @property
    def vouched(self) -> bool:
        return self.elects

    @property
    def refused(self) -> tuple[int, str]:
        return self.election.refused

    @property
    def lease_suspended(self) -> bool:
        return self.election.lease_suspended

    @property
    def undecided(self) -> frozenset[int]:
        return self.proposal.undecided

    # What happens

    def close(self) -> None:
        """The connections to the controllers are closed; answers over them no longer count."""
        super().close()
        self.registered = False
        self.lease.reset()
        self.finder.reset()
        self._last_leader = None
        self.heartbeats.on_answered()
        self.proposal.forget()
        self.others.forget()
        self._slots.drop_requests()

    def on_registered(self, registered: Registered) -> None:
        """The controllers know the group."""

    def designate(self, ids: tuple[int, ...]) -> None:
        if self.election.set_targets(ids) and self._options.relaxed:
            self.heartbeats.announce_again()

    def on_notice(self, now: float) -> None:
        """1008: there may have been an election. Any peer can send it, so it only makes this replica ask a
        controller."""
        if self.registered:
            self.polls.hint(now)

    def on_begun(self) -> Actions:
        """Its log was the longest of those that reported; and the controllers notify the slaves once they see this
        epoch."""
        proven = super().on_begun()
        self.heartbeats.at_once()
        return proven

    def standing_changed(self) -> None:
        self.heartbeats.at_once()

    def on_proposal(self, wanted: SyncStateSet | None) -> None:
        """Requested from the controllers."""
        if wanted is None:
            self.proposal.forget()
        else:
            self.proposal.set(wanted)

    def on_master_lost(self, now: float) -> None:
        """Another master may have been elected."""
        self.polls.search(now)

    def ask_again(self) -> None:
        """A controller that leads again may know another master."""
        self.polls.at_once()

    def on_answer(self, request: Request, answer: RemotingCommand | None, now: float) -> Actions:
        """A controller answered, or did not (None: whether it acted is unknown)."""
        slot = self._slots.take(request)
        if answer is not None:
            self.finder.on_response(request.address)
        try:
            if request.code is RequestCode.CONTROLLER_GET_METADATA_INFO:
                return self._asked_for_leader(request, None if answer is None else answers.quorum(answer))
            if slot is None:
                return ()  # it came too late: the request has been repeated
            if answer is None:
                self._suspect(request.address)
            elif answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self.finder.not_leader(request.address)
            else:
                return self._handle(request, answer, slot, now)
        except FormatError as error:
            if slot is not None:
                slot.refused(now)
            return (LogLine("answer not understood", {"code": request.code.name, "reason": str(error)}, "warning"),)
        return ()

    def _asked_for_leader(self, request: Request, answer: GetMetaDataResponseHeader | None) -> Actions:
        before = self.finder.foreign
        self.finder.on_answer(request, answer)
        foreign = self.finder.foreign
        if foreign is None or foreign == before:
            return ()
        return (LogLine("controller of another group refused", {"reason": foreign}, "warning"),)

    def on_heartbeat(self, address: str, sent_at: float, *, accepted: bool) -> None:
        """A controller accepted a heartbeat, or whether it did is not known."""
        if accepted:
            self.finder.on_response(address)
        if address != self.finder.leader:
            return
        if accepted:
            if self.heartbeats.counts(sent_at):
                self.lease.on_acknowledged(sent_at)
                self.election.on_lease_announced()
            self.heartbeats.on_answered()
        else:
            self._suspect(address)

    def on_stored(self, action: Stored, error: str | None, now: float) -> Actions:
        """An identity file was written durably; or `error` says why not, and it is tried again."""
        if not self._slots.main.take(action):
            return ()
        if isinstance(action, SaveControllers):
            return self._on_controllers_kept(action, error, now)
        before, self.trouble = self.trouble, error
        if error is None:
            self._slots.main.succeeded()
            note = self.identity.on_stored(action)
            return () if note is None else (note,)
        self._slots.main.not_before = now + self._timing.store_retry
        return () if error == before else (LogLine("identity cannot be written", {"reason": error}, "error"),)

    def _on_controllers_kept(self, action: SaveControllers, error: str | None, now: float) -> Actions:
        """The file is a memory for restarts: without it the replica works, and nothing waits for it."""
        self._slots.main.succeeded()
        if error is None:
            self._kept_controllers = action.group
            return ()
        first, self._keep_controllers_at = self._keep_controllers_at == -math.inf, now + self._timing.store_retry
        if not first:
            return ()
        return (LogLine("the controllers' group cannot be remembered for a restart", {"reason": error}, "warning"),)

    def on_tick(self, now: float) -> None:
        """Time has passed: a leading controller that does not answer may hang."""
        for late in self._slots.overdue(now):
            self._suspect(late.address)
        leader = self.finder.leader
        if leader is not None and self.heartbeats.unanswered(now):
            self._suspect(leader)

    def wake_times(self) -> list[float | None]:
        if self.address is None:
            return []
        times = [self.finder.wake_at, self.heartbeats.patience_ends_at, *self._slots.wake_times()]
        return [*times, self.heartbeats.due_at, self.polls.due_at] if self.registered else times

    # What to do next

    def next(self, begun: int | None) -> Actions:
        """All requests and heartbeats that are due."""
        if self.address is None:
            return ()
        now = self._now
        requests = self.finder.requests(now)
        if self.finder.leader not in {None, self._last_leader}:
            # The new leader must accept a heartbeat and answer a 1004 before the lease can be extended.
            self._last_leader, self._led_since = self.finder.leader, now
            self.heartbeats.at_once()
            self.lease.on_leader_changed()
            self.election.on_leader_changed()
        actions: list[Action] = [*requests, *self._heartbeats_due(self.address, now)]
        for slot, request in (
            (self._slots.main, self._main_request(self.address, now)),
            (self._slots.poll, self._poll_request(now)),
            (self.others.slot, self._others_request(begun, now)),
            (self.proposal.slot, self._alter_request(begun, now)),
            (self.election.slot, self._elect_request(now)),
        ):
            if request is not None:
                slot.pending = request
                actions.append(request)
        return tuple(actions)

    def _heartbeats_due(self, address: str, now: float) -> Actions:
        broker_id, is_master = self.broker_id, self.is_master
        if not self.registered or broker_id is None or self.lost is not None:
            return ()
        lease = is_master and not self.election.lease_returned
        heartbeat = self.heartbeats.next(broker_id, address, now, lease=lease)
        if heartbeat is None:
            return ()
        if is_master:
            self.polls.at_once()
        if self.reported_unproven is None:
            return (heartbeat,)
        whole_to = -1 if not self.log.checked else None if self.log.damage < 0 else self.log.damage
        return (msgspec.structs.replace(heartbeat, unproven=True, whole_to=whole_to),)

    def return_lease(self, now: float) -> Heartbeat | None:
        """The heartbeat that ends an announced lease, once the broker no longer acknowledges anything."""
        if self.address is None or self.broker_id is None:
            return None
        return self.heartbeats.return_lease(self.broker_id, self.address, now)

    def _main_request(self, address: str, now: float) -> Request | Stored | None:
        if not self._slots.main.free(now):
            return None
        leader, broker_id = self.finder.leader, self.broker_id
        if broker_id is None:
            return self.identity.next(leader, now)
        if leader is None:
            return None
        if not self.registered:
            return self._requests.register(leader, broker_id, address, now)
        vacant = self.group.vacant and self.lost is None and self.reported_unproven is None
        elects = vacant and not self._options.learner
        return self._requests.elect(leader, broker_id, now) if elects else self._controllers_to_keep(now)

    def _controllers_to_keep(self, now: float) -> SaveControllers | None:
        group = self.finder.group
        if group in {None, self._kept_controllers} or now < self._keep_controllers_at:
            return None
        return SaveControllers(group)

    def _poll_request(self, now: float) -> Request | None:
        leader = self.finder.leader
        return self.polls.request(leader, now) if leader is not None and self.registered else None

    def _others_request(self, begun: int | None, now: float) -> Request | None:
        leader = self.finder.leader
        return self.others.request(leader, begun, now) if leader is not None and self.is_master else None

    def _alter_request(self, begun: int | None, now: float) -> Request | None:
        leader, broker_id = self.finder.leader, self.broker_id
        if leader is None or broker_id is None or not self.is_master or begun != self.group.master_epoch:
            return None
        return self.proposal.request(leader, broker_id, now)

    def _elect_request(self, now: float) -> Request | None:
        return self.election.request(self.finder.leader, self.broker_id, now) if self.is_master else None

    def _asked_leader(self, request: Request) -> bool:
        """Whether the controller that leads now was asked, since it leads. The answer of one that led before proves
        nothing: the present leader may have elected another master, and accept a heartbeat only after that."""
        leader = self.finder.leader or self._last_leader  # one that is suspected leads until another is found
        return request.address == leader and request.sent_at >= self._led_since

    def _confirmed(self, request: Request) -> None:
        if self._asked_leader(request) and not self.election.lease_suspended:
            self.lease.on_confirmed(self.group.master_epoch, request.sent_at)

    # What answers mean

    def _handle(self, request: Request, answer: RemotingCommand, slot: RequestSlot, now: float) -> Actions:
        if slot is self.election.slot:
            return self._handle_election(request, answer, slot, now)
        match request.code:
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID | RequestCode.CONTROLLER_APPLY_BROKER_ID:
                if not self.identity.on_answer(request.code, answer):
                    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        self.trouble = OLD_CONTROLLERS
                    return self._refused(request, answer, slot, now)
                slot.succeeded()
                return ()
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                return self._handle_alter(request, answer, now)
            case RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
                return self._handle_others(request, answer, slot, now)
            case _:
                return self._handle_view(request, answer, slot, now)

    def _handle_alter(self, request: Request, answer: RemotingCommand, now: float) -> Actions:
        if self.proposal.accepted(answer):
            self._confirmed(request)
            return ()
        self.polls.at_once()
        refused = self._refused(request, answer, self.proposal.slot, now)
        dropped = self.proposal.certainly_refused(answer)
        return refused if dropped is None else (*refused, ProposalRefused(dropped, answers.not_alive(answer)))

    def _handle_others(self, request: Request, answer: RemotingCommand, slot: RequestSlot, now: float) -> Actions:
        if answer.code != ResponseCode.SUCCESS:
            return self._refused(request, answer, slot, now)
        others = self.others.on_answer(answer, self.broker_id, now)
        return () if others is None else (SendToBroker(others),)

    def _handle_election(self, request: Request, answer: RemotingCommand, slot: RequestSlot, now: float) -> Actions:
        master_answer = answers.master_answer(request.code, answer)
        if master_answer is None:
            self.election.on_refused(answer)
            return self._refused(request, answer, slot, now)
        slot.succeeded()
        learnt = self._update_group(master_answer, None)
        if master_answer.master_id == self.broker_id and self._asked_leader(request):
            self.election.on_named_master(master_answer.master_epoch, request.sent_at)
        return learnt

    def _handle_view(self, request: Request, answer: RemotingCommand, slot: RequestSlot, now: float) -> Actions:
        master_answer = answers.master_answer(request.code, answer)
        if master_answer is None:
            if answer.code in _UNREGISTERED:
                self._not_registered(request)
            return self._refused(request, answer, slot, now)
        slot.succeeded()
        self._refusals.forget()
        if request.code is RequestCode.CONTROLLER_REGISTER_BROKER:
            self.registered, self.trouble = True, None
            self.heartbeats.at_once()
            self.polls.answered(now)
        return self._update_group(master_answer, request)

    def _update_group(self, master_answer: MasterAnswer, confirming: Request | None) -> Actions:
        group = self.group
        before = group.master_epoch, group.master_id
        changed = group.update(master_answer)
        if master_answer.master_epoch is not None and master_answer.master_epoch < group.master_epoch:
            return ()
        if group.master_id != self.broker_id:
            self.lease.on_denied()
        elif confirming is not None:
            self._confirmed(confirming)
        accepted = self._after_leaving_set(master_answer)
        if not changed:
            return accepted
        self.polls.found()
        if self._options.relaxed and self.is_master:
            self.heartbeats.at_once()  # the lease begins with the first one that announces it
        return (*accepted, group.log_line(self.broker_id, before, master_answer.source))

    def _after_leaving_set(self, master_answer: MasterAnswer) -> Actions:
        """Once this replica is out of the SyncStateSet, the loss no longer matters: it cannot be elected, and cannot
        come back without the master's log. Nor without a heartbeat, so the set of an older answer is good enough."""
        asked = master_answer.source in {
            RequestCode.CONTROLLER_REGISTER_BROKER,
            RequestCode.CONTROLLER_GET_REPLICA_INFO,
        }
        if self.lost is None or not asked or self.broker_id in master_answer.agreed.sync_state_set:
            return ()
        return self.log_complete("the group continues without what this log has lost")

    def _not_registered(self, request: Request) -> None:
        self.registered = False
        self.group.forget()
        self.lease.on_denied()
        if request.code is RequestCode.CONTROLLER_REGISTER_BROKER:
            self.trouble = unknown_id(self._options.cluster_name, self._options.broker_name, self.broker_id)

    def _refused(self, request: Request, answer: RemotingCommand, slot: RequestSlot, now: float) -> Actions:
        slot.refused(now)
        return self._refusals.log_lines(request, answer, self.trouble)

    def _suspect(self, address: str) -> None:
        if address == self.finder.leader:
            self.heartbeats.on_answered()
        self.finder.suspect(address)
