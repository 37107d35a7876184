"""Our own servers as processes on loopback: replicas (a broker and its sidecar each) and name servers.

For the demo, process tests, interop tests and benchmarks. A replica keeps its folder, and so its identity and log;
processes and address change with every start. Blocking calls, no event loop.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketmq_demo.calls import accepts
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import OwnedProcess, ProcessDiedError, clean_environment
from rocketmq_formats import properties
from rocketmq_formats.addresses import format_address

MIB = 1024 * 1024
_POLL = 0.02
Config = Mapping[str, object]


def _properties(folder: Path, name: str, values: Config) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(properties.dump({key: _text(value) for key, value in values.items()}))
    return path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wait_listening(process: OwnedProcess, address: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not accepts(address):
        if not process.alive:
            raise ProcessDiedError(f"{process.name} ended with {process.exit_code}:\n{process.tail()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{process.name} does not listen at {address} after {timeout:g} s:\n{process.tail()}")
        time.sleep(_POLL)


class NameServer(OwnedProcess):
    """A name server of ours."""

    def __init__(self, folder: Path, *, port: int, config: Config | None = None, host: str = HOST) -> None:
        """Start it; it keeps its KV configuration in `folder`. `host`: a loopback address."""
        self.address = format_address(host, port)
        values = {
            "listenPort": port,
            "bindAddress": host,
            "kvConfigPath": folder / "kvConfig.json",
            "configStorePath": folder / "kept.properties",
            **(config or {}),
        }
        file = _properties(folder, "namesrv.conf", values)
        super().__init__(
            f"namesrv-{port}",
            [sys.executable, "-m", "rocketmq_namesrv", "-c", str(file)],
            folder=folder,
            environment=clean_environment(),
        )

    def wait_listening(self, timeout: float = 30.0) -> None:
        """Wait until it accepts connections.

        Raises:
            ProcessDiedError, TimeoutError: it ended, or took longer.
        """
        _wait_listening(self, self.address, timeout)


class ReplicaProcesses:
    """A broker and its sidecar, as one process (implements `engine.Running`), or each by itself."""

    def __init__(self, broker: OwnedProcess, sidecar: OwnedProcess) -> None:
        self.broker = broker
        self.sidecar = sidecar

    @property
    def pid(self) -> int:
        """The broker's."""
        return self.broker.pid

    @property
    def alive(self) -> bool:
        """Whether both live."""
        return self.broker.alive and self.sidecar.alive

    def kill9(self) -> None:
        """Crash both."""
        self.broker.kill9()
        self.sidecar.kill9()

    def suspend(self) -> None:
        """Hang both."""
        self.broker.suspend()
        self.sidecar.suspend()

    def resume(self) -> None:
        """The end of the hang."""
        self.sidecar.resume()
        self.broker.resume()

    def stop(self) -> None:
        """Stop both; the sidecar hands over first."""
        self.sidecar.stop()
        self.broker.stop()

    def close(self) -> None:
        """End both at once."""
        self.broker.close()
        self.sidecar.close()


class Replica:
    """One member's place in a group (implements `engine.Broker`)."""

    def __init__(
        self,
        label: str,
        *,
        folder: Path,
        ports: PortPool,
        controllers: Sequence[str],
        nameservers: Sequence[str],
        cluster: str,
        name: str,
        config: Config | None = None,
        host: str = HOST,
    ) -> None:
        """`host`: a loopback address."""
        self.label = label
        self.host = host
        self.address = ""
        self.folder = folder
        self._ports = ports
        self._config: dict[str, object] = {
            "brokerClusterName": cluster,
            "brokerName": name,
            "brokerIP1": host,
            "brokerIP2": host,
            "bindAddress": host,
            "enableControllerMode": True,
            "controllerAddr": ";".join(controllers),
            "namesrvAddr": ";".join(nameservers),
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            "mappedFileSizeCommitLog": 64 * MIB,
            "metricsPromExporterPort": 0,
            "sidecarGrpcPort": 0,
            **(config or {}),
        }
        self._processes: ReplicaProcesses | None = None

    @property
    def process(self) -> ReplicaProcesses:
        """Its two processes."""
        assert self._processes is not None, "not started"
        return self._processes

    def launch(self) -> None:
        """Start both processes on ports of their own; returns at once."""
        port = self._ports.broker()
        self.address = format_address(self.host, port)
        values = {**self._config, "listenPort": port, "haListenPort": port + 1}
        file = _properties(self.folder, "broker.conf", values)
        self._processes = ReplicaProcesses(self._start("broker", file), self._start("sidecar", file))

    def start(self) -> None:
        """`launch`, and wait until the broker takes connections."""
        self.launch()
        self.wait_listening()

    def wait_listening(self, timeout: float = 30.0) -> None:
        """Wait until the broker takes connections.

        Raises:
            ProcessDiedError, TimeoutError: it ended, or took longer.
        """
        _wait_listening(self.process.broker, self.address, timeout)

    def restart_broker(self) -> None:
        """Start the broker process again, on the same port, beside the running sidecar."""
        self.process.broker.close()
        self.process.broker = self._start("broker", self.folder / "broker.conf")

    def restart_sidecar(self) -> None:
        """Start the sidecar again beside the running broker."""
        self.process.sidecar.close()
        self.process.sidecar = self._start("sidecar", self.folder / "broker.conf")

    def close(self) -> None:
        """End both at once; harmless to repeat."""
        if self._processes is not None:
            self._processes.close()

    def _start(self, part: str, file: Path) -> OwnedProcess:
        return OwnedProcess(
            f"{self.label}-{part}",
            [sys.executable, "-m", f"rocketmq_{part}", "-c", str(file)],
            folder=self.folder / part,
            environment=clean_environment(),
        )


def make_group(
    label: str,
    count: int,
    *,
    folder: Path,
    ports: PortPool,
    controllers: Sequence[str],
    nameservers: Sequence[str],
    cluster: str,
    name: str,
    config: Config,
) -> list[Replica]:
    """The places of a group's replicas, `label`-1 and so on, each in its own folder; nothing runs yet."""
    return [
        Replica(
            f"{label}-{number}",
            folder=folder / f"{label}-{number}",
            ports=ports,
            controllers=controllers,
            nameservers=nameservers,
            cluster=cluster,
            name=name,
            config=config,
        )
        for number in range(1, count + 1)
    ]
