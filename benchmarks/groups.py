"""A group of brokers on top of a quorum, behind one face: brokers with sidecars of ours, or Apache's Java brokers.

Each engine's brokers register at a name server of their own engine and follow controllers of their own engine. Both
keep their defaults (files of 1 GiB, asynchronous flush) except for what `Copies` says and what is noted below.
"""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.broker import OfficialBroker
from rocketmq_demo.apache.ports import HOST, PortPool
from rocketmq_demo.engine import Running
from rocketmq_demo.replica import NameServer, Replica

CLUSTER = "bench"
NAME = "broker-a"
FILE_SIZE = 1024 * 1024 * 1024
_START_TIMEOUT = 90.0
_JAVA_HEAP = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
_COMMON = {"mappedFileSizeCommitLog": FILE_SIZE, "diskMaxUsedSpaceRatio": 95}


class Copies(enum.Enum):
    """Which copies a send waits for."""

    ALL = "every member of the SyncStateSet"
    MASTER = "the master's alone"


class Member(Protocol):
    """One replica; folder and identity stay, processes and address come and go."""

    @property
    def label(self) -> str: ...
    @property
    def address(self) -> str:
        """host:port of the broker; empty before the first start."""

    @property
    def commit_log(self) -> Path:
        """The folder of the commit log's files."""

    @property
    def process(self) -> Running: ...
    def launch(self) -> None:
        """Start its processes on ports of their own; returns at once."""


class ReplicaGroup(Protocol):
    """A name server and as many replicas as were added."""

    @property
    def nameservers(self) -> Sequence[str]: ...
    @property
    def members(self) -> Sequence[Member]: ...
    def add(self) -> Member:
        """Another replica with an empty store, not started."""

    def close(self) -> None:
        """End everything."""


class OurMember(Replica):
    """A broker of ours and its sidecar."""

    @property
    def commit_log(self) -> Path:
        return self.folder / "store" / "commitlog"


class OurGroup:
    """Implements `ReplicaGroup`."""

    def __init__(self, folder: Path, controllers: Sequence[str], copies: Copies) -> None:
        self._folder, self._controllers = folder, controllers
        self._ports = PortPool()
        self._nameserver = NameServer(folder / "namesrv", port=self._ports.single())
        self._nameserver.wait_listening()
        self._config = {**_COMMON, "durability": "strict" if copies is Copies.ALL else "relaxed"}
        self.members: list[OurMember] = []

    @property
    def nameservers(self) -> Sequence[str]:
        return [self._nameserver.address]

    def add(self) -> OurMember:
        label = f"broker-{len(self.members) + 1}"
        member = OurMember(
            label,
            folder=self._folder / label,
            ports=self._ports,
            controllers=self._controllers,
            nameservers=self.nameservers,
            cluster=CLUSTER,
            name=NAME,
            config=self._config,
        )
        self.members.append(member)
        return member

    def close(self) -> None:
        for member in self.members:
            member.close()
        self._nameserver.close()
        self._ports.close()


class JavaMember(OfficialBroker):
    """A broker of Apache RocketMQ 5.3.3."""

    @property
    def commit_log(self) -> Path:
        return self.folder / "store" / "commitlog"


class JavaGroup:
    """Implements `ReplicaGroup`."""

    def __init__(self, folder: Path, controllers: Sequence[str], copies: Copies) -> None:
        self._folder, self._controllers = folder, controllers
        self._ports = PortPool()
        port = self._ports.single()
        self.nameservers = [f"{HOST}:{port}"]
        self._nameserver = servers.start_nameserver(folder / "namesrv", port=port)
        self._nameserver.wait_port(_START_TIMEOUT)
        self._config = {
            **_COMMON,
            "allAckInSyncStateSet": copies is Copies.ALL,
            # The lab's small files are no default of Java's.
            "mappedFileSizeConsumeQueue": 300_000 * 20,
            "maxHashSlotNum": 5_000_000,
            "maxIndexNum": 20_000_000,
            # In Java's favour: slaves learn a new master's HA address when they register, 30 s apart by default.
            "registerNameServerPeriod": 10_000,
        }
        self.members: list[JavaMember] = []

    def add(self) -> JavaMember:
        label = f"broker-{len(self.members) + 1}"
        member = JavaMember(
            label,
            folder=self._folder / label,
            ports=self._ports,
            controllers=self._controllers,
            nameservers=self.nameservers,
            cluster=CLUSTER,
            name=NAME,
            config=self._config,
            heap=_JAVA_HEAP,
        )
        self.members.append(member)
        return member

    def close(self) -> None:
        for member in self.members:
            member.close()
        self._nameserver.close()
        self._ports.close()
