"""A group of control machines in virtual time: real machines, identity files on simulated disks, the controllers' real
domain; brokers and replication are a few lines each that keep the writer lock honest.

The controllers decide at once and forget nothing. What can go wrong is told by the test: answers or notices lost, power
cut in the middle of a file, sidecar or broker killed or hung, a process stopped before any step. After every step the
invariants are checked.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random

from rocketmq_controller.domain import decide, invariants
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.liveness import BrokerKey, HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, Options
from rocketmq_formats.remoting.bodies import decode_body, encode_body
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_formats.replica_link import (
    PROTOCOL,
    Fenced,
    Following,
    FromSidecar,
    Grant,
    Hello,
    Lease,
    Prepare,
    Prepared,
    Release,
    Released,
    RoleNotice,
    Welcome,
)
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain import options as machine_options
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Adopt,
    Ask,
    Beat,
    Begin,
    Disconnect,
    Follow,
    ForgetApplied,
    Identified,
    Note,
    Opened,
    SaveApplied,
    SaveIdentity,
    SetRefused,
    StopReplication,
    Tell,
)
from rocketmq_sidecar.domain.machine import ControlMachine
from rocketmq_sidecar.meta_files import IdentityFiles
from tests.sidecar import told
from tests.sim.disk import SimCrash, SimDisk

CLUSTER, NAME = "C", "broker-a"
CONTROLLERS = ("10.0.1.1:9878", "10.0.1.2:9878", "10.0.1.3:9878")
FOLDER = Path("/store")
STEP = 0.02
FILE_SIZE = 65_536
CALL_TIMEOUT = 3.0


class Broker:
    """What a broker process is to its sidecar."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.role = "fenced"
        self.epoch = 0
        self.lease_until = float("-inf")
        self.broker_id: int | None = None
        self.reason = ""
        self.inbox: deque[FromSidecar] = deque()
        self.hung = False

    def fence(self, reason: str) -> None:
        self.role, self.reason, self.lease_until = "fenced", reason, float("-inf")
        if self.node.lock == "broker":
            self.node.lock = None

    def obey(self, message: FromSidecar) -> Prepared | Released | None:
        node = self.node
        match message:
            case Welcome():
                assert self.broker_id in {None, message.broker_id}
                self.broker_id = message.broker_id
            case Prepare():
                assert message.epoch > self.epoch or self.role != "master", "an epoch is prepared once"
                self.role, self.epoch, self.lease_until = "preparing", message.epoch, float("-inf")
                assert node.lock in {None, "broker"}, "OneWriter: replication still has the lock"
                node.lock = "broker"
                return Prepared(message.epoch, node.max_offset)
            case Grant():
                assert (self.role, self.epoch) == ("preparing", message.epoch)
                assert node.epochs[-1] == message.epoch, "the epoch is durable before it is granted"
                self.role, self.lease_until = "master", message.lease_until
            case Lease():
                assert (self.role, self.epoch) == ("master", message.epoch)
                self.lease_until = message.until
            case Release():
                self.fence("released")
                return Released(node.max_offset)
            case Following():
                assert self.role != "master", "a master is released first"
                self.fence("following")
                self.role, self.epoch = "slave", message.epoch
            case Fenced():
                self.fence(message.reason)
            case _:
                raise AssertionError(message)
        return None


