"""A set that a master proposes, and answers that are lost: what is refused must never be agreed to later."""

from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame, request, response
from rocketmq_formats.remoting.controller import AlterSyncStateSetRequestHeader, SyncStateSet
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers import answers
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot
from rocketmq_sidecar.domain.controllers.requests import Requests
from rocketmq_sidecar.domain.controllers.sync_set_proposal import SyncSetProposal
from rocketmq_sidecar.domain.replication.sync_set import SyncSet
from tests.controller.domain.domain_kit import NAME, StaticView, make_group, settled, sync_set
from tests.paths import GOLDEN_FILES

LEADER = "10.0.1.1:9878"
ALL, WITHOUT_2, WITHOUT_3 = StaticView({1, 2, 3, 4}), StaticView({1, 3, 4}), StaticView({1, 2, 4})


class Stage:
    """Replica 1 is master of epoch 4 and has the set {1, 2} of epoch 7; its requests arrive when the test says so."""

    def __init__(self) -> None:
        self.controllers: BrokerGroup = make_group(ids=(1, 2, 3, 4), in_sync=(1, 2))
        self.group = GroupState()
        self.group.master_epoch, self.group.master_id, self.group.agreed = 4, 1, sync_set(1, 2)
        self.slot = RequestSlot(patience=1.0, retry=0.5, retry_most=0.5)
        self.proposal = SyncSetProposal(self.slot, self.group, Requests("C", NAME, strict=True))
        self.now = 0.0

    def want(self, *members: int) -> None:
        self.proposal.set(sync_set(*members, epoch=self.group.agreed.sync_state_set_epoch))

    def ask(self) -> Request:
        """The next request, which is under way now."""
        self.now += 1.0
        asked = self.proposal.request(LEADER, 1, self.now)
        assert asked is not None
        self.slot.pending = asked
        return asked

    def lose(self, asked: Request) -> None:
        """Its answer does not come in time."""
        assert self.slot.take(asked)

    def arrive(self, asked: Request, view: StaticView, *, java: bool = False) -> RemotingCommand:
        """The controllers decide."""
        header = asked.header
        assert isinstance(header, AlterSyncStateSetRequestHeader)
        if java:
            header = AlterSyncStateSetRequestHeader(
                broker_name=NAME, master_broker_id=header.master_broker_id, master_epoch=header.master_epoch
            )
        wanted = decode_body(SyncStateSet, asked.body)
        decision = alter_sync_state_set(self.controllers, header, wanted, view)
        command = request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
        dead = [member for member in wanted.sync_state_set if not view.alive(NAME, member)]
        if java and dead and decision.code == ResponseCode.SUCCESS:
            remark = f"Rejecting alter syncStateSet request because the replicas {{{dead[0]}}} don't alive"
            return response(command, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, remark)
        self.controllers = settled(self.controllers, decision)
        body = b"" if decision.body is None else encode_body(decision.body)
        return response(command, decision.code, decision.remark, decision.header, body)

    def refused(self, asked: Request, answer: RemotingCommand) -> bool:
        """Whether replication is told that the controllers refused."""
        assert self.slot.take(asked)
        return not self.proposal.accepted(answer) and self.proposal.certainly_refused(answer) is not None


def test_java_names_the_replica_that_is_not_alive() -> None:
    sample = (GOLDEN_FILES / "remoting" / "1001-alter-sync-state-set-response-2006.bin").read_bytes()
    answer = decode_frame(sample[4:])
    assert answers.not_alive(answer) == 4
    assert answers.not_alive(msgspec.structs.replace(answer, remark=None)) is None


def in_doubt() -> tuple[Stage, Request]:
    """A proposal is on its way, and its repetition was refused because 3 was away."""
    stage = Stage()
    stage.want(1, 2, 3)
    late = stage.ask()
    stage.lose(late)
    again = stage.ask()
    answer = stage.arrive(again, WITHOUT_3)
    assert answer.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    assert not stage.refused(again, answer), "the first one may still be agreed to"
    return stage, late


def test_a_refusal_is_certain_if_all_requests_were_answered() -> None:
    stage = Stage()
    stage.want(1, 2, 3)
    asked = stage.ask()
    assert stage.refused(asked, stage.arrive(asked, WITHOUT_3))
    assert stage.proposal.request(LEADER, 1, 9.0) is None


def test_what_may_still_arrive_is_made_void_before_its_members_are_forgotten() -> None:
    stage, late = in_doubt()
    renewal = stage.ask()
    assert stage.proposal.undecided == set(), "the renewal decides"
    assert not stage.refused(renewal, stage.arrive(renewal, WITHOUT_3))
    assert stage.group.agreed == sync_set(1, 2, epoch=8), "replication adopts it, and waits for 1 and 2 only"
    assert stage.arrive(late, ALL).code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert stage.proposal.request(LEADER, 1, 9.0) is None, "once"


