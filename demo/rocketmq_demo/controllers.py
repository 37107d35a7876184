"""Real controllers as processes on loopback, for the demo, process tests, interop tests and benchmarks.

    with PortPool() as ports, ControllerCluster(folder, ports=ports) as controllers:
        controllers.start()
        leader = controllers.wait_leader()
        controllers[leader].kill9()
        ...
        controllers.start_member(leader)   # same ports, same store: a restart

Blocking calls, no event loop. Each member has four ports in a row: remoting p, Raft p + 1, gRPC p + 2, metrics and
health p + 3. Only processes that were started here are ended.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketmq_demo.calls import call, http_get
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import OwnedProcess, ProcessDiedError, clean_environment, make_secret
from rocketmq_formats import properties
from rocketmq_formats.addresses import format_address
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import HeaderError
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader, GetNextBrokerIdRequestHeader
from rocketmq_formats.remoting.headers import decode_header

_POLL = 0.02
_NO_GROUP = GetNextBrokerIdRequestHeader(cluster_name="nobody", broker_name="nobody")


class ControllerProcess(OwnedProcess):
    def __init__(self, member: str, port: int, config: Path, *, folder: Path, host: str = HOST) -> None:
        self.member = member
        self.port = port
        self._host = host
        super().__init__(
            f"controller-{member}",
            [sys.executable, "-m", "rocketmq_controller", "-c", str(config)],
            folder=folder,
            environment=clean_environment(),
        )

    @property
    def address(self) -> str:
        """For brokers and tools."""
        return format_address(self._host, self.port)

    @property
    def grpc_address(self) -> str:
        """Of the admin service."""
        return format_address(self._host, self.port + 2)

    def metadata(self, timeout: float = 1.0) -> GetMetaDataResponseHeader | None:
        """Its answer to 1005; None without one within `timeout` seconds."""
        return metadata(self.address, timeout)

    def decides(self, timeout: float = 1.0) -> bool:
        """Whether it answers a request that only a leader with a valid lease answers."""
        try:
            answer = call(self.address, request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, _NO_GROUP), timeout=timeout)
        except OSError:
            return False
        return answer.code == ResponseCode.SUCCESS

    def http(self, path: str, timeout: float = 2.0) -> tuple[int, str]:
        """Status and text of `/metrics`, `/healthz` or `/readyz`; status 0 without an answer."""
        return http_get(format_address(self._host, self.port + 3), path, timeout=timeout)

    def wait_ready(self, timeout: float = 30.0) -> float:
        """Wait until it has a leader (perhaps itself); returns the seconds since its start.

        Raises:
            ProcessDiedError, TimeoutError: it ended, or took longer.
        """
        deadline = time.monotonic() + timeout
        while True:
            known = self.metadata()
            if known is not None and known.controller_leader_address:
                return time.monotonic() - self.started
            if not self.alive:
                raise ProcessDiedError(f"{self.name} ended with {self.exit_code}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} has no leader after {timeout:g} s, see {self.log_path}")
            time.sleep(_POLL)


class ControllerCluster:
    """A quorum of controllers, by member id (`n0`, `n1`, ...). A member that is started again keeps ports and store."""

    def __init__(
        self,
        folder: Path,
        *,
        ports: PortPool,
        members: int = 3,
        config: Mapping[str, str] | None = None,
        group: str = "demo",
        host: str = HOST,
    ) -> None:
        """Choose ports, write the secret; nothing runs yet. `config` are controller keys that override ours, `host` is
        a loopback address."""
        self._host = host
        self.folder = folder
        self.group = group
        self.ports = {f"n{number}": ports.block() for number in range(members)}
        self.processes: dict[str, ControllerProcess] = {}
        """The latest process of each member, running or not."""
        self._config = dict(config or {})
        self._own: dict[str, dict[str, str]] = {}
        self._secret = make_secret(folder / "raft.secret")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Remoting addresses of all members."""
        return tuple(format_address(self._host, port) for port in self.ports.values())

    @property
    def controller_addr(self) -> str:
        """The same as a value of the brokers' key `controllerAddr`."""
        return ";".join(self.addresses)

    def __getitem__(self, member: str) -> ControllerProcess:
        return self.processes[member]

    def __iter__(self) -> Iterator[ControllerProcess]:
        return iter(list(self.processes.values()))  # a member may be started during the iteration

    def start(self) -> None:
        """Start every member that is not running; returns at once."""
        for member in self.ports:
            if member not in self.processes or not self.processes[member].alive:
                self.start_member(member)

    def start_member(self, member: str, **own: str) -> ControllerProcess:
        """Start one member, for the first time or again; returns at once. `own`: keys of this member alone, from now
        on."""
        self._own.setdefault(member, {}).update(own)
        folder = self.folder / member
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "controller.conf"
        config.write_bytes(properties.dump(self.settings(member)))
        self.processes[member] = ControllerProcess(member, self.ports[member], config, folder=folder, host=self._host)
        return self.processes[member]

    def settings(self, member: str) -> dict[str, str]:
        """The configuration of `member`, by key."""
        port = self.ports[member]
        return {
            "controllerDLegerGroup": self.group,
            "controllerDLegerPeers": ";".join(
                f"{name}-{format_address(self._host, its)}" for name, its in self.ports.items()
            ),
            "controllerDLegerSelfId": member,
            "controllerStorePath": str(self.folder / member / "store"),
            "controllerRaftSecretFile": str(self._secret),
            "controllerListenHost": self._host,
            "controllerRaftPort": str(port + 1),
            "controllerGrpcPort": str(port + 2),
            "metricsPromExporterPort": str(port + 3),
            "metricsPromExporterHost": self._host,
            "logFormat": "json",
            **self._config,
            **self._own.get(member, {}),
        }

    def leader(self) -> str | None:
        """The member that decides now; None without one."""
        for process in self.processes.values():
            if process.alive and process.decides():
                return process.member
        return None

    def wait_leader(self, timeout: float = 30.0) -> str:
        """Wait until a member decides; its id.

        Raises:
            ProcessDiedError: the remaining processes are not a majority.
            TimeoutError: it took longer than `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            leader = self.leader()
            if leader is not None:
                return leader
            dead = [process for process in self if not process.alive]
            if len(self.processes) - len(dead) <= len(self.ports) // 2:
                ends = "\n".join(
                    f"{process.name} ended with {process.exit_code}:\n{process.tail()}" for process in dead
                )
                raise ProcessDiedError(f"too few controllers remain to elect a leader\n{ends}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no controller leads after {timeout:g} s, see {self.folder}")
            time.sleep(_POLL)

    def wait_ready(self, timeout: float = 30.0) -> str:
        """Wait until every running member has a leader, and one decides; the leader's id."""
        deadline = time.monotonic() + timeout
        for process in self:
            if process.alive:
                process.wait_ready(max(deadline - time.monotonic(), 0.1))
        return self.wait_leader(max(deadline - time.monotonic(), 0.1))

    def close(self) -> None:
        """End every member at once; harmless to repeat."""
        for process in self:
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def metadata(address: str, timeout: float = 1.0) -> GetMetaDataResponseHeader | None:
    """The quorum as the controller at `address` reports it (1005); None without an answer within `timeout` seconds."""
    try:
        answer = call(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO), timeout=timeout)
        return decode_header(GetMetaDataResponseHeader, answer.ext_fields or {})
    except (OSError, HeaderError):
        return None
