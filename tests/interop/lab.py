"""The lab of the interop tests: our controllers, one official name server, and groups of official brokers.

Only processes started here are ever signalled. Every wait is bounded, and its error names what it waited for.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import LARGER_HEAP, QUICK_START, SMALL_HEAP, JavaProcess
from rocketmq_demo.calls import call
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats import broker_identity
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import BrokerReplicasInfo
from tests.gate.patience import patient
from tests.interop import logs
from tests.lab.mqadmin import Tools

CLUSTER = "DefaultCluster"
SUSPECT_TIMEOUT_MS = "6000"
"""brokerSuspectTimeoutMs here, twice the default: a JVM without processor time for three seconds is not hung."""
JAVA_BROKER = (*LARGER_HEAP, *QUICK_START)
"""Options of official brokers in tests: most of their processor time goes into the start."""
FILE_SIZE = 2 * servers.MIB
"""mappedFileSizeCommitLog here: small, so that logs have several files."""
QUIET = {"timerWheelEnable": False, "haSendHeartbeatInterval": 1}
"""So that official brokers of a test leave the processors to the others.

The wheel is for messages with a time of delivery of their own, which no one sends: it costs 1.6 s of processor time at
each start, a tenth of a core for good, and 0.2 s for each question about the broker.

ReputMessageService of 5.3.3 spins from a message that arrives before the confirm offset of the one before it, until the
confirm offset reaches the end of the log: under load always, with a whole core for each slave. Heartbeats carry it,
and a master sends one before the next message if the last write is this many milliseconds ago.
"""
NOT_CATCHUP_MS = 6000
"""haMaxTimeSlaveNotCatchup here instead of 15 s: how long sends stall while a slave hangs."""
_POLL = 0.05
_START = 180.0
"""Seconds for brokers to start; eight on an idle machine, but JVMs that share two cores with other work crawl."""
_REGISTER_MS = 10_000
"""How often brokers register at the name server, which tells slaves where to replicate from; Java's default of 30 s is
how long a slave may search for a new master."""
_REJOIN = 15.0
"""Seconds for a living slave to come back into the SyncStateSet by itself; six are usual."""


@dataclass(frozen=True)
class GroupView:
    """A broker group as the deciding controller reports it (1006)."""

    master_id: int | None
    master_epoch: int
    sync_state_set_epoch: int
    in_sync: frozenset[int]
    addresses: dict[int, str]
    alive: frozenset[int]


class JavaBroker:
    """An official broker: one folder (so one identity and one store), and a process in it that may be replaced."""

    def __init__(self, folder: Path, start: Callable[[Path, int], JavaProcess], ports: PortPool) -> None:
        self.folder = folder
        self._start, self._ports = start, ports
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again, on new ports; returns at once."""
        self.port = self._ports.broker()
        self.process = self._start(self.folder, self.port)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def identity_file(self) -> Path:
        return self.folder / "store" / broker_identity.FILE_NAME

    @property
    def identity(self) -> broker_identity.BrokerIdentity:
        """Its broker id, from its own file."""
        return broker_identity.decode_identity(self.identity_file.read_bytes())


class Lab:
    """The controllers and the name server, for all tests of a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = PortPool()
        self.controllers = ControllerCluster(
            folder / "controllers", ports=self.ports, group="lab", config={"brokerSuspectTimeoutMs": SUSPECT_TIMEOUT_MS}
        )
        self.nameserver_port = self.ports.single()
        self.nameserver: JavaProcess | None = None
        self.groups: list[Group] = []
        self._tools: Tools | None = None
        self._reported = False

    def start(self) -> None:
        self.controllers.start()
        self.nameserver = servers.start_nameserver(
            self.folder / "namesrv", port=self.nameserver_port, options=[*SMALL_HEAP, *QUICK_START]
        )
        self.controllers.wait_ready(_START)
        self.nameserver.wait_port(_START)

    @property
    def nameserver_address(self) -> str:
        return f"{HOST}:{self.nameserver_port}"

    def view(self, name: str) -> GroupView | None:
        """The group as the deciding controller reports it; None without one, or if the group is unknown."""
        for process in self.controllers:
            if not process.alive:
                continue
            question = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=f'["{name}"]'.encode())
            try:
                answer = call(process.address, question, timeout=0.5)
            except OSError:
                continue
            if answer.code == ResponseCode.SUCCESS:
                group = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table.get(name)
                if group is None:
                    return None
                replicas = [*group.in_sync_replicas, *group.not_in_sync_replicas]
                return GroupView(
                    master_id=group.master_broker_id,
                    master_epoch=group.master_epoch,
                    sync_state_set_epoch=group.sync_state_set_epoch,
                    in_sync=frozenset(replica.broker_id for replica in group.in_sync_replicas),
                    addresses={replica.broker_id: replica.broker_address for replica in replicas},
                    alive=frozenset(replica.broker_id for replica in replicas if replica.alive),
                )
        return None

    def mqadmin(self, *arguments: str) -> tuple[str, str]:
        """The official tool's standard output, and its standard error without the lines of the stack."""
        printed, complaint = self.tools.run(arguments)
        trace = [line for line in complaint.splitlines() if not line.startswith("\tat ")]
        return printed, "".join(line + "\n" for line in trace)

    @property
    def tools(self) -> Tools:
        """mqadmin, in one JVM for all tests."""
        if self._tools is None:
            self._tools = Tools(self.folder / "mqadmin")
        return self._tools

    def logs(self) -> Iterator[tuple[str, str]]:
        """The processes' logs, for the report of a failure; Java's only for the first failure, which often causes
        others."""
        yield "what the controllers decided", "\n".join(logs.decided(self.controllers))
        ours = logs.replicas(self.folder)
        if ours:
            yield "logs of our replicas", "\n".join(ours)
        if self._reported:
            return
        self._reported = True
        for path in sorted(self.folder.rglob(logs.JAVA)):
            lines = logs.shortened(path)
            if lines:
                yield str(path.relative_to(self.folder)), "\n".join(lines)

    def close(self) -> None:
        for group in self.groups:
            group.close()
        if self._tools is not None:
            self._tools.close()
        if self.nameserver is not None:
            self.nameserver.close()
        self.controllers.close()
        self.ports.close()


