"""Sidecars whose gRPC asks for mutual TLS (spec.grpcTlsSecretName), called by the operator and by the plugin."""

import base64
from pathlib import Path
from typing import Any, cast

import pytest

from rocketmq_api.channels import NoAnswerError
from rocketmq_kubectl.cluster.kube import Kube as PluginKube
from rocketmq_kubectl.cluster.session import Session
from rocketmq_operator.controllers import sidecars as sidecars_module
from rocketmq_operator.controllers.sidecars import Sidecars
from rocketmq_operator.controllers.tls_files import READ_AGAIN, TlsFiles
from rocketmq_operator.domain.observed import Pod
from rocketmq_operator.kubernetes.kube import Kube, NotFoundError
from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from tests.controller.grpc_kit import Authority
from tests.sidecar.ports.test_grpc_port import FULL, Admin, opened

SPEC = {
    "controllerRef": {"name": "main"},
    "nameServerRef": {"name": "main"},
    "grpcTlsSecretName": "tls",
}
BODY = {"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": SPEC}
POD = Pod(name="g-1", ordinal=1, uid="p", ip="127.0.0.1", running=True, grpc_tls=True)


def group() -> BrokerGroup:
    return parse_broker_group(BODY)


class Certificates:
    """Of one authority: the sidecars' files, and the Secret that everybody reads."""

    def __init__(self, folder: Path, host: str) -> None:
        authority = Authority(folder, "authority")
        cert, key = authority.issue("server", f"DNS:{host}")
        self.settings = {
            "sidecarGrpcTlsCertFile": str(cert),
            "sidecarGrpcTlsKeyFile": str(key),
            "sidecarGrpcTlsCaFile": str(authority.cert),
        }
        files = {"tls.crt": cert, "tls.key": key, "ca.crt": authority.cert}
        self.data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}


class OneSecret:
    """Stands for either client of the API server: has the group, and `data` as Secret tls."""

    namespace = "ns"

    def __init__(self, data: dict[str, str] | None) -> None:
        self.data = data
        self.reads = 0

    async def get(self, *place: str) -> dict[str, Any]:
        if "brokergroups" in place[0]:
            return BODY
        self.reads += 1
        if self.data is None:
            raise NotFoundError("Secret tls", 404, "not found")
        assert place in {("Secret", "ns", "tls"), ("/api/v1/namespaces/ns/secrets/tls",)}
        return {"data": self.data}


async def test_the_operator_shows_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = Certificates(tmp_path, "g-0.g.ns.svc")
    files = TlsFiles(cast("Kube", OneSecret(certificates.data)))
    tls = await files.of(group())
    async with opened(Admin(), **certificates.settings) as address:
        monkeypatch.setattr(sidecars_module, "sidecar_address", lambda _pod: address)
        asked = Sidecars()
        assert (await asked.poll([POD], tls))["p"].broker_id == FULL.broker_id
        await asked.set_fenced("p", address, fenced=True, reason="because")
        assert (await asked.hand_over(address, 3, 1.0)).master_broker_id == 3
        assert await Sidecars().poll([POD], None) == {}, "without it nothing is said"
    files.close()


async def test_a_pod_of_before_is_called_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "g-0.g.ns.svc")
    files = TlsFiles(cast("Kube", OneSecret(certificates.data)))
    old = Pod(name="g-2", ordinal=2, uid="q", ip="127.0.0.1", running=True)
    async with opened(Admin()) as address:
        monkeypatch.setattr(sidecars_module, "sidecar_address", lambda _pod: address)
        assert (await Sidecars().poll([old], await files.of(group())))["q"].broker_id == FULL.broker_id
    files.close()


async def test_a_secret_that_cannot_be_read_is_an_error_until_it_was_read_once(tmp_path: Path) -> None:
    now = 0.0
    kube = OneSecret(None)
    files = TlsFiles(cast("Kube", kube), clock=lambda: now)
    with pytest.raises(OSError, match="TLS of g"):
        await files.of(group())
    kube.data = {"tls.crt": "AA=="}
    with pytest.raises(OSError, match=r"no tls\.key"):
        await files.of(group())
    kube.data = Certificates(tmp_path, "g-0.g.ns.svc").data
    tls = await files.of(group())
    assert tls is not None
    assert tls.server_name == "g-0.g.ns.svc"
    reads = kube.reads
    assert await files.of(group()) == tls
    assert kube.reads == reads
    now, kube.data = READ_AGAIN, None
    assert await files.of(group()) == tls, "the one that is known"
    files.close()


async def test_the_plugin_uses_the_groups_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = Certificates(tmp_path, "g-0.g.ns.svc")
    async with opened(Admin(), **certificates.settings) as address:

        async def forwarded(*_: object) -> str:
            return address

        for data, answers in ((certificates.data, True), ({**certificates.data, "tls.crt": "AA=="}, False)):
            session = Session(cast("PluginKube", OneSecret(data)))
            monkeypatch.setattr(session.forwards, "address", forwarded)
            if answers:
                async with session.sidecar("ns", "g-1") as client:
                    assert await client.get_replica() == FULL
            else:
                with pytest.raises((NoAnswerError, ValueError)):
                    async with session.sidecar("ns", "g-1") as client:
                        await client.get_replica()
