"""A group of light agents in virtual time: real machines, real controller domain, simulated disks, no processes.

The one controller decides at once and forgets nothing; what can go wrong is told by the test: answers or notices lost,
power cut in the middle of a file, a broker killed or hung.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random

from rocketmq_controller.domain import decide, invariants
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.liveness import BrokerKey, HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, Options
from rocketmq_demo.agent.actions import (
    Action,
    Actions,
    Ask,
    ForgetApplied,
    Heartbeat,
    Report,
    SaveApplied,
    SaveIdentity,
)
from rocketmq_demo.agent.files import IdentityFiles
from rocketmq_demo.agent.machine import AgentMachine
from rocketmq_demo.agent.settings import AgentSettings
from rocketmq_formats.remoting.bodies import decode_body, encode_body
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from tests.sim.disk import SimCrash, SimDisk

CLUSTER, NAME = "C", "broker-a"
CONTROLLERS = ("10.0.1.1:9878", "10.0.1.2:9878")
"""The second one leads; the first one says so."""
FOLDER = Path("/store")
STEP = 0.05


class Node:
    """One broker's place: its disk stays, machine and address come and go."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.disk = SimDisk()
        self.disk.mkdir(FOLDER)
        self.lives = 0
        self.connection = 0
        self.address = ""
        self.machine: AgentMachine | None = None
        self.hung = False
        self.asked: list[RequestCode] = []
        self.crashes = 0
        self.known_id: int | None = None
        """What its disk holds, without asking the disk."""

    @property
    def broker_id(self) -> int:
        assert self.machine is not None
        assert self.machine.identity is not None
        return self.machine.identity.broker_id


