"""What the operator finds out from sidecars that it asks again, about acting masters and groups without controllers;
and from the name servers' specs."""

import asyncio
from typing import Any, Self, cast

import msgspec
import pytest
from grpc import StatusCode

from rocketmq_api.channels import NoAnswerError
from rocketmq_operator.controllers import sidecars as sidecars_module
from rocketmq_operator.controllers.quorum_registry import QuorumRegistry
from rocketmq_operator.controllers.sidecars import Sidecars
from rocketmq_operator.controllers.tls_files import TlsFiles
from rocketmq_operator.domain.observed import Pod
from rocketmq_operator.kubernetes.cache import Cache
from rocketmq_operator.kubernetes.kube import Kube
from rocketmq_operator.kubernetes.ledger import Ledger
from rocketmq_operator.kubernetes.pod_refusals import PodRefusals
from rocketmq_operator.kubernetes.secrets import Secrets
from rocketmq_operator.observe import Observer
from rocketmq_resources.broker_group import parse_broker_group
from tests.sidecar.ports.test_grpc_port import FULL, Admin, opened

POD = Pod(name="g-1", ordinal=1, uid="p", ip="127.0.0.1", running=True)


async def test_a_sidecar_is_asked_again_while_its_broker_may_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars_module, "POLL_INTERVAL", 0.0)
    admin, sidecars = Admin(), Sidecars()

    async def acts(*, again: bool) -> bool:
        return (await sidecars.poll([POD], again=again))["p"].acting

    async with opened(admin) as address:
        monkeypatch.setattr(sidecars_module, "sidecar_address", lambda _pod: address)
        assert await acts(again=False)
        admin.view = msgspec.structs.replace(FULL, acting_master=False)
        assert await acts(again=False), "it has answered, and is not asked"
        assert not await acts(again=True)
        admin.view = FULL
        assert await acts(again=True)
    assert not await acts(again=True), "it does not answer"
    assert (await sidecars.poll([POD]))["p"].broker_id == FULL.broker_id, "what lasts is kept"


async def test_a_sidecar_that_is_silent_for_a_moment_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars_module, "POLL_INTERVAL", 0.0)
    sidecars = Sidecars()
    async with opened(Admin()) as address:
        monkeypatch.setattr(sidecars_module, "sidecar_address", lambda _pod: address)
        assert (await sidecars.poll([POD]))["p"].replica == FULL
    ready = msgspec.structs.replace(POD, ready=True)
    assert (await sidecars.poll([ready], again=True))["p"].replica == FULL, "its kubelet has heard of it"
    assert (await sidecars.poll([POD], again=True))["p"].replica is None


class Silent:
    """Stands for a client whose sidecar does not answer."""

    def __init__(self) -> None:
        self.calls: list[float] = []

    async def __aenter__(self) -> Self:
        self.calls.append(asyncio.get_running_loop().time())
        raise NoAnswerError("10.0.0.1:9880", StatusCode.UNAVAILABLE, "no route", {})

    async def __aexit__(self, *_: object) -> None:
        return None


@pytest.mark.looptime
async def test_a_sidecar_that_stays_silent_is_asked_less_and_less_until_its_pod_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sidecars, silent = Sidecars(), Silent()
    monkeypatch.setattr(sidecars, "_client", lambda *_: silent)
    began = asyncio.get_running_loop().time()
    for _ in range(80):
        await sidecars.poll([POD])
        await asyncio.sleep(0.5)
    assert [round(at - began, 1) for at in silent.calls] == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 23.5, 31.5, 39.5]
    await sidecars.poll([msgspec.structs.replace(POD, ready=True)])
    assert len(silent.calls) == 10


class NoQuorum:
    """Stands for the registry: no ControllerCluster is watched."""

    def of_group(self, _group: object) -> None:
        return None


class NoCertificate:
    async def of(self, _group: object) -> None:
        return None


def observing(cache: Cache) -> Observer:
    return Observer(
        cache=cache,
        ledger=Ledger(cache),
        quorums=cast("QuorumRegistry", NoQuorum()),
        sidecars=Sidecars(),
        tls=cast("TlsFiles", NoCertificate()),
        secrets=Secrets(cast("Kube", None)),  # no spec here names one
        refusals=PodRefusals(cast("Kube", None)),  # no pod is missing
    )


def body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
        "spec": spec,
    }


async def test_a_group_without_controllers_is_what_its_sidecars_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecars_module, "POLL_INTERVAL", 0.0)
    cache = Cache(lambda _key: None)
    observer = observing(cache)
    monkeypatch.setattr(observer, "_pods", lambda _key: (POD,))
    alone = body("BrokerGroup", "g", {"namesrvAddr": "n:9876", "failover": {"mode": "none"}})
    admin = Admin()
    async with opened(admin) as address:
        monkeypatch.setattr(sidecars_module, "sidecar_address", lambda _pod: address)
        for offset in (FULL.max_offset, FULL.max_offset + 1):
            admin.view = msgspec.structs.replace(FULL, max_offset=offset)
            observed = await observer.group(parse_broker_group(alone))
            assert (observed.controllers.reachable, observed.controller_addr) == (True, "")
            view = observed.controllers.group
            assert view is not None
            assert view.master_broker_id == 0
            assert [(one.broker_id, one.max_offset) for one in view.replicas] == [(FULL.broker_id, offset)]


@pytest.mark.parametrize(
    ("spec", "address", "shown"),
    [
        ({"nameServerRef": {"name": "plain"}}, "plain-namesrv-0.plain-namesrv.ns.svc:9876", True),
        ({"nameServerRef": {"name": "hiding"}}, "hiding-namesrv-0.hiding-namesrv.ns.svc:9876", False),
        ({"nameServerRef": {"name": "missing"}}, None, None),
        ({"namesrvAddr": "n:9876"}, "n:9876", None),
        ({}, "main-controller-0.main-controller.ns.svc:9876", False),
        ({"controllerRef": {"name": "missing"}}, None, None),
    ],
)
async def test_what_the_name_servers_are_told_to_show(
    spec: dict[str, Any], address: str | None, shown: bool | None
) -> None:
    cache = Cache(lambda _key: None)
    hiding = {"supportActingMaster": "false"}
    cache.put(body("NameServer", "plain", {"replicas": 1}))
    cache.put(body("NameServer", "hiding", {"replicas": 1, "config": hiding}))
    cache.put(body("ControllerCluster", "main", {"embeddedInNameServer": True, "config": hiding}))
    observer = observing(cache)
    group = parse_broker_group(body("BrokerGroup", "g", {"controllerRef": {"name": "main"}, **spec}))
    observed = await observer.group(group)
    assert observed.acting_master_shown is shown
    assert (observed.namesrv_addr or "").split(";")[0] == (address or "")
