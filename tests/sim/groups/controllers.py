"""The controllers of the simulated group: real processes except for Raft, which is one list of committed entries.

At most one member leads at a time, and only after it has applied everything committed (what `tests.sim` proves of
the real one). Leadership moves when the leader dies, sleeps, is cut off, or at random; what is under way then may
commit or not, and the old leader does not learn which. A restarted member has lost its heartbeat table.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.invariants import History, check_transition
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, Options
from rocketmq_controller.failover import Failover
from rocketmq_controller.log import event_codec
from rocketmq_controller.log.proposals import Proposals
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.notifier import RoleNotifier
from rocketmq_controller.ports.remoting_api import RemotingApi
from rocketmq_controller.raft import NotLeaderError, RaftError
from rocketmq_controller.service import ControllerService
from rocketmq_formats.addresses import format_address
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_runtime.remoting.server import RemotingServer
from tests.sim.checks import Violation
from tests.sim.groups.loop import Host, Process, Schedule
from tests.sim.groups.net import Network
from tests.sim.groups.replica import GROUP

PORT = 9878
NAMES = ("n1", "n2", "n3")
HOSTS = {
    family: {name: f"{net}{number}" for number, name in enumerate(NAMES, 1)}
    for family, net in ((4, "10.0.1."), (6, "fd00::1:"))
}
"""IP addresses of the members by IP version."""
ELECTION = (0.4, 0.8)
"""Seconds between a leader's end and the next one's beginning."""


class _Metrics:
    def election(self, *_: object) -> None: ...
    def append(self, *_: object) -> None: ...
    def request(self, *_: object) -> None: ...


@cache
def _config(name: str, *, unclean: bool, family: int) -> LiveConfig:
    peers = ";".join(f"{one}-{format_address(host, PORT)}" for one, host in HOSTS[family].items())
    values = {
        "controllerDLegerPeers": peers,
        "controllerDLegerSelfId": name,
        "controllerRaftSecretFile": "/nowhere/secret",
        "controllerStorePath": "/nowhere/controller",
        "metricsPromExporterPort": "0",
        "enableElectUncleanMaster": str(unclean).lower(),
    }
    return LiveConfig(values, cast("Mapping[str, str]", {}))


class Member:
    """A controller's place; without `process` it is down. Stands for `raft.Replica` too."""

    def __init__(self, name: str, host: Host, quorum: "Quorum") -> None:
        self.name, self.host, self.quorum = name, host, quorum
        self.process: Process | None = None
        self.machine = ControllerStateMachine()
        self.failover: Failover | None = None
        self.table: HeartbeatTable | None = None
        self.applied = 0
        self.under_way: list[asyncio.Future[object]] = []

    def start(self, schedule: Schedule, network: Network) -> None:
        if self.process is not None:
            return
        process = self.process = Process(self.name, self.host, schedule, network)
        self.machine = ControllerStateMachine()
        self.applied = 0

        async def main() -> None:
            self.apply_all()
            replica, metrics = cast("Any", self), cast("Any", _Metrics())
            config = _config(self.name, unclean=self.quorum.unclean, family=self.quorum.family)
            self.table = HeartbeatTable()
            client = RemotingClient()
            proposals = Proposals(replica, self.machine, metrics)
            self.failover = Failover(
                config=config,
                replica=replica,
                machine=self.machine,
                proposals=proposals,
                heartbeats=self.table,
                notifier=RoleNotifier(client),
                metrics=metrics,
            )
            service = ControllerService(
                config=config,
                replica=replica,
                machine=self.machine,
                proposals=proposals,
                failover=self.failover,
                metrics=metrics,
            )
            server = RemotingServer(RemotingApi(service), host=self.host.address, port=PORT)
            self.failover.start()
            await server.start()

        async def begin() -> None:
            try:
                await main()
            except Exception as error:
                raise Violation(f"NoBugs: {self.name} does not start: {type(error).__name__}: {error}") from error

        process.run(lambda: process.create_task(begin()))

    def apply_all(self) -> None:
        log = self.quorum.log
        while self.applied < len(log):
            self.applied += 1
            self.machine.apply(self.applied, log[self.applied - 1])

    # raft.Replica, as the controller's shells use it

    @property
    def is_leader(self) -> bool:
        return self.quorum.leader is self

    def status(self) -> Any:
        members = [SimpleNamespace(id=name, host="") for name in NAMES]  # where, the configuration says
        return SimpleNamespace(
            leader_id=self.quorum.known_leader(self),
            is_serving=self.is_leader,
            term=1,
            configuration=SimpleNamespace(members=members, index=0),
        )

    def propose(self, command: bytes) -> "asyncio.Future[object]":
        assert self.process is not None
        future: asyncio.Future[object] = self.process.create_future()
        if not self.is_leader:
            future.set_exception(NotLeaderError(None))
        else:
            self.under_way.append(future)
            self.quorum.propose(self, command, future)
        return future

    async def barrier(self) -> None:
        pass


