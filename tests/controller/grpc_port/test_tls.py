"""Mutual TLS on the gRPC port: accepted clients, errors of unusable files, certificates replaced while running."""

from pathlib import Path

import grpc
import pytest
from grpc import aio

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.grpc.server import GrpcLimits
from tests.controller.grpc_kit import Authority, Door, open_door


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def keys(authority: Authority, name: str = "server") -> dict[str, str]:
    cert, key = authority.issue(name)
    return {
        "controllerGrpcTlsCertFile": str(cert),
        "controllerGrpcTlsKeyFile": str(key),
        "controllerGrpcTlsCaFile": str(authority.cert),
    }


def client(authority: Authority, issued: tuple[Path, Path] | None) -> grpc.ChannelCredentials:
    cert, key = (None, None) if issued is None else (path.read_bytes() for path in issued)
    return grpc.ssl_channel_credentials(authority.cert.read_bytes(), key, cert)


async def ask(door: Door, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    """How GetMembers ends over a new connection."""
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    channel = (
        aio.insecure_channel(door.target, options)
        if credentials is None
        else aio.secure_channel(door.target, credentials, options)
    )
    async with channel:
        call = ControllerAdminStub(channel).GetMembers(pb.GetMembersRequest())
        return await call.code()


async def test_both_sides_need_a_certificate_of_the_authority(tmp_path: Path, authority: Authority) -> None:
    strangers = Authority(tmp_path, "strangers")
    async with open_door(tmp_path, keys(authority)) as door:
        assert await ask(door, client(authority, authority.issue("operator"))) is grpc.StatusCode.OK
        assert await ask(door, client(authority, None)) is grpc.StatusCode.UNAVAILABLE
        assert await ask(door, client(authority, strangers.issue("stranger"))) is grpc.StatusCode.UNAVAILABLE
        assert await ask(door, client(strangers, authority.issue("operator"))) is grpc.StatusCode.UNAVAILABLE
        assert await ask(door, None) is grpc.StatusCode.UNAVAILABLE


async def test_certificates_are_replaced_while_running(tmp_path: Path, authority: Authority) -> None:
    successor = Authority(tmp_path, "successor")
    files = keys(authority)
    old, new = client(authority, authority.issue("old")), client(successor, successor.issue("new"))
    async with open_door(tmp_path, files) as door:
        assert await ask(door, old) is grpc.StatusCode.OK
        assert await ask(door, new) is grpc.StatusCode.UNAVAILABLE
        successor.issue("server")
        authority.cert.write_bytes(successor.cert.read_bytes())
        assert await ask(door, new) is grpc.StatusCode.OK
        assert await ask(door, old) is grpc.StatusCode.UNAVAILABLE
        Path(files["controllerGrpcTlsCertFile"]).write_text("half written")
        assert await ask(door, new) is grpc.StatusCode.OK


@pytest.mark.parametrize("key", ["controllerGrpcTlsCertFile", "controllerGrpcTlsKeyFile", "controllerGrpcTlsCaFile"])
@pytest.mark.parametrize("content", [None, "", "no PEM"], ids=["missing", "empty", "not PEM"])
async def test_unusable_files_name_their_key(
    tmp_path: Path, authority: Authority, key: str, content: str | None
) -> None:
    bad = tmp_path / "bad.pem"
    if content is not None:
        bad.write_text(content)
    with pytest.raises(SettingsError, match=key) as caught:
        Door(tmp_path, {**keys(authority), key: str(bad)}, GrpcLimits())
    assert str(bad) in str(caught.value)


async def test_a_key_of_another_certificate_is_refused(tmp_path: Path, authority: Authority) -> None:
    _, other_key = authority.issue("other")
    with pytest.raises(SettingsError, match="controllerGrpcTlsKeyFile"):
        Door(tmp_path, {**keys(authority), "controllerGrpcTlsKeyFile": str(other_key)}, GrpcLimits())
