"""Whom the broker of a new master asks for newer tables: once in each epoch, who lives by the controllers' answer."""

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import BrokerReplicasInfo, InSyncReplica, ReplicasInfo
from rocketmq_formats.replica_link import MAX_OTHERS, Others
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.other_members import OtherMembers
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot
from rocketmq_sidecar.domain.controllers.requests import Requests

LEADER = "10.0.1.1:9878"


def replica(broker_id: int, *, alive: bool = True, unheard: bool = False) -> InSyncReplica:
    address = f"10.0.0.{broker_id}:1"
    return InSyncReplica(alive=alive, broker_address=address, broker_id=broker_id, broker_name="b", unheard=unheard)


def answer(epoch: int, in_sync: list[InSyncReplica], outside: list[InSyncReplica]) -> RemotingCommand:
    info = ReplicasInfo(
        in_sync_replicas=in_sync, not_in_sync_replicas=outside, master_epoch=epoch, sync_state_set_epoch=1
    )
    body = encode_body(BrokerReplicasInfo(replicas_info_table={"b": info}))
    asked = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
    return response(asked, ResponseCode.SUCCESS, None, None, body)


def members_in(epoch: int, *, strict: bool = False) -> OtherMembers:
    group = GroupState()
    group.master_epoch = epoch
    slot = RequestSlot(patience=1.0, retry=0.5, retry_most=2.0)
    return OtherMembers(slot, group, Requests("c", "b"), "b", strict=strict)


def test_the_living_are_named_those_in_sync_first() -> None:
    members = members_in(2)
    said = answer(2, [replica(2), replica(3), replica(4, alive=False)], [replica(1), replica(5, alive=False)])
    assert members.on_answer(said, 2, 0.0) == Others(2, ("10.0.0.3:1", "10.0.0.1:1"))
    many = members.on_answer(answer(2, [replica(number) for number in range(1, 50)], []), 2, 0.0)
    assert many is not None
    assert len(many.addresses) == MAX_OTHERS


def test_a_member_that_a_new_leading_controller_has_not_heard_is_named_too() -> None:
    """It may have acted as master, and have offsets that no one else has. One that is dead costs a little patience."""
    members = members_in(2)
    said = answer(2, [replica(3, alive=False, unheard=True), replica(4, alive=False)], [replica(1)])
    assert members.on_answer(said, 2, 0.0) == Others(2, ("10.0.0.1:1", "10.0.0.3:1"))


def test_a_strict_master_asks_those_in_sync_only() -> None:
    """Another one may lack what was acknowledged, and have acted as master since: its table would seem newer."""
    members = members_in(2, strict=True)
    said = answer(2, [replica(2), replica(3), replica(4, alive=False)], [replica(1)])
    assert members.on_answer(said, 2, 0.0) == Others(2, ("10.0.0.3:1",))


def test_they_are_asked_for_once_in_each_epoch_that_is_not_served_yet() -> None:
    members = members_in(2)
    assert members.request(LEADER, 2, 0.0) is None
    assert members.request(LEADER, 1, 0.0) is not None
    assert members.on_answer(answer(1, [replica(3)], []), 2, 0.0) is None, (
        "of the epoch before: who is dead still lives"
    )
    assert members.request(LEADER, 1, 0.1) is None
    assert members.request(LEADER, 1, 0.5) is not None
    assert members.on_answer(answer(2, [replica(3)], []), 2, 0.6) is not None
    assert members.request(LEADER, 1, 9.0) is None
    members.forget()
    assert members.request(LEADER, 1, 9.0) is not None, "another process of the broker"


def test_an_answer_that_cannot_be_read_names_nobody() -> None:
    members = members_in(2)
    asked = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
    with pytest.raises(FormatError):
        members.on_answer(response(asked, ResponseCode.SUCCESS, None, None, b"[]"), 2, 0.0)
