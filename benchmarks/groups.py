"""A group of brokers on top of a quorum, behind one face: brokers with sidecars of ours, or Apache's Java brokers.

Each engine's brokers register at a name server of their own engine and follow controllers of their own engine. Both
keep their defaults (files of 1 GiB, asynchronous flush) except for what `Copies` says and what is noted below.
"""

import enum
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.broker import OfficialBroker
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.engines.engine import Running
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import make_secret
from rocketmq_demo.replica import Config, NameServer, Replica

CLUSTER = "bench"
NAME = "broker-a"
FILE_SIZE = 1024 * 1024 * 1024
_START_TIMEOUT = 90.0
_JAVA_HEAP = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
_ACTING: Config = {"enableSlaveActingMaster": True}
_SHOW_ACTING: Config = {"supportActingMaster": True, "notifyMinBrokerIdChanged": True}
"""Of the name servers."""
M = TypeVar("M", bound=Replica | OfficialBroker)


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


class JavaMember(OfficialBroker):
    """A broker of Apache RocketMQ 5.3.3."""

    @property
    def commit_log(self) -> Path:
        return self.folder / "store" / "commitlog"


class Group(Generic[M]):
    """Implements `ReplicaGroup` for the members of either engine."""

    def __init__(
        self,
        folder: Path,
        controllers: Sequence[str],
        *,
        ports: PortPool,
        nameserver: NameServer | JavaProcess,
        address: str,
        make: Callable[..., M],
        config: Config,
    ) -> None:
        """`address` is that of `nameserver`, which is closed with the group."""
        self.nameservers = [address]
        self.members: list[M] = []
        self._folder, self._controllers, self._ports = folder, controllers, ports
        self._nameserver, self._make = nameserver, make
        self._config = {"mappedFileSizeCommitLog": FILE_SIZE, "diskMaxUsedSpaceRatio": 95, **config}

    def add(self) -> M:
        """Another replica with an empty store, not started."""
        label = f"broker-{len(self.members) + 1}"
        member = self._make(
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
        """End everything."""
        for member in self.members:
            member.close()
        self._nameserver.close()
        self._ports.close()


def our_group(folder: Path, controllers: Sequence[str], copies: Copies, *, acting: bool) -> Group[OurMember]:
    """The name server listens. `acting`: a slave serves consumers while there is no master (RIP-32)."""
    ports = PortPool()
    nameserver = NameServer(folder / "namesrv", port=ports.single(), config=_SHOW_ACTING if acting else None)
    nameserver.wait_listening()
    return Group(
        folder,
        controllers,
        ports=ports,
        nameserver=nameserver,
        address=nameserver.address,
        make=OurMember,
        config={
            "durability": "strict" if copies is Copies.ALL else "relaxed",
            "haReplicationSecretFile": make_secret(folder / "replication.secret"),
            **(_ACTING if acting else {}),
        },
    )


def java_group(folder: Path, controllers: Sequence[str], copies: Copies, *, acting: bool) -> Group[JavaMember]:
    """As `our_group`."""
    ports = PortPool()
    port = ports.single()
    nameserver = servers.start_nameserver(folder / "namesrv", port=port, config=_SHOW_ACTING if acting else None)
    nameserver.wait_port(_START_TIMEOUT)
    return Group(
        folder,
        controllers,
        ports=ports,
        nameserver=nameserver,
        address=f"{HOST}:{port}",
        make=partial(JavaMember, heap=_JAVA_HEAP),
        config={
            "allAckInSyncStateSet": copies is Copies.ALL,
            # The lab's small files are no default of Java's.
            "mappedFileSizeConsumeQueue": 300_000 * 20,
            "maxHashSlotNum": 5_000_000,
            "maxIndexNum": 20_000_000,
            # In Java's favour: slaves learn a new master's HA address when they register, 30 s apart by default.
            "registerNameServerPeriod": 10_000,
            # Without slaveReadEnable an official slave refuses pulls, also while it acts.
            **({**_ACTING, "slaveReadEnable": True} if acting else {}),
        },
    )
