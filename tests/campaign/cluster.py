"""The processes of one round: controllers, a name server and one broker group, each node in its own namespace.

Ports are RocketMQ's own, since every node has its own address. A replica keeps its disk, its identity and its address
over all restarts.
"""

import asyncio
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from rocketmq_demo.apache import processes as java
from rocketmq_demo.processes import OwnedProcess, clean_environment
from tests.campaign import wire
from tests.campaign.disks import Disk
from tests.campaign.network import Network
from tests.campaign.plan import Plan
from tests.campaign.shim import Shim

CLUSTER = "Campaign"
GROUP = "broker-a"
MIB = 1 << 20
FILE_SIZE = 8 * MIB
"""Bytes of one file of the commit log."""
CONTROLLER_PORT, RAFT_PORT, NAMESRV_PORT, BROKER_PORT, HA_PORT = 9878, 9879, 9876, 10911, 10912

_NATIVE = {"metricsPromExporterPort": 0, "sidecarGrpcPort": 0, "logFormat": "json"}
_OFFICIAL = {"maxHashSlotNum": 50_000, "maxIndexNum": 200_000, "diskMaxUsedSpaceRatio": 95}
"""Index files of 400 MB each otherwise, and no sends on a machine whose disk is well used."""


def node_names(plan: Plan) -> list[str]:
    """Every node of a round."""
    controllers = [f"c{number}" for number in range(plan.controllers)]
    return [*controllers, "n", *(f"b{number}" for number in range(1, plan.replicas + 1)), "client", "stranger"]


JAVA_MEMORY: Final = ("-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g")
"""Of an official broker. Each HA thread has buffers of 4 MiB, and one that gets none ends without a word."""


class Node:
    """A machine: a namespace, a disk of its own or a folder, its knobs, its processes by name."""

    disk: Disk | None = None

    def __init__(self, name: str, folder: Path, network: Network, shim: Shim) -> None:
        self.name = name
        self.folder = folder
        self.address = network.addresses[name]
        self.shim = shim
        self.processes: dict[str, OwnedProcess] = {}
        self._prefix = network.command(name)

    @property
    def store(self) -> Path:
        return (self.folder if self.disk is None else self.disk.path) / "store"

    @property
    def alive(self) -> bool:
        """Whether all its processes run."""
        return all(process.alive for process in self.processes.values())

    def run(self, part: str, module: str, config: Path) -> None:
        """Start one of our servers."""
        self.processes[part] = OwnedProcess(
            f"{self.name}-{part}",
            [*self._prefix, sys.executable, "-m", module, "-c", str(config)],
            folder=self.folder / part,
            environment={**clean_environment(), **self.shim.environment},
        )

    def run_java(self, part: str, main: str, config: Path) -> None:
        """Start an official server; it ends when this process does."""
        folder = self.folder / part
        arguments = [main, "-c", str(config)]
        command = java.command(
            java.TETHER,
            arguments,
            folder=folder,
            options=(*JAVA_MEMORY, *java.QUICK_START),
            logging="broker",
        )
        self.processes[part] = OwnedProcess(
            f"{self.name}-{part}",
            [*self._prefix, *command],
            folder=folder,
            environment={**java.environment(), **self.shim.environment},
            stdin_open=True,
        )

    def signal(self, number: signal.Signals, part: str | None = None) -> None:
        """Signal one of its processes, or all; SIGKILL waits for the end."""
        for name, process in self.processes.items():
            if part in {None, name} and process.alive:
                match number:
                    case signal.SIGKILL:
                        process.kill9()
                    case signal.SIGSTOP:
                        process.suspend()
                    case signal.SIGCONT:
                        process.resume()
                    case _:
                        process.stop()

    def properties(self, name: str, values: Mapping[str, object]) -> Path:
        """Write a configuration file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        lines = (f"{key}={str(value).lower() if isinstance(value, bool) else value}\n" for key, value in values.items())
        path.write_text("".join(lines))
        return path


class Controller(Node):
    """One member of the quorum."""

    secret: Path
    peers: Mapping[str, str]

    def start(self) -> None:
        """Start it, for the first time or again."""
        values = {
            "controllerDLegerGroup": "campaign",
            "controllerDLegerPeers": ";".join(f"{name}-{host}:{CONTROLLER_PORT}" for name, host in self.peers.items()),
            "controllerDLegerSelfId": self.name,
            "controllerStorePath": self.store,
            "controllerRaftSecretFile": self.secret,
            "controllerRaftPort": RAFT_PORT,
            "controllerGrpcPort": 0,
            "metricsPromExporterPort": 0,
            "logFormat": "json",
        }
        self.run("controller", "rocketmq_controller", self.properties("controller.conf", values))


class Replica(Node):
    """A broker and its sidecar on one disk, or an official broker."""

    config: Mapping[str, object]
    official = False

    def start(self) -> None:
        """Start all its processes, for the first time or again."""
        values: dict[str, object] = {
            **self.config,
            "brokerIP1": self.address,
            "brokerIP2": self.address,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.commit_log,
        }
        self.properties("broker.conf", values)
        for part in self.parts:
            self.restart(part)

    @property
    def commit_log(self) -> Path:
        return self.store / "commitlog"

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of its processes."""
        return ("broker",) if self.official else ("sidecar", "broker")

    def restart(self, part: str) -> None:
        """Start one that has ended."""
        file = self.folder / "broker.conf"
        if self.official:
            self.run_java(part, "org.apache.rocketmq.broker.BrokerStartup", file)
        else:
            self.run(part, f"rocketmq_{part}", file)


