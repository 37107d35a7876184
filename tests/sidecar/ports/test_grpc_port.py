"""The sidecar's gRPC door before any replica, with the client of operator and plugin: values, refusals, limits."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rocketmq_api import sidecar_admin_pb2 as pb
from rocketmq_api.channels import AbortedError, NoAnswerError, RefusedError
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.replica_view import EpochRange, NewMaster, ReplicaRole, ReplicaView
from rocketmq_api.sidecar_admin_pb2_grpc import SidecarAdminStub
from rocketmq_api.sidecars import SidecarClient, view_of
from rocketmq_runtime.config.settings import SettingsError, build_settings
from rocketmq_sidecar.ports.grpc_port import make_grpc_server, message_of
from rocketmq_sidecar.ports.late_grpc_port import LateGrpcPort
from rocketmq_sidecar.ports.replica_admin import (
    NotDoneError,
    NotNowError,
    ReplicaAdminError,
    StartingError,
    UnderWayError,
)
from rocketmq_sidecar.settings import SidecarSettings
from tests.controller.grpc_kit import Authority
from tests.ports import free_ports

HOST = "127.0.0.1"
FULL = ReplicaView(
    cluster_name="C",
    broker_name="broker-a",
    broker_id=2,
    role=ReplicaRole.MASTER,
    master_broker_id=2,
    master_epoch=7,
    sync_state_set=(1, 2),
    sync_state_set_epoch=11,
    max_offset=1000,
    confirm_offset=900,
    min_offset=100,
    epochs=(EpochRange(3, 0, 500), EpochRange(7, 500, 1000)),
    fenced=True,
    fence_reason="because",
    fenced_at_millis=1_763_712_345_678,
    broker_connected=True,
    ready_reason="becoming master",
    version="1",
    address="10.0.0.1:10911",
    acting_master=True,
    remark="settings differ",
)


class Admin:
    """A replica that does what the test says."""

    def __init__(self) -> None:
        self.view = FULL
        self.error: ReplicaAdminError | None = None
        self.asked: list[tuple[object, ...]] = []

    def get_replica(self) -> ReplicaView:
        return self.view

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        self.asked.append((fenced, reason))
        if self.error is not None:
            raise self.error
        return self.view

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        self.asked.append((broker_id, seconds))
        if self.error is not None:
            raise self.error
        return NewMaster(3, 8)


def settings(port: int, **keys: str) -> SidecarSettings:
    values = {
        "controllerAddr": "127.0.0.1:1",
        "bindAddress": HOST,
        "sidecarGrpcPort": str(port),
        "brokerName": "a",
        **keys,
    }
    return build_settings(SidecarSettings, values).settings


@asynccontextmanager
async def opened(admin: Admin, ready: Callable[[], str | None] = lambda: None, **keys: str) -> AsyncIterator[str]:
    (port,) = free_ports(1)
    door = make_grpc_server(settings(port, **keys), admin, ready)
    await door.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        await door.stop()


@pytest.mark.parametrize("view", [FULL, ReplicaView(cluster_name="C", broker_name="a")])
def test_a_view_goes_there_and_back(view: ReplicaView) -> None:
    assert view_of(message_of(view)) == view


def test_a_role_of_a_later_release() -> None:
    replica = message_of(FULL)
    replica.role = 99  # type: ignore[assignment]  # open enum
    assert view_of(replica).role is ReplicaRole.UNKNOWN


async def test_every_call() -> None:
    admin = Admin()
    async with opened(admin) as address, SidecarClient(address) as client:
        assert await client.get_replica() == FULL
        assert await client.set_fenced(True, "because") == FULL
        await client.set_fenced(False)
        assert await client.hand_over(3, seconds=0.5) == NewMaster(3, 8)
        await client.hand_over()
    assert admin.asked == [(True, "because"), (False, ""), (3, 0.5), (None, 5.0)]


@pytest.mark.parametrize(
    ("error", "expected", "status"),
    [
        (NotNowError("why"), RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
        (UnderWayError("why"), RefusedError, grpc.StatusCode.ALREADY_EXISTS),
        (NotDoneError("why"), AbortedError, grpc.StatusCode.ABORTED),
        (StartingError("why"), NoAnswerError, grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_refusals(error: ReplicaAdminError, expected: type[Exception], status: grpc.StatusCode) -> None:
    admin = Admin()
    admin.error = error
    async with opened(admin) as address, SidecarClient(address) as client:
        with pytest.raises(expected, match="why") as caught:
            await client.hand_over()
        assert caught.value.status is status  # type: ignore[attr-defined]
        with pytest.raises(expected, match="why"):
            await client.set_fenced(True, "because")


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (pb.SetFencedRequest(fenced=True), "reason"),
        (pb.SetFencedRequest(fenced=True, reason="   "), "reason"),
        (pb.SetFencedRequest(fenced=True, reason="ä" * 600), "1024 bytes"),
        (pb.HandOverRequest(broker_id=0), "broker_id"),
        (pb.HandOverRequest(broker_id=-1), "broker_id"),
        (pb.HandOverRequest(timeout_millis=99), "timeout_millis"),
        (pb.HandOverRequest(timeout_millis=60_001), "timeout_millis"),
        (pb.HandOverRequest(timeout_millis=-1), "timeout_millis"),
    ],
)
async def test_what_is_wrong_in_itself(request_: pb.SetFencedRequest | pb.HandOverRequest, says: str) -> None:
    admin = Admin()
    async with opened(admin) as address, aio.insecure_channel(address) as channel:
        stub = SidecarAdminStub(channel)
        with pytest.raises(aio.AioRpcError, match=says) as caught:
            await (stub.SetFenced(request_) if isinstance(request_, pb.SetFencedRequest) else stub.HandOver(request_))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert admin.asked == []


@pytest.mark.parametrize("ready", [None, "the group has no master"])
async def test_health_follows_readyz(ready: str | None) -> None:
    async with opened(Admin(), lambda: ready) as address, aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    serving = health_pb2.HealthCheckResponse.SERVING if ready is None else health_pb2.HealthCheckResponse.NOT_SERVING
    assert answer.status == serving


async def test_mutual_tls(tmp_path: Path) -> None:
    authority, wrong_group = Authority(tmp_path, "authority"), Authority(tmp_path, "wrong_group")
    cert, key = authority.issue("server")
    keys = {
        "sidecarGrpcTlsCertFile": str(cert),
        "sidecarGrpcTlsKeyFile": str(key),
        "sidecarGrpcTlsCaFile": str(authority.cert),
    }

    def tls(issuer: Authority) -> ClientTls:
        own_cert, own_key = issuer.issue("operator")
        return ClientTls(cert_file=str(own_cert), key_file=str(own_key), ca_file=str(authority.cert))

    async with opened(Admin(), **keys) as address:
        async with SidecarClient(address, tls=tls(authority)) as client:
            assert await client.get_replica() == FULL
        for refused in (tls(wrong_group), None):
            async with SidecarClient(address, tls=refused, timeout=3.0) as client:
                with pytest.raises(NoAnswerError):
                    await client.get_replica()


async def test_no_replica_there() -> None:
    (port,) = free_ports(1)
    async with SidecarClient(f"{HOST}:{port}", timeout=2.0) as client:
        with pytest.raises(NoAnswerError, match=str(port)):
            await client.get_replica()


async def test_files_that_cannot_be_used_name_the_key(tmp_path: Path) -> None:
    keys = {f"sidecarGrpcTls{name}File": str(tmp_path / name) for name in ("Cert", "Key", "Ca")}
    with pytest.raises(SettingsError, match="sidecarGrpcTlsCertFile"):
        make_grpc_server(settings(1, **keys), Admin(), lambda: None)


def test_one_file_alone_is_refused() -> None:
    with pytest.raises(SettingsError, match="go together"):
        settings(1, sidecarGrpcTlsCertFile="cert.pem")


async def test_a_late_door_opens_also_while_nothing_is_ready() -> None:
    (port,) = free_ports(1)
    door = LateGrpcPort(settings(port), Admin(), lambda: "identity refused")
    await door.open()
    try:
        async with SidecarClient(f"{HOST}:{port}") as client:
            assert (await client.get_replica()).broker_id == 2
        with pytest.raises(OSError, match=str(port)):
            await LateGrpcPort(settings(port), Admin(), lambda: None).open()
    finally:
        await door.close()


async def test_port_0_stays_closed() -> None:
    door = LateGrpcPort(settings(0), Admin(), lambda: None)
    await door.open()
    await door.close()
