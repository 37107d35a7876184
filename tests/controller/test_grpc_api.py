"""The gRPC door, through real connections: every rpc, every refusal with its metadata, health, reflection, bounds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import grpc
import msgspec
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_controller import grpc_admin, grpc_api
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.grpc_api import SERVICE, GrpcLimits
from rocketmq_controller.raft import NotLeaderError, TransferError
from rocketmq_formats.remoting.codes import ResponseCode
from tests.controller.grpc_kit import LEADER, NAME, OTHER, REMOTING_PORTS, Door, address, open_door

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path) as opened:
        yield opened


@pytest.fixture
async def channel(door: Door) -> AsyncIterator[aio.Channel]:
    async with aio.insecure_channel(door.target) as opened:
        yield opened


@pytest.fixture
def admin(channel: aio.Channel) -> ControllerAdminStub:
    return ControllerAdminStub(channel)


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Status, details, and the trailing metadata of ours."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    error = caught.value
    metadata = {key: value for key, value in error.trailing_metadata() if key.startswith("rocketmq-")}
    return error.code(), error.details(), metadata


def code(number: ResponseCode) -> dict[str, str]:
    return {"rocketmq-code": str(int(number))}


# Reading


async def test_a_group_as_state_and_heartbeats_say(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    door.beat(2, epoch=3, max_offset=900, confirm_offset=800, election_priority=1)
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


async def test_a_new_leader_says_of_whom_it_has_not_heard_yet(door: Door, admin: ControllerAdminStub) -> None:
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


async def test_every_member_tells_the_quorum(door: Door, admin: ControllerAdminStub) -> None:
    door.replica.leader_id = None
    members = await admin.GetMembers(pb.GetMembersRequest())
    assert members.leader_id == ""
    assert not any(member.is_leader for member in members.members)


# Changing


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


async def test_nobody_can_be_elected(door: Door, admin: ControllerAdminStub) -> None:
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


async def test_electing_in_an_unknown_group_is_not_found(admin: ControllerAdminStub) -> None:
    status, _, metadata = await refused(admin.ElectMaster(pb.ElectMasterRequest(broker_name="nobody")))
    assert status is grpc.StatusCode.NOT_FOUND
    assert metadata == code(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED)


async def test_an_election_goes_on_when_its_client_has_gone(door: Door, admin: ControllerAdminStub) -> None:
    await door.register(1)
    door.replica.hold = []
    call = admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME, broker_id=1))
    while not door.replica.hold:
        await admin.GetMembers(pb.GetMembersRequest())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    told: list[str | None] = []
    notifier = door.elections._notifier
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
async def test_cleaning_says_plainly_what(
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


# Leadership


def _needs_leader(admin: ControllerAdminStub) -> list[Awaitable[object]]:
    return [
        admin.GetGroup(pb.GetGroupRequest(broker_name=NAME)),
        admin.ListGroups(pb.ListGroupsRequest()),
        admin.WatchGroups(pb.WatchGroupsRequest()).read(),
        admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME)),
        admin.CleanBrokerData(pb.CleanBrokerDataRequest(broker_name=NAME, whole_group=True)),
        admin.TransferLeadership(pb.TransferLeadershipRequest()),
    ]


async def test_a_member_that_does_not_lead_says_who_does(door: Door, admin: ControllerAdminStub) -> None:
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
async def test_without_a_leader_nobody_is_named(door: Door, admin: ControllerAdminStub, leader: str | None) -> None:
    door.replica.leader_id, door.replica.lease = leader, False
    for call in _needs_leader(admin):
        assert (await refused(call))[::2] == (
            grpc.StatusCode.FAILED_PRECONDITION,
            code(ResponseCode.CONTROLLER_NOT_LEADER),
        )


async def test_reads_ask_the_quorum_where_told_to(tmp_path: Path) -> None:
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


async def test_leadership_goes_to_whoever_can_take_it(door: Door, admin: ControllerAdminStub) -> None:
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


async def test_nobody_takes_over_in_time(
    door: Door, admin: ControllerAdminStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_admin, "TRANSFER_TIMEOUT", 0.0)
    door.replica.new_leader = None
    status, _, _ = await refused(admin.TransferLeadership(pb.TransferLeadershipRequest()))
    assert status is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_an_outcome_that_nobody_knows_is_aborted(door: Door, admin: ControllerAdminStub) -> None:
    await door.register(1)
    door.replica.hold = []
    call = admin.ElectMaster(pb.ElectMasterRequest(broker_name=NAME, broker_id=1))
    while not door.replica.hold:
        await admin.GetMembers(pb.GetMembersRequest())
    door.replica.hold[0][1].set_exception(NotLeaderError(OTHER))
    status, details, metadata = await refused(call)
    assert status is grpc.StatusCode.ABORTED
    assert "look whether it took effect" in details
    assert metadata == code(ResponseCode.SYSTEM_ERROR)


# Health and reflection


@pytest.mark.parametrize("name", ["", SERVICE])
async def test_health_is_readiness(door: Door, channel: aio.Channel, name: str) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=name)
    door.api.refresh()
    watch = health.Watch(request)
    assert (await health.Check(request)).status == SERVING
    assert (await watch.read()).status == SERVING
    door.trouble = "no leader"
    door.api.refresh()
    assert (await health.Check(request)).status == NOT_SERVING
    assert (await watch.read()).status == NOT_SERVING
    listed = await health.List(health_pb2.HealthListRequest())
    assert {service: answer.status for service, answer in listed.statuses.items()} == {
        "": NOT_SERVING,
        SERVICE: NOT_SERVING,
    }


async def test_health_of_unknown_services(channel: aio.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="nothing")
    assert (await refused(health.Check(request)))[0] is grpc.StatusCode.NOT_FOUND
    assert (await health.Watch(request).read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_the_services_describe_themselves(channel: aio.Channel) -> None:
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = reflection.ServerReflectionInfo(
        iter(
            [
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
            ]
        )
    )
    listed, file = [answer async for answer in call]
    assert {service.name for service in listed.list_services_response.service} == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert b"TransferLeadership" in file.file_descriptor_response.file_descriptor_proto[0]


# Bounds and the port


async def test_messages_are_bounded(door: Door, admin: ControllerAdminStub) -> None:
    too_long = pb.GetGroupRequest(broker_name="n" * (5 * 1024 * 1024))
    assert (await refused(admin.GetGroup(too_long)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_rpcs_are_bounded(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, limits=GrpcLimits(max_rpcs=1)) as door,
        aio.insecure_channel(door.target) as channel,
    ):
        admin = ControllerAdminStub(channel)
        watch = admin.WatchGroups(pb.WatchGroupsRequest())
        await watch.read()
        assert (await refused(admin.GetMembers(pb.GetMembersRequest())))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with open_door(tmp_path, limits=GrpcLimits(max_connections=2)) as door:
        open_ones = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(2)]
        for reader, writer in open_ones:
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            assert await reader.readexactly(9)  # its settings: it is in
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        assert await reader.read() == b""
        for _, open_writer in (*open_ones, (reader, writer)):
            open_writer.close()
            await open_writer.wait_closed()


async def test_a_port_in_use_is_an_error(door: Door, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(door.port)):
        async with open_door(tmp_path, {"controllerGrpcPort": str(door.port)}):
            pass


async def test_stopping_ends_every_stream_at_once(
    door: Door, channel: aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_api, "GRACE", 3600.0)
    door.api.refresh()
    watch = ControllerAdminStub(channel).WatchGroups(pb.WatchGroupsRequest())
    await watch.read()
    health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert (await health.read()).status == SERVING
    await door.api.stop()
    assert (await refused(watch.read()))[0] is grpc.StatusCode.UNAVAILABLE
    assert (await health.read()).status == NOT_SERVING
    assert await health.code() is grpc.StatusCode.OK


async def test_stopping_twice_or_before_the_start_is_harmless(tmp_path: Path) -> None:
    door = Door(tmp_path, {}, GrpcLimits())
    await door.api.stop()
    await door.api.stop()


def _in_sync(door: Door, *ids: int) -> BrokerGroup:
    return msgspec.structs.replace(door.machine.groups[NAME], sync_state_set=frozenset(ids))