def test_what_arrives_before_that_counts() -> None:
    stage, late = in_doubt()
    assert stage.arrive(late, ALL).code == ResponseCode.SUCCESS
    renewal = stage.ask()
    answer = stage.arrive(renewal, WITHOUT_3)
    assert answer.code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert not stage.refused(renewal, answer), "getReplicaInfo shows the set with 3"
    assert stage.controllers.sync_state_set == {1, 2, 3}


def test_a_lost_answer_to_a_renewal_is_asked_for_again() -> None:
    stage, _ = in_doubt()
    stage.lose(stage.ask())
    renewal = stage.ask()
    assert not stage.refused(renewal, stage.arrive(renewal, WITHOUT_3))
    assert stage.group.agreed == sync_set(1, 2, epoch=8)


def test_controllers_that_cannot_renew_settle_it_with_the_next_change() -> None:
    stage, late = in_doubt()
    renewal = stage.ask()
    answer = stage.arrive(renewal, WITHOUT_3, java=True)
    assert answer.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert not stage.refused(renewal, answer)
    assert stage.proposal.request(LEADER, 1, 9.0) is None, "it would be refused again"
    assert stage.proposal.undecided == {3}
    stage.now = 9.0
    stage.want(1, 2, 3)
    returned = stage.ask()
    assert not stage.refused(returned, stage.arrive(returned, ALL, java=True))
    assert stage.group.agreed == sync_set(1, 2, 3, epoch=8)
    assert stage.proposal.undecided == set()
    assert stage.arrive(late, ALL).code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED


def test_another_master_epoch_decides_what_controllers_could_not_exclude() -> None:
    stage, _ = in_doubt()
    renewal = stage.ask()
    assert not stage.refused(renewal, stage.arrive(renewal, WITHOUT_3, java=True))
    assert stage.proposal.undecided == {3}
    stage.group.master_epoch = 5
    assert stage.proposal.undecided == set()


def test_the_doubt_outlives_the_connections_but_not_the_mastership() -> None:
    stage = Stage()
    stage.want(1, 2, 3)
    stage.lose(stage.ask())
    stage.proposal.forget()
    stage.want(1, 2, 3)
    again = stage.ask()
    assert not stage.refused(again, stage.arrive(again, WITHOUT_3))

    stage, _ = in_doubt()
    stage.group.master_epoch = 5
    stage.now = 9.0
    assert stage.proposal.request(LEADER, 1, stage.now) is None, "an older masterEpoch is refused anyway"


class Master(Stage):
    """With the set as replication sees it: what the session reports reaches it later, as over `replication_worker`."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self.replication = SyncSet(1, self.group.agreed, 0.0, strict=strict)
        self.replication.acknowledged_epoch(2, 0.0)
        self._reports: deque[Callable[[], bool]] = deque()
        self._late: deque[Request] = deque()

    def join(self, slave: int = 3) -> None:
        self.replication.caught_up(slave, 0.0)
        self.replication.qualified(slave)

    def leave(self, slave: int = 3) -> None:
        self.replication.disconnected(slave)

    def join_2(self) -> None:
        self.join(2)

    def leave_2(self) -> None:
        self.leave(2)

    def join_4(self) -> None:
        self.join(4)

    def leave_4(self) -> None:
        self.leave(4)

    def copy(self) -> None:
        """The broker reports that all that could join have the tables."""
        self.replication.copied(frozenset(self.replication.joins.values()))

    def propose(self) -> None:
        wanted = self.replication.propose(0.0, 15.0, {2, 3, 4})
        if wanted is not None:
            self.proposal.set(self.replication.proposed(wanted))

    def send(self) -> None:
        self.now += 1.0
        asked = self.proposal.request(LEADER, 1, self.now)
        if asked is not None:
            self.slot.pending = asked
            assert decode_body(SyncStateSet, asked.body).sync_state_set <= self.replication.union

    def answer(self, view: StaticView, *, java: bool = False) -> None:
        asked = self.slot.pending
        if not isinstance(asked, Request):
            return
        answer = self.arrive(asked, view, java=java)
        assert self.slot.take(asked)
        before = self.group.agreed
        if self.proposal.accepted(answer):
            self._adopted(before)
        elif (dropped := self.proposal.certainly_refused(answer)) is not None:
            self._reports.append(partial(self.replication.proposal_refused, dropped, answers.not_alive(answer)))

    def agree(self) -> None:
        self.answer(ALL)

    def refuse(self) -> None:
        self.answer(WITHOUT_3)

    def refuse_for_2(self) -> None:
        """As Java's controllers do, also where it stays."""
        self.answer(WITHOUT_2, java=True)

    def refuse_to_renew(self) -> None:
        self.answer(WITHOUT_3, java=True)

    def lose_answer(self) -> None:
        if isinstance(asked := self.slot.pending, Request):
            self.lose(asked)
            self._late.append(asked)

    def arrive_late(self) -> None:
        if self._late:
            self.arrive(self._late.popleft(), ALL)

    def poll(self) -> None:
        """1004."""
        before = self.group.agreed
        epoch = self.controllers.sync_state_set_epoch
        self.group.adopt(SyncStateSet(sync_state_set=self.controllers.sync_state_set, sync_state_set_epoch=epoch))
        self._adopted(before)

    def work(self) -> None:
        """Replication hears of the next report."""
        if self._reports:
            self._reports.popleft()()

    def _adopted(self, before: SyncStateSet) -> None:
        if self.group.agreed is not before:
            self._reports.append(partial(self.replication.adopt, self.group.agreed, 0.0))


