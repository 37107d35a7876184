"""A group of control machines in virtual time: real machines, identity files on simulated disks, the controllers' real
domain; brokers and replication are a few lines each that keep the writer lock honest.

The controllers decide at once and forget nothing. What can go wrong is told by the test: answers or notices lost, power
cut in the middle of a file, sidecar or broker killed or hung, a process stopped before any step. After every step the
invariants are checked.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from rocketmq_controller.domain.model import BrokerId
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import PROTOCOL, FromSidecar, Grant, Hello, RoleNotice
from rocketmq_sidecar.domain import options as machine_options
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Ask,
    Beat,
    Disconnect,
    Follow,
    ForgetApplied,
    HandedOver,
    Identified,
    Note,
    Opened,
    SaveApplied,
    SaveIdentity,
    Tell,
)
from rocketmq_sidecar.domain.fence import Fence
from rocketmq_sidecar.domain.machine import STOP_HAND_OVER, ControlMachine
from tests.sidecar import told
from tests.sidecar.world_controllers import CONTROLLERS, Controllers
from tests.sidecar.world_node import CLUSTER, NAME, Broker, Node
from tests.sidecar.world_replication import Replications, Report
from tests.sim.disk import SimCrash

STEP = 0.02
FILE_SIZE = 65_536
CALL_TIMEOUT = 3.0


class World:
    """Everything there is."""

    def __init__(self, nodes: int = 3, *, seed: int = 0, relaxed: bool = False) -> None:
        self.now = 1000.0
        self.relaxed = relaxed
        self.nodes = [Node(number) for number in range(1, nodes + 1)]
        self.controllers = Controllers(self._notify_all)
        self.replications = Replications(self.nodes, self._report)
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
        node.machine = ControlMachine(options, identity=kept.identity, applied=kept.applied, fence=node.fence)
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

    def reset_connections(self, node: Node) -> None:
        """A fault of the network: the node's connections to the controllers break, nobody is dead."""
        self.resets += 1
        self._reconnect(node)
        self._settle()

    def _reconnect(self, node: Node) -> None:
        node.lives += 1
        self.controllers.on_connection_closed(node, self.now)
        node.connection = node.number * 1000 + node.lives

    def stop(self, node: Node) -> None:
        """SIGTERM to the sidecar."""
        assert node.machine is not None
        machine = node.machine
        self._do(node, machine.on_stop(self.now))
        self._settle()
        self.run_until(lambda: machine.at_rest, seconds=STOP_HAND_OVER + 0.1)
        if (farewell := node.machine.farewell(self.now)) is not None:
            self._beat(node, farewell)
            self._settle()
        self.kill_sidecar(node)

    def run(self, seconds: float) -> None:
        """Let time go on."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            self.controllers.on_tick(self.now)
            for _, time_out in [one for one in self._timeouts if one[0] <= self.now]:
                time_out()
            self._timeouts = [one for one in self._timeouts if one[0] > self.now]
            for node in self.nodes:
                machine = node.machine
                if machine is not None and not node.hung and machine.wake_at <= self.now:
                    self._report(node, lambda machine, now: machine.on_tick(now))
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
            if node.broker is not None
            and node.broker.role == "master"
            and node.broker.held is None
            and self.now < node.broker.lease_until
        ]

    def in_order(self) -> bool:
        """One master accepts, all others with both processes alive follow it, and all of these are in sync."""
        accepting = self.accepting()
        whole = [node for node in self.nodes if node.machine is not None and node.broker is not None and not node.hung]
        if len(accepting) != 1 or self.controllers.group is None or not all(node.linked for node in whole):
            return False
        if any(node.machine is None or node.machine.steward.broker_id is None for node in whole):
            return False
        master = accepting[0]
        slaves = [node for node in whole if node is not master]
        return self.controllers.group.sync_state_set == {BrokerId(node.broker_id) for node in whole} and all(
            isinstance(node.replicating, Follow) and node.replicating.master_broker_id == master.broker_id
            for node in slaves
        )

    def master(self) -> Node:
        (master,) = self.accepting()
        return master

    def fence(self, node: Node, fence: Fence | None) -> None:
        """An operator's order, kept on disk."""
        node.fence = fence
        assert node.machine is not None
        self._do(node, node.machine.on_fence(fence, self.now))
        self._settle()

    def hand_over(self, node: Node, to: Node | None = None, *, seconds: float = 5.0) -> None:
        """Ask `node` for it; how it ends is in `node.handed`."""
        assert node.machine is not None
        self._do(node, node.machine.on_hand_over(None if to is None else to.broker_id, seconds, self.now))
        self._settle()

    def catch_up(self, node: Node) -> None:
        """A slave that lagged does not any more."""
        node.lags = False
        self.replications.look()
        self._settle()

    def want_set(self, node: Node, members: frozenset[int]) -> None:
        """Replication of `node` wants this SyncStateSet."""
        machine = node.machine
        assert machine is not None
        epoch = machine.steward.mandate.agreed.sync_state_set_epoch
        wanted = SyncStateSet(sync_state_set=members, sync_state_set_epoch=epoch)
        self._do(node, machine.on_sync_set_wanted(wanted, self.now))
        self._settle()

    def describe(self) -> str:
        lines = [f"now {self.now:.2f} leader {self.controllers.leader} group {self.controllers.group}"]
        for node in self.nodes:
            machine, broker = node.machine, node.broker
            state = None if machine is None else (machine.role.broker, machine.role.replicating, machine.wanted)
            lines.append(
                f"{node.number}: {state} broker {None if broker is None else (broker.role, broker.epoch)}"
                f" lock {node.lock} {node.replicating} {machine and machine.unready(self.now)}"
            )
        return "\n".join(lines)

    # Links

    def notify(self, node: Node, notice: RoleNotice) -> None:
        """The broker is told of a master, and tells its sidecar."""
        self._later(node, lambda: self._notify(node, notice))

    def _notify_all(self, notice: RoleNotice) -> None:
        for node in self.nodes:
            self.notify(node, notice)

    def _notify(self, node: Node, notice: RoleNotice) -> None:
        broker = node.broker
        there = node.machine is not None and node.linked and broker is not None and not broker.hung
        if there and not self.notices_lost:
            assert node.machine is not None
            self._do(node, node.machine.on_broker_said(notice, self.now))

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
        done = told.describe(action)
        if done is not None:
            self.trace.append(f"{node.number}: {done}")
        match action:
            case Ask():
                self._ask(node, machine, action)
            case Beat():
                self._beat(node, action)
            case Disconnect():
                self._reconnect(node)
            case SaveApplied() | SaveIdentity() | ForgetApplied():
                error = node.store(action)
                self._report(node, lambda machine, now: machine.on_stored(action, error, now))
            case Tell():
                node.told.append(action.message)
                self._tell(node, action.message)
            case Note():
                node.notes.append(action)
            case HandedOver():
                node.handed.append(action)
            case Identified():
                assert node.replicating is None
            case Opened(hello):
                assert node.replicating is None
                lost = "files are missing" if hello.max_offset < node.mark else None
                self._report(node, lambda machine, now: machine.on_opened(hello, lost, now))
            case _:
                self.replications.perform(node, action)

    def _ask(self, node: Node, machine: ControlMachine, ask: Ask) -> None:
        node.asked.append(ask.code)
        connection = node.connection
        answer = self.controllers.answer(node, ask, self.now)
        if connection != node.connection:
            self._report(node, lambda machine, now: machine.on_answer(ask, None, now))
        elif ask.address in self.controllers.deaf:
            self._timeouts.append((self.now + CALL_TIMEOUT, lambda: self._time_out(node, machine, ask)))
        else:
            self._report(node, lambda machine, now: machine.on_answer(ask, answer, now))

    def _time_out(self, node: Node, machine: ControlMachine, ask: Ask) -> None:
        if node.machine is machine:
            self._report(node, lambda machine, now: machine.on_answer(ask, None, now))

    def _beat(self, node: Node, beat: Beat) -> None:
        for address in beat.addresses:
            if self.controllers.hear(node, beat, address, self.now):
                self._beaten(node, address, beat.sent_at)

    def _beaten(self, node: Node, address: str, sent_at: float) -> None:
        self._report(node, lambda machine, now: machine.on_beat(address, sent_at, now, taken=True))

    def _tell(self, node: Node, message: FromSidecar) -> None:
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
                    self._do(node, node.machine.on_broker_said(answer, self.now))

            self._later(node, said)

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
