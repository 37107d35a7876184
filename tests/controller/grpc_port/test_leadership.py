"""Who may answer through the gRPC door, what the others say, and how leadership is handed over."""

from collections.abc import Awaitable
from pathlib import Path

import grpc
import pytest
from grpc import aio

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_controller.ports import grpc_admin
from rocketmq_controller.raft import NotLeaderError, TransferError
from rocketmq_formats.codes import ResponseCode
from tests.controller.grpc_kit import LEADER, NAME, OTHER, REMOTING_PORTS, Door, code, open_door, refused


def _needs_leader(admin: ControllerAdminStub) -> list[Awaitable[object]]:
    return [
        admin.GetGroup(pb.GetGroupRequest(broker_name=NAME)),
        admin.ListGroups(pb.ListGroupsRequest()),
        admin.WatchGroups(pb.WatchGroupsRequest()).read(),
        admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME)),
        admin.CleanBrokerData(pb.CleanBrokerDataRequest(broker_name=NAME, whole_group=True)),
        admin.TransferLeadership(pb.TransferLeadershipRequest()),
    ]


async def test_a_follower_names_the_leader(door: Door, admin: ControllerAdminStub) -> None:
    door.replica.leader_id = OTHER
    distance = door.port - REMOTING_PORTS[LEADER]
    for call in _needs_leader(admin):
        status, details, metadata = await refused(call)
        assert status is grpc.StatusCode.FAILED_PRECONDITION
        assert details == "The controller is not in leader state"
        assert metadata == {
            **code(ResponseCode.CONTROLLER_NOT_LEADER),
            "rocketmq-leader": f"127.0.0.1:{REMOTING_PORTS[OTHER]}",
            "rocketmq-leader-grpc": f"127.0.0.1:{REMOTING_PORTS[OTHER] + distance}",
        }


@pytest.mark.parametrize("leader", [None, LEADER], ids=["nobody leads", "our lease is over"])
async def test_without_a_leader_none_is_named(door: Door, admin: ControllerAdminStub, leader: str | None) -> None:
    door.replica.leader_id, door.replica.lease = leader, False
    for call in _needs_leader(admin):
        assert (await refused(call))[::2] == (
            grpc.StatusCode.FAILED_PRECONDITION,
            code(ResponseCode.CONTROLLER_NOT_LEADER),
        )


async def test_reads_ask_the_quorum_where_configured(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, {"isProcessReadEvent": "true"}) as door,
        aio.insecure_channel(door.target) as channel,
    ):
        await door.make_group()
        admin = ControllerAdminStub(channel)
        await admin.GetGroup(pb.GetGroupRequest(broker_name=NAME))
        assert door.replica.barriers == 1
        door.replica.barrier_error = NotLeaderError(None)
        status, _, metadata = await refused(admin.ListGroups(pb.ListGroupsRequest()))
    assert status is grpc.StatusCode.FAILED_PRECONDITION
    assert metadata == code(ResponseCode.CONTROLLER_NOT_LEADER)


async def test_leadership_is_handed_over(door: Door, admin: ControllerAdminStub) -> None:
    assert (await admin.TransferLeadership(pb.TransferLeadershipRequest(target_id="n2"))).leader_id == "n2"


async def test_leadership_goes_to_a_member_that_can_take_it(door: Door, admin: ControllerAdminStub) -> None:
    assert (await admin.TransferLeadership(pb.TransferLeadershipRequest())).leader_id == OTHER


async def test_a_target_that_leads_already_is_fine(door: Door, admin: ControllerAdminStub) -> None:
    assert (await admin.TransferLeadership(pb.TransferLeadershipRequest(target_id=LEADER))).leader_id == LEADER


async def test_an_unknown_target_is_refused(door: Door, admin: ControllerAdminStub) -> None:
    status, details, _ = await refused(admin.TransferLeadership(pb.TransferLeadershipRequest(target_id="n9")))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "n0, n1, n2" in details


async def test_a_transfer_that_fails_is_aborted(door: Door, admin: ControllerAdminStub) -> None:
    door.replica.transfer_error = TransferError("n1 is too far behind")
    status, details, _ = await refused(admin.TransferLeadership(pb.TransferLeadershipRequest(target_id=OTHER)))
    assert (status, details) == (grpc.StatusCode.ABORTED, "n1 is too far behind")


async def test_another_member_than_the_target_took_over(
    door: Door, admin: ControllerAdminStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def misdirected(_target: str | None) -> None:
        door.replica.leader_id = OTHER

    monkeypatch.setattr(door.replica, "transfer_leadership", misdirected)
    status, details, metadata = await refused(admin.TransferLeadership(pb.TransferLeadershipRequest(target_id="n2")))
    assert (status, details) == (grpc.StatusCode.ABORTED, "n1 leads now, not n2")
    assert metadata["rocketmq-leader"] == f"127.0.0.1:{REMOTING_PORTS[OTHER]}"


async def test_no_member_takes_over_in_time(
    door: Door, admin: ControllerAdminStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_admin, "TRANSFER_TIMEOUT", 0.0)
    door.replica.new_leader = None
    status, _, _ = await refused(admin.TransferLeadership(pb.TransferLeadershipRequest()))
    assert status is grpc.StatusCode.DEADLINE_EXCEEDED
