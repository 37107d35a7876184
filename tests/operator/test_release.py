"""Before an uninstall: finalizers and the Lease stay away, although the operator's pods take time to end."""

import asyncio
from typing import Any

import pytest

from rocketmq_operator.kubernetes.kube import Kube, NotFoundError
from rocketmq_operator.release import ReleaseError, release_finalizers
from rocketmq_operator.settings import OperatorSettings
from rocketmq_resources import names

pytestmark = pytest.mark.looptime
SELECTOR = "app.kubernetes.io/instance=x"
SETTINGS = OperatorSettings(namespace="mq", pod_name="hook", deployment="operator")


class Cluster(Kube):
    """A resource with a finalizer, a Lease, and a standby replica of the operator whose pod ends at `gone_at`."""

    def __init__(self, gone_at: float) -> None:
        self.gone_at = gone_at
        self.lease: dict[str, Any] | None = None
        self.finalizers = [names.FINALIZER]

    async def standby(self) -> None:
        """Takes the Lease whenever there is none, and with it the resource."""
        loop = asyncio.get_running_loop()
        while loop.time() < self.gone_at:
            if self.lease is None:
                self.lease = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "standby"}}
                self.finalizers = [names.FINALIZER]
            await asyncio.sleep(2.0)
        if self.lease is not None and self.lease["spec"]["holderIdentity"] == "standby":
            self.lease["spec"]["holderIdentity"] = ""  # as at its SIGTERM

    async def patch(self, kind: str, namespace: str, name: str, body: Any, *, sub: str = "") -> Any:
        if kind == "Deployment":
            assert (name, sub, body) == ("operator", "scale", {"spec": {"replicas": 0}})
            return {"status": {"replicas": 0, "selector": SELECTOR}}
        self.finalizers = list(body["metadata"]["finalizers"])
        return {}

    async def list(self, kind: str, namespace: str | None, selector: str = "", *, metadata_only: bool = False) -> Any:
        if kind == "Pod":
            assert (namespace, selector) == ("mq", SELECTOR)
            return {"items": [{}] if asyncio.get_running_loop().time() < self.gone_at else []}
        if kind != "BrokerGroup":
            return {"items": []}
        return {"items": [{"metadata": {"namespace": "mq", "name": "a", "finalizers": self.finalizers}}]}

    async def get(self, kind: str, namespace: str, name: str) -> Any:
        if kind != "Lease":
            return {"metadata": {"finalizers": self.finalizers}}
        if self.lease is None:
            raise NotFoundError("get leases", 404, "not found")
        return self.lease

    async def create(self, made: Any) -> Any:
        self.lease = made
        return made

    async def replace(self, made: Any) -> Any:
        self.lease = made
        return made

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None, *, orphan: bool = False) -> Any:
        assert kind == "Lease"
        self.lease = None
        return {}


class WithoutDeployment(Cluster):
    async def patch(self, kind: str, namespace: str, name: str, body: Any, *, sub: str = "") -> Any:
        if kind == "Deployment":
            raise NotFoundError("patch deployments", 404, "not found")
        return await super().patch(kind, namespace, name, body, sub=sub)


async def test_a_standby_that_ends_late_does_not_take_the_resources_again() -> None:
    cluster = Cluster(gone_at=20.0)
    standby = asyncio.create_task(cluster.standby())
    await release_finalizers(cluster, SETTINGS)
    await standby
    assert (cluster.lease, cluster.finalizers) == (None, [])


async def test_an_operator_that_does_not_end_is_named() -> None:
    with pytest.raises(ReleaseError, match="pods of Deployment operator in mq still run"):
        await release_finalizers(Cluster(gone_at=1e9), SETTINGS)


async def test_without_a_deployment_there_is_nothing_to_wait_for() -> None:
    cluster = WithoutDeployment(gone_at=1e9)
    await release_finalizers(cluster, SETTINGS)
    assert (cluster.lease, cluster.finalizers) == (None, [])
