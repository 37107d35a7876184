"""A group of control machines in virtual time: real machines, identity files on simulated disks, the controllers' real
domain; brokers and replication are a few lines each that keep the writer lock honest.

The controllers decide at once and forget nothing. The test sets what goes wrong: answers or notices lost, power
cut in the middle of a file, sidecar or broker killed or hung, a process stopped before any step. After every step the
invariants are checked.
"""

from collections.abc import Callable

from rocketmq_controller.domain.model import BrokerId
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain.actions import Follow
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.control.machine import STOP_HAND_OVER
from tests.sidecar.world.controllers import CONTROLLERS
from tests.sidecar.world.node import Node
from tests.sidecar.world.processes import Processes

STEP = 0.02


class World(Processes):
    """Everything there is, and the time."""

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node)

    def reset_connections(self, node: Node) -> None:
        """A fault of the network: the node's connections to the controllers break, no process ends."""
        self.resets += 1
        self._reconnect(node)
        self._settle()

    def stop(self, node: Node) -> None:
        """SIGTERM to the sidecar."""
        assert node.machine is not None
        machine = node.machine
        self._do(node, machine.on_stop(self.now))
        self._settle()
        self.run_until(lambda: machine.at_rest, seconds=STOP_HAND_OVER + 0.1)
        if (farewell := node.machine.final_heartbeat(self.now)) is not None:
            self._send_heartbeat(node, farewell)
            self._settle()
        self.kill_sidecar(node)

    def run(self, seconds: float) -> None:
        """Advance the time."""
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
            assert self.now < end, f"waited too long: {self.describe()}"
            self.run(STEP)

    def in_order(self) -> bool:
        """One master accepts, all others with both processes alive follow it, and all of these are in sync."""
        accepting = self.accepting()
        whole = [node for node in self.nodes if node.machine is not None and node.broker is not None and not node.hung]
        if len(accepting) != 1 or self.controllers.group is None or not all(node.linked for node in whole):
            return False
        if any(node.machine is None or node.machine.session.broker_id is None for node in whole):
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
        """A slave that lagged catches up."""
        node.lags = False
        self.replications.check()
        self._settle()

    def want_set(self, node: Node, members: frozenset[int]) -> None:
        """Replication of `node` wants this SyncStateSet."""
        machine = node.machine
        assert machine is not None
        epoch = machine.session.group.agreed.sync_state_set_epoch
        wanted = SyncStateSet(sync_state_set=members, sync_state_set_epoch=epoch)
        self._do(node, machine.on_proposal(wanted, self.now))
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


def settled(nodes: int = 3, *, relaxed: bool = False, seconds: float = 0) -> World:
    """A group in order, so many seconds ago."""
    world = World(nodes, relaxed=relaxed)
    world.start_all()
    world.run_until(world.in_order)
    world.run(seconds)
    return world


def others(world: World, node: Node) -> list[Node]:
    return [one for one in world.nodes if one is not node]


def all_down(world: World) -> None:
    """Kill all at the same instant, so that none leaves the SyncStateSet."""
    world.controllers.leader = None
    for node in world.nodes:
        world.kill(node)
    world.controllers.leader = CONTROLLERS[1]


def cut(node: Node, end: int) -> None:
    """It lost power, and its log ends there now."""
    node.max_offset = node.mark = end
    node.unproven = "lost power"
