"""The processes of a world and what passes between them: started, killed and linked; each machine's actions performed,
one turn after another; the invariants checked after every step. `world` adds time and what tests ask for.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from rocketmq_formats.replica_link import PROTOCOL, FromSidecar, Grant, Hello, LogState, RoleNotice
from rocketmq_sidecar.domain import options as machine_options
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Disconnect,
    Follow,
    ForgetApplied,
    HandedOver,
    Heartbeat,
    LogLine,
    OpenLog,
    Request,
    SaveApplied,
    SaveControllers,
    SaveIdentity,
    SendToBroker,
    SetBrokerId,
)
from rocketmq_sidecar.domain.control.machine import ControlMachine
from tests.sidecar.control import story_lines
from tests.sidecar.world.controllers import CONTROLLERS, Controllers
from tests.sidecar.world.node import CLUSTER, NAME, Broker, Node
from tests.sidecar.world.replication import Replications, Report
from tests.sim.disk import SimCrash

FILE_SIZE = 65_536
CALL_TIMEOUT = 3.0


class Processes:
    """Sidecars and brokers of all nodes, under the controllers."""

    def __init__(self, nodes: int = 3, *, seed: int = 0, relaxed: bool = False) -> None:
        self.now = 1000.0
        self.relaxed = relaxed
        self.nodes = [Node(number) for number in range(1, nodes + 1)]
        self.controllers = Controllers(self._notify_all)
        self.replications = Replications(self.nodes, self._report, strict=not relaxed)
        self.notices_lost = False
        self.trace: list[str] = []
        """What was done, for stories: heartbeats, polls and leases left out."""
        self.resets = 0
        self.granted: dict[int, int] = {}
        """Node number by epoch."""
        self._rng = Random(seed)
        self._timeouts: list[tuple[float, Callable[[], None]]] = []
        self._todo: deque[tuple[Node, int, Callable[[], None]]] = deque()

    # Processes and links

    def start(self, node: Node) -> None:
        """Start or restart both processes, the broker at another address."""
        self.start_sidecar(node)
        self.start_broker(node)

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
        node.machine = ControlMachine(
            options, identity=kept.identity, applied=kept.applied, controllers=kept.controllers, fence=node.fence
        )
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
            node.broker.lose_link()
        self.controllers.on_connection_closed(node, self.now)
        self.replications.slave_gone()
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
        node.broker.lose_link()
        self._unlink(node)
        self._link(node)
        self._settle()

    def _reconnect(self, node: Node) -> None:
        node.lives += 1
        self.controllers.on_connection_closed(node, self.now)
        node.connection = node.number * 1000 + node.lives

    def notify(self, node: Node) -> None:
        """1008 comes to the broker, from a controller or from a stranger, and it tells its sidecar."""
        self._later(node, lambda: self._notify(node))

    def looked(self, node: Node, state: LogState) -> None:
        """Its broker has read the log again."""
        node.log = state
        if node.machine is not None and node.linked:
            self._report(node, lambda machine, now: machine.on_log(state, now))

    def _notify_all(self) -> None:
        for node in self.nodes:
            self.notify(node)

    def _notify(self, node: Node) -> None:
        broker = node.broker
        there = node.machine is not None and node.linked and broker is not None and not broker.hung
        if there and not self.notices_lost:
            assert node.machine is not None
            self._do(node, node.machine.on_broker_message(RoleNotice(), self.now))

    def _link(self, node: Node) -> None:
        if node.machine is None or node.broker is None or node.linked:
            return
        node.linked = True
        node.broker.inbox.clear()
        node.links += 1
        link = node.links

        def hello() -> None:
            if node.machine is not None and node.linked and node.links == link:
                said = Hello(PROTOCOL, CLUSTER, NAME, node.address, 0, node.max_offset, 0, FILE_SIZE, node.log)
                code = f"{node.address};{node.links}"
                self._do(node, node.machine.on_hello(said, code, self.now))

        self._later(node, hello)

    def _unlink(self, node: Node) -> None:
        if not node.linked:
            return
        node.linked = False
        if node.machine is not None:
            self._report(node, lambda machine, now: machine.on_broker_gone(now))

    # The machines

    def _later(self, node: Node, what: Callable[[], None]) -> None:
        self._todo.append((node, id(node.machine), what))

    def _report(self, node: Node, what: Report) -> None:
        """Tell the node's machine what happened, in a turn of its own, and do what it says."""

        def turn() -> None:
            assert node.machine is not None
            self._do(node, what(node.machine, self.now))

        self._later(node, turn)

    def _do(self, node: Node, actions: Actions) -> None:
        for action in actions:
            self._later(node, partial(self._do_one, node, action))

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
        done = story_lines.describe(action)
        if done is not None:
            self.trace.append(f"{node.number}: {done}")
        match action:
            case Request():
                self._send_request(node, machine, action)
            case Heartbeat():
                self._send_heartbeat(node, action)
            case Disconnect():
                self._reconnect(node)
            case SaveApplied() | SaveIdentity() | ForgetApplied() | SaveControllers():
                error = node.store(action)
                self._report(node, lambda machine, now: machine.on_stored(action, error, now))
            case SendToBroker():
                node.told.append(action.message)
                self._send_to_broker(node, action.message)
            case LogLine():
                node.notes.append(action)
            case HandedOver():
                node.handed.append(action)
            case SetBrokerId():
                assert node.replicating is None
            case OpenLog(hello):
                assert node.replicating is None
                lost = "files are missing" if hello.max_offset < node.mark else None
                self._report(node, lambda machine, now: machine.on_log_opened(hello, lost, now, unproven=node.unproven))
            case _:
                self.replications.perform(node, action)

    def _send_request(self, node: Node, machine: ControlMachine, ask: Request) -> None:
        node.asked.append(ask.code)
        connection = node.connection
        answer = self.controllers.answer(node, ask, self.now)
        if connection != node.connection:
            self._report(node, lambda machine, now: machine.on_answer(ask, None, now))
        elif ask.address in self.controllers.deaf:
            self._timeouts.append((self.now + CALL_TIMEOUT, lambda: self._time_out(node, machine, ask)))
        else:
            self._report(node, lambda machine, now: machine.on_answer(ask, answer, now))

    def _time_out(self, node: Node, machine: ControlMachine, ask: Request) -> None:
        if node.machine is machine:
            self._report(node, lambda machine, now: machine.on_answer(ask, None, now))

    def _send_heartbeat(self, node: Node, beat: Heartbeat) -> None:
        for address in beat.addresses:
            if self.controllers.receive(node, beat, address, self.now):
                self._heartbeat_answered(node, address, beat.sent_at)

    def _heartbeat_answered(self, node: Node, address: str, sent_at: float) -> None:
        self._report(node, lambda machine, now: machine.on_heartbeat(address, sent_at, now, accepted=True))

    def _send_to_broker(self, node: Node, message: FromSidecar) -> None:
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
                if node.linked and node.broker is broker and node.machine is not None:
                    self._do(node, node.machine.on_broker_message(answer, self.now))

            self._later(node, said)

    def _power_cut(self, node: Node) -> None:
        node.crashes += 1
        node.disk.crash(self._rng)

    # Invariants, after every step

    def accepting(self) -> list[Node]:
        """Nodes whose broker would take a send now. Without a lease a strict one takes those that are acknowledged."""
        return [
            node
            for node in self.nodes
            if node.broker is not None
            and node.broker.role == "master"
            and node.broker.held is None
            and (self.now < node.broker.lease_until or (not self.relaxed and self._acknowledged(node)))
        ]

    def _acknowledged(self, master: Node) -> bool:
        """Whether every member of the set that it knows, at least two, follows it."""
        machine = master.machine
        if machine is None or master.hung or machine.session.broker_id is None:
            return False
        own_id = machine.session.broker_id
        following = {
            node.broker_id
            for node in self.nodes
            if isinstance(node.replicating, Follow) and node.replicating.master_broker_id == own_id and not node.hung
        }
        slaves = machine.session.group.agreed.sync_state_set - {own_id}
        return bool(slaves) and slaves <= following

    def check(self) -> None:
        for node in self.nodes:
            broker = node.broker
            if broker is not None and broker.role == "master":
                assert node.lock == "broker", "OneWriter: a master without the lock"
            if isinstance(node.replicating, Follow):
                assert node.lock == "sidecar", "OneWriter: a follower without the lock"
        # A reset connection looks like a death: then it is the acknowledgements of the SyncStateSet that protect.
        assert self.resets or len(self.accepting()) <= 1, "OneWriter: two masters accept"