class Node:
    """One replica's place: disk and log stay, processes and address come and go."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.disk = SimDisk()
        self.disk.mkdir(FOLDER)
        self.lives = 0
        self.connection = 0
        self.broker_lives = 0
        self.machine: ControlMachine | None = None
        self.broker: Broker | None = None
        self.linked = False
        self.links = 0
        self.hung = False
        """The sidecar."""
        self.lock: str | None = None
        self.max_offset = 100
        self.epochs: list[int] = [-1]
        self.replicating: Follow | Begin | None = None
        self.asked: list[RequestCode] = []
        self.told: list[FromSidecar] = []
        self.notes: list[Note] = []
        self.begin_fails: str | None = None
        self.crashes = 0
        self.steps = 0
        self.crash_at_step: int | None = None
        """Kill the sidecar before the step with this number."""

    @property
    def address(self) -> str:
        return f"10.0.0.{self.number}:{10911 + 10 * self.broker_lives}"

    @property
    def broker_id(self) -> int:
        assert self.machine is not None
        assert self.machine.steward.broker_id is not None
        return self.machine.steward.broker_id

    def files(self) -> IdentityFiles:
        return IdentityFiles(FOLDER, cluster_name=CLUSTER, broker_name=NAME, disk=self.disk)


class World:
    """Everything there is."""

    def __init__(self, nodes: int = 3, *, seed: int = 0, relaxed: bool = False) -> None:
        self.now = 1000.0
        self.relaxed = relaxed
        self.nodes = [Node(number) for number in range(1, nodes + 1)]
        self.group: BrokerGroup | None = None
        self.heartbeats = HeartbeatTable()
        self.history = invariants.History()
        self.leader: str | None = CONTROLLERS[1]
        self.deaf: set[str] = set()
        """Controllers that answer nothing."""
        self.lose: Callable[[Node, Ask], bool] = lambda _node, _ask: False
        """Whether the answer to a request gets lost, after it was acted on."""
        self.notices_lost = False
        self.trace: list[str] = []
        """What was done, for stories: heartbeats, polls and leases left out."""
        self.resets = 0
        self.granted: dict[int, int] = {}
        """Node number by epoch."""
        self._rng = Random(seed)
        self._timeouts: list[tuple[float, Callable[[], None]]] = []
        self._todo: deque[tuple[Node, int, Callable[[], None]]] = deque()

    # What the test does

    def start(self, node: Node) -> None:
        """Start or restart both processes, the broker at another address."""
        self.start_sidecar(node)
        self.start_broker(node)

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node)

    def start_sidecar(self, node: Node) -> None:
        node.lives += 1
        node.connection = node.number * 1000 + node.lives
        try:
            kept = node.files().load()
        except SimCrash:
            self._power_cut(node)
            kept = node.files().load()
        options = machine_options.Options(
            cluster_name=CLUSTER, broker_name=NAME, controllers=CONTROLLERS, relaxed=self.relaxed
        )
        node.machine = ControlMachine(options, identity=kept.identity, applied=kept.applied)
        self._link(node)

    def start_broker(self, node: Node) -> None:
        node.broker_lives += 1
        node.broker = Broker(node)
        self._link(node)

    def kill(self, node: Node) -> None:
        """kill -9 of both."""
        self.kill_broker(node)
        self.kill_sidecar(node)

    def kill_sidecar(self, node: Node) -> None:
        node.machine, node.hung, node.linked, node.replicating = None, False, False, None
        if node.lock == "sidecar":
            node.lock = None
        if node.broker is not None and not node.broker.hung:
            node.broker.fence("link lost")
            node.broker.epoch = 0
        self._connection_closed(node)
        for master in self.nodes:
            if isinstance(master.replicating, Begin):
                self._later(master, lambda master=master: self._wish(master))  # a slave's connection closed
        self._settle()

    def kill_broker(self, node: Node) -> None:
        if node.broker is not None:
            node.broker.fence("dead")
        node.broker = None
        self._unlink(node)
        self._settle()

    def cut_link(self, node: Node) -> None:
        """The link breaks; both processes live and connect again."""
        assert node.broker is not None
        node.broker.fence("link lost")
        node.broker.epoch = 0
        self._unlink(node)
        self._link(node)
        self._settle()

    def reset_connections(self, node: Node) -> None:
        """A fault of the network: the node's connections to the controllers break, nobody is dead."""
        self.resets += 1
        self._reconnect(node)
        self._settle()

    def _reconnect(self, node: Node) -> None:
        node.lives += 1
        self._connection_closed(node)
        node.connection = node.number * 1000 + node.lives

    def stop(self, node: Node) -> None:
        """SIGTERM to the sidecar."""
        assert node.machine is not None
        self._do(node, node.machine.on_stop(self.now))
        self._settle()
        assert node.machine.role.at_rest
        if (farewell := node.machine.farewell(self.now)) is not None:
            self._beat(node, node.machine, farewell)
            self._settle()
        self.kill_sidecar(node)

    def run(self, seconds: float) -> None:
        """Let time go on."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for gone in self.heartbeats.expired(self.now):
                self._lost(gone)
            for _, time_out in [one for one in self._timeouts if one[0] <= self.now]:
                time_out()
            self._timeouts = [one for one in self._timeouts if one[0] > self.now]
            for node in self.nodes:
                machine = node.machine
                if machine is not None and not node.hung and machine.wake_at <= self.now:
                    self._later(node, lambda node=node, machine=machine: self._do(node, machine.on_tick(self.now)))
            self._settle()

    def run_until(self, what: Callable[[], bool], seconds: float = 30.0) -> None:
        end = self.now + seconds
        while not what():
            assert self.now < end, f"in vain: {self.describe()}"
            self.run(STEP)

    def accepting(self) -> list[Node]:
        """Nodes whose broker would take a send now."""
        return [
            node
            for node in self.nodes
            if node.broker is not None and node.broker.role == "master" and self.now < node.broker.lease_until
        ]

    def in_order(self) -> bool:
        """One master accepts, all others with both processes alive follow it, and all of these are in sync."""
        accepting = self.accepting()
        whole = [node for node in self.nodes if node.machine is not None and node.broker is not None and not node.hung]
        if len(accepting) != 1 or self.group is None or not all(node.linked for node in whole):
            return False
        if any(node.machine is None or node.machine.steward.broker_id is None for node in whole):
            return False
        master = accepting[0]
        slaves = [node for node in whole if node is not master]
        return self.group.sync_state_set == {BrokerId(node.broker_id) for node in whole} and all(
            isinstance(node.replicating, Follow) and node.replicating.master_broker_id == master.broker_id
            for node in slaves
        )

    def master(self) -> Node:
        (master,) = self.accepting()
        return master

    def want_set(self, node: Node, members: frozenset[int]) -> None:
        """Replication of `node` wants this SyncStateSet."""
        machine = node.machine
        assert machine is not None
        epoch = machine.steward.mandate.agreed.sync_state_set_epoch
        wanted = SyncStateSet(sync_state_set=members, sync_state_set_epoch=epoch)
        self._do(node, machine.on_sync_set_wanted(wanted, self.now))
        self._settle()

    def describe(self) -> str:
        lines = [f"now {self.now:.2f} leader {self.leader} group {self.group}"]
        for node in self.nodes:
            machine, broker = node.machine, node.broker
            state = None if machine is None else (machine.role.broker, machine.role.replicating, machine.wanted)
            lines.append(
                f"{node.number}: {state} broker {None if broker is None else (broker.role, broker.epoch)}"
                f" lock {node.lock} {node.replicating} {machine and machine.unready(self.now)}"
            )
        return "\n".join(lines)

    # The controllers

    def _answer(self, node: Node, ask: Ask) -> RemotingCommand | None:
        node.asked.append(ask.code)
        if ask.address in self.deaf:
            return None
        asked = request(ask.code, ask.header, ask.body)
        leads = ask.address == self.leader
        if ask.code is RequestCode.CONTROLLER_GET_METADATA_INFO:
            said = GetMetaDataResponseHeader(controller_leader_address=self.leader, is_leader=leads)
            return response(asked, ResponseCode.SUCCESS, None, said)
        if not leads:
            return response(asked, ResponseCode.CONTROLLER_NOT_LEADER)
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
            agreed = SyncStateSet(
                sync_state_set=body.sync_state_set or frozenset(),
                sync_state_set_epoch=elected.sync_state_set_epoch or 0,
            )
            notice = RoleNotice(elected.master_broker_id, elected.master_address, elected.master_epoch, agreed)
            for node in self.nodes:
                self._later(node, lambda node=node: self._notify(node, notice))
        return decision

    def _notify(self, node: Node, notice: RoleNotice) -> None:
        broker = node.broker
        there = node.machine is not None and node.linked and broker is not None and not broker.hung
        if there and not self.notices_lost:
            assert node.machine is not None
            self._do(node, node.machine.on_broker_said(notice, self.now))

    def _made(self, decision: Decision) -> Decision:
        for event in decision.events:
            before = self.group
            self.group = evolve(before, event)
            invariants.check_transition(before, event, self.group, Options())
            if self.group is not None:
                self.history.observe(self.group)
        return decision

    def _lost(self, key: BrokerKey) -> None:
        if self.leader is not None and self.group is not None and self.group.master_broker_id == key.broker_id:
            self._elect(ElectMasterRequestHeader(broker_name=NAME))

    def _connection_closed(self, node: Node) -> None:
        for gone in self.heartbeats.on_connection_closed(node.connection, self.now):
            self._lost(gone)

    # Links

    def _link(self, node: Node) -> None:
        if node.machine is None or node.broker is None or node.linked:
            return
        node.linked = True
        node.broker.inbox.clear()
        node.links += 1
        link = node.links

        def hello() -> None:
            if node.machine is not None and node.linked and node.links == link:
                said = Hello(PROTOCOL, CLUSTER, NAME, node.address, 0, node.max_offset, 0, FILE_SIZE)
                code = f"{node.address};{node.links}"
                self._do(node, node.machine.on_hello(said, code, self.now))

        self._later(node, hello)

    def _unlink(self, node: Node) -> None:
        if not node.linked:
            return
        node.linked = False
        machine = node.machine
        if machine is not None:
            self._later(node, lambda: self._do(node, machine.on_broker_gone(self.now)))

    # The machines

    def _later(self, node: Node, what: Callable[[], None]) -> None:
        self._todo.append((node, id(node.machine), what))

    def _do(self, node: Node, actions: Actions) -> None:
        for action in actions:
            self._later(node, lambda action=action: self._do_one(node, action))

    def _settle(self) -> None:
        waiting: list[tuple[Node, int, Callable[[], None]]] = []
        while self._todo:
            item = self._todo.popleft()
            node, machine, what = item
            if node.hung:
                waiting.append(item)
                continue
            if machine != id(node.machine) or node.machine is None:
                continue  # of an earlier life
            node.steps += 1
            if node.crash_at_step == node.steps:
                node.crashes += 1
                self.kill_sidecar(node)
                self.start_sidecar(node)
                continue
            what()
            self.check()
        self._todo.extend(waiting)

    def _do_one(self, node: Node, action: Action) -> None:
        machine = node.machine
        assert machine is not None
        try:
            self._perform(node, machine, action)
        except SimCrash:
            self._power_cut(node)
            self.kill_sidecar(node)
            self.start_sidecar(node)

    def _perform(self, node: Node, machine: ControlMachine, action: Action) -> None:
        done = told.describe(action)
        if done is not None:
            self.trace.append(f"{node.number}: {done}")
        match action:
            case Ask():
                connection = node.connection
                answer = self._answer(node, action)
                if connection != node.connection:
                    self._later(node, lambda: self._do(node, machine.on_answer(action, None, self.now)))
                elif action.address in self.deaf:
                    silent = self.now + CALL_TIMEOUT
                    self._timeouts.append((silent, lambda: self._time_out(node, machine, action)))
                else:
                    self._later(node, lambda: self._do(node, machine.on_answer(action, answer, self.now)))
            case Beat():
                self._beat(node, machine, action)
            case Disconnect():
                self._reconnect(node)
            case SaveApplied() | SaveIdentity() | ForgetApplied():
                error = self._store(node, action)
                self._later(node, lambda: self._do(node, machine.on_stored(action, error, self.now)))
            case Tell():
                node.told.append(action.message)
                self._tell(node, machine, action.message)
            case Note():
                node.notes.append(action)
            case Identified() | Opened():
                assert node.replicating is None
            case _:
                self._replicate(node, machine, action)

    def _time_out(self, node: Node, machine: ControlMachine, ask: Ask) -> None:
        if node.machine is machine:
            self._later(node, lambda: self._do(node, machine.on_answer(ask, None, self.now)))

    def _store(self, node: Node, action: SaveApplied | SaveIdentity | ForgetApplied) -> str | None:
        files = node.files()
        try:
            match action:
                case SaveApplied(applied):
                    files.save_applied(applied)
                case SaveIdentity(identity):
                    files.save_identity(identity)
                case ForgetApplied():
                    files.forget_applied()
        except StorageError as error:
            return str(error)
        return None

    def _beat(self, node: Node, machine: ControlMachine, beat: Beat) -> None:
        for address in beat.addresses:
            if address in self.deaf:
                continue
            if address == (self.leader or CONTROLLERS[1]):
                header = BrokerHeartbeatRequestHeader(
                    cluster_name=CLUSTER,
                    broker_addr=beat.broker_address,
                    broker_name=NAME,
                    broker_id=beat.broker_id,
                    epoch=node.epochs[-1],
                    max_offset=node.max_offset,
                    heartbeat_timeout_mills=10_000,
                    write_lease_millis=None if beat.lease is None else round(1000 * beat.lease),
                )
                self.heartbeats.on_heartbeat(header, node.connection, self.now)
            self._later(
                node,
                lambda address=address: self._do(node, machine.on_beat(address, beat.sent_at, self.now, taken=True)),
            )

    def _tell(self, node: Node, machine: ControlMachine, message: FromSidecar) -> None:
        broker = node.broker
        if broker is None or not node.linked:
            return
        if broker.hung:
            broker.inbox.append(message)
            return
        answer = broker.obey(message)
        if isinstance(message, Grant):
            assert self.granted.setdefault(message.epoch, node.number) == node.number, "OneMasterPerEpoch"
        if answer is not None:

            def said() -> None:
                if node.linked and node.broker is broker:
                    self._do(node, machine.on_broker_said(answer, self.now))

            self._later(node, said)

    def _replicate(self, node: Node, machine: ControlMachine, action: Action) -> None:
        match action:
            case Follow():
                assert node.lock in {None, "sidecar"}, "OneWriter: the broker still has the lock"
                node.lock, node.replicating = "sidecar", action
                self._join(node, action)
            case Begin():
                assert node.lock == "broker", "an epoch begins where the broker holds the lock"
                error = node.begin_fails
                if error is None:
                    assert action.epoch >= node.epochs[-1]
                    node.epochs.append(action.epoch)
                    node.replicating = action
                self._later(node, lambda: self._do(node, machine.on_begun(action.epoch, error, self.now)))
                for other in self.nodes:
                    if isinstance(other.replicating, Follow):
                        self._join(other, other.replicating)
            case StopReplication():
                if node.lock == "sidecar":
                    node.lock = None
                node.replicating = None
                self._later(node, lambda: self._do(node, machine.on_replication_stopped(self.now)))
            case SetRefused() | Adopt():
                self._later(node, lambda: self._wish(node))  # it wants what it wanted
            case _:
                raise AssertionError(action)

    def _join(self, node: Node, follow: Follow) -> None:
        """A slave has caught up, if its master has begun the epoch: then that one wants it in the set."""
        for master in self.nodes:
            begun = master.replicating
            if isinstance(begun, Begin) and begun.epoch == follow.epoch and master is not node:
                node.epochs.append(max(node.epochs[-1], follow.epoch))
                self._later(master, lambda master=master: self._wish(master))

    def _wish(self, master: Node) -> None:
        machine, begun = master.machine, master.replicating
        assert machine is not None
        if not isinstance(begun, Begin):
            return
        members = {
            other.broker_id
            for other in self.nodes
            if isinstance(other.replicating, Follow) and other.replicating.epoch == begun.epoch
        }
        epoch = machine.steward.mandate.agreed.sync_state_set_epoch
        wanted = SyncStateSet(sync_state_set=frozenset({master.broker_id, *members}), sync_state_set_epoch=epoch)
        self._do(master, machine.on_sync_set_wanted(wanted, self.now))

    def _power_cut(self, node: Node) -> None:
        node.crashes += 1
        node.disk.crash(self._rng)

    # Invariants, after every step

    def check(self) -> None:
        for node in self.nodes:
            broker = node.broker
            if broker is not None and broker.role == "master":
                assert node.lock == "broker", "OneWriter: a master without the lock"
            if isinstance(node.replicating, Follow):
                assert node.lock == "sidecar", "OneWriter: a follower without the lock"
        # A reset connection looks like a death: then it is the acknowledgements of the SyncStateSet that protect.
        assert self.resets or len(self.accepting()) <= 1, "OneWriter: two masters accept"
