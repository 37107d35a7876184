"""Changing the members over gRPC: what is passed on, and how each refusal looks."""

import grpc
import msgspec
import pytest

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_controller.raft import (
    AddMember,
    ChangePendingError,
    MemberExistsError,
    MembershipError,
    NotLeaderError,
    ProposalLostError,
    QuorumAtRiskError,
    RemoveMember,
    UnknownMemberError,
)
from rocketmq_controller.raft.configuration import Member
from tests.controller.grpc_kit import OTHER, Door, refused


async def test_changes_are_passed_on_with_the_raft_port(door: Door, admin: ControllerAdminStub) -> None:
    await admin.AddMember(pb.AddMemberRequest(id="n3", address="[::1]:9878"))
    await admin.RemoveMember(pb.RemoveMemberRequest(id="n2"))
    assert door.replica.changes == [AddMember("n3", "::1", 9879), RemoveMember("n2")]


@pytest.mark.parametrize(
    ("member", "address"),
    [("", "h:1"), ("n" * 101, "h:1"), ("n-3", "h:1"), ("n;3", "h:1"), ("n3", "h"), ("n3", ""), ("n3", "h:99999")],
)
async def test_what_cannot_stand_in_a_configuration_is_refused(
    door: Door, admin: ControllerAdminStub, member: str, address: str
) -> None:
    call = admin.AddMember(pb.AddMemberRequest(id=member, address=address))
    assert (await refused(call))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert door.replica.changes == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotLeaderError(OTHER), grpc.StatusCode.FAILED_PRECONDITION),
        (ChangePendingError("wait"), grpc.StatusCode.UNAVAILABLE),
        (MemberExistsError("there"), grpc.StatusCode.ALREADY_EXISTS),
        (UnknownMemberError("who"), grpc.StatusCode.NOT_FOUND),
        (QuorumAtRiskError("no"), grpc.StatusCode.FAILED_PRECONDITION),
        (MembershipError("no"), grpc.StatusCode.FAILED_PRECONDITION),
        (ProposalLostError("?"), grpc.StatusCode.ABORTED),
    ],
)
async def test_refusals(door: Door, admin: ControllerAdminStub, error: Exception, status: grpc.StatusCode) -> None:
    door.replica.change_error = error
    assert (await refused(admin.AddMember(pb.AddMemberRequest(id="n3", address="h:1"))))[0] is status
    assert (await refused(admin.RemoveMember(pb.RemoveMemberRequest(id="n1"))))[0] is status


async def test_members_are_those_of_the_log(door: Door, admin: ControllerAdminStub) -> None:
    members = (Member("n0", "127.0.0.1", 29879), Member("n7", "elsewhere", 9879, voter=False))
    door.replica.configuration = msgspec.structs.replace(door.replica.configuration, index=9, members=members)
    answer = await admin.GetMembers(pb.GetMembersRequest())
    assert [(m.id, m.address, m.role) for m in answer.members] == [
        ("n0", "127.0.0.1:29878", pb.MEMBER_ROLE_VOTER),
        ("n7", "elsewhere:9878", pb.MEMBER_ROLE_LEARNER),
    ]
    assert answer.members_index == 9