class Group:
    """Three official brokers of one name; broker 1 is started first and so becomes the first master."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name
        self.brokers: list[JavaBroker] = []
        self.restarted_slaves = 0
        """Live slaves that had to be restarted to rejoin, see `whole`."""
        lab.groups.append(self)

    def form(self) -> None:
        """Start the brokers and wait until all three are in sync."""
        self._add()
        self.wait("broker 1 as master", lambda view: view.master_id == 1, _START)
        self._add()
        self._add()
        self.wait("three replicas in sync", lambda view: view.in_sync == {1, 2, 3}, _START)

    def _add(self) -> None:
        self.brokers.append(
            JavaBroker(self.lab.folder / f"{self.name}-{len(self.brokers)}", self._start, self.lab.ports)
        )

    def _start(self, folder: Path, port: int) -> JavaProcess:
        return servers.start_broker(
            folder,
            port=port,
            controllers=self.lab.controllers.addresses,
            nameservers=[self.lab.nameserver_port],
            cluster=CLUSTER,
            name=self.name,
            # Acknowledged has to mean: on every replica of the SyncStateSet, so on every one that can be elected.
            config={
                "allAckInSyncStateSet": True,
                "registerNameServerPeriod": _REGISTER_MS,
                "haMaxTimeSlaveNotCatchup": NOT_CATCHUP_MS,
                "mappedFileSizeCommitLog": FILE_SIZE,
                **QUIET,
            },
            options=JAVA_BROKER,
        )

    @property
    def view(self) -> GroupView:
        """The controllers' current state of the group; waits for an answer."""
        return self.wait("a controller that tells of the group", lambda _: True, _START)

    def wait(self, what: str, condition: Callable[[GroupView], bool], timeout: float) -> GroupView:
        """The first state that fulfils `condition`."""
        deadline = time.monotonic() + patient(timeout)
        while True:
            view = self.lab.view(self.name)
            if view is not None and condition(view):
                return view
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout:g} s for {what}; now {view}")
            time.sleep(_POLL)

    def broker(self, broker_id: int | None) -> JavaBroker:
        """The broker that has this id, by its own file."""
        return next(broker for broker in self.brokers if broker.identity.broker_id == broker_id)

    @property
    def stores(self) -> dict[str, Path]:
        """The folder of each store."""
        return {broker.folder.name: broker.folder / "store" for broker in self.brokers}

    def whole(self) -> GroupView:
        """All three in sync again. A living slave that does not come back by itself is restarted.

        After an election that the old master survives (a hang, electMaster), a Java slave that registers at the name
        server before the new master gets the old master's HA address, connects there, and never disconnects. One that
        has more than the new master has to truncate, and 5.3.3 waits 90 s for one of its threads to do so.
        """

        def complete(view: GroupView) -> bool:
            return view.in_sync == {1, 2, 3} and view.master_id is not None

        self.lab.controllers.start()  # an earlier test may have failed between a fault and its repair
        for broker in self.brokers:
            if not broker.process.alive:
                self.restart(broker)
        try:
            return self.wait("three replicas in sync", complete, _REJOIN)
        except TimeoutError:
            view = self.view
            for broker_id in {1, 2, 3} - view.in_sync:
                self.restart(self.broker(broker_id))
                self.restarted_slaves += 1
            return self.wait("three replicas in sync", complete, _START)

    def restart(self, broker: JavaBroker) -> None:
        """Start a broker again, on another port; ended first if it still runs."""
        broker.process.close()
        broker.start()
        broker.process.wait_port(_START)

    def close(self) -> None:
        for broker in self.brokers:
            broker.process.close()