class Quorum:
    """Three members and what they agreed on."""

    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        on_group: Callable[[BrokerGroup], None],
        *,
        unclean: bool = False,
        family: int = 4,
    ) -> None:
        """`unclean`: enableElectUncleanMaster. `family`: the members' IP version."""
        self.unclean, self.family = unclean, family
        self.schedule, self.network, self.rng = schedule, network, schedule.rng
        self.log: list[bytes] = []
        self.leader: Member | None = None
        self.term = 0
        self.group: BrokerGroup | None = None
        """As committed."""
        self._history = History()
        self._on_group = on_group
        self._last_leader: Member | None = None
        self._commit_at = 0.0
        self._pending: list[tuple[Member, bytes, asyncio.Future[object]]] = []
        self._electing = False
        self.members = [Member(name, Host(name, HOSTS[family][name], schedule.rng), self) for name in NAMES]
        for member in self.members:
            network.hosts[member.host.address] = member.host
            member.start(schedule, network)
        self.watch()

    # Leadership

    def watch(self) -> None:
        """Ten times a second, as failover checks."""
        leader = self.leader
        if leader is not None and not self._fit(leader):
            self.depose()
        if self.leader is None and not self._electing:
            self._electing = True
            self.schedule.after(self.rng.uniform(*ELECTION) - 0.1, self._elect)
        self.schedule.after(0.1, self.watch)

    def _fit(self, member: Member) -> bool:
        """Runs, and reaches a majority both ways."""
        process = member.process
        if process is None or process.paused or member.failover is None:
            return False
        return sum(self._reach(member, other) for other in self.members if other is not member) >= 1

    def _reach(self, one: Member, other: Member) -> bool:
        process = other.process
        there = process is not None and not process.paused
        return there and not self.network.cut(one.host, other.host) and not self.network.cut(other.host, one.host)

    def depose(self) -> None:
        """The leader's lease is over; what it proposed commits or not, in order, and it is not told which."""
        leader, self.leader = self.leader, None
        if leader is None:
            return
        self._last_leader = leader
        kept = self.rng.randint(0, len(self._pending))
        pending, self._pending = self._pending, []
        for _, command, _ in pending[:kept]:
            self._commit(command)
        process = leader.process
        if process is not None:
            for future in leader.under_way:
                process.call_soon(_fail, future)
            process.call_soon(self._role_change, leader)
        leader.under_way = []

    def _elect(self) -> None:
        self._electing = False
        fit = [member for member in self.members if self._fit(member)]
        if self.leader is not None or not fit:
            return
        self.term += 1
        member = self.rng.choice(fit)
        process = member.process
        assert process is not None

        def lead() -> None:
            # at this moment, in its own turn: it has applied everything
            if self.leader is None and member.process is process and self._fit(member):
                member.apply_all()
                self.leader = member
                self._role_change(member)

        process.call_soon(lead)

    def _role_change(self, member: Member) -> None:
        if member.failover is not None:
            member.failover.on_role_change()

    def known_leader(self, member: Member) -> str | None:
        if self.leader is not None and (self.leader is member or self._reach(member, self.leader)):
            return self.leader.name
        # who hung or was cut off is still believed in for some time
        return None if self._last_leader is None or self._last_leader is member else self._last_leader.name

    # Entries

    def propose(self, member: Member, command: bytes, future: "asyncio.Future[object]") -> None:
        entry = (member, command, future)
        self._pending.append(entry)
        self._commit_at = max(self._commit_at, self.schedule.now + self.rng.uniform(0.0005, 0.006))

        def due() -> None:
            if entry not in self._pending:
                return
            if not self._fit(member):
                self.schedule.after(0.05, due)
                return
            while True:  # in order
                first = self._pending.pop(0)
                self._commit(first[1])
                self._settle(first[0], first[2])
                if first is entry:
                    break

        self.schedule.at(self._commit_at, due)

    def _commit(self, command: bytes) -> None:
        for event in event_codec.decode_events(command):
            before = self.group
            after = evolve(before, event)
            check_transition(before, event, after, Options())
            if after is not None and after is not before:
                self._history.observe(after)
                self.group = after
                assert after.broker_name == GROUP
                self._on_group(after)
        self.log.append(command)
        for member in self.members:
            if member is not self.leader:
                self.schedule.after(self.rng.uniform(0.001, 0.2), lambda member=member: self._lag(member))  # type: ignore[misc]

    def _lag(self, member: Member) -> None:
        process = member.process
        if process is not None and member.failover is not None:
            process.call_soon(member.apply_all)

    def _settle(self, member: Member, future: "asyncio.Future[object]") -> None:
        process = member.process
        if process is None:
            return
        index = len(self.log)

        def applied() -> None:
            if future in member.under_way:
                member.under_way.remove(future)
            if not future.done():
                while member.applied < index:
                    member.applied += 1
                    void = member.machine.apply(member.applied, self.log[member.applied - 1])
                    if member.applied == index:
                        future.set_result(void)
                if not future.done():
                    future.set_result(frozenset())

        process.call_soon(applied)

    # Faults

    def kill(self, member: Member) -> None:
        process = member.process
        if process is None:
            return
        if self.leader is member:
            self.depose()
        member.process = member.failover = member.table = None
        member.under_way = []
        self.network.close_all(process, silent=False)
        process.kill()


def _fail(future: "asyncio.Future[object]") -> None:
    if not future.done():
        future.set_exception(RaftError("leadership lost"))
