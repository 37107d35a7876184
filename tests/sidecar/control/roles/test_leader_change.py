"""Another controller begins to lead: what the one before it answers late extends no write lease."""

import pytest

from rocketmq_formats.broker_identity import BrokerIdentity
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import Body, encode_body
from rocketmq_formats.remoting.command import request, response
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetResponseHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import Header
from rocketmq_sidecar.domain.actions import Actions, Heartbeat, Request
from rocketmq_sidecar.domain.controllers.session import ControllerSession
from rocketmq_sidecar.domain.options import Options, Timing

C1, C2 = "10.0.1.1:9878", "10.0.1.2:9878"
OWN, EPOCH = "10.0.0.1:10911", 4
POLL = RequestCode.CONTROLLER_GET_REPLICA_INFO
ALTER = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
ELECT = RequestCode.CONTROLLER_ELECT_MASTER
LEASE = Timing().lease


def agreed(epoch: int, *members: int) -> SyncStateSet:
    return SyncStateSet(sync_state_set=frozenset(members), sync_state_set_epoch=epoch)


class Master:
    """The session of replica 1, which C1 has just named as master of `EPOCH`; every answer comes when the test says."""

    def __init__(self, *, relaxed: bool = False) -> None:
        options = Options(cluster_name="C", broker_name="broker-a", controllers=(C1, C2), relaxed=relaxed)
        self.session = ControllerSession(options, identity=BrokerIdentity("C", "broker-a", 1), applied=None)
        self.session.open(OWN)
        self.now = 10.0
        self._quorum: dict[str, Request] = {}
        self.lead(C1)
        registered = RegisterBrokerToControllerResponseHeader(
            master_broker_id=1, master_address=OWN, master_epoch=EPOCH
        )
        self.answer(self.ask(RequestCode.CONTROLLER_REGISTER_BROKER), registered, agreed(7, 1, 2))

    def turn(self) -> Actions:
        """What is due, a second later."""
        self.now += 1.0
        self.session.settle(self.now)
        actions = self.session.next(EPOCH)
        asked = requests(actions, RequestCode.CONTROLLER_GET_METADATA_INFO)
        self._quorum.update((one.address, one) for one in asked)
        return actions

    def ask(self, code: RequestCode) -> Request:
        """The request that is due."""
        (asked,) = requests(self.turn(), code)
        return asked

    def answer(self, asked: Request, header: Header, body: Body | None = None) -> None:
        command = request(asked.code, asked.header, asked.body)
        encoded = b"" if body is None else encode_body(body)
        self.session.on_answer(asked, response(command, ResponseCode.SUCCESS, None, header, encoded), self.now)

    def name(self, asked: Request) -> None:
        """The controller that was asked names this replica, and agrees to what it asked for."""
        if asked.code is ELECT:
            header = ElectMasterResponseHeader(
                master_broker_id=1, master_address=OWN, master_epoch=EPOCH, sync_state_set_epoch=7
            )
            self.answer(asked, header, ElectMasterResponseBody(sync_state_set=frozenset({1, 2})))
        elif asked.code is ALTER:
            self.answer(asked, AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=8), agreed(8, 1, 2, 3))
        else:
            named = GetReplicaInfoResponseHeader(master_broker_id=1, master_address=OWN, master_epoch=EPOCH)
            self.answer(asked, named, agreed(7, 1, 2))

    def lead(self, address: str) -> None:
        """The present leader, if there is one, does not answer, and `address` is found to lead."""
        if self.session.finder.leader is not None:
            self.session.on_heartbeat(self.session.finder.leader, self.now, accepted=False)
        self.turn()
        self.answer(self._quorum.pop(address), GetMetaDataResponseHeader(is_leader=True))
        assert self.session.finder.leader == address

    def beat(self) -> float:
        """When the heartbeat that is due was sent."""
        return sent_at(self.turn())


def requests(actions: Actions, *codes: RequestCode) -> list[Request]:
    return [one for one in actions if isinstance(one, Request) and one.code in codes]


def sent_at(actions: Actions) -> float:
    (sent,) = (one.sent_at for one in actions if isinstance(one, Heartbeat))
    return sent


@pytest.mark.parametrize("leaders", [(C2,), (C2, C1)], ids=["another leads", "it leads again"])
def test_only_the_present_leader_confirms_the_lease(leaders: tuple[str, ...]) -> None:
    master = Master()
    session = master.session
    session.on_proposal(agreed(7, 1, 2, 3))
    late = requests(master.turn(), POLL, ALTER)
    assert len(late) == 2
    for leader in leaders:
        master.lead(leader)
        master.turn()
    session.on_heartbeat(leader, late[0].sent_at, accepted=True)
    before = session.lease_until
    for asked in late:
        master.name(asked)
        assert session.lease_until == before, "another may have been elected before the heartbeat was accepted"
    actions = master.turn()
    session.on_heartbeat(leader, sent_at(actions), accepted=True)
    assert session.lease_until == before
    (asked,) = requests(actions, POLL)
    master.name(asked)
    assert session.lease_until == sent_at(actions) + LEASE


def test_only_the_present_leader_ends_the_suspension_of_a_lease() -> None:
    master = Master(relaxed=True)
    session = master.session
    session.designate((2,))
    master.turn()
    session.designate(())
    session.on_heartbeat(C1, master.beat(), accepted=True)
    late = master.ask(ELECT)
    master.lead(C2)
    master.name(late)
    assert session.lease_suspended, "the new leader may still elect what an earlier request designates"
    session.on_heartbeat(C2, master.beat(), accepted=True)
    master.name(master.ask(ELECT))
    assert not session.lease_suspended