class GroupState(msgspec.Struct, frozen=True):
    """A controller's answer to 1006."""

    master: int | None
    master_address: str
    master_epoch: int
    in_sync: frozenset[int]
    alive: frozenset[int]
    addresses: dict[int, str]
    set_epoch: int


class Cluster:
    """Everything of a round that runs."""

    def __init__(self, plan: Plan, folder: Path, network: Network, library: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.network = network
        self.disks: list[Disk] = []
        folder.mkdir(parents=True)
        secret, replication_secret = _secret(folder / "raft.secret"), _secret(folder / "replication.secret")
        names = node_names(plan)

        def shim(name: str) -> Shim:
            return Shim(library, folder / f"{name}.knobs")

        self.controllers = [
            Controller(name, folder / name, network, shim(name))
            for name in names
            if name.startswith("c") and name[1:].isdecimal()
        ]
        peers = {controller.name: controller.address for controller in self.controllers}
        for controller in self.controllers:
            controller.secret, controller.peers = secret, peers
            controller.disk = self._disk(controller.name, size=64 * MIB)
        self.name_server = Node("n", folder / "n", network, shim("n"))
        self.replicas = [Replica(name, folder / name, network, shim(name)) for name in names if name.startswith("b")]
        for replica in self.replicas:
            replica.disk = self._disk(replica.name, size=1024 * MIB)
            replica.official = names.index(replica.name) - names.index("b1") < plan.story.official
            replica.config = {
                "brokerClusterName": CLUSTER,
                "brokerName": GROUP,
                "listenPort": BROKER_PORT,
                "haListenPort": HA_PORT,
                "enableControllerMode": True,
                "controllerAddr": ";".join(self.controller_addresses),
                "namesrvAddr": f"{self.name_server.address}:{NAMESRV_PORT}",
                "mappedFileSizeCommitLog": FILE_SIZE,
                "mappedFileSizeConsumeQueue": 20 * 5000,
                "flushDiskType": plan.story.flush,
                **(_OFFICIAL if replica.official else {**_NATIVE, "durability": plan.story.durability}),
                **({} if plan.story.official else {"haReplicationSecretFile": replication_secret}),
                **plan.story.broker_config,
            }

    def _disk(self, name: str, *, size: int) -> Disk | None:
        if not self.plan.story.disks:
            return None
        disk = Disk(self.folder, name, size=size)
        self.disks.append(disk)
        return disk

    @property
    def controller_addresses(self) -> list[str]:
        return [f"{controller.address}:{CONTROLLER_PORT}" for controller in self.controllers]

    def start(self) -> None:
        """Start everything; returns at once."""
        for controller in self.controllers:
            controller.start()
        values = {
            "listenPort": NAMESRV_PORT,
            "kvConfigPath": self.name_server.folder / "kv.json",
            "logFormat": "json",
            "configStorePath": self.name_server.folder / "kept.properties",
        }
        self.name_server.run("namesrv", "rocketmq_namesrv", self.name_server.properties("namesrv.conf", values))
        for replica in self.replicas:
            replica.start()

    def replica_at(self, address: str) -> Replica | None:
        """The replica whose broker has this address."""
        host = address.rpartition(":")[0]
        return next((replica for replica in self.replicas if replica.address == host), None)

    async def state(self, timeout: float = 0.5) -> GroupState | None:
        """The group as the leading controller reports it; None if no controller answers as leader."""
        for answer in await asyncio.gather(*(get_state(address, timeout) for address in self.controller_addresses)):
            if answer is not None:
                return answer
        return None

    async def master(self) -> Replica | None:
        """The master, as the controllers report it."""
        state = await self.state()
        return None if state is None else self.replica_at(state.master_address)

    async def leader(self) -> Controller | None:
        """The controller that answers as leader; None if none does."""
        answers = await asyncio.gather(*(get_state(address, 0.5) for address in self.controller_addresses))
        pairs = zip(self.controllers, answers, strict=True)
        return next((controller for controller, answer in pairs if answer is not None), None)

    async def settled(self, timeout: float) -> bool:
        """Wait until all replicas live and are in sync, and all controllers answer; False if that takes longer.
        Processes that have ended by themselves, as with a full disk, are restarted, as a supervisor does."""
        deadline = asyncio.get_running_loop().time() + timeout
        next_restart = 0.0
        while asyncio.get_running_loop().time() < deadline:
            if asyncio.get_running_loop().time() > next_restart:
                next_restart = asyncio.get_running_loop().time() + 2.0
                self._restart_ended()
            state = await self.state()
            all_replicas = len(self.replicas)
            if state is not None and len(state.in_sync & state.alive) == all_replicas and await self._quorum_whole():
                return True
            await asyncio.sleep(0.2)
        return False

    def _restart_ended(self) -> None:
        for controller in self.controllers:
            if not controller.alive:
                controller.start()
        for replica in self.replicas:
            for part in replica.parts:
                if not replica.processes[part].alive:
                    replica.restart(part)

    async def _quorum_whole(self) -> bool:
        async def answers(address: str) -> bool:
            try:
                connection = await wire.Connection.open(address, 0.5)
            except OSError:
                return False
            try:
                answer = await connection.ask(1005, {}, timeout=0.5)
                return bool(answer.fields.get("controllerLeaderAddress"))
            except wire.RemotingError:
                return False
            finally:
                connection.close()

        return all(await asyncio.gather(*map(answers, self.controller_addresses)))

    def close(self) -> None:
        """End all processes, then the disks, with all stores and logs."""
        self.end_processes()
        for disk in self.disks:
            disk.close()

    def end_processes(self) -> None:
        """Kill all processes at once, as a crash does."""
        for node in [*self.replicas, *self.controllers, self.name_server]:
            for process in node.processes.values():
                process.close()

    def keep(self, target: Path) -> None:
        """Copy the logs of all processes and what can be read of the replicas' stores, so that a failure can be
        examined."""
        for path in self.folder.glob("*/*/out.log"):
            shutil.copy(path, target / f"{path.parent.parent.name}-{path.parent.name}.log")
        for replica in self.replicas:
            with suppress(shutil.Error):
                shutil.copytree(replica.store, target / f"{replica.name}-store", ignore=_NOT_KEPT)
            if replica.official:
                shutil.copytree(replica.folder / "broker" / "logs", target / f"{replica.name}-logs", dirs_exist_ok=True)


_NOT_KEPT = shutil.ignore_patterns("index", "*.sock")
"""Files of a store that are large and explain nothing, or cannot be copied."""


def _secret(path: Path) -> Path:
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return path


async def get_state(address: str, timeout: float) -> GroupState | None:
    """Request 1006 to one controller over a connection of its own; None unless it leads and has the group."""
    try:
        connection = await wire.Connection.open(address, timeout)
    except OSError:
        return None
    try:
        return await ask_state(connection, timeout)
    except wire.RemotingError:
        return None
    finally:
        connection.close()


async def ask_state(connection: wire.Asks, timeout: float) -> GroupState | None:
    """Request 1006; None unless this controller leads and has the group. Raises RemotingError."""
    answer = await connection.ask(1006, {}, msgspec.json.encode([GROUP]), timeout=timeout)
    if answer.code != wire.SUCCESS:
        return None
    table = msgspec.json.decode(answer.body).get("replicasInfoTable") or {}
    info = table.get(GROUP)
    if info is None:
        return None
    members = {True: info.get("inSyncReplicas") or [], False: info.get("notInSyncReplicas") or []}
    replicas = [*members[True], *members[False]]
    return GroupState(
        master=info.get("masterBrokerId"),
        master_address=info.get("masterAddress") or "",
        master_epoch=info.get("masterEpoch") or 0,
        in_sync=frozenset(replica["brokerId"] for replica in members[True]),
        alive=frozenset(replica["brokerId"] for replica in replicas if replica.get("alive")),
        addresses={replica["brokerId"]: replica.get("brokerAddress") or "" for replica in replicas},
        set_epoch=info.get("syncStateSetEpoch") or 0,
    )
