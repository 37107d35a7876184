"""Reads through the gRPC door: groups as state and heartbeats say, lists, the quorum."""

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc import aio

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_controller.ports import grpc_admin
from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.grpc.server import GrpcLimits
from tests.controller.grpc_kit import LEADER, NAME, OTHER, REMOTING_PORTS, Door, address, code, open_door, refused


async def test_a_group_shows_state_and_heartbeats(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    door.heartbeat(2, epoch=3, max_offset=900, confirm_offset=800, election_priority=1)
    door.hang_up(3)

    group = (await admin.GetGroup(pb.GetGroupRequest(broker_name=NAME))).group

    assert (group.cluster_name, group.broker_name, group.next_broker_id) == ("C", NAME, 4)
    assert (group.master_broker_id, group.master_address) == (1, address(1))
    assert (group.master_epoch, group.sync_state_set_epoch) == (1, 1)
    first, second, third = group.replicas
    assert [replica.broker_id for replica in group.replicas] == [1, 2, 3]
    assert [replica.in_sync_state_set for replica in group.replicas] == [True, False, False]
    assert [replica.liveness for replica in group.replicas] == [pb.LIVENESS_ALIVE, pb.LIVENESS_ALIVE, pb.LIVENESS_DEAD]
    assert (second.epoch, second.max_offset, second.confirm_offset, second.election_priority) == (3, 900, 800, 1)
    assert not any(first.HasField(name) for name in ("epoch", "max_offset", "confirm_offset", "election_priority"))
    assert third.HasField("heartbeat_age_millis")


async def test_a_new_leader_reports_replicas_as_unknown(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    door.heartbeats._entries.clear()  # what another member's table is to us
    door.heartbeats.start_grace(asyncio.get_running_loop().time(), 60)

    group = (await admin.GetGroup(pb.GetGroupRequest(broker_name=NAME))).group

    assert {replica.liveness for replica in group.replicas} == {pb.LIVENESS_UNHEARD}
    assert not any(replica.HasField("heartbeat_age_millis") for replica in group.replicas)


async def test_a_group_without_master(door: Door, admin: ControllerAdminStub) -> None:
    await door.register(1)
    group = (await admin.GetGroup(pb.GetGroupRequest(broker_name=NAME))).group
    assert not group.HasField("master_broker_id")
    assert group.master_address == ""


async def test_an_unknown_group_is_not_found(admin: ControllerAdminStub) -> None:
    status, details, metadata = await refused(admin.GetGroup(pb.GetGroupRequest(broker_name="nobody")))
    assert status is grpc.StatusCode.NOT_FOUND
    assert "nobody" in details
    assert metadata == code(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)


async def test_groups_are_listed_by_name_and_by_cluster(door: Door, admin: ControllerAdminStub) -> None:
    for name, cluster in (("b", "C"), ("a", "D"), ("c", "C"), ("cleaned", "C")):
        await door.make_group(name, cluster)
    clean = pb.CleanBrokerDataRequest(broker_name="cleaned", whole_group=True, clean_living=True)
    await admin.CleanBrokerData(clean)

    everything = await admin.ListGroups(pb.ListGroupsRequest())
    one_cluster = await admin.ListGroups(pb.ListGroupsRequest(cluster_name="C"))

    assert [group.broker_name for group in everything.groups] == ["a", "b", "c"]
    assert [group.broker_name for group in one_cluster.groups] == ["b", "c"]


async def test_more_groups_than_one_turn_describes(
    door: Door, admin: ControllerAdminStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_admin, "SLICE", 2)
    names = [f"g{number}" for number in range(5)]
    for name in names:
        await door.register(1, name=name)
    listed = await admin.ListGroups(pb.ListGroupsRequest())
    assert [group.broker_name for group in listed.groups] == names


async def test_a_list_that_does_not_fit_a_message_is_refused(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, limits=GrpcLimits(max_message_bytes=100)) as door,
        aio.insecure_channel(door.target) as channel,
    ):
        await door.make_group()
        status, details, _ = await refused(ControllerAdminStub(channel).ListGroups(pb.ListGroupsRequest()))
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "WatchGroups" in details


async def test_the_quorum_as_this_member_sees_it(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    members = await admin.GetMembers(pb.GetMembersRequest())
    distance = door.port - REMOTING_PORTS[LEADER]
    assert (members.group, members.answered_by, members.leader_id) == ("DefaultControllerGroup", LEADER, LEADER)
    assert (members.term, members.commit_index, members.applied_index) == (7, 4, 4)
    assert [(member.id, member.is_leader, member.connected) for member in members.members] == [
        ("n0", True, True),
        ("n1", False, True),
        ("n2", False, False),
    ]
    assert [member.match_index for member in members.members] == [4, 4, 0]
    assert not members.members[2].HasField("match_index")
    assert members.members[1].address == f"127.0.0.1:{REMOTING_PORTS[OTHER]}"
    assert members.members[1].grpc_address == f"127.0.0.1:{REMOTING_PORTS[OTHER] + distance}"


async def test_every_member_reports_the_quorum(door: Door, admin: ControllerAdminStub) -> None:
    door.replica.leader_id = None
    members = await admin.GetMembers(pb.GetMembersRequest())
    assert members.leader_id == ""
    assert not any(member.is_leader for member in members.members)
