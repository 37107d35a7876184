"""The gRPC door as a service: health, reflection, bounds of messages, calls and connections, its port and its end."""

import asyncio
import struct
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_controller.ports.grpc_port import LIMITS, SERVICE
from rocketmq_runtime.grpc import server as grpc_server
from rocketmq_runtime.grpc.connection_shares import Connection, above_share
from rocketmq_runtime.grpc.host_quota import HostQuota, QuotaExceededError
from rocketmq_runtime.grpc.server import GrpcLimits
from rocketmq_sidecar.ports.grpc_port import LIMITS as SIDECAR_LIMITS
from tests.controller.grpc_kit import Door, open_door, refused

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


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


async def test_messages_are_bounded(door: Door, admin: ControllerAdminStub) -> None:
    too_long = pb.GetGroupRequest(broker_name="n" * (5 * 1024 * 1024))
    assert (await refused(admin.GetGroup(too_long)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_headers_are_bounded(admin: ControllerAdminStub) -> None:
    long = (("name", "v" * 9000),)
    assert (await refused(admin.GetMembers(pb.GetMembersRequest(), metadata=long)))[
        0
    ] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await admin.GetMembers(pb.GetMembersRequest(), metadata=(("name", "v" * 1000),))).leader_id


async def test_a_connection_is_told_how_many_rpcs_it_may_open(tmp_path: Path) -> None:
    async with open_door(tmp_path, limits=GrpcLimits(max_rpcs_of_host=7)) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        head = await reader.readexactly(9)
        settings = dict(struct.iter_unpack(">HL", await reader.readexactly(int.from_bytes(head[:3]))))
        writer.close()
    assert (head[3], settings[3]) == (4, 7), "SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113, 6.5.2)"


async def test_rpcs_are_bounded(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, limits=GrpcLimits(max_rpcs=1)) as door,
        aio.insecure_channel(door.target) as channel,
    ):
        admin = ControllerAdminStub(channel)
        watch = admin.WatchGroups(pb.WatchGroupsRequest())
        await watch.read()
        assert (await refused(admin.GetMembers(pb.GetMembersRequest())))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_rpcs_of_one_host_are_bounded_and_given_back(tmp_path: Path) -> None:
    """Whatever connection they come over; another host has its own share."""
    async with (
        open_door(tmp_path, limits=GrpcLimits(max_rpcs_of_host=2)) as door,
        aio.insecure_channel(door.target) as channel,
        aio.insecure_channel(door.target, options=(("grpc.use_local_subchannel_pool", 1),)) as another,
        aio.insecure_channel(door.target, options=(("grpc.use_local_subchannel_pool", 1),)) as third,
    ):
        admin, others, last = (ControllerAdminStub(one) for one in (channel, another, third))
        watches = [stub.WatchGroups(pb.WatchGroupsRequest()) for stub in (admin, others)]
        for watch in watches:
            await watch.read()
        code, text, *_ = await refused(last.GetMembers(pb.GetMembersRequest()))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "2 rpcs of this host" in text
        health = health_pb2_grpc.HealthStub(third)
        assert (await refused(health.Check(health_pb2.HealthCheckRequest())))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()
        async with asyncio.timeout(30):
            while await last.GetMembers(pb.GetMembersRequest()).code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                await asyncio.sleep(0.01)
        assert (await last.GetMembers(pb.GetMembersRequest())).leader_id


def test_shares_are_counted_by_host() -> None:
    quota = HostQuota(1)
    assert quota.acquire("ipv4:10.0.0.1:80") == "10.0.0.1"
    with pytest.raises(QuotaExceededError):
        quota.acquire("ipv4:10.0.0.1:81")
    assert quota.acquire("ipv4:10.0.0.2:80") == "10.0.0.2"
    six = quota.acquire("ipv6:%5B2001:db8::1%5D:80")
    with pytest.raises(QuotaExceededError):
        quota.acquire("ipv6:[2001:db8::2]:80")
    for host in ("10.0.0.1", "10.0.0.2", six):
        quota.release(host)
    assert len(quota) == 0


