"""The agent as a machine: what happened goes in with the time it happened, what to do comes out. Pure.

Every step is chosen anew from what is known (`_advance`), so a lost answer, a restart or a new leader needs no path of
its own. The order of the start is RIP-44's: find the leader (1005), take an id (1012, temporary file, 1013, identity
file), register (1003), heartbeat (904), elect if there is no master (1002). See broker-agent reference, sections 2-6.

Differs from 5.3.3: a temporary identity is kept when the answer to 1013 was lost, and asked for again; Java drops it
and with it the id. It is dropped only when the controllers say that the id belongs to somebody else (2014).
"""

from rocketmq_demo.agent import answers
from rocketmq_demo.agent.actions import (
    Action,
    Actions,
    Ask,
    ForgetApplied,
    Note,
    Report,
    SaveApplied,
    SaveIdentity,
    Stored,
)
from rocketmq_demo.agent.questions import Questions
from rocketmq_demo.agent.role import Role, RoleKeeper
from rocketmq_demo.agent.settings import AgentSettings
from rocketmq_demo.agent.sync_set import View, sync_state_set
from rocketmq_demo.agent.wire import (
    ProbeResponseHeader,
    ReportRequestHeader,
    ReportResponseHeader,
)
from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import (
    NotifyBrokerRoleChangedRequestHeader,
    SyncStateSet,
)

_FENCED = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
    }
)
_UNREGISTERED = frozenset(
    {ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST}
)