def try_joins(master: Master) -> None:
    """3, which is not alive, and 4 could join; each has a request."""
    for _ in range(2):
        master.join(3)
        master.join(4)
        master.copy()
        master.propose()
        master.send()
        master.refuse()
        master.work()


@pytest.mark.parametrize("strict", [True, False])
def test_a_joiner_that_is_not_alive_keeps_no_other_out(strict: bool) -> None:
    master = Master(strict=strict)
    try_joins(master)
    assert master.replication.members == {1, 2, 4}
    master.join(3)
    master.copy()
    master.propose()
    master.send()
    master.agree()
    master.work()
    assert master.replication.members == {1, 2, 3, 4}, "it has its turn when it is alive"


@pytest.mark.parametrize("strict", [True, False])
def test_nor_a_member_that_has_left_in(strict: bool) -> None:
    master = Master(strict=strict)
    master.controllers = make_group(ids=(1, 2, 3, 4), in_sync=(1, 2, 4), set_epoch=8)
    master.group.agreed = sync_set(1, 2, 4, epoch=8)
    assert master.replication.adopt(master.group.agreed, 0.0)
    master.join(3)
    master.copy()
    master.leave(4)
    master.propose()
    master.send()
    master.refuse()
    master.work()
    assert master.replication.members == {1, 2}


@pytest.mark.parametrize("strict", [True, False])
def test_nor_does_a_member_that_is_dead_to_java_controllers(strict: bool) -> None:
    """2 follows, without heartbeats. It leaves for the slave that joins, and joins again when it is alive."""
    master = Master(strict=strict)
    master.join(4)
    master.copy()
    for _ in range(2):
        master.propose()
        master.send()
        master.refuse_for_2()
        master.work()
    assert master.controllers.sync_state_set == master.replication.members == {1, 4}
    master.join(2)
    master.copy()
    master.propose()
    master.send()
    master.agree()
    master.work()
    assert master.replication.members == {1, 2, 4}


def test_nor_does_a_refusal_concern_a_slave_that_was_not_requested_yet() -> None:
    """The answer about 3 is late, and 4 has its turn meanwhile: it keeps it, and its tables."""
    master = Master(strict=True)
    master.join(3)
    master.join(4)
    master.copy()
    master.propose()
    master.send()
    for _ in range(2):
        master.propose()  # as from time to time
    master.refuse()
    master.work()
    master.send()
    master.refuse()
    master.work()
    assert master.replication.members == master.replication.union == {1, 2, 4}


def test_nor_under_controllers_that_cannot_renew_when_an_answer_was_lost() -> None:
    """Whether 3 was refused is not certain until the set changes."""
    master = Master(strict=True)
    master.join(3)
    master.join(4)
    master.copy()
    master.propose()
    master.send()
    master.lose_answer()
    master.send()
    master.refuse()
    master.send()
    master.refuse_to_renew()
    for _ in range(2):
        master.propose()  # as from time to time
    assert master.replication.union == {1, 2, 3, 4}
    master.send()
    master.refuse()
    master.work()
    assert master.replication.members == master.replication.union == {1, 2, 4}


STEPS: tuple[Callable[[Master], None], ...] = (
    Master.join,
    Master.leave,
    Master.join_2,
    Master.leave_2,
    Master.join_4,
    Master.leave_4,
    Master.copy,
    Master.propose,
    Master.send,
    Master.agree,
    Master.refuse,
    Master.refuse_for_2,
    Master.refuse_to_renew,
    Master.lose_answer,
    Master.arrive_late,
    Master.poll,
    Master.work,
)


@example([Master.join, Master.propose, Master.send, Master.refuse, Master.propose, Master.work, Master.send], False)
@given(st.lists(st.sampled_from(STEPS), max_size=60), st.booleans())
def test_a_master_waits_for_every_set_that_it_requests_and_that_may_be_agreed_to(
    steps: list[Callable[[Master], None]], strict: bool
) -> None:
    master = Master(strict=strict)
    for step in steps:
        step(master)
        assert master.controllers.sync_state_set <= master.replication.union