class World:
    """Everything there is."""

    def __init__(self, nodes: int = 3) -> None:
        self.now = 1000.0
        self.nodes = [Node(number) for number in range(1, nodes + 1)]
        self.group: BrokerGroup | None = None
        self.heartbeats = HeartbeatTable()
        self.history = invariants.History()
        self.lose: Callable[[Node, Ask], bool] = lambda _node, _ask: False
        """Whether the answer to a request gets lost, after it was acted on."""
        self.leader_down = False
        self.notices_lost = False
        self.answered: dict[int, set[int]] = {}
        """Who answered probes with success, by epoch."""
        self._rng = Random(0)
        self._todo: deque[Callable[[], None]] = deque()

    # What the test does

    def start(self, node: Node) -> None:
        """Start or restart a broker, each time on another address."""
        node.lives += 1
        node.connection = node.number * 1000 + node.lives
        node.address = f"10.0.0.{node.number}:{10911 + 10 * node.lives}"
        try:
            identity, applied = IdentityFiles(FOLDER, node.disk).load(CLUSTER, NAME)
        except SimCrash:
            self._crashed(node)
            identity, applied = IdentityFiles(FOLDER, node.disk).load(CLUSTER, NAME)
        node.known_id = None if identity is None else identity.broker_id
        settings = AgentSettings(cluster_name=CLUSTER, broker_name=NAME, address=node.address, controllers=CONTROLLERS)
        node.machine = AgentMachine(
            settings, identity=identity, applied=applied, check_code=f"{node.address};{node.lives}", now=self.now
        )

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node)

    def kill(self, node: Node) -> None:
        """kill -9: its connections close."""
        node.machine, node.hung = None, False
        for gone in self.heartbeats.on_connection_closed(node.connection, self.now):
            self._lost(gone)
        for other in self._running():
            if node.lives and other.machine is not None and node.known_id is not None:
                self._do(other, other.machine.on_slave_closed(node.known_id, self.now))
        self._settle()

    def run(self, seconds: float) -> None:
        """Let time go on; every step every broker is probed."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for gone in self.heartbeats.expired(self.now):
                self._lost(gone)
            for node in self._running():
                if node.machine is not None:
                    self._do(node, node.machine.on_tick(self.now))
                    self._settle()
            for node in self._running():
                self.probe(node)

    def run_until(self, what: Callable[[], bool], seconds: float = 30.0) -> None:
        end = self.now + seconds
        while not what():
            assert self.now < end, "in vain"
            self.run(STEP)

    def probe(self, node: Node) -> bool:
        """Whether it takes a write."""
        assert node.machine is not None
        code, header = node.machine.on_probe(self.now)
        if code == ResponseCode.SUCCESS:
            self.answered.setdefault(header.master_epoch, set()).add(header.broker_id)
            assert len(self.answered[header.master_epoch]) == 1, self.answered
        return code == ResponseCode.SUCCESS

    def in_sync(self, *nodes: Node) -> Callable[[], bool]:
        """A condition for `run_until`: exactly these are in the SyncStateSet, and there is a master."""

        def holds() -> bool:
            group = self.group
            ids = {node.known_id for node in nodes}
            return group is not None and group.master_broker_id is not None and set(group.sync_state_set) == ids

        return holds

    def master(self) -> Node:
        assert self.group is not None
        return next(node for node in self.nodes if node.known_id == self.group.master_broker_id)

    # The controllers

    def _controller(self, node: Node, ask: Ask) -> RemotingCommand | None:
        node.asked.append(ask.code)
        asked = request(ask.code, ask.header, ask.body)
        if ask.code is RequestCode.CONTROLLER_GET_METADATA_INFO:
            leader = None if self.leader_down else CONTROLLERS[1]
            return response(
                asked, ResponseCode.SUCCESS, None, GetMetaDataResponseHeader(controller_leader_address=leader)
            )
        if self.leader_down:
            return None
        assert ask.address == CONTROLLERS[1], "only the leader decides"
        decision = self._decide(node, ask)
        body = b"" if decision.body is None else encode_body(decision.body)
        if self.lose(node, ask):
            return None
        return response(asked, decision.code, decision.remark, decision.header, body)

    def _decide(self, node: Node, ask: Ask) -> Decision:
        view = self.heartbeats.view(self.now)
        match ask.header:
            case GetNextBrokerIdRequestHeader() as header:
                return decide.get_next_broker_id(self.group, header)
            case ApplyBrokerIdRequestHeader() as header:
                return self._made(decide.apply_broker_id(self.group, header))
            case RegisterBrokerToControllerRequestHeader() as header:
                return self._made(decide.register_broker(self.group, header, view, connection_id=node.connection))
            case ElectMasterRequestHeader() as header:
                self.heartbeats.touch(BrokerKey(CLUSTER, NAME, header.broker_id), node.connection, self.now)
                return self._elect(header)
            case GetReplicaInfoRequestHeader():
                return decide.get_replica_info(self.group)
            case AlterSyncStateSetRequestHeader() as header:
                body = decode_body(SyncStateSet, ask.body)
                return self._made(decide.alter_sync_state_set(self.group, header, body, view))
        raise AssertionError(ask)

    def _elect(self, header: ElectMasterRequestHeader) -> Decision:
        decision = self._made(decide.elect_master(self.group, header, self.heartbeats.view(self.now), Options()))
        if decision.code == ResponseCode.SUCCESS:
            elected, body = decision.header, decision.body
            assert isinstance(elected, ElectMasterResponseHeader)
            assert isinstance(body, ElectMasterResponseBody)
            notice = NotifyBrokerRoleChangedRequestHeader(
                master_address=elected.master_address,
                master_epoch=elected.master_epoch,
                sync_state_set_epoch=elected.sync_state_set_epoch,
                master_broker_id=elected.master_broker_id,
            )
            agreed = SyncStateSet(
                sync_state_set=body.sync_state_set or frozenset(),
                sync_state_set_epoch=elected.sync_state_set_epoch or 0,
            )
            for node in self.nodes:
                self._todo.append(lambda node=node: self._notify(node, notice, agreed))
        return decision

    def _notify(self, node: Node, notice: NotifyBrokerRoleChangedRequestHeader, agreed: SyncStateSet) -> None:
        if node.machine is not None and not node.hung and not self.notices_lost:
            self._do(node, node.machine.on_notice(notice, agreed, self.now))

    def _made(self, decision: Decision) -> Decision:
        for event in decision.events:
            before = self.group
            self.group = evolve(before, event)
            invariants.check_transition(before, event, self.group, Options())
            if self.group is not None:
                self.history.observe(self.group)
        return decision

    def _lost(self, key: BrokerKey) -> None:
        if self.group is not None and self.group.master_broker_id == key.broker_id:
            self._elect(ElectMasterRequestHeader(broker_name=NAME))

    # The agents

    def _do(self, node: Node, actions: Actions) -> None:
        machine = node.machine
        for action in actions:
            self._todo.append(lambda action=action: self._do_one(node, machine, action))

    def _settle(self) -> None:
        while self._todo:
            self._todo.popleft()()

    def _do_one(self, node: Node, machine: AgentMachine | None, action: Action) -> None:
        if machine is None or node.machine is not machine:
            return  # of an earlier life
        files = IdentityFiles(FOLDER, node.disk)
        try:
            match action:
                case Ask():
                    self._do(node, machine.on_answer(action, self._controller(node, action), self.now))
                case Heartbeat():
                    if not self.leader_down:
                        self.heartbeats.on_heartbeat(action.header, node.connection, self.now)
                case Report():
                    self._report(node, machine, action)
                case SaveApplied(applied):
                    files.save_applied(applied)
                    self._do(node, machine.on_stored(action, self.now))
                case SaveIdentity(identity):
                    files.save_identity(identity)
                    node.known_id = identity.broker_id
                    self._do(node, machine.on_stored(action, self.now))
                case ForgetApplied():
                    files.forget_applied()
                    self._do(node, machine.on_stored(action, self.now))
        except SimCrash:
            self._crashed(node)
            self.kill(node)
            self.start(node)

    def _report(self, node: Node, machine: AgentMachine, report: Report) -> None:
        other = next((one for one in self._running() if one.address == report.address), None)
        if other is None or other.machine is None:
            self._do(node, machine.on_report_answer(report, None, self.now))
            return
        code, header, actions = other.machine.on_report(report.header, self.now)
        self._do(other, actions)
        self._do(node, machine.on_report_answer(report, header if code == ResponseCode.SUCCESS else None, self.now))

    def _crashed(self, node: Node) -> None:
        node.crashes += 1
        node.disk.crash(self._rng)

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if node.machine is not None and not node.hung]
