"""The two systems under test, behind one face: three controllers of ours, or three of Apache RocketMQ 5.3.3.

Groups of brokers of the same engine are put on top with `Quorum.group`.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.groups import Copies, ReplicaGroup, java_group, our_group
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from tests.lab.controller import start_controller

MEMBERS = 3


class Process(Protocol):
    """What both kinds of process can do."""

    def kill9(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def resident_bytes(self) -> int: ...


class Quorum(Protocol):
    """Three controllers that run."""

    needs_warm_up: bool
    """Whether a JIT has to see the work first."""
    with_java_client: bool
    """Whether sends are measured with Java's client too."""
    folder: Path
    """For what else the run needs; deleted after it."""

    @property
    def addresses(self) -> tuple[str, ...]: ...
    @property
    def processes(self) -> Mapping[str, Process]:
        """By address."""

    def stop_all(self) -> None:
        """SIGTERM, and wait."""

    def start_all(self) -> None:
        """Start again on the same folders; returns at once."""

    def group(self, copies: Copies, *, acting: bool = False) -> AbstractContextManager[ReplicaGroup]:
        """A group of brokers under these controllers, without members yet; ended with the context. `acting`: a slave
        serves consumers while there is no master."""


class _Ours:
    needs_warm_up = False

    def __init__(self, folder: Path, cluster: ControllerCluster, *, with_java_client: bool) -> None:
        self.folder, self.with_java_client = folder, with_java_client
        self._cluster = cluster

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._cluster.addresses

    @property
    def processes(self) -> Mapping[str, Process]:
        return {process.address: process for process in self._cluster}

    def stop_all(self) -> None:
        for process in self._cluster:
            process.stop()

    def start_all(self) -> None:
        self._cluster.start()

    def group(self, copies: Copies, *, acting: bool = False) -> AbstractContextManager[ReplicaGroup]:
        return closing(our_group(self.folder / "group", self.addresses, copies, acting=acting))


class _Java:
    """Heap and collector as the official start script has them, scaled to what three members need here."""

    options = ("-Xms256m", "-Xmx512m")
    needs_warm_up = True

    def __init__(self, folder: Path, ports: Mapping[str, int], *, with_java_client: bool) -> None:
        self.folder, self.with_java_client = folder, with_java_client
        self._ports = ports
        self._running = {name: self._start(name) for name in ports}

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{port}" for port in self._ports.values())

    @property
    def processes(self) -> Mapping[str, Process]:
        return {f"{HOST}:{self._ports[name]}": process for name, process in self._running.items()}

    def stop_all(self) -> None:
        for process in self._running.values():
            process.stop()

    def start_all(self) -> None:
        self._running = {name: self._start(name) for name in self._ports}

    def group(self, copies: Copies, *, acting: bool = False) -> AbstractContextManager[ReplicaGroup]:
        return closing(java_group(self.folder / "group", self.addresses, copies, acting=acting))

    def close(self) -> None:
        for process in self._running.values():
            process.close()

    def _start(self, name: str) -> JavaProcess:
        return start_controller(self.folder / name, member=name, peers=self._ports, options=self.options)


@contextmanager
def ours(folder: Path, *, with_java_client: bool) -> Iterator[Quorum]:
    """Three rocketmq-controller processes."""
    with PortPool() as ports, ControllerCluster(folder, ports=ports, members=MEMBERS) as cluster:
        cluster.start()
        cluster.wait_ready()
        yield _Ours(folder, cluster, with_java_client=with_java_client)


@contextmanager
def java(folder: Path, *, with_java_client: bool) -> Iterator[Quorum]:
    """Three controllers of Apache RocketMQ 5.3.3."""
    with PortPool() as ports:
        blocks = {f"n{number}": ports.block() for number in range(MEMBERS)}
        quorum = _Java(folder, blocks, with_java_client=with_java_client)
        try:
            yield quorum
        finally:
            quorum.close()
