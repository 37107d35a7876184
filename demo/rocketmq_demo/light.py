"""The light engine: broker agents in Python that keep no messages, and a prober. Needs nothing but Python."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rocketmq_demo.apache.ports import HOST, PortPool
from rocketmq_demo.ask import accepts
from rocketmq_demo.engine import BROKER_GROUP, CLUSTER
from rocketmq_demo.prober import Prober
from rocketmq_demo.processes import OwnedProcess, ProcessDiedError, clean_environment

START_TIMEOUT = 20.0


class LightBroker:
    """Implements `engine.Broker` by an agent process."""

    def __init__(self, number: int, *, folder: Path, ports: PortPool, controllers: str) -> None:
        self.label = f"agent-{number}"
        self.address = ""
        self._folder = folder / self.label
        self._ports = ports
        self._controllers = controllers
        self._process: OwnedProcess | None = None

    @property
    def process(self) -> OwnedProcess:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start it on a port of its own."""
        self.address = f"{HOST}:{self._ports.single()}"
        command = [sys.executable, "-m", "rocketmq_demo.agent", "--folder", str(self._folder)]
        command += ["--address", self.address, "--controllers", self._controllers]
        command += ["--cluster", CLUSTER, "--name", BROKER_GROUP]
        self._process = OwnedProcess(self.label, command, folder=self._folder, environment=clean_environment())
        deadline = time.monotonic() + START_TIMEOUT
        while not accepts(self.address):
            if not self._process.alive:
                raise ProcessDiedError(f"{self.label} ended:\n{self._process.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.label} does not listen after {START_TIMEOUT:g} s")
            time.sleep(0.02)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


class LightEngine:
    """Implements `engine.Engine`."""

    name = "light"
    remark = (
        "Light broker agents: identity, heartbeats, SyncStateSet and roles are real, over the wire, under real "
        "controllers. They hold no log: a probe that is answered was counted, not stored."
    )
    patience = 30.0

    def __init__(self, folder: Path, *, ports: PortPool, controllers: Sequence[str], replicas: int) -> None:
        self.brokers = [
            LightBroker(number, folder=folder, ports=ports, controllers=";".join(controllers))
            for number in range(1, replicas + 1)
        ]
        self.load = Prober(
            controllers=controllers,
            broker_name=BROKER_GROUP,
            brokers=lambda: [broker.address for broker in self.brokers if broker.address],
        )

    def start(self) -> None:
        """Start the agents."""
        for broker in self.brokers:
            broker.start()

    def close(self) -> None:
        """End the agents."""
        for broker in self.brokers:
            broker.close()