class AgentMachine:
    """One agent's life from start to end. Times are monotonic seconds that never go back."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        identity: BrokerIdentity | None,
        applied: AppliedIdentity | None,
        check_code: str,
        now: float,
    ) -> None:
        """`identity` and `applied` are what the two files held; `check_code` is for an id that is applied for anew."""
        self.settings = settings
        self._questions = Questions(settings)
        self.identity = identity
        self.roles = RoleKeeper()
        self.max_offset = 0
        self.leader: str | None = None
        self._applied = None if identity is not None else applied
        self._check_code = check_code
        self._registered = False
        self._pending: Ask | Stored | None = None
        self._controller = 0
        self._wait_until = self._alter_at = self._beat_at = self._poll_at = self._report_at = now
        self._reporting = False
        self._data_epoch = -1
        self._last_tick = now
        self._certain = False

    # What happens

    def on_tick(self, now: float) -> Actions:
        """Time went on; called a few times as often as the shortest period."""
        if now - self._last_tick > self.settings.timing.stall:
            self._certain = False
            self._poll_at = now
            if self.roles.sync_set is not None:
                self.roles.sync_set.forgive(now)
        self._last_tick = now
        return (*self._beat(now), *self._report(now), *self._advance(now))

    def on_answer(self, ask: Ask, answer: RemotingCommand | None, now: float) -> Actions:
        """A controller answered, or did not (None: whether it acted is unknown)."""
        if ask is not self._pending:
            return ()
        self._pending = None
        if answer is None or answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.leader = None
            self._wait_until = now + self.settings.timing.retry / 2
            return ()
        try:
            done = self._take(ask, answer, now)
        except FormatError as error:
            self._retry(now)
            return (Note("answer not understood", {"code": ask.code.name, "reason": str(error)}),)
        return (*done, *self._advance(now))

    def on_stored(self, action: Stored, now: float) -> Actions:
        """A file is as wanted, durably."""
        self._pending = None
        match action:
            case SaveApplied(applied):
                self._applied = applied
            case SaveIdentity(identity):
                self.identity, self._applied = identity, None
            case ForgetApplied():
                self._applied = None
        return self._advance(now)

    def on_notice(self, header: NotifyBrokerRoleChangedRequestHeader, body: SyncStateSet, now: float) -> Actions:
        """1008: a controller tells of an election. Only a newer epoch counts."""
        epoch = header.master_epoch or 0
        if not self._registered or header.master_broker_id is None or epoch <= self.roles.master_epoch:
            return ()
        view = View(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, epoch, header.master_broker_id, header.master_address, body)
        return (*self._learn(view, now), *self._report(now), *self._advance(now))

    def on_report(self, header: ReportRequestHeader, now: float) -> tuple[ResponseCode, ReportResponseHeader, Actions]:
        """A slave reports. Refused with SERVICE_NOT_AVAILABLE unless this is the master of the slave's epoch."""
        roles = self.roles
        if roles.sync_set is None or header.master_epoch != roles.master_epoch:
            if header.master_epoch > roles.master_epoch:
                self._poll_at = now
            known = ReportResponseHeader(master_epoch=roles.master_epoch)
            return ResponseCode.SERVICE_NOT_AVAILABLE, known, self._advance(now)
        roles.sync_set.heard(header.broker_id, now)
        known = ReportResponseHeader(master_epoch=roles.master_epoch, max_offset=self.max_offset)
        return ResponseCode.SUCCESS, known, self._advance(now)

    def on_report_answer(self, report: Report, answer: ReportResponseHeader | None, now: float) -> Actions:
        """The master took our report; None if it refused or did not answer, which is a hint to ask the controllers."""
        self._reporting = False
        if answer is None:
            self._poll_at = min(self._poll_at, now)
            return self._advance(now)
        if self.roles.role is Role.SLAVE and answer.master_epoch == report.header.master_epoch:
            self.max_offset, self._data_epoch = answer.max_offset, answer.master_epoch
        return ()

    def on_slave_closed(self, broker_id: int, now: float) -> Actions:
        """The connection over which a slave reported is gone."""
        if self.roles.sync_set is not None:
            self.roles.sync_set.lost(broker_id)
        return self._advance(now)

    def on_probe(self, now: float) -> tuple[ResponseCode, ProbeResponseHeader]:
        """A message to be stored, so to speak: success only from the master of the newest epoch it can know of."""
        roles = self.roles
        awake = now - self._last_tick <= self.settings.timing.stall
        sure = roles.role is Role.MASTER and self._certain and awake
        if sure:
            self.max_offset += 1
        own_id = 0 if self.identity is None else self.identity.broker_id
        header = ProbeResponseHeader(broker_id=own_id, master_epoch=roles.master_epoch, max_offset=self.max_offset)
        return ResponseCode.SUCCESS if sure else ResponseCode.SERVICE_NOT_AVAILABLE, header

    # What to do next

    def _advance(self, now: float) -> Actions:
        """The next question or file, unless one is under way."""
        if self._pending is not None or now < self._wait_until:
            return ()
        if self.leader is None:
            self._controller = (self._controller + 1) % len(self.settings.controllers)
            question: Ask | None = self._questions.metadata(self.settings.controllers[self._controller])
        else:
            question = self._question(self.leader, now)
        if question is None:
            return ()
        self._pending = question
        if question.code is RequestCode.CONTROLLER_ELECT_MASTER:
            # A broker that never beat is not alive to the controllers, and cannot be elected.
            self._beat_at = now
        return (*self._beat(now), question)

    def _question(self, leader: str, now: float) -> Ask | None:
        if self.identity is None:
            applied = self._applied
            return self._questions.next_id(leader) if applied is None else self._questions.apply(leader, applied)
        if not self._registered:
            return self._questions.register(leader, self.identity.broker_id)
        if self.roles.vacant:
            return self._questions.elect(leader, self.identity.broker_id)
        if now >= self._poll_at:
            self._poll_at = now + self.settings.timing.poll
            return self._questions.replica_info(leader)
        return self._alteration(leader, self.identity.broker_id, now)

    def _alteration(self, leader: str, own_id: int, now: float) -> Ask | None:
        sync_set = self.roles.sync_set
        if sync_set is None or not self._certain or now < self._alter_at:
            return None
        wanted = sync_set.wanted(now, self.settings.timing.slave_silent)
        if wanted == sync_set.agreed.sync_state_set:
            return None
        replacement = sync_state_set(wanted, sync_set.agreed.sync_state_set_epoch)
        return self._questions.alter(leader, own_id, self.roles.master_epoch, replacement)

    def _beat(self, now: float) -> Actions:
        if not self._registered or self.identity is None or now < self._beat_at:
            return ()
        self._beat_at = now + self.settings.timing.heartbeat
        return (self._questions.heartbeat(self.identity.broker_id, self._data_epoch, self.max_offset),)

    def _report(self, now: float) -> Actions:
        roles = self.roles
        slave = self.identity is not None and roles.role is Role.SLAVE and roles.master_address is not None
        if not slave or self._reporting or now < self._report_at:
            return ()
        assert self.identity is not None
        assert roles.master_address is not None
        self._report_at = now + self.settings.timing.report
        self._reporting = True
        header = ReportRequestHeader(
            broker_id=self.identity.broker_id, master_epoch=roles.master_epoch, max_offset=self.max_offset
        )
        return (Report(roles.master_address, header),)

    # What answers mean

    def _take(self, ask: Ask, answer: RemotingCommand, now: float) -> Actions:
        match ask.code:
            case RequestCode.CONTROLLER_GET_METADATA_INFO:
                self.leader = answers.leader(answer)
                if self.leader is None:
                    self._retry(now)
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID | RequestCode.CONTROLLER_APPLY_BROKER_ID:
                return self._take_identity(ask.code, answer, now)
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                self._take_alteration(answer, now)
            case _:
                return self._take_view(ask.code, answer, now)
        return ()

    def _take_identity(self, code: RequestCode, answer: RemotingCommand, now: float) -> Actions:
        if answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID and code is RequestCode.CONTROLLER_APPLY_BROKER_ID:
            return self._store(ForgetApplied())
        if answer.code != ResponseCode.SUCCESS:
            return self._refused(code, answer, now)
        if code is RequestCode.CONTROLLER_APPLY_BROKER_ID:
            assert self._applied is not None
            return self._store(SaveIdentity(self._applied.identity))
        identity = BrokerIdentity(self.settings.cluster_name, self.settings.broker_name, answers.next_broker_id(answer))
        return self._store(SaveApplied(AppliedIdentity(identity, self._check_code)))

    def _take_alteration(self, answer: RemotingCommand, now: float) -> None:
        agreed = answers.agreed(answer) if answer.code == ResponseCode.SUCCESS else None
        if agreed is not None and self.roles.sync_set is not None:
            self.roles.sync_set.adopt(agreed)
            return
        self._alter_at = now + self.settings.timing.retry
        if answer.code in _FENCED or answer.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED:
            self._poll_at = now

    def _take_view(self, code: RequestCode, answer: RemotingCommand, now: float) -> Actions:
        if answer.code in _UNREGISTERED:
            self._registered = False
        view = answers.view(code, answer)
        if view is None:
            return self._refused(code, answer, now)
        if code is RequestCode.CONTROLLER_REGISTER_BROKER:
            self._registered = True
            self._beat_at = now
        return (*self._learn(view, now), *self._report(now))

    def _learn(self, view: View, now: float) -> Actions:
        assert self.identity is not None
        before = self.roles.role, self.roles.master_epoch
        newer_or_same = view.master_epoch >= self.roles.master_epoch
        changed = self.roles.learn(view, self.identity.broker_id, now)
        self._certain = self._certain or newer_or_same
        if not changed:
            return ()
        self._report_at = now
        self._alter_at = now
        if self.roles.role is Role.MASTER:
            self._data_epoch = view.master_epoch
        values: dict[str, object] = {
            "role": self.roles.role.value,
            "master_epoch": self.roles.master_epoch,
            "master_id": self.roles.master_id,
            "before": before[0].value,
            "source": view.source.name,
        }
        return (Note("role", values),)

    def _store(self, action: Stored) -> Actions:
        self._pending = action
        return (action,)

    def _refused(self, code: RequestCode, answer: RemotingCommand, now: float) -> Actions:
        self._retry(now)
        note: Action = Note("refused", {"code": code.name, "answer": answer.code, "remark": answer.remark})
        return (note,)

    def _retry(self, now: float) -> None:
        self._wait_until = now + self.settings.timing.retry
