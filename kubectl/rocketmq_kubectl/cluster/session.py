"""One command's access to the cluster: resources through the API server, controllers and sidecars through
port-forwards.

Every verb gets only a `Session`; tests create one for a fake API server.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.forward import Forwards
from rocketmq_kubectl.cluster.kube import Kube, checked_name
from rocketmq_kubectl.cluster.resources import Pod
from rocketmq_kubectl.errors import CommandRefusedError, NotFoundError, PluginError, UnreachableError
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.controller_cluster import ControllerCluster

if TYPE_CHECKING:
    from rocketmq_api.channels import ApiError
    from rocketmq_api.client_tls import ClientTls
    from rocketmq_api.controllers import ControllersClient
    from rocketmq_api.sidecars import SidecarClient

T = TypeVar("T")
Json = Mapping[str, object]

CALL_SECONDS = 5.0
"""Default time limit of a call to a controller or sidecar."""


def utc_now() -> datetime:
    """The wall clock; tests use a fixed time."""
    return datetime.now(UTC)


class Session:
    """For one run of one command (with -i: for all its repetitions)."""

    def __init__(self, kube: Kube, *, now: Callable[[], datetime] | None = None) -> None:
        self.kube = kube
        self.namespace = kube.namespace
        self.now = now or utc_now
        self.forwards = Forwards(kube)
        self._tls_files: dict[tuple[str, str], ClientTls | None] = {}

    def close(self) -> None:
        """Close the port-forwards."""
        self.forwards.close()

    def progress(self, text: str) -> None:
        """Print progress; not part of the result."""
        print(text, file=sys.stderr)

    # Resources

    async def group_body(self, name: str) -> Json:
        """The BrokerGroup as JSON.

        Raises:
            NotFoundError: it does not exist; with the existing names.
        """
        path = resources.resource("BrokerGroup", self.namespace, checked_name(name, "GROUP"))
        try:
            return await self.kube.get(path)
        except NotFoundError as error:
            raise await self._better("BrokerGroup", name, error) from error

    async def group(self, name: str) -> BrokerGroup:
        """The BrokerGroup, read. Raises as `group_body`, and CommandRefusedError as `resources.broker_group`."""
        return resources.broker_group(await self.group_body(name))

    async def controller_body(self, namespace: str, name: str) -> Json:
        """The ControllerCluster as JSON.

        Raises:
            NotFoundError: it does not exist; with the existing names.
        """
        path = resources.resource("ControllerCluster", namespace, checked_name(name, "NAME"))
        try:
            return await self.kube.get(path)
        except NotFoundError as error:
            raise await self._better("ControllerCluster", name, error, namespace) from error

    async def pods(self, namespace: str, component: names.Component, owner: str) -> tuple[Pod, ...]:
        """The pods of one of our resources."""
        selector = {"labelSelector": names.selector_text(component, owner)}
        return resources.pods(await self.kube.items(resources.core(namespace, "pods"), selector))

    # Processes

    @asynccontextmanager
    async def controllers(self, group: BrokerGroup) -> "AsyncIterator[ControllersClient]":
        """The controllers of a group; those outside Kubernetes are called directly.

        Raises:
            PluginError: none can be reached, or the group has none.
        """
        if not group.fails_over:
            master = names.pod_name(group.name, 0)
            raise CommandRefusedError(
                f"{group.name} has no controllers (spec.failover.mode: none): {master} is always its master"
            )
        if group.controller is not None:
            async with self.controllers_of(*group.controller) as client:
                yield client
            return
        from rocketmq_api.controllers import ControllersClient  # noqa: PLC0415 - gRPC only where it is used

        if group.spec.controller_grpc_addr is None:
            raise UnreachableError(
                f"the controllers of {group.name} are outside this cluster and spec.controllerGrpcAddr is not set"
            )
        addresses = [part.strip() for part in group.spec.controller_grpc_addr.split(";") if part.strip()]
        async with ControllersClient(addresses) as client:
            yield client

    @asynccontextmanager
    async def member(self, namespace: str, cluster: str, pod: str) -> "AsyncIterator[ControllersClient]":
        """One member alone, for calls that every member answers itself.

        Raises:
            PluginError: it cannot be reached.
        """
        from rocketmq_api.controllers import ControllersClient  # noqa: PLC0415

        address, tls = await asyncio.gather(
            self.forwards.address(namespace, pod, names.PORT_CONTROLLER_GRPC), self._tls_of(namespace, cluster)
        )
        async with ControllersClient([address], tls=tls) as client:
            yield client

    @asynccontextmanager
    async def controllers_of(
        self, namespace: str, name: str, *, seconds: float | None = None
    ) -> "AsyncIterator[ControllersClient]":
        """The members of a ControllerCluster whose pods can be reached, its leader by status first. Time limit of a
        call: `seconds` (None: CALL_SECONDS).

        Raises:
            PluginError: none can be reached.
        """
        from rocketmq_api.controllers import ControllersClient  # noqa: PLC0415

        pods, cluster = await asyncio.gather(
            self.pods(namespace, "controller", name), self._cluster_if_allowed(namespace, name)
        )
        if not pods:
            raise UnreachableError(f"ControllerCluster {namespace}/{name} has no pods: see kubectl rocketmq status")
        running = [pod for pod in pods if pod.reachable]
        if not running:
            raise UnreachableError(f"no pod of ControllerCluster {namespace}/{name} is running")
        leader = "" if cluster is None else resources.controller_status(cluster).leader
        running.sort(key=lambda pod: pod.name != leader)
        opened = await asyncio.gather(
            *(self.forwards.address(namespace, pod.name, names.PORT_CONTROLLER_GRPC) for pod in running),
            return_exceptions=True,
        )
        addresses = [address for address in opened if isinstance(address, str)]
        if not addresses:
            raise next(error for error in opened if isinstance(error, BaseException))
        tls = await self._tls(cluster)
        async with ControllersClient(addresses, tls=tls, timeout=seconds or CALL_SECONDS) as client:
            yield client

    @asynccontextmanager
    async def sidecar(self, namespace: str, pod: str) -> "AsyncIterator[SidecarClient]":
        """The sidecar of a broker's pod.

        Raises:
            PluginError: the pod cannot be reached.
        """
        from rocketmq_api.sidecars import SidecarClient  # noqa: PLC0415

        address, tls = await asyncio.gather(
            self.forwards.address(namespace, pod, names.PORT_SIDECAR_GRPC),
            self._tls_of_group(namespace, pod.rpartition("-")[0]),
        )
        async with SidecarClient(address, tls=tls) as client:
            yield client

    async def call(self, answer: Awaitable[T]) -> T:
        """Await the answer of a controller or sidecar.

        Raises:
            CommandRefusedError, UnreachableError: the call failed; the text names the pod.
        """
        from rocketmq_api.channels import ApiError  # noqa: PLC0415

        try:
            return await answer
        except ApiError as error:
            raise self._named(error) from error

    def _named(self, error: "ApiError") -> PluginError:
        from rocketmq_api.channels import NoAnswerError  # noqa: PLC0415

        where = self.forwards.name(error.address) or error.address
        why = self.forwards.problem(error.address) or error.reason or error.status.name
        if isinstance(error, NoAnswerError):
            return UnreachableError(f"{where} does not answer: {why}")
        return CommandRefusedError(f"{where} refused: {why}")

    async def _cluster_if_allowed(self, namespace: str, name: str) -> ControllerCluster | None:
        """None if it cannot be read; its pods may still be reachable."""
        try:
            body = await self.kube.get(resources.resource("ControllerCluster", namespace, name))
            return resources.controller_cluster(body)
        except PluginError:
            return None

    async def _tls_of(self, namespace: str, name: str) -> "ClientTls | None":
        key = namespace, name
        if key not in self._tls_files:
            self._tls_files[key] = await self._tls(await self._cluster_if_allowed(namespace, name))
        return self._tls_files[key]

    async def _tls_of_group(self, namespace: str, name: str) -> "ClientTls | None":
        key = namespace, f"group {name}"
        if key not in self._tls_files:
            try:
                body = await self.kube.get(resources.resource("BrokerGroup", namespace, name))
                group = resources.broker_group(body)
            except PluginError:
                return None  # it cannot be read; its pods may still be reachable
            self._tls_files[key] = await self._tls(group)
        return self._tls_files[key]

    async def _tls(self, resource: ControllerCluster | BrokerGroup | None) -> "ClientTls | None":
        if resource is None or resource.spec.grpc_tls_secret_name is None:
            return None
        from rocketmq_kubectl.cluster.tls import client_files  # noqa: PLC0415 - few need it

        return await client_files(self.kube, resource)

    async def _better(
        self, kind: names.Kind, name: str, error: PluginError, namespace: str | None = None
    ) -> PluginError:
        """A better error than not found: is it the resource, the CRD or the namespace?"""
        place = namespace or self.namespace
        try:
            bodies = await self.kube.items(resources.collection(kind, place))
        except NotFoundError:
            return NotFoundError(f"{self.kube.host} has no {names.API_VERSION}: install the chart first (helm install)")
        except PluginError:
            return error
        there = sorted(resources.name_of(body) for body in bodies)
        known = f"there {'is' if len(there) == 1 else 'are'} {', '.join(there[:10])}" if there else "none exists"
        return NotFoundError(f"no {kind} {name} in namespace {place} ({known}): give -n NAMESPACE or another name")


async def gather_results(calls: Sequence[Awaitable[T]]) -> list[T | PluginError]:
    """The result or error of each, in order."""

    async def result_of(call: Awaitable[T]) -> T | PluginError:
        try:
            return await call
        except PluginError as error:
            return error

    return list(await asyncio.gather(*map(result_of, calls)))