async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with open_door(tmp_path, limits=GrpcLimits(max_connections=2)) as door:
        open_ones = [await http2(door) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        assert await reader.read() == b""
        for _, open_writer in (*open_ones, (reader, writer)):
            open_writer.close()
            await open_writer.wait_closed()


async def test_one_host_does_not_keep_the_connections(tmp_path: Path) -> None:
    """Whether they call or not: those above a host's share are closed."""
    async with open_door(tmp_path, limits=GrpcLimits(max_connections=4, max_connections_of_host=2)) as door:
        held = [await http2(door) for _ in range(4)]
        with capture_logs() as lines:
            await door.api.server.shares.sweep()
        assert [line["closed"] for line in lines] == [2]
        ends = {asyncio.ensure_future(reader.read()) for reader, _ in held}
        while len(closed := {end for end in ends if end.done()}) < 2:
            await asyncio.wait(ends - closed, return_when=asyncio.FIRST_COMPLETED)
        _, other = await admitted(door, "127.0.0.2")
        await door.api.server.shares.sweep()
        assert len([end for end in ends if end.done()]) == 2
        for writer in (*(writer for _, writer in held), other):
            writer.close()
        await asyncio.gather(*ends)


def test_the_longest_silent_of_a_host_are_closed() -> None:
    addresses = ["10.0.0.1:80", "10.0.0.1:81", "[2001:db8::1]:80", "[2001:db8::2]:80", "[::ffff:10.0.0.1]:82"]
    found = [Connection(number, address, silent=number) for number, address in enumerate(addresses)]
    assert [one.descriptor for one in above_share(found, 1)] == [4, 1, 3]
    assert above_share(found, 3) == []


@pytest.mark.parametrize("limits", [LIMITS, SIDECAR_LIMITS], ids=["controller", "sidecar"])
def test_no_host_takes_more_than_a_quarter(limits: GrpcLimits) -> None:
    assert 4 * limits.max_rpcs_of_host <= limits.max_rpcs
    assert 4 * limits.max_connections_of_host <= limits.max_connections


async def http2(door: Door, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection from `host` that is in. Raises `IncompleteReadError` if the port has no room."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port, local_addr=(host, 0))
    try:
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3]))  # its settings
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def admitted(door: Door, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection from `host`, as soon as the port has room: gRPC notices later than a peer that one has ended."""
    async with asyncio.timeout(30):
        while True:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                return await http2(door, host)
            await asyncio.sleep(0.01)


async def test_silent_connections_make_room_for_others(tmp_path: Path) -> None:
    """Neither silent ones nor those that speak HTTP/2 and then ask nothing."""
    limits = GrpcLimits(max_connections=4, handshake_seconds=0.2, idle_seconds=0.2)
    async with open_door(tmp_path, limits=limits) as door:
        held = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(4)]
        for _, writer in held[2:]:
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        for reader, writer in held:
            await reader.read()  # until the other side ends it
            writer.close()
        async with aio.insecure_channel(door.target) as channel:
            await ControllerAdminStub(channel).GetMembers(pb.GetMembersRequest(), wait_for_ready=True)


@pytest.mark.parametrize("method", ["GetGroup", "WatchGroups", "Check", "Watch", "ServerReflectionInfo"])
async def test_requests_that_are_no_messages_are_refused_without_tracebacks(
    door: Door, channel: aio.Channel, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    names = {"Check": "grpc.health.v1.Health", "Watch": "grpc.health.v1.Health"}
    names["ServerReflectionInfo"] = "grpc.reflection.v1alpha.ServerReflection"
    path = f"/{names.get(method, SERVICE)}/{method}"
    for _ in range(20):
        if method == "ServerReflectionInfo":
            stream = channel.stream_stream(path)(iter([b"\xff\xff\xff"]))
            status = (await refused(stream.read()))[0]
        elif method in {"WatchGroups", "Watch"}:
            status = (await refused(channel.unary_stream(path)(b"\xff\xff\xff").read()))[0]
        else:
            status = (await refused(channel.unary_unary(path)(b"\xff\xff\xff")))[0]
        assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert not [record for record in caplog.records if record.exc_info or record.name.startswith("grpc")]


async def test_a_port_in_use_is_an_error(door: Door, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(door.port)):
        async with open_door(tmp_path, {"controllerGrpcPort": str(door.port)}):
            pass


async def test_stopping_ends_every_stream_at_once(
    door: Door, channel: aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "GRACE", 3600.0)
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
