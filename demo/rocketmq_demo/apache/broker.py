"""One official broker over the starts of its process, for the demo and the benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import LARGER_HEAP, NO_TLS, JavaProcess
from rocketmq_demo.ports import HOST, PortPool


class OfficialBroker:
    """Implements `engine.Broker` by an official broker: folder and identity stay, process and
    address change with every start."""

    def __init__(
        self,
        label: str,
        *,
        folder: Path,
        ports: PortPool,
        controllers: Sequence[str],
        nameservers: Sequence[int | str],
        cluster: str,
        name: str,
        config: servers.Config,
        heap: Sequence[str] = LARGER_HEAP,
    ) -> None:
        self.label = label
        self.address = ""
        self.folder = folder
        self._ports = ports
        self._controllers, self._nameservers = controllers, nameservers
        self._cluster, self._name = cluster, name
        self._config, self._options = config, [*heap, NO_TLS]
        self._process: JavaProcess | None = None

    @property
    def process(self) -> JavaProcess:
        assert self._process is not None, "not started"
        return self._process

    def launch(self) -> None:
        """Start it on ports of its own; returns at once."""
        port = self._ports.broker()
        self.address = f"{HOST}:{port}"
        self._process = servers.start_broker(
            self.folder,
            port=port,
            controllers=self._controllers,
            nameservers=self._nameservers,
            cluster=self._cluster,
            name=self._name,
            config=self._config,
            options=self._options,
        )

    def start(self, timeout: float = 90.0) -> None:
        """Start it on ports of its own, and wait until it listens."""
        self.launch()
        self.process.wait_port(timeout)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
