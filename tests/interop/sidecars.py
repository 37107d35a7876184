"""The observing sidecar beside each broker of an official group, as processes, and the requests of tests to them."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rocketmq_api.channels import AbortedError, NoAnswerError
from rocketmq_api.replica_view import ReplicaView
from rocketmq_api.sidecars import SidecarClient
from rocketmq_demo.apache.processes import write_properties
from rocketmq_demo.calls import http_get
from rocketmq_demo.ports import HOST
from rocketmq_demo.processes import OwnedProcess, clean_environment
from tests.gate.patience import patient
from tests.interop.lab import CLUSTER, Group, JavaBroker, Lab

T = TypeVar("T")
_POLL = 0.05
_PATIENCE = patient(60.0)


class Sidecar:
    """Beside one broker; may be ended and started again, each on ports of its own."""

    def __init__(self, lab: Lab, group: Group, broker: JavaBroker) -> None:
        self.broker = broker
        self._lab, self._name = lab, group.name
        self.start()

    def start(self) -> None:
        """Start it beside the running broker; returns at once."""
        self.probes, self.grpc = (f"{HOST}:{self._lab.ports.single()}" for _ in range(2))
        folder = self.broker.folder / "sidecar"
        values = {
            "brokerEngine": "apache",
            "brokerClusterName": CLUSTER,
            "brokerName": self._name,
            "bindAddress": HOST,
            "listenPort": self.broker.port,
            "controllerAddr": ";".join(self._lab.controllers.addresses),
            "storePathRootDir": self.broker.folder / "store",
            "allAckInSyncStateSet": True,
            "metricsPromExporterPort": self.probes.partition(":")[2],
            "sidecarGrpcPort": self.grpc.partition(":")[2],
        }
        file = write_properties(folder / "sidecar.conf", values)
        self.process = OwnedProcess(
            f"sidecar-{self._name}",
            [sys.executable, "-m", "rocketmq_sidecar", "-c", str(file)],
            folder=folder,
            environment=clean_environment(),
        )

    def call(self, question: Callable[[SidecarClient], Awaitable[T]]) -> T:
        """The answer to one rpc; raises ApiError."""

        async def ask() -> T:
            async with SidecarClient(self.grpc) as client:
                return await question(client)

        return asyncio.run(ask())

    @property
    def view(self) -> ReplicaView:
        return self.call(lambda client: client.get_replica())

    def set_fenced(self, fenced: bool, reason: str = "") -> ReplicaView:
        """Repeat until the broker answers in time, as operators do; raises ApiError if it never does."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self.call(lambda client: client.set_fenced(fenced, reason))
            except (AbortedError, NoAnswerError):
                if time.monotonic() > deadline:
                    raise

    def wait(self, what: str, condition: Callable[[ReplicaView], bool]) -> ReplicaView:
        """The first view that fulfils `condition`.

        Raises:
            TimeoutError: none in a minute.
        """
        deadline = time.monotonic() + _PATIENCE
        while not condition(view := self.view):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_PATIENCE:g} s for {what}; now {view}\n{self.process.tail()}")
            time.sleep(_POLL)
        return view

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a probe or of /metrics."""
        return http_get(self.probes, path)

    def wait_ready(self) -> None:
        """Wait until /readyz is 200 and gRPC answers.

        Raises:
            TimeoutError: not in a minute.
        """
        deadline = time.monotonic() + _PATIENCE
        while (answer := self.get("/readyz"))[0] != 200 or "gRPC open" not in self.process.output():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready: {answer}\n{self.process.tail()}")
            time.sleep(_POLL)
