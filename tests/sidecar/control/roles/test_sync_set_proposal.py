"""A set that a master proposes, and answers that are lost: what is refused must never be agreed to later."""

from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import AlterSyncStateSetRequestHeader, SyncStateSet
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot
from rocketmq_sidecar.domain.controllers.requests import Requests
from rocketmq_sidecar.domain.controllers.sync_set_proposal import SyncSetProposal
from tests.controller.domain.domain_kit import NAME, StaticView, make_group, settled, sync_set

LEADER = "10.0.1.1:9878"
ALL, WITHOUT_3 = StaticView({1, 2, 3}), StaticView({1, 2})


class Stage:
    """Replica 1 is master of epoch 4 and has the set {1, 2} of epoch 7; its requests arrive when the test says so."""

    def __init__(self) -> None:
        self.controllers: BrokerGroup = make_group(in_sync=(1, 2))
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
        decision = alter_sync_state_set(self.controllers, header, decode_body(SyncStateSet, asked.body), view)
        self.controllers = settled(self.controllers, decision)
        body = b"" if decision.body is None else encode_body(decision.body)
        command = request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
        return response(command, decision.code, decision.remark, decision.header, body)

    def refused(self, asked: Request, answer: RemotingCommand) -> bool:
        """Whether replication is told that the controllers refused."""
        assert self.slot.take(asked)
        return not self.proposal.accepted(answer) and self.proposal.certainly_refused(answer)


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
    stage.now = 9.0
    stage.want(1, 2, 3)
    returned = stage.ask()
    assert not stage.refused(returned, stage.arrive(returned, ALL, java=True))
    assert stage.group.agreed == sync_set(1, 2, 3, epoch=8)
    assert stage.arrive(late, ALL).code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED


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
