"""Elections and cleaning through the gRPC door: answered once committed, refused with a code and a reason."""

import asyncio

import grpc
import msgspec
import pytest

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.raft import NotLeaderError
from rocketmq_formats.codes import ResponseCode
from tests.controller.grpc_kit import NAME, OTHER, Door, address, code, refused


async def test_an_election_returns_what_it_led_to_once_committed(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    await door.make_group("other")
    door.machine._groups[NAME] = _in_sync(door, 1, 2)
    door.replica.hold = []
    call = admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME, broker_id=2))
    # Another rpc, sent later and answered: the first has been taken, and waits.
    while not door.replica.hold:
        await admin.GetGroup(pb.GetGroupRequest(broker_name="other"))
    assert not call.done()
    door.replica.release()
    answer = await call

    assert answer.elected
    assert (answer.group.master_broker_id, answer.group.master_epoch) == (2, 2)


async def test_electing_the_master_again_changes_nothing(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    for request in (
        pb.ElectMasterRequest(broker_name=NAME),
        pb.ElectMasterRequest(broker_name=NAME, broker_id=1),
    ):
        answer = await admin.ElectMaster(request)
        assert not answer.elected
        assert (answer.group.master_broker_id, answer.group.master_epoch) == (1, 1)


async def test_no_replica_can_be_elected(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    named = await refused(admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME, broker_id=2)))
    door.hang_up(1)
    unnamed = await refused(admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME)))
    assert named == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "Failed to elect a new master",
        code(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED),
    )
    assert unnamed[0] is grpc.StatusCode.FAILED_PRECONDITION
    assert unnamed[2] == code(ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE)


async def test_an_unclean_election_is_for_one_call_and_for_a_lost_sync_state_set(
    door: Door, admin: ControllerAdminStub
) -> None:
    await door.make_group()
    request = pb.ElectMasterRequest(broker_name=NAME, broker_id=2, allow_unclean=True)
    while_the_master_lives = await refused(admin.ElectMaster(request))
    assert while_the_master_lives[0] is grpc.StatusCode.FAILED_PRECONDITION

    door.hang_up(1)
    answer = await admin.ElectMaster(request)
    assert answer.elected
    assert answer.group.master_broker_id == 2

    door.hang_up(2)
    afterwards = await refused(admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME, broker_id=3)))
    assert afterwards[0] is grpc.StatusCode.FAILED_PRECONDITION


async def test_electing_in_an_unknown_group_is_not_found(admin: ControllerAdminStub) -> None:
    status, _, metadata = await refused(admin.ElectMaster(pb.ElectMasterRequest(broker_name="nobody")))
    assert status is grpc.StatusCode.NOT_FOUND
    assert metadata == code(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED)


async def test_an_election_continues_when_its_client_disconnects(door: Door, admin: ControllerAdminStub) -> None:
    call = await held_election(door, admin)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    told: list[str | None] = []
    notifier = door.failover._notifier
    notifier.announce = lambda announcement, _: told.append(announcement.header.master_address)  # type: ignore[method-assign]
    await admin.GetMembers(pb.GetMembersRequest())
    door.replica.release()
    while not told:
        await admin.GetMembers(pb.GetMembersRequest())
    assert told == [address(1)]
    assert door.machine.groups[NAME].master_broker_id == 1


async def test_replicas_and_groups_are_forgotten(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    door.hang_up(3)
    await admin.CleanBrokerData(pb.CleanBrokerDataRequest(broker_name=NAME, broker_ids=[3]))
    assert sorted(door.machine.groups[NAME].replicas) == [1, 2]
    whole = pb.CleanBrokerDataRequest(broker_name=NAME, whole_group=True)
    status, details, metadata = await refused(admin.CleanBrokerData(whole))
    assert status is grpc.StatusCode.FAILED_PRECONDITION
    assert "still alive" in details
    assert metadata == code(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA)
    whole.clean_living = True
    await admin.CleanBrokerData(whole)
    assert (await refused(admin.GetGroup(pb.GetGroupRequest(broker_name=NAME))))[0] is grpc.StatusCode.NOT_FOUND
    assert (await refused(admin.CleanBrokerData(whole)))[0] is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "request_",
    [
        pb.CleanBrokerDataRequest(broker_name=NAME),
        pb.CleanBrokerDataRequest(broker_name=NAME, broker_ids=[1], whole_group=True),
        pb.CleanBrokerDataRequest(broker_name=NAME, broker_ids=[1, 0]),
        pb.CleanBrokerDataRequest(broker_name=NAME, broker_ids=range(1, 1002)),
    ],
    ids=["nothing named", "both named", "no id", "too many"],
)
async def test_cleaning_names_what_it_removes(
    door: Door, admin: ControllerAdminStub, request_: pb.CleanBrokerDataRequest
) -> None:
    await door.make_group()
    assert (await refused(admin.CleanBrokerData(request_)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert len(door.machine.groups[NAME].replicas) == 3


@pytest.mark.parametrize("name", ["", "n" * 256, "n" * 10_000])
async def test_bad_names_are_refused(admin: ControllerAdminStub, name: str) -> None:
    calls = [
        admin.GetGroup(pb.GetGroupRequest(broker_name=name)),
        admin.ElectMaster(pb.ElectMasterRequest(broker_name=name)),
        admin.CleanBrokerData(pb.CleanBrokerDataRequest(broker_name=name, whole_group=True)),
    ]
    if name:  # empty means all
        calls.append(admin.ListGroups(pb.ListGroupsRequest(cluster_name=name)))
        calls.append(admin.WatchGroups(pb.WatchGroupsRequest(broker_name=name)).read())
    for call in calls:
        assert (await refused(call))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_ids_below_the_first_are_refused(admin: ControllerAdminStub) -> None:
    for broker_id in (-1, 0):
        call = admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME, broker_id=broker_id))
        assert (await refused(call))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_unknown_outcome_is_aborted(door: Door, admin: ControllerAdminStub) -> None:
    call = await held_election(door, admin)
    door.replica.hold[0][1].set_exception(NotLeaderError(OTHER))
    status, details, metadata = await refused(call)
    assert status is grpc.StatusCode.ABORTED
    assert "look whether it took effect" in details
    assert metadata == code(ResponseCode.SYSTEM_ERROR)


async def held_election(
    door: Door, admin: ControllerAdminStub
) -> grpc.aio.UnaryUnaryCall[pb.ElectMasterRequest, pb.ElectMasterResponse]:
    """The call that elects broker 1, which is proposed and waits to be committed."""
    await door.register(1)
    door.replica.hold = []
    call = admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME, broker_id=1))
    while not door.replica.hold:
        await admin.GetMembers(pb.GetMembersRequest())
    return call


def _in_sync(door: Door, *ids: int) -> BrokerGroup:
    return msgspec.structs.replace(door.machine.groups[NAME], sync_state_set=frozenset(ids))
